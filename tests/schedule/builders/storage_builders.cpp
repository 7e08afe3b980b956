#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/pipeline_builder.hpp"
#include "optpipe/pipeline/slices.hpp"
#include "optpipe/schedule/builders/adapipe.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/builders/infinipipe.hpp"
#include "optpipe/schedule/builders/mario.hpp"
#include "optpipe/schedule/builders/sequence_1f1b.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace optpipe;
using namespace optpipe::literals;

/// Four ranks, eight microbatches; F, I and W take 1.
problem four_ranks(memory_size limit) {
    auto p =
        to_problem(make_problem(graph<4, 8>{}, uniform_memory{stage_costs{1_ms, 1_ms, 1_ms, 1_gb, 0_gb, {}}}, limit));
    for (auto& list : p.storage) {
        list.clear();
        list.push_back({"full", 0.1_gb, {}, 1_ms, {}, {}});
        list.push_back({"full-ahead", 0.1_gb, 1_ms, {}, {}, {}});
        list.push_back({"half", 0.5_gb, {}, 0.4_ms, {}, {}});
        list.push_back(keep_stash(p.costs[stage{0}]));
    }
    return p;
}
/// The option of each stage, such as "half half keep keep"; all microbatches have the same.
std::string options_of(const problem& p, const schedule& s) {
    per_stage<std::string> name(p.graph.stages());
    for (const auto& timed : s.operations) {
        auto& known = name[timed.op.stage];
        const std::string own{storage_of(p, timed.op).name.view()};
        CHECK((known.empty() || known == own));
        known = own;
    }
    std::string text;
    for (const auto& each : name)
        text += (text.empty() ? "" : " ") + each;
    return text;
}

/// Two sequences of `k` slices on `ranks` ranks. Of a whole sequence, F takes `forward` and B twice that; all of it can
/// be recomputed inside the backward, or ahead of it.
problem sliced_in_two(std::size_t ranks, std::size_t k, double forward, memory_size limit) {
    pipeline_builder model;
    const stage_costs costs{duration{forward}, duration{forward}, duration{forward}, 1_gb, 0.5_gb};
    for (std::size_t r = 0; r < ranks; ++r) {
        const storage_list<false> options{keep_stash(costs),
                                          {"full", 0.2_gb, {}, duration{forward}, {}, {}},
                                          {"full-ahead", 0.2_gb, duration{forward}, {}, {}, {}}};
        if (r == 0)
            model.add(rank{r}, costs, {}, options);
        else
            model.add(rank{r}, costs, {stage{r - 1}}, options);
    }
    auto p = model.build(2 * k);
    p.microbatches = slices(std::vector(2, 1.0), 0.0, k);
    p.memory_limit = per_rank<memory_size>(ranks, limit);
    p.split_backward = false;
    return p;
}
/// The option of each diagonal, in their order. Checks that all stashes on a diagonal have the same.
std::vector<std::string> diagonals_of(const problem& p, const schedule& made) {
    std::vector<std::string> diagonals(p.graph.stages() + p.graph.microbatches() - 1);
    for (const auto& timed : made.operations) {
        auto& known = diagonals[timed.op.stage.position() + timed.op.microbatch.position()];
        const std::string own{storage_of(p, timed.op).name.view()};
        CHECK((known.empty() || known == own));
        known = own;
    }
    return diagonals;
}

} // namespace

TEST_CASE("AdaPipe recomputes as little as the memory of each stage asks for") {
    const auto options_with = [](memory_size limit) {
        const auto p = four_ranks(limit);
        const auto built = build_schedule(p, adapipe);
        REQUIRE(built);
        CHECK(is_valid(p, *built));
        return options_of(p, *built);
    };
    CHECK(options_with(4_gb) == "keep keep keep keep");
    CHECK(options_with(3_gb) == "half keep keep keep");
    CHECK(options_with(2_gb) == "half half keep keep");
    CHECK(options_with(1_gb) == "full full half keep");
    const auto refused = build_schedule(four_ranks(0.3_gb), adapipe);
    CHECK(describe(refused.why()) == "rank 0 needs 0.4 of memory, its limit is 0.3");
}

TEST_CASE("Mario recomputes on all stages but the last, while they wait") {
    const auto p = four_ranks(1.3_gb);
    const auto built = build_schedule(p, mario);
    REQUIRE(built);
    CHECK(is_valid(p, *built));
    CHECK(options_of(p, *built) == "full-ahead full-ahead full-ahead keep");
    const auto m = measure(p, *built);
    const auto everywhere = build_uniform_schedule(p, one_forward_one_backward, *find_common_option(p, "full"));
    CHECK(m.objective < measure(p, *everywhere).objective);
}

TEST_CASE("InfiniPipe stores all stashes on a diagonal in one way, and recomputes as little as the memory asks for") {
    const auto rich = sliced_in_two(4, 4, 4.0, memory_size::unlimited());
    const auto kept = build_schedule(rich, infinipipe);
    REQUIRE(kept);
    CHECK(diagonals_of(rich, *kept) == std::vector<std::string>(11, "keep"));
    CHECK(objective_of(rich, *kept) == objective_of(rich, *build_schedule(rich, sequence_1f1b)));

    const auto tight = sliced_in_two(4, 4, 4.0, 1_gb);
    const auto made = build_schedule(tight, infinipipe);
    REQUIRE(made);
    CHECK(is_valid(tight, *made));
    const auto options = diagonals_of(tight, *made);
    CHECK(std::count(options.begin(), options.end(), "keep") > 2);
    CHECK(std::count(options.begin(), options.end(), "keep") < 11);
    const auto everywhere = build_uniform_schedule(tight, sequence_1f1b, *find_common_option(tight, "full"));
    CHECK(measure(tight, *made).objective < measure(tight, *everywhere).objective);
}

TEST_CASE("InfiniPipe's restriction is never better than the optimum") {
    std::size_t proven = 0, worse = 0;
    constexpr std::uint64_t seed = 1;
    const auto cases = oracle::random_cases(30);
    for (std::uint64_t i = 0; i < cases; ++i) {
        CAPTURE(i);
        random_numbers random{seed + i};
        auto p = sliced_in_two(2, 2, 2.0 * static_cast<double>(1 + random.below(3)),
                               memory_size{0.5 + 0.25 * static_cast<double>(random.below(5))});
        p.change_stage(stage{1},
                       [&](stage_costs& c) { c.forward = duration{2.0 * static_cast<double>(1 + random.below(3))}; });
        const auto made = build_schedule(p, infinipipe);
        const auto best = oracle::exhaustive_optimum(p, 1.0);
        if (!made || !best.proven) continue;
        REQUIRE(best.objective);
        CHECK(is_valid(p, *made));
        diagonals_of(p, *made);
        CHECK(objective_of(p, *made).value() >= *best.objective - 1e-9);
        ++proven;
        worse += objective_of(p, *made).value() > *best.objective + 1e-9 ? 1U : 0U;
    }
    CHECK(proven > cases / 3);
    CHECK(worse > 0);
}

TEST_CASE("they say what they lack") {
    const auto plain = to_problem(make_problem(graph<2, 4>{}, unit_memory{}));
    CHECK(describe(build_schedule(plain, infinipipe).why()) == "InfiniPipe is for sequences that are cut into slices");
    CHECK(describe(build_schedule(plain, mario).why()) ==
          "stage 0 has no storage option that recomputes ahead of the backward");
    CHECK(build_schedule(plain, adapipe));
    const auto v = to_problem(make_problem(graph<2, 4, placement::v>{}, unit_memory{}));
    CHECK(describe(build_schedule(v, mario).why()) == "Mario is for one stage per rank");
    CHECK(describe(build_schedule(v, adapipe).why()) == "AdaPipe is for one stage per rank");
}

TEST_CASE("what they make is valid") {
    int made = 0;
    for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p = oracle::make_random_problem(random, {.storage_percent = 100}).problem;
        const auto check = [&](const auto& build) {
            const auto s = build_schedule(p, build);
            if (!s) {
                CHECK(s.why().reason != refusal_reason::not_executable);
                return;
            }
            ++made;
            CHECK(is_valid(p, *s));
            CHECK(oracle::judge(p, *s).text() == "");
        };
        check(adapipe);
        check(mario);
    }
    CHECK(made > 100);
}

TEST_CASE("every builder ends with a valid schedule or a refusal, whatever storage options there are") {
    std::size_t built = 0;
    std::size_t refused = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(200); ++i) {
        CAPTURE(i);
        oracle::random_numbers random{i * 1'000'003 + 7};
        const auto p = oracle::make_random_problem(random, {.storage_percent = 100}).problem;
        for_each_builder([&](const auto& build) {
            CAPTURE(build.name);
            const auto found = build_schedule(p, build);
            ++(found ? built : refused);
            if (found) CHECK(is_valid(p, *found));
        });
    }
    CHECK(built > oracle::random_cases(200));
    CHECK(refused > oracle::random_cases(200));
}
