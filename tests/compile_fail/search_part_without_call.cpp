// expect: search part: needs .void operator..*search_board
#include "optpipe/testing/search_parts.hpp"

#ifdef OPTPIPE_CONTROL
using part = optpipe::testing::archetype::part;
#else
using part = optpipe::testing::mutant::part_without_call;
#endif
const auto any = optpipe::any_search_part{part{}};
