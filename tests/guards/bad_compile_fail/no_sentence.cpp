#ifndef OPTPIPE_CONTROL
static_assert(false, "a sentence");
#endif
