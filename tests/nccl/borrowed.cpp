// An engine's own communicators and streams are used, and never destroyed.
#include "cuda/streamed.hpp"
#include "fakes/cuda.hpp"
#include "fakes/nccl.hpp"
#include "nccl/joined.hpp"

#include <doctest/doctest.h>

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

/// The communicators and streams of one rank of an engine.
struct engine {
    engine(const nccl::world_id& id, rank r, std::size_t ranks)
        : device{static_cast<int>(r.value())}, activations{id.ids[0], static_cast<int>(r.value()),
                                                           static_cast<int>(ranks), 20s},
          gradients{id.ids[1], static_cast<int>(r.value()), static_cast<int>(ranks), 20s} {
        const cuda::current_device here{device};
        streams.resize(16);
    }

    nccl::borrowed_communicators lend() {
        return {activations.native(), gradients.native(), [this](ncclComm_t which) {
                    ++ended;
                    (which == activations.native() ? activations : gradients).abort();
                }};
    }
    cuda::options options(std::chrono::milliseconds patience) {
        return {.device = device, .patience = patience, .streams = [this](rank, optpipe::lane_kind kind) {
                    return streams[static_cast<std::size_t>(kind)].native();
                }};
    }

    int device;
    nccl::communicator activations;
    nccl::communicator gradients;
    std::vector<cuda::stream> streams;
    int ended = 0;
};

std::vector<std::unique_ptr<engine>> engines(std::size_t ranks) {
    const auto id = nccl::world_id::make();
    std::vector<std::unique_ptr<engine>> all(ranks);
    std::vector<std::jthread> threads;
    for (const rank r : optpipe::index_range<rank>{ranks})
        threads.emplace_back([&, r] {
            const cuda::current_device here{static_cast<int>(r.value())};
            all[r.position()] = std::make_unique<engine>(id, r, ranks);
        });
    return all;
}

joined::outcome run(std::vector<std::unique_ptr<engine>>& all, const joined::plan& how) {
    return joined::run(streamed::small_programs(optpipe::message_lanes::per_direction), how, [&](rank r) {
        auto& mine = *all[r.position()];
        return std::make_unique<nccl::member>(mine.lend(), mine.options(how.patience));
    });
}

TEST_CASE("the engine has all that it had when the run is over, and runs again with it") {
    fake_cuda::reset();
    fake_nccl::reset();
    {
        auto all = engines(3);
        const auto before = fake_cuda::alive();
        for (int i = 0; i < 2; ++i) {
            const auto result = run(all, {});
            CHECK(result.errors == std::vector<std::string>(3));
            CHECK(result.complaints == std::vector<std::string>(3));
            CHECK(fake_cuda::alive() == before);
            CHECK(fake_nccl::alive() == 6);
        }
        CHECK(fake_nccl::count("ncclCommInitRankConfig") == 6);
        CHECK(fake_nccl::count("ncclCommDestroy") + fake_nccl::count("ncclCommAbort") == 0);
        for (const auto& each : all)
            CHECK(each->ended == 0);
    }
    CHECK(streamed::lines(fake_nccl::complaints()) == "");
    CHECK(fake_cuda::alive() == fake_cuda::census{});
    CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("if a rank is gone, the engine is asked to end each of its communicators, once") {
    fake_cuda::reset();
    fake_nccl::reset();
    {
        auto all = engines(3);
        const auto result = run(all, {.patience = 200ms, .steps = 2, .leaver = 1, .leaves_after = 1});
        CHECK(result.errors[0].find("rank 0, send of 0F0 to rank 1: not over after 200 ms") == 0);
        CHECK(all[0]->ended == 2);
        CHECK(all[1]->ended == 0);
        CHECK(all[2]->ended == 2);
        // The streams, which the engine goes on using, hold no work of the run.
        for (const auto& each : all)
            for (const auto& s : each->streams)
                CHECK(s.done());
        CHECK(fake_nccl::count("ncclCommDestroy") == 0);
    }
    CHECK(streamed::lines(fake_nccl::complaints()) == "");
    CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("communicators that don't go together, or with the device, are refused") {
    fake_cuda::reset({.devices = 2});
    fake_nccl::reset();
    auto one = std::move(engines(1).front());
    auto lent = one->lend();
    CHECK_THROWS_WITH(nccl::member(lent, {.device = 1}),
                      "rank 0, joining the others: communicators of device 0, to be used on device 1");
    lent.gradients = lent.activations;
    CHECK_THROWS_WITH(nccl::member(lent, {}),
                      "rank 0, joining the others: activations and gradients need a communicator each");
    auto pair = engines(2);
    lent.gradients = pair[0]->gradients.native();
    CHECK_THROWS_WITH(
        nccl::member(lent, {}),
        "rank 0, joining the others: the communicators of activations and gradients aren't of the same ranks");
    CHECK(one->ended == 0);
}

} // namespace
