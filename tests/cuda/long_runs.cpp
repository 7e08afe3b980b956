// The memory of a run doesn't grow with its steps, and too many lanes cause a warning.
#include "cuda/streamed.hpp"
#include "fakes/cuda.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/cuda/progress.hpp"
#include "optpipe/execution/stage_model.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using optpipe::rank;
namespace cuda = optpipe::cuda;

namespace {

TEST_CASE("what is under way is remembered for as many commands as a lane holds") {
    fake_cuda::reset();
    cuda::stream s;
    const cuda::event e;
    cuda::detail::progress issued{4};
    const auto label = [](std::size_t m) {
        return optpipe::task_label{
            optpipe::task_label::task_kind::operation, forward(optpipe::stage{0}, optpipe::microbatch{m}), {}};
    };
    for (std::size_t m = 0; m < 100; ++m)
        issued.put(label(m));
    CHECK(issued.size() == 4);
    CHECK(issued.first_open()->label == label(96));
    s.record(e);
    s.synchronize();
    issued.record(e);
    CHECK(!issued.first_open());
}

TEST_CASE("more lanes than the device has queues are warned of, once") {
    fake_cuda::reset();
    std::vector<std::string> warnings;
    cuda::options how;
    how.warn = [&](const std::string& text) { warnings.push_back(text); };
    cuda::cluster one{1, how};
    std::vector<cuda::lane> lanes;
    const auto open = [&](std::size_t count) {
        for (std::size_t i = 0; i < count; ++i)
            lanes.push_back(one[rank{0}].open_lane(optpipe::lane_kind::compute, 1));
    };
    const char* const given = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    const std::string before = given ? given : "";
    ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "3", 1);
    open(3);
    CHECK(warnings.empty());
    open(2);
    REQUIRE(warnings.size() == 1);
    CHECK(warnings.front() == "4 lanes on device 0 share 3 hardware queues, in which they may wait for each other: set "
                              "CUDA_DEVICE_MAX_CONNECTIONS, to 32 at most, before CUDA starts");
    if (given)
        ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", before.c_str(), 1);
    else
        ::unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

TEST_CASE("a part of a stash in several pieces has no only one") {
    std::array<std::byte, 8> bytes{};
    const std::array<std::span<std::byte>, 2> pieces{std::span{bytes}.first(4), std::span{bytes}.last(4)};
    CHECK(optpipe::execution::contiguous({}).empty());
    CHECK(optpipe::execution::contiguous({pieces.data(), 1}).size() == 4);
    CHECK_THROWS_WITH(static_cast<void>(optpipe::execution::contiguous(pieces)),
                      "a part of a stash lies in several pieces: lower with part_placement::contiguous");
}

} // namespace
