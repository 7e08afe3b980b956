// expect: a sentence
// never: a sentence
#ifndef OPTPIPE_CONTROL
#error "a sentence"
#endif
