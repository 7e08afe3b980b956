#include "optpipe/execution/nccl/communicator.hpp"

#include "fakes/cuda.hpp"
#include "fakes/nccl.hpp"
#include "optpipe/execution/cuda/stream.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <span>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
namespace cuda = optpipe::cuda;
namespace nccl = optpipe::nccl;

namespace {

/// Runs `run` on `ranks` threads. Returns the error that each of them threw.
std::vector<std::string> on_ranks(int ranks, const std::function<void(int)>& run) {
    std::vector<std::string> errors(static_cast<std::size_t>(ranks));
    {
        std::vector<std::jthread> threads;
        for (int r = 0; r < ranks; ++r)
            threads.emplace_back([&, r] {
                try {
                    run(r);
                } catch (const optpipe::error& e) {
                    errors[static_cast<std::size_t>(r)] = e.what();
                }
            });
    }
    return errors;
}

std::span<std::byte> bytes_of(int& value) { return std::as_writable_bytes(std::span{&value, 1}); }

} // namespace

TEST_CASE("messages go round a ring, everybody sending and receiving in one group") {
    fake_cuda::reset();
    fake_nccl::reset();
    const auto id = nccl::communicator::make_id();
    std::array<int, 4> got{};
    const auto errors = on_ranks(4, [&](int r) {
        nccl::communicator c{id, r, 4, 20s};
        cuda::stream s;
        int mine = 100 + r;
        int& other = got[static_cast<std::size_t>(r)];
        nccl::batch group;
        group.send(c, bytes_of(mine), (r + 1) % 4, s.native());
        group.receive(c, bytes_of(other), (r + 3) % 4, s.native());
        group.close("the ring");
        s.synchronize();
        c.check_health("the ring");
    });
    CHECK(errors == std::vector<std::string>(4));
    CHECK(got == std::array{103, 100, 101, 102});
    CHECK(fake_nccl::alive() == 0);
    CHECK(fake_nccl::count("ncclCommAbort") == 0);
}

TEST_CASE("a rank that doesn't come is noticed by those that do, who then leave") {
    fake_cuda::reset();
    fake_nccl::reset();
    const auto id = nccl::communicator::make_id();
    const auto errors = on_ranks(2, [&](int r) { nccl::communicator{id, r, 3, 30ms, "forward"}; });
    CHECK(errors[1] == "forward: rank 1 of 3: ncclCommInitRankConfig: not done after 30 ms");
    CHECK(errors[0] == "forward: rank 0 of 3: ncclCommInitRankConfig: not done after 30 ms");
    CHECK(fake_nccl::alive() == 0);
    CHECK(fake_nccl::count("ncclCommAbort") == 2);
}

TEST_CASE("a failed message names rank and peer, and the communicator is aborted") {
    fake_cuda::reset();
    fake_nccl::reset({.failing_call = "ncclSend"});
    const auto id = nccl::communicator::make_id();
    const auto errors = on_ranks(2, [&](int r) {
        nccl::communicator c{id, r, 2, 20s, "backward"};
        if (r == 1) return;
        cuda::stream s;
        int value = 0;
        nccl::batch group;
        group.send(c, bytes_of(value), 1, s.native());
    });
    CHECK(errors[0] == "backward: rank 0 of 2: send to rank 1: failed as the test wants it");
    CHECK(errors[1].empty());
    CHECK(fake_nccl::alive() == 0);
    CHECK(fake_nccl::count("ncclCommAbort") == 1);
    CHECK(fake_nccl::count("ncclGroupEnd") == fake_nccl::count("ncclGroupStart"));
}

TEST_CASE("an argument that is wrong harms nothing") {
    fake_cuda::reset();
    fake_nccl::reset();
    const auto id = nccl::communicator::make_id();
    nccl::communicator c{id, 0, 1, 20s};
    cuda::stream s;
    int value = 0;
    {
        nccl::batch group;
        CHECK_THROWS_AS(group.send(c, bytes_of(value), 7, s.native()), nccl::error);
    }
    CHECK(c.healthy());
}

TEST_CASE("a peer that is lost later is reported at the next check") {
    fake_cuda::reset();
    fake_nccl::reset({.lost_after_groups = 1});
    const auto id = nccl::communicator::make_id();
    nccl::communicator c{id, 0, 1, 20s, "forward"};
    cuda::stream s;
    int there = 1;
    int back = 0;
    nccl::batch group;
    group.send(c, bytes_of(there), 0, s.native());
    group.receive(c, bytes_of(back), 0, s.native());
    CHECK_THROWS_WITH_AS(group.close("1F7"), "forward: rank 0 of 1: 1F7: a peer is gone", nccl::error);
    CHECK_FALSE(c.healthy());
}

TEST_CASE("after an abort, what waited for a peer is over") {
    fake_cuda::reset();
    fake_nccl::reset();
    const auto id = nccl::communicator::make_id();
    std::promise<void> sent;
    const auto errors = on_ranks(2, [&](int r) {
        nccl::communicator c{id, r, 2, 20s};
        cuda::stream s;
        int value = 0;
        for (int i = 0; i < 2 - r; ++i) { // the second time nobody sends
            nccl::batch group;
            if (r == 0)
                group.receive(c, bytes_of(value), 1, s.native());
            else
                group.send(c, bytes_of(value), 0, s.native());
            group.close("1F0");
        }
        if (r == 1) {
            s.synchronize();
            return sent.set_value();
        }
        sent.get_future().wait_for(20s); // otherwise the abort may withdraw the operation that rank 1 is about to match
        c.abort();
        s.synchronize(); // otherwise this would never return
        CHECK_FALSE(c.healthy());
    });
    CHECK(errors == std::vector<std::string>(2));
}
