// expect: a sentence
static_assert(false, "a sentence");
