// The stage with which bench/gpu measures pairs: its copies run beside computation, but not before what they copy.
#include "../../bench/gpu/paired_stage.hpp"

#include "fakes/cuda.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/run.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/dual_pipe_v.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

using namespace optpipe;
using namespace std::chrono_literals;

namespace {

/// Computation that only sets its last byte.
struct setter {
    void operator()(cuda::stream_ref on, std::size_t, std::span<std::byte> memory, std::byte value) const {
        cuda::check(cudaMemsetAsync(memory.data(), std::to_integer<int>(value), 1, on.native()), "cudaMemsetAsync");
    }
};
using stage_type = gpu_bench::paired_stage<setter>;
using runner_type = runner<cuda::executor, stage_type>;

problem with_pairs() {
    constexpr std::size_t ranks = 2;
    const stage_costs costs{duration{1}, duration{1}, duration{1}, memory_size{64}, memory_size{64}, {}};
    problem p{to_any_graph(graph<dynamic, dynamic, placement::v>{ranks, 6}), per_stage<stage_costs>(2 * ranks, costs)};
    for (const stage f : p.graph.all_stages())
        for (const stage b : p.graph.all_stages())
            if (p.rank_of(f) == p.rank_of(b)) p.overlaps.add({f, b, overlap_kind::backward, duration{2}, {}});
    return p;
}

/// Three steps with `planned` pairs each.
void run(const per_rank<rank_program>& programs, std::size_t planned) {
    cuda::cluster cluster{2, {.patience = 20s, .record_times = true}};
    std::vector<std::unique_ptr<stage_type>> stages;
    std::vector<std::unique_ptr<runner_type>> runners;
    for (const auto& each : programs) {
        stages.push_back(std::make_unique<stage_type>(setter{}, gpu_bench::paired_work{1, 1, 1, 16}, 6, 64));
        runners.push_back(std::make_unique<runner_type>(each, cluster[each.self], *stages.back()));
    }
    constexpr std::size_t steps = 3;
    for (std::size_t step = 0; step < steps; ++step) {
        for (auto& each : runners)
            each->issue();
        cluster.finish();
        for (const auto& each : stages)
            CHECK(each->has_seen_all());
    }
    CHECK(stages[0]->pairs() + stages[1]->pairs() == steps * planned);
}

} // namespace

TEST_CASE("pairs on streams: every microbatch comes by, the host has each result, and nothing races") {
    const auto p = with_pairs();
    const auto s = *build_schedule(p, dual_pipe_v);
    std::size_t planned = 0;
    for_each_pair(s, [&](const timed_operation&, const timed_operation&) { ++planned; });
    REQUIRE(planned > 4);
    const auto programs = lower(p, s,
                                {.bytes_per_unit = 1.0,
                                 .message_bytes = 64,
                                 .lanes = message_lanes::per_direction,
                                 .placement = part_placement::contiguous});
    REQUIRE(programs);
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        CAPTURE(seed);
        fake_cuda::reset({.seed = seed, .log_accesses = true});
        run(*programs, planned);
        for (const auto& each : fake_cuda::races())
            FAIL_CHECK(each);
        CHECK(fake_cuda::alive() == fake_cuda::census{});
    }
}
