#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/adapipe.hpp"
#include "optpipe/schedule/builders/mario.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

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

TEST_CASE("they say what they lack") {
    const auto plain = to_problem(make_problem(graph<2, 4>{}, unit_memory{}));
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
