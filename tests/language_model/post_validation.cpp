// Training without a barrier at the optimizer's step leaves the same parameters as training without a pipeline, bit for
// bit: with overflows on any stage in any step, and with gradients that are scaled down.
#include "language_model/post_validated_training.hpp"
#include "optpipe/execution/threads/run.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "oracle/random_cases.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

namespace {

using namespace std::chrono_literals;
using training::reversible_case;
namespace ex = optpipe::execution;

struct piped_training {
    training::parameter_values parameters;
    std::vector<double> losses;
    std::size_t voids = 0;
};
piped_training train_on_threads(const optpipe::problem& p, const optpipe::schedule& s, const reversible_case& how) {
    const auto programs = training::updating_programs(p, s);
    auto stages = training::fresh_stages(s.graph.stages());
    std::vector<std::unique_ptr<training::overflowing_model>> models;
    for (std::size_t r = 0; r < p.graph.ranks(); ++r)
        models.push_back(std::make_unique<training::overflowing_model>(stages, p.graph.microbatches(), how.overflows));
    optpipe::threads::options quick;
    quick.patience = 20s;
    optpipe::threads::cluster cluster{p.graph.ranks(), quick};
    std::vector<std::size_t> voids(p.graph.ranks());
    optpipe::threads::on_all_ranks(cluster, [&](optpipe::threads::executor& here) {
        const auto at = here.self().position();
        voids[at] = training::train_rank(programs[here.self()], here, cluster.control(here.self()), *models[at], how);
    });
    for (const auto each : voids)
        CHECK(each == voids.front());
    const auto last = p.graph.rank_of(optpipe::stage{p.graph.stages() - 1}).position();
    return {training::parameters_of(stages), models[last]->losses(), voids.front()};
}

/// The number of void steps over all cases: each case with both orders, or every other case with the two orders
/// alternately.
template <class Placement, class Build> std::size_t compare(std::size_t ranks, const Build& build) {
    const auto p = training::problem_with<Placement>(ranks, ranks + 2);
    const auto s = build_schedule(p, build);
    REQUIRE(s);
    std::size_t voids = 0;
    std::size_t turn = ranks / 2;
    for (auto& how : training::reversible_cases(*s)) {
        const auto alone = training::train_alone(*s, how);
        ++turn;
        for (const auto& order : {training::order_of_numbers(ranks), ex::order_of_ends(*s)}) {
            if (turn++ % oracle::stride(4) != 0) continue;
            how.options.order = order;
            const auto piped = train_on_threads(p, *s, how);
            CHECK(piped.parameters == alone.parameters);
            CHECK(piped.losses == alone.losses);
            CHECK(piped.voids == training::voids_in(*s, alone, how.options));
            voids += piped.voids;
        }
    }
    return voids;
}

} // namespace

TEST_CASE("on two ranks") { CHECK(compare<optpipe::placement::linear>(2, optpipe::one_forward_one_backward) > 0); }
TEST_CASE("on four ranks") { CHECK(compare<optpipe::placement::linear>(4, optpipe::zero_bubble_h2) > 0); }
TEST_CASE("with two stages on each") {
    CHECK(compare<optpipe::placement::v>(2, optpipe::zero_bubble_v) > 0);
    CHECK(compare<optpipe::placement::v>(4, optpipe::v_half) > 0);
}
