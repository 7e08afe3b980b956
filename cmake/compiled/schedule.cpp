#define OPTPIPE_COMPILING OPTPIPE_UNIT_schedule
#include <optpipe/schedule/bounds/forward_only.hpp>
#include <optpipe/schedule/bounds/graph_bound.hpp>
#include <optpipe/schedule/bounds/holding_area.hpp>
#include <optpipe/schedule/bounds/lone_rank.hpp>
#include <optpipe/schedule/bounds/propagation.hpp>
#include <optpipe/schedule/bounds/structural_bounds.hpp>
#include <optpipe/schedule/builders/all.hpp>
#include <optpipe/schedule/construct/accumulation_order.hpp>
#include <optpipe/schedule/construct/carry_over.hpp>
#include <optpipe/schedule/construct/distinct_pairs.hpp>
#include <optpipe/schedule/construct/forward_only.hpp>
#include <optpipe/schedule/construct/forward_plan.hpp>
#include <optpipe/schedule/construct/injection.hpp>
#include <optpipe/schedule/construct/merge_pairs.hpp>
#include <optpipe/schedule/profile/cost_profile.hpp>
#include <optpipe/schedule/profile/drift.hpp>
#include <optpipe/schedule/profile/estimate.hpp>
#include <optpipe/schedule/profile/measured_costs.hpp>
#include <optpipe/schedule/time/differences.hpp>
#include <optpipe/schedule/time/evaluate.hpp>
#include <optpipe/schedule/time/measure.hpp>
#include <optpipe/schedule/time/noise.hpp>
#include <optpipe/schedule/time/simulate.hpp>
#include <optpipe/schedule/time/validate.hpp>

#include <tuple>
#include <vector>

// The templates for dynamic problems, once.

namespace optpipe {

outcome<schedule> simulate(const problem& p, const order& given) { return simulate<any_graph>(p, given); }
outcome<schedule> time_order(const problem& p, const order& given, stop_check stop) {
    return time_order<any_graph>(p, given, stop);
}
std::vector<violation> validate(const problem& p, const schedule& s, tolerance t) {
    return validate<any_graph>(p, s, t);
}
bool is_valid(const problem& p, const schedule& s, tolerance t) { return is_valid<any_graph>(p, s, t); }
measures measure(const problem& p, const schedule& s, tolerance t) { return measure<any_graph>(p, s, t); }
structural_bounds bounds_of(const problem& p, stop_check stop) { return bounds_of<any_graph>(p, stop); }
structural_bounds strong_bounds_of(const problem& p) { return strong_bounds_of<any_graph>(p); }

template <detail::own_builder Builder>
outcome<schedule> build_schedule(const problem& p, const Builder& build, stop_check stop) {
    return build_schedule<any_graph>(p, build, stop);
}

namespace detail {

template <class Builder> using build_call = outcome<schedule> (*)(const problem&, const Builder&, stop_check);
template <class... Builders> auto build_calls(const builder_list<Builders...>&) {
    return std::tuple{build_call<Builders>{&build_schedule<Builders>}...};
}
/// Never called: it instantiates `build_schedule` for all builders.
auto all_build_calls() {
    return std::tuple_cat(build_calls(all_builders), build_calls(storage_builders), build_calls(graph_builders));
}

} // namespace detail
} // namespace optpipe
