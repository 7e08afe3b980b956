// expect: a wrong sentence
// expect: the right sentence
#ifndef OPTPIPE_CONTROL
static_assert(false, "a wrong sentence");
#endif
