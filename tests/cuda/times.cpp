// The times of tasks, with the resolution of the device, however long it has been running.
#include "cuda/streamed.hpp"
#include "fakes/cuda.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/run.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using optpipe::rank;
namespace cuda = optpipe::cuda;

namespace {

using cuda_runner = optpipe::runner<cuda::executor, streamed::model>;

struct one_rank {
    explicit one_rank(const cuda::options& how) : cluster{1, how} {
        optpipe::stage_costs each;
        each.forward = each.backward_input = each.backward_weight = optpipe::duration{1.0};
        each.activation = each.weight_stash = optpipe::memory_size{1.0};
        const optpipe::problem p{to_any_graph(optpipe::graph<1, 4>{}),
                                 optpipe::per_stage<optpipe::stage_costs>(1, each)};
        programs = *lower(p, *build_schedule(p, optpipe::one_forward_one_backward), {.bytes_per_unit = 64.0});
        runs = std::make_unique<cuda_runner>(programs[rank{0}], cluster[rank{0}], model);
    }
    optpipe::per_rank<optpipe::rank_program> programs;
    cuda::cluster cluster;
    streamed::model model{1};
    std::unique_ptr<cuda_runner> runs;
};

TEST_CASE("an hour on the device makes times no coarser") {
    fake_cuda::reset({.tick = 1us});
    one_rank now{{.patience = 20s, .record_times = true}};
    for (int step = 0; step < 3; ++step) {
        fake_cuda::advance_clock(1h);
        now.runs->forget_times();
        now.runs->step();
        const auto times = now.runs->times();
        CHECK(times.size() == now.programs[rank{0}].instructions.size());
        for (const auto& t : times) {
            // Each recorded event is one tick later; conversions round to nanoseconds.
            const auto off = (t.end - t.start) - 1us;
            CHECK(off <= 2ns);
            CHECK(off >= -2ns);
        }
    }
}

TEST_CASE("the times of several steps stay, and each event is asked once") {
    fake_cuda::reset();
    one_rank now{{.patience = 20s, .record_times = true}};
    const auto tasks = now.programs[rank{0}].instructions.size();
    now.runs->step();
    const auto first = now.runs->times();
    now.runs->step();
    CHECK(now.runs->times().size() == tasks); // for the first step: one per instruction
    for (std::size_t i = 0; i < tasks; ++i) {
        CHECK(now.runs->times()[i].start == first[i].start);
        CHECK(first[i].start <= first[i].end);
    }
    CHECK(fake_cuda::count("cudaEventElapsedTime") == 2 * 2 * tasks);
}

TEST_CASE("times count from the instant that all ranks share") {
    fake_cuda::reset();
    cuda::detail::rank_group group;
    group.begin -= 1000s;
    cuda::loopback messages;
    cuda::executor on{group, messages, {.patience = 20s, .record_times = true}, rank{0}, 1};
    auto lane = on.open_lane(optpipe::lane_kind::compute, 4);
    lane.launch({}, [](cuda::lane&) {});
    on.finish();
    REQUIRE(lane.times().size() == 1);
    CHECK(lane.times().front().start >= 1000s);
}

} // namespace
