// The communicators of the messages, and the number of multiprocessors that each may take.
#include "cuda/streamed.hpp"
#include "fakes/cuda.hpp"
#include "fakes/nccl.hpp"
#include "nccl/joined.hpp"
#include "optpipe/execution/nccl/executor.hpp"
#include "optpipe/execution/nccl/lowering.hpp"

#include <doctest/doctest.h>
#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using optpipe::rank;
namespace cuda = optpipe::cuda;
namespace nccl = optpipe::nccl;

namespace {

joined::outcome run(optpipe::message_lanes lanes, nccl::communicator_layout layout,
                    std::chrono::milliseconds patience) {
    const auto programs = streamed::small_programs(lanes);
    const auto id = nccl::world_id::make(layout);
    return joined::run(programs, {.patience = patience}, [&](rank r) {
        return std::make_unique<nccl::member>(id, r, programs.size(), joined::options_of(r, patience));
    });
}

TEST_CASE("four lanes on two communicators are refused, on four they run") {
    fake_cuda::reset();
    fake_nccl::reset();
    const auto refused = run(optpipe::message_lanes::separate, nccl::communicator_layout::per_direction, 500ms);
    // A rank at an end of the pipeline has only one lane for each.
    CHECK(
        refused.errors[1] ==
        "rank 1, loading its program: lanes that send and receive activations on one communicator would wait for each "
        "other: lower with message_lanes::per_direction or single, or join with communicator_layout::per_sender");
    CHECK(streamed::lines(fake_nccl::complaints()) == "");
    CHECK(fake_nccl::alive() == 0);

    fake_cuda::reset();
    fake_nccl::reset();
    const auto runs = run(optpipe::message_lanes::separate, nccl::communicator_layout::per_sender, 20s);
    CHECK(streamed::lines(runs.errors) == "\n\n\n");
    CHECK(streamed::lines(fake_nccl::complaints()) == "");
}

TEST_CASE("what is started from suits NCCL") {
    const auto how = nccl::lowering_defaults();
    CHECK(how.lanes == optpipe::message_lanes::per_direction);
    CHECK(how.receives == optpipe::receive_issue::when_due);
    CHECK(how.placement == optpipe::part_placement::contiguous);
    CHECK(how.alignment == 256);
    CHECK(how.host_part == cuda::options{}.pinned_part);
}

TEST_CASE("a communicator takes no more of the device than it may") {
    fake_cuda::reset();
    fake_nccl::reset();
    {
        const nccl::member one{
            nccl::world_id::make(), rank{0}, 1, {}, {.min_ctas = 1, .max_ctas = 2, .cga_cluster_size = 0}};
        const nccl::member other{nccl::world_id::make(), rank{0}, 1};
    }
    const auto made = fake_nccl::configurations();
    REQUIRE(made.size() == 4);
    for (const std::size_t i : {0U, 1U}) {
        CHECK(made[i].minCTAs == 1);
        CHECK(made[i].maxCTAs == 2);
        CHECK(made[i].cgaClusterSize == 0);
        CHECK(made[i + 2].minCTAs == NCCL_CONFIG_UNDEF_INT);
        CHECK(made[i + 2].maxCTAs == NCCL_CONFIG_UNDEF_INT);
        CHECK(made[i + 2].cgaClusterSize == NCCL_CONFIG_UNDEF_INT);
    }
}

TEST_CASE("exchanges that nobody waits for aren't remembered for ever") {
    fake_cuda::reset();
    fake_nccl::reset();
    const auto programs = streamed::small_programs(optpipe::message_lanes::per_direction);
    const auto id = nccl::world_id::make();
    constexpr std::size_t steps = 20;
    std::vector<std::jthread> ranks;
    for (const auto& p : programs)
        ranks.emplace_back([&] {
            streamed::model model{p.stages};
            nccl::member here{id, p.self, programs.size(), joined::options_of(p.self, 20s)};
            optpipe::runner<cuda::executor, streamed::model> mine{p, here.executor(), model};
            for (std::size_t k = 0; k < steps; ++k)
                mine.issue();
            here.executor().finish();
            CHECK(model.weights() == steps * p.microbatches);
        });
    ranks.clear();
    // One marker each, and for exchanges no more than the lanes hold in a step.
    std::size_t most = 0;
    std::size_t exchanges = 0;
    for (const auto& p : programs) {
        most += p.markers;
        for (const auto& i : p.instructions) {
            most += 2 + i.waits;
            exchanges += i.kind == optpipe::instruction_kind::exchange ? 1 : 0;
        }
    }
    REQUIRE(most < steps * exchanges);
    CHECK(fake_cuda::count("cudaEventCreateWithFlags") <= most);
    CHECK(streamed::lines(fake_nccl::complaints()) == "");
}

/// Communicators that block, as engines have them.
struct blocking_engine {
    blocking_engine(const nccl::world_id& id, int r, int ranks) {
        for (std::size_t i = 0; i < 2; ++i) {
            ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
            config.blocking = 1;
            REQUIRE(ncclCommInitRankConfig(&communicators[i], ranks, id.ids[i], r, &config) == ncclSuccess);
        }
    }
    nccl::borrowed_communicators lend() {
        return {communicators[0], communicators[1], [](ncclComm_t which) { static_cast<void>(ncclCommAbort(which)); }};
    }
    ncclComm_t communicators[2]{};
};

TEST_CASE("a thread that a blocking communicator holds up is set free when its peer doesn't come") {
    fake_cuda::reset();
    fake_nccl::reset({.allow_blocking = true});
    const auto id = nccl::world_id::make();
    std::string error;
    std::vector<std::jthread> ranks;
    for (int r = 0; r < 2; ++r)
        ranks.emplace_back([&, r] {
            blocking_engine mine{id, r, 2};
            if (r == 1) { // has no messages for rank 0
                for (auto* each : mine.communicators)
                    static_cast<void>(ncclCommDestroy(each));
                return;
            }
            try {
                const nccl::member here{mine.lend(), {.patience = 200ms}};
            } catch (const optpipe::execution_error& e) {
                error = e.what();
            }
        });
    ranks.clear();
    CHECK(error == "rank 0, joining the others: activations: rank 0 of 2: the first messages: not done after 200 ms");
    CHECK(streamed::lines(fake_nccl::complaints()) == "");
    CHECK(fake_nccl::alive() == 0);
}

} // namespace
