// Problems, paths, least memory and the decisions of offload policies, in constant expressions.
#include "optpipe/pipeline/problem.hpp"

#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/paths.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace {

using optpipe::graph;
using optpipe::offload_decision;
using optpipe::rank;
using optpipe::stage;
using optpipe::stage_costs;
using optpipe::transfer_times;
namespace offload = optpipe::offload;
namespace placement = optpipe::placement;
using namespace optpipe::literals;

constexpr stage_costs costs{2_ms, 3_ms, 1_ms, 4_gb, 1_gb, transfer_times{5_ms, 6_ms}};
static_assert(costs.backward() == 4_ms && costs.work() == 6_ms && costs.can_offload());
static_assert(costs == stage_costs{2_ms, 3_ms, 1_ms, 4_gb, 1_gb, transfer_times{5_ms, 6_ms}});
static_assert(costs != stage_costs{2_ms, 3_ms, 1_ms, 4_gb, 1_gb, {}});

// A problem of static extents is a constant; its labels are views.
constexpr auto problem = make_problem(graph<2, 3>{}, optpipe::uniform_memory{costs}, 9_gb);
static_assert(problem.memory_limit[rank{1}] == 9_gb && problem.host_memory_limit[rank{1}].is_unlimited());
static_assert(problem.split_backward && problem.p2p.is_uniform() && problem.hop(stage{0}, stage{1}) == 0_ms);
static_assert(problem.transfer.engines == 1 && problem.transfer.link[rank{0}] != problem.transfer.link[rank{1}]);
static_assert(problem.is_first(stage{0}) && !problem.is_first(stage{1}) && problem.is_last(stage{1}));
static_assert(problem.load(rank{0}) == 18_ms && problem.gradient_time(stage{0}) == 3_ms);
static_assert(problem.memory_scale() == 9_gb);
static_assert(std::is_same_v<decltype(problem)::label, std::string_view>);
static_assert(std::is_same_v<optpipe::problem::label, std::string>);
static_assert(make_problem(graph<2, 3>{}, optpipe::unit_memory{}).memory_limit[rank{0}].is_unlimited());

template <class Policy> constexpr bool decides(const Policy& policy, offload_decision first, offload_decision second) {
    const auto v = make_problem(graph<1, 1, placement::v>{}, optpipe::uniform_memory{costs});
    const auto decisions = decisions_of(v, policy);
    return decisions[stage{0}] == first && decisions[stage{1}] == second;
}
static_assert(decides(offload::never{}, offload_decision::forbid, offload_decision::forbid));
static_assert(decides(offload::always{}, offload_decision::require, offload_decision::require));
static_assert(decides(offload::solver_decides{}, offload_decision::permit, offload_decision::permit));
static_assert(decides(offload::longest_lifespan_first{}, offload_decision::require, offload_decision::forbid));
static_assert(decides(offload::longest_lifespan_first{0.0}, offload_decision::forbid, offload_decision::forbid));
static_assert(decides(offload::longest_lifespan_first{1.0}, offload_decision::require, offload_decision::require));
static_assert(!decides(offload::never{}, offload_decision::permit, offload_decision::forbid));

// Half of three stages is two, and half of one stage is that stage.
static_assert(optpipe::storage_candidate{.position = 1, .stages_on_rank = 3}.is_among_longest(0.5));
static_assert(!optpipe::storage_candidate{.position = 2, .stages_on_rank = 3}.is_among_longest(0.5));
static_assert(optpipe::storage_candidate{.position = 0, .stages_on_rank = 1}.is_among_longest(0.5));

// A forbidden offload is removed from the problem.
constexpr auto never_offloaded = make_problem(graph<2, 3>{}, optpipe::uniform_memory{costs}, 9_gb, offload::never{});
static_assert(never_offloaded.storage_options(stage{0}) == 1 && problem.storage_options(stage{0}) == 2);

// A stage that can't be offloaded keeps its stashes, whatever the policy.
static_assert(decisions_of(never_offloaded, offload::always{})[stage{0}] == offload_decision::forbid);

// F F, I I: 2 + 2 + 3 + 3.
static_assert(paths_of(problem).lifespan[stage{0}] == 10_ms && paths_of(problem).lifespan[stage{1}] == 5_ms);
static_assert(paths_of(problem).forward_start[stage{1}] == 2_ms && paths_of(problem).gradient_start[stage{1}] == 4_ms);

// Two stages on one rank need both stashes, unless the first may leave.
constexpr auto both = make_problem(graph<1, 1, placement::v>{}, optpipe::uniform_memory{costs}, 4_gb, offload::never{});
constexpr auto either = make_problem(graph<1, 1, placement::v>{}, optpipe::uniform_memory{costs}, 4_gb);
static_assert(least_memory(both, rank{0}).needed == 8_gb && least_memory(both, rank{0}).options[0] == 0);
static_assert(least_memory(either, rank{0}).needed == 4_gb && least_memory(either, rank{0}).options[0] == 1);
static_assert(fits_one_at_a_time(either) && !fits_one_at_a_time(both));

// Links.
constexpr optpipe::transfer_rules<4> shared_links() {
    optpipe::transfer_rules<4> rules(4);
    rules.share_link(rank{0}, rank{1});
    rules.share_link(rank{2}, rank{3});
    rules.share_link(rank{1}, rank{2});
    return rules;
}
static_assert(shared_links().link == optpipe::per_rank<std::uint32_t, 4>(4, 0));

static_assert(optpipe::transfer_rules<4>(4).link[rank{3}] == 3);

// Times between ranks: zero on the same rank.
constexpr optpipe::hop_times<2> uniform{3_ms};
static_assert(uniform(rank{0}, rank{1}) == 3_ms && uniform(rank{1}, rank{1}) == 0_ms && uniform.is_uniform());

// A storage option that the policy doesn't allow is removed from the problem.
namespace storage = optpipe::storage;
constexpr auto both_ways = make_problem(graph<2, 3>{}, optpipe::uniform_memory{costs}, 9_gb, storage::solver_decides{});
static_assert(is_described_by_costs(both_ways) && both_ways.storage_options(stage{0}) == 2);
constexpr auto all_kept = make_problem(graph<2, 3>{}, optpipe::uniform_memory{costs}, 9_gb, storage::keep);
static_assert(is_described_by_costs(all_kept) && all_kept.storage_options(stage{0}) == 1);
constexpr auto all_offloaded = make_problem(graph<2, 3>{}, optpipe::uniform_memory{costs}, 9_gb, storage::offload);
static_assert(all_offloaded.storage_options(stage{1}) == 1 && all_offloaded.storage_of(stage{1}, 0).offloads());
static_assert((storage::keep | storage::offload) == storage::kinds{.keeps = true, .offloads = true});

// Storage options work in a constant, too.
constexpr auto with_storage_options() {
    auto p = make_problem(graph<2, 2>{}, optpipe::uniform_memory{stage_costs{2_ms, 3_ms, 1_ms, 4_gb, 1_gb, {}}}, 5_gb);
    for (auto& list : p.storage) {
        list.push_back({"full", 1_gb, 2_ms, {}, {}, {}});
        list.push_back({"half", 4_gb, {}, {}, 2_gb, transfer_times{5_ms, 6_ms}});
    }
    return p;
}
constexpr auto stored = with_storage_options();
static_assert(!is_described_by_costs(stored) && is_described_by_costs(problem));
static_assert(stored.storage_options(stage{1}) == 3 && problem.storage_options(stage{1}) == 2);
static_assert(stored.storage_of(stage{0}, 1).name == "full" && problem.storage_of(stage{0}, 1).name == "offload");
static_assert(stored.storage_of(stage{0}, 1).recomputes() && !stored.storage_of(stage{0}, 1).offloads());
static_assert(stored.storage_of(stage{0}, 1).restored(stored.costs[stage{0}]) == 4_gb);
static_assert(stored.storage_of(stage{0}, 2).left_on_device() == 2_gb);
static_assert(stored.longest_storage(stage{0}) == 11_ms && problem.longest_storage(stage{0}) == 11_ms);
static_assert(least_memory(stored, rank{0}).needed == 4_gb && fits_one_at_a_time(stored));
static_assert(restrict_storage(stored, storage::keep | storage::selective).storage_options(stage{0}) == 1);
static_assert(restrict_storage(stored, storage::keep | storage::full).storage_options(stage{0}) == 2);
static_assert(restrict_storage(stored, storage::uniform{"half"}).storage_of(stage{1}, 0).name == "half");
static_assert(restrict_storage(stored, storage::uniform{"none"}).storage_of(stage{1}, 0).name == "keep");

constexpr auto as_full = *find_common_option(stored, "full");
constexpr auto classic = uniform_problem(stored, as_full);
static_assert(is_described_by_costs(classic) && classic.costs[stage{1}].backward_input == 5_ms);
static_assert(classic.costs[stage{1}].activation == 1_gb && classic.memory_limit[rank{0}] == 2_gb);
constexpr auto recomputed =
    *simulate(stored, with_storage(stored, as_full, optpipe::one_forward_one_backward(classic.graph)));
static_assert(recomputed.operations.size() == 12 && is_valid(stored, recomputed));
static_assert(measure(stored, recomputed).recomputes == 4);
constexpr auto untranslated = *simulate(classic, optpipe::one_forward_one_backward(classic.graph));
static_assert(is_valid(classic, untranslated) && !is_valid(stored, untranslated));

} // namespace
