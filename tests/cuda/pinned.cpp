// Host memory that is pinned in several parts, near the device.
#include "cuda/streamed.hpp"
#include "fakes/cuda.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/cuda/lowering.hpp"
#include "optpipe/execution/cuda/numa.hpp"
#include "optpipe/execution/cuda/slab.hpp"
#include "optpipe/execution/run.hpp"

#include <doctest/doctest.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using optpipe::rank;
namespace cuda = optpipe::cuda;

namespace {

constexpr std::size_t part = std::size_t{64} << 10U;

TEST_CASE("copies to and from memory that is pinned in parts never reach over an end of one") {
    constexpr std::size_t size = 3 * part - 1000;
    fake_cuda::reset();
    {
        cuda::options how{.patience = 20s};
        how.pinned_part = part;
        cuda::cluster one{1, how};
        auto& on = one[rank{0}];
        auto device = on.memory().device(size);
        auto host = on.memory().host(2 * size);
        CHECK(fake_cuda::alive().pinned_ranges == 6);
        for (std::size_t i = 0; i < size; ++i)
            host.memory()[i] = static_cast<std::byte>(i % 251);
        auto lane = on.open_lane(optpipe::lane_kind::copy, 4);
        const optpipe::execution::copy_piece in{device.memory(), host.memory().first(size)};
        const optpipe::execution::copy_piece out{host.memory().subspan(size, size), device.memory()};
        on.copies().copy(lane, optpipe::execution::copy_direction::in, {}, {&in, 1});
        on.copies().copy(lane, optpipe::execution::copy_direction::out, {}, {&out, 1});
        on.finish();
        bool same = true;
        for (std::size_t i = 0; i < size; ++i)
            same = same && host.memory()[size + i] == static_cast<std::byte>(i % 251);
        CHECK(same);
    }
    CHECK(fake_cuda::complaints() == std::vector<std::string>{});
    CHECK(fake_cuda::alive() == fake_cuda::census{});
}

/// The number of copies that a step puts into streams, with host memory pinned in parts of this size.
std::size_t copies_of_step(const optpipe::per_rank<optpipe::rank_program>& programs, std::size_t pinned_part) {
    using cuda_runner = optpipe::runner<cuda::executor, streamed::model>;
    fake_cuda::reset();
    cuda::cluster cluster{programs.size(), {.patience = 20s, .pinned_part = pinned_part}};
    std::vector<std::unique_ptr<streamed::model>> models;
    std::vector<std::unique_ptr<cuda_runner>> runners;
    for (const auto& p : programs) {
        models.push_back(std::make_unique<streamed::model>(p.stages));
        runners.push_back(std::make_unique<cuda_runner>(p, cluster[p.self], *models.back()));
    }
    for (auto& each : runners)
        each->issue();
    cluster.finish();
    for (const auto& each : models)
        CHECK(each->complaint() == "");
    CHECK(streamed::lines(fake_cuda::complaints()) == "");
    return fake_cuda::count("cudaMemcpyAsync");
}

TEST_CASE("a program that knows of the parts has each stash in one of them, and copies it whole") {
    auto how = cuda::lowering_defaults();
    how.bytes_per_unit = 20'000.0; // three stashes in two parts
    how.message_bytes = 24;
    CHECK(how.host_part == cuda::options{}.pinned_part);
    const auto plain = streamed::offloading_programs(how);
    how.host_part = part;
    const auto aware = streamed::offloading_programs(how);
    CHECK(std::any_of(aware.begin(), aware.end(), [](const auto& p) { return p.host_bytes > part; }));
    const auto whole = copies_of_step(plain, cuda::pinned_part_bytes);
    CHECK(copies_of_step(aware, part) == whole);
    CHECK(copies_of_step(plain, part) > whole);
}

TEST_CASE("memory that fits into a part is pinned by one call, and more of it from the beginning of one") {
    fake_cuda::reset();
    for (int i = 0; i < 20; ++i) { // wherever the system puts them
        const cuda::pinned_slab small{part, {.part = part}};
        CHECK(fake_cuda::alive().pinned_ranges == 1);
        const cuda::pinned_slab large{3 * part + 1, {.part = part}};
        CHECK(fake_cuda::alive().pinned_ranges == 1 + 4);
    }
}

TEST_CASE("the device of these tests refuses a copy over the end of a registration") {
    fake_cuda::reset();
    cuda::stream s;
    const cuda::pinned_slab host{2 * part, {.part = part}};
    const cuda::device_slab device{2 * part};
    CHECK_THROWS_AS(s.copy(device.memory().data(), host.memory().data(), 2 * part, cudaMemcpyHostToDevice),
                    cuda::error);
}

TEST_CASE("the processors of a node are those of the system's list") {
    const auto root = std::filesystem::temp_directory_path() / "optpipe-numa-nodes";
    std::filesystem::create_directories(root / "node1");
    std::ofstream{root / "node1" / "cpulist"} << "0-2,8,10-11\n";
    CHECK(cuda::detail::processors_of_node(1, root) == std::vector{0, 1, 2, 8, 10, 11});
    CHECK(cuda::detail::processors_of_node(0, root).empty());
    CHECK(cuda::detail::processors_of_node(-1, root).empty());
    std::filesystem::remove_all(root);
}

TEST_CASE("pages are touched on the processors that are near the device") {
    cpu_set_t allowed;
    REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    std::vector<int> one;
    for (int i = CPU_SETSIZE - 1; i >= 0 && one.empty(); --i)
        if (CPU_ISSET(static_cast<std::size_t>(i), &allowed)) one.push_back(i);
    std::mutex mutex;
    std::size_t done = 0;
    cuda::detail::divide_among(1000, one, [&](std::size_t from, std::size_t to) {
        cpu_set_t mine;
        const std::scoped_lock lock{mutex};
        CHECK(sched_getaffinity(0, sizeof mine, &mine) == 0);
        CHECK(CPU_COUNT(&mine) == 1);
        CHECK(CPU_ISSET(static_cast<std::size_t>(one.front()), &mine));
        done += to - from;
    });
    CHECK(done == 1000);
    fake_cuda::reset({.numa_node = 0});
    cuda::memory near{0, part, nullptr};
    CHECK(near.host(100).memory().size() == 4096);
    CHECK(fake_cuda::count("cudaDeviceGetAttribute") == 1);
}

} // namespace
