// expect: storage policy: needs `bool allows\(const storage_candidate&\) const`
#include "optpipe/pipeline/make_problem.hpp"

struct policy {
#ifdef OPTPIPE_CONTROL
    constexpr bool allows(const optpipe::storage_candidate&) const { return true; }
#else
    constexpr bool allow(const optpipe::storage_candidate&) const { return true; }
#endif
};
const auto problem = make_problem(optpipe::graph<2, 2>{}, optpipe::unit_memory{}, optpipe::memory_size{1}, policy{});
