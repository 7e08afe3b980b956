#include "conformance/faults_of.hpp"
#include "fakes/cuda.hpp"
#include "optpipe/execution/cuda/executor.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using conformance::faults_of;
using optpipe::rank;
namespace cuda = optpipe::cuda;

namespace {

/// The device uses any order that events allow, so a few bytes are enough.
constexpr optpipe::testing::conformance_options small{.bytes = 512, .rounds = 4};

TEST_CASE("streams keep to the concepts, whatever they do first") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed)
        for (const auto ranks : {std::size_t{1}, std::size_t{2}, std::size_t{3}}) {
            CAPTURE(seed);
            CAPTURE(ranks);
            fake_cuda::reset({.seed = seed});
            {
                cuda::cluster all{ranks, {.patience = 20s}};
                auto how = small;
                how.by_cancel = seed % 2 == 1;
                CHECK(faults_of(ranks, how, [&](rank r) { return &all[r]; }) == "");
            }
            CHECK(fake_cuda::complaints() == std::vector<std::string>{});
            CHECK(fake_cuda::alive() == fake_cuda::census{});
        }
}

TEST_CASE("so do streams with times, and those of an engine") {
    fake_cuda::reset();
    {
        std::vector<cuda::stream> engine(2 * 16);
        cuda::options how{.patience = 20s, .record_times = true};
        how.streams = [&](rank r, optpipe::lane_kind kind) {
            return engine[16 * r.position() + static_cast<std::size_t>(kind)].native();
        };
        cuda::cluster all{2, how};
        CHECK(faults_of(2, small, [&](rank r) { return &all[r]; }) == "");
    }
    CHECK(fake_cuda::complaints() == std::vector<std::string>{});
    CHECK(fake_cuda::alive() == fake_cuda::census{});
}

// Executors with one mistake each, which the suite must find.

struct deaf_lane : cuda::lane {
    explicit deaf_lane(cuda::lane&& l) : cuda::lane{std::move(l)} {}
    void wait(const marker&) {}
};
struct mute_lane : cuda::lane {
    explicit mute_lane(cuda::lane&& l) : cuda::lane{std::move(l)} {}
    void record(marker&) {}
};
template <class Lane> struct executor_with : cuda::executor {
    using lane_type = Lane;
    using cuda::executor::executor;
    Lane open_lane(optpipe::lane_kind kind, std::size_t commands) {
        return Lane{cuda::executor::open_lane(kind, commands)};
    }
};
struct hasty_executor : cuda::executor {
    using cuda::executor::executor;
    void finish() {}
};
/// Copies end on another stream than the lane's.
struct stray_copies : cuda::copy_engine {
    cuda::stream* elsewhere;
    explicit stray_copies(cuda::stream& s) : elsewhere{&s} {}
    void copy(cuda::lane& on, optpipe::execution::copy_direction way, const optpipe::task_label& label,
              optpipe::execution::copy_pieces pieces) {
        if (way == optpipe::execution::copy_direction::out) return cuda::copy_engine::copy(on, way, label, pieces);
        for (const auto& [to, from] : pieces)
            elsewhere->copy(to.data(), from.data(), from.size(), cudaMemcpyHostToDevice);
    }
};
struct stray_executor : cuda::executor {
    using cuda::executor::executor;
    stray_copies copies() { return stray_copies{elsewhere_}; }

private:
    cuda::stream elsewhere_;
};

/// The suite's report on two such executors, on a device whose order depends on this seed.
template <class Executor> std::string faults_with(std::uint64_t seed) {
    fake_cuda::reset({.seed = seed});
    cuda::detail::rank_group group;
    cuda::loopback messages;
    const auto make = [&](rank r) {
        return std::make_unique<Executor>(group, messages, cuda::options{.patience = 5s}, r, std::size_t{2});
    };
    return faults_of(2, small, make);
}

/// Whether the suite reports this in any order of the device.
template <class Executor> bool is_always_found(const std::string& sentence) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        const auto text = faults_with<Executor>(seed);
        if (text.find(sentence) != std::string::npos) continue;
        MESSAGE("seed " << seed << ": " << sentence << "\nisn't among\n" << text);
        return false;
    }
    return true;
}

/// The same for a race with the host, which the device may win: found with one of many seeds.
template <class Executor> bool is_found(const std::string& sentence) {
    for (std::uint64_t seed = 1; seed <= 64; ++seed)
        if (faults_with<Executor>(seed).find(sentence) != std::string::npos) return true;
    return false;
}

TEST_CASE("mistakes are found") {
    CHECK(is_always_found<executor_with<deaf_lane>>("a lane doesn't wait for what another one has recorded"));
    CHECK(is_always_found<executor_with<mute_lane>>("a lane doesn't wait for what another one has recorded"));
#if !defined(__SANITIZE_THREAD__) // these race with the host, which is their mistake
    CHECK(is_found<hasty_executor>("doesn't do things in order, or `finish` returns too early"));
    CHECK(is_found<stray_executor>("doesn't do things in order, or `finish` returns too early"));
#endif
}

} // namespace
