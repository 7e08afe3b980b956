#include "optpipe/schedule/construct/uniform_storage.hpp"

#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace {

using namespace optpipe;

/// One stage on each of two ranks, three microbatches.
problem two_ranks() {
    stage_costs c;
    c.forward = duration{10.0};
    c.backward_input = duration{10.0};
    c.backward_weight = duration{8.0};
    c.activation = memory_size{1.0};
    c.weight_stash = memory_size{0.5};
    problem p{to_any_graph(graph<2, 3>{}), per_stage<stage_costs>(2, c)};
    const transfer_times times{duration{4.0}, duration{5.0}};
    for (auto& list : p.storage) {
        list.push_back({"ahead", memory_size{0.25}, duration{3.0}, {}, {}, {}});
        list.push_back({"inside", memory_size{0.5}, {}, duration{2.0}, {}, {}});
        list.push_back({"offload", memory_size{1.0}, {}, {}, memory_size{1.0}, times});
        list.push_back({"half", memory_size{1.0}, {}, {}, memory_size{0.5}, times});
    }
    for (auto& limit : p.memory_limit)
        limit = memory_size{2.0};
    return p;
}
storage_by_stage<dynamic> named(const problem& p, std::string_view name) { return *find_common_option(p, name); }

storage_by_stage<dynamic> random_options(random_numbers& random, const problem& p) {
    storage_by_stage<dynamic> options(p.graph.stages());
    for (const stage s : p.graph.all_stages())
        options[s] = random.below(p.storage_options(s));
    return options;
}

constexpr oracle::problem_ranges with_lists{.storage_percent = 100};

/// The same problem with a list of only one storage option for each stage.
problem forced_storage(problem p, const storage_by_stage<dynamic>& options) {
    for (const stage s : p.graph.all_stages()) {
        const auto only = p.storage_of(s, options[s]);
        p.storage[s] = {only};
    }
    return p;
}

/// Turns an order of `forced_storage(p, options)` into one of `p`.
order from_forced_storage(const storage_by_stage<dynamic>& options, order forced) {
    for (auto& op : forced.operations)
        op.storage = static_cast<storage_index>(options[op.stage]);
    return forced;
}

} // namespace

TEST_CASE("recomputation ahead lengthens the gradient and lowers the limit") {
    const auto p = two_ranks();
    const auto classic = uniform_problem(p, named(p, "ahead"));
    CHECK(is_described_by_costs(classic));
    CHECK(classic.costs[stage{0}].activation == memory_size{0.25});
    CHECK(classic.costs[stage{0}].weight_stash == memory_size{0.5});
    CHECK(classic.costs[stage{0}].backward_input == duration{13.0});
    CHECK(classic.storage_options(stage{0}) == 1);
    CHECK(classic.memory_limit[rank{1}] == memory_size{1.25});
}

TEST_CASE("recomputation inside the gradient is exact") {
    const auto p = two_ranks();
    const auto classic = uniform_problem(p, named(p, "inside"));
    CHECK(classic.costs[stage{0}].activation == memory_size{0.5});
    CHECK(classic.costs[stage{0}].backward_input == duration{12.0});
    CHECK(classic.memory_limit[rank{1}] == memory_size{2.0});
}

TEST_CASE("the transfer of all that is held is a choice") {
    const auto p = two_ranks();
    for (const auto* name : {"keep", "offload"}) {
        const auto how = uniform_storage_of(p, stage{0}, named(p, name)[stage{0}]);
        CHECK(how.may_offload);
        CHECK(how.kept == 0);
        CHECK(how.offloaded == 3);
        CHECK(uniform_problem(p, named(p, name)).storage_of(stage{0}, 1).transfer->reload == duration{5.0});
    }
}

TEST_CASE("any other transfer surrounds the stash") {
    const auto p = two_ranks();
    const auto half = named(p, "half");
    const auto classic = uniform_problem(p, half);
    CHECK(classic.storage_options(stage{0}) == 1);
    CHECK(classic.costs[stage{0}].activation == memory_size{0.5});
    CHECK(classic.memory_limit[rank{0}] == memory_size{1.5});
    order one{p.graph, {}};
    one.operations = {forward(stage{0}, microbatch{0}), backward(stage{0}, microbatch{0})};
    std::string text;
    for (const auto& op : with_storage(p, half, one).operations)
        text += to_string(op) + ":" + std::to_string(op.storage) + " ";
    CHECK(text == "0F0:4 0OFFLOAD0:4 0RELOAD0:4 0B0:4 ");
}

TEST_CASE("names that every stage has") {
    auto p = two_ranks();
    REQUIRE(common_option_names(p).size() == 5);
    auto both = p.costs[stage{1}];
    both.transfer = transfer_times{duration{1.0}, duration{1.0}};
    p.set_stage(stage{1}, both);
    const auto names = common_option_names(p);
    REQUIRE(names.size() == 2);
    CHECK(names[0].view() == "keep");
    CHECK(names[1].view() == "offload");
    CHECK(named(p, "offload")[stage{0}] == 3);
    CHECK(named(p, "offload")[stage{1}] == 1);
    CHECK_FALSE(find_common_option(p, "half"));
}

TEST_CASE("of two options between which a builder decides, the first stands for both") {
    const auto p = two_ranks();
    const auto common = common_option_names(p);
    const auto distinct = uniform_choices(p);
    CHECK(distinct.size() < common.size());
    for (const auto& name : common) {
        const auto classic = uniform_problem(p, named(p, name.view()));
        const auto is_it = [&](const auto& other) {
            const auto same = uniform_problem(p, other.options);
            return same.costs == classic.costs && same.memory_limit == classic.memory_limit;
        };
        CHECK(std::count_if(distinct.begin(), distinct.end(), is_it) == 1);
    }
}

TEST_CASE("an order of the classic problem is one of the problem with its option") {
    std::uint64_t tried = 0;
    std::uint64_t offloaded = 0;
    std::uint64_t recomputed = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(2000); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p = oracle::make_random_problem(random, with_lists).problem;
        const auto options = random_options(random, p);
        const auto classic = uniform_problem(p, options);
        if (!fits_one_at_a_time(classic)) continue;
        const adaptive_builder<> quick{{}, 1};
        const auto order = random.chance(50) ? *quick(classic) : oracle::random_order(random, classic);
        const auto timed = simulate(classic, order);
        REQUIRE(timed);
        const auto translated = with_storage(p, options, order);
        const auto result = simulate(p, translated);
        bool always = false;
        for (const stage s : p.graph.all_stages())
            always = always || uniform_storage_of(p, s, options[s]).always_transfers;
        if (always && !result) {
            CHECK(result.why().reason == refusal_reason::over_host_memory);
            continue;
        }
        REQUIRE(result);
        CHECK(is_valid(p, *result));
        CHECK(is_valid(p, *time_order(p, translated)));
        const auto m = measure(p, *result);
        const bool moves = m.offloads > 0;
        if (!moves) CHECK(m.objective.value() <= doctest::Approx(measure(classic, *timed).objective.value()));
        ++tried;
        offloaded += m.offloads > 0 ? 1 : 0;
        recomputed += m.recomputes > 0 ? 1 : 0;
    }
    CHECK(tried >= oracle::random_cases(1000));
    CHECK(offloaded >= oracle::random_cases(200));
    CHECK(recomputed >= oracle::random_cases(200));
}

TEST_CASE("a problem with one option per stage is a part of the problem") {
    std::uint64_t tried = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(1000); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p = oracle::make_random_problem(random, with_lists).problem;
        const auto options = random_options(random, p);
        const auto forced = forced_storage(p, options);
        if (!fits_one_at_a_time(forced)) continue;
        const auto order = oracle::random_order(random, forced);
        const auto timed = simulate(forced, order);
        REQUIRE(timed);
        const auto same = simulate(p, from_forced_storage(options, order));
        REQUIRE(same);
        CHECK(is_valid(p, *same));
        CHECK(measure(p, *same).objective == measure(forced, *timed).objective);
        ++tried;
    }
    CHECK(tried >= oracle::random_cases(500));
}
