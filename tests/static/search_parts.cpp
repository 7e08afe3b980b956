#include "optpipe/testing/search_parts.hpp"

#include "optpipe/planner/part.hpp"

namespace {

namespace archetype = optpipe::testing::archetype;
namespace mutant = optpipe::testing::mutant;
using namespace optpipe;

static_assert(search_part<archetype::part>);
static_assert(!search_part<mutant::part_without_copy>);
static_assert(!search_part<mutant::part_without_name>);
static_assert(!search_part<mutant::part_with_numbered_name>);
static_assert(!search_part<mutant::part_without_call>);
static_assert(!search_part<mutant::part_with_mutable_call>);
static_assert(!search_part<mutant::part_with_result>);

static_assert(search_part<mutant::part_that_suits_nobody> && !has_suits<mutant::part_that_suits_nobody>);
static_assert(search_part<mutant::part_with_bare_effort> && !has_first_effort<mutant::part_with_bare_effort>);

} // namespace
