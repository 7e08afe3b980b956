#include "fakes/cuda.hpp"
#include "optpipe/execution/cuda/device.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/cuda/graph.hpp"
#include "optpipe/execution/cuda/green_contexts.hpp"
#include "optpipe/execution/cuda/range.hpp"
#include "optpipe/execution/cuda/slab.hpp"
#include "optpipe/execution/cuda/stream.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace cuda = optpipe::cuda;

namespace {

/// Copies along a chain of buffers, one stream each.
struct relay {
    std::array<std::array<char, 16>, 5> buffers{};
    std::vector<cuda::stream> streams;
    std::vector<cuda::event> arrived;

    relay() {
        std::strcpy(buffers[0].data(), "message");
        for (std::size_t i = 0; i + 1 < buffers.size(); ++i) {
            streams.emplace_back();
            arrived.emplace_back();
        }
    }
    /// After a failed call, copies of earlier calls may still be running, and the destructor of a stream doesn't wait
    /// for them.
    ~relay() { static_cast<void>(cudaDeviceSynchronize()); }

    void issue(bool wait) {
        for (std::size_t i = 0; i < streams.size(); ++i) {
            if (wait && i > 0) streams[i].wait(arrived[i - 1]);
            streams[i].copy(buffers[i + 1].data(), buffers[i].data(), 16, cudaMemcpyDeviceToDevice);
            streams[i].record(arrived[i]);
        }
    }
    void finish() {
        for (auto& s : streams)
            s.synchronize();
    }
    [[nodiscard]] std::string result() const { return buffers.back().data(); }
};

} // namespace

TEST_CASE("streams go on as they like but for the events that they wait for") {
    for (const bool wait : {true, false}) {
        fake_cuda::reset({.slow_kind = cudaMemcpyDeviceToDevice, .slow_number = 1, .slow_for = std::chrono::hours{1}});
        {
            relay r;
            r.issue(wait);
            if (!wait) // all streams but that of the held copy end
                for (std::size_t i = 1; i < r.streams.size(); ++i)
                    r.streams[i].synchronize();
            fake_cuda::release();
            CHECK((r.result() == "message") == wait); // in both cases, or the fake device would prove nothing
        }
        CHECK(fake_cuda::alive() == fake_cuda::census{});
    }
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        fake_cuda::reset({.seed = seed});
        relay r;
        r.issue(true);
        r.finish();
        CHECK(r.result() == "message");
    }
}

TEST_CASE("a failed call throws with its name, and leaves nothing behind") {
    for (const char* call : {"cudaStreamCreateWithPriority", "cudaEventCreateWithFlags", "cudaEventRecord",
                             "cudaStreamWaitEvent", "cudaMemcpyAsync", "cudaStreamSynchronize"}) {
        fake_cuda::reset({.failing_call = call, .failing_number = 2});
        try {
            relay r;
            r.issue(true);
            r.finish();
            FAIL("nothing failed");
        } catch (const cuda::error& e) {
            CHECK(std::string{e.what()} == std::string{call} + ": failed as the test wants it");
            CHECK(e.code() == cudaErrorUnknown);
        }
        CHECK(fake_cuda::alive() == fake_cuda::census{});
    }
}

TEST_CASE("an executor says how much device memory a plan may use") {
    fake_cuda::reset({.memory = 10'000});
    cuda::cluster one{1};
    auto& memory = one[optpipe::rank{0}].memory();
    CHECK(memory.available() == 10'000);
    {
        const auto weights = memory.device(6'000); // the engine's
        CHECK(memory.available() == 4'000);
        CHECK_THROWS_AS(static_cast<void>(memory.device(4'001)), cuda::error);
        CHECK(memory.device(4'000).memory().size() >= 4'000);
    }
    CHECK(memory.available() == 10'000);
    fake_cuda::reset({.failing_call = "cudaMemGetInfo"});
    CHECK_THROWS_WITH(static_cast<void>(memory.available()), "cudaMemGetInfo: failed as the test wants it");
}

TEST_CASE("the device of these tests notices what a real one may not") {
    const auto complaints_of = [](auto misuse) {
        fake_cuda::reset();
        misuse();
        return fake_cuda::complaints();
    };
    CHECK(complaints_of([] {
              cuda::stream s;
              const cuda::device_slab device{64};
              const cuda::pinned_slab host{64};
              s.copy(device.memory().data(), host.memory().data(), 64, cudaMemcpyHostToDevice);
              s.copy(host.memory().data(), device.memory().data(), 64, cudaMemcpyDeviceToHost);
              const cuda::event e;
              s.record(e);
              s.wait(e);
              s.synchronize();
          }) == std::vector<std::string>{});
    const auto after_its_end = complaints_of([] {
        cudaStream_t gone = cuda::stream{}.native();
        CHECK_THROWS_AS(cuda::stream_ref{gone}.synchronize(), cuda::error);
    });
    CHECK(after_its_end == std::vector<std::string>{"cudaStreamSynchronize: a stream that isn't there"});
    const auto unpinned = complaints_of([] {
        cuda::stream s;
        const cuda::device_slab device{64};
        std::array<char, 64> host{};
        s.copy(device.memory().data(), host.data(), 64, cudaMemcpyHostToDevice);
        s.synchronize();
    });
    CHECK(unpinned == std::vector<std::string>{"cudaMemcpyAsync, issued: from memory that isn't pinned",
                                               "cudaMemcpyAsync, run: from memory that isn't pinned"});
    const auto on_the_host = complaints_of([] {
        cuda::stream s;
        const cuda::device_slab device{64};
        std::array<char, 64> host{};
        s.copy(device.memory().data(), host.data(), 64, cudaMemcpyDeviceToDevice);
        s.synchronize();
    });
    CHECK(on_the_host.front() == "cudaMemcpyAsync, issued: from no device memory");
    const auto never_recorded = complaints_of([] {
        cuda::stream s;
        s.wait(cuda::event{});
    });
    CHECK(never_recorded == std::vector<std::string>{"cudaStreamWaitEvent: an event that was never recorded"});
}

TEST_CASE("timed events measure, plain ones are created without times") {
    fake_cuda::reset();
    cuda::stream s;
    const cuda::timed_event begin;
    const cuda::timed_event end;
    s.record(begin);
    s.record(end);
    s.synchronize();
    CHECK(begin.done());
    CHECK(end.milliseconds_since(begin) >= 0.0);
}

TEST_CASE("slabs are taken once and given back") {
    fake_cuda::reset({.memory = 1000});
    {
        const cuda::device_slab slab{600};
        CHECK(slab.memory().size() == 600);
        CHECK_THROWS_WITH_AS(cuda::device_slab{600}, "cudaMalloc: out of memory", cuda::error);
        cuda::pinned_slab host{5000};
        CHECK(host.memory().size() == 8192); // integral pages
        const auto moved = std::move(host);
        CHECK(fake_cuda::alive().pinned_ranges == 1);
        const cuda::pinned_slab none{0};
        CHECK(none.memory().empty());
    }
    CHECK(fake_cuda::alive() == fake_cuda::census{});

    fake_cuda::reset({.failing_call = "cudaHostRegister"});
    CHECK_THROWS_AS(cuda::pinned_slab{5000}, cuda::error);
    CHECK(fake_cuda::alive() == fake_cuda::census{});
}

TEST_CASE("a step is captured over all its streams and launched again and again") {
    fake_cuda::reset();
    {
        relay r;
        const cuda::event begin;
        auto step = cuda::graph::capture(r.streams.front(), [&] {
            r.issue(true);
            r.streams.front().wait(r.arrived.back());
        });
        CHECK(r.result().empty()); // nothing has run yet
        for (const char* text : {"first", "second"}) {
            std::strcpy(r.buffers[0].data(), text);
            step.launch(r.streams.front());
            r.finish();
            CHECK(r.result() == text);
        }
    }
    CHECK(fake_cuda::alive() == fake_cuda::census{});
}

TEST_CASE("a capture that isn't joined, or breaks off, ends with the reason") {
    fake_cuda::reset();
    {
        relay r;
        CHECK_THROWS_AS(cuda::graph::capture(r.streams.front(), [&] { r.issue(true); }), cuda::error);
        CHECK_THROWS_WITH(cuda::graph::capture(r.streams.front(),
                                               [&] {
                                                   r.issue(true);
                                                   throw std::runtime_error{"the model"};
                                               }),
                          "the model");
        // the stream is still usable
        r.issue(true);
        r.finish();
        CHECK(r.result() == "message");
    }
    CHECK(fake_cuda::alive() == fake_cuda::census{});
}

TEST_CASE("a device's multiprocessors are split, or it says that they don't suffice") {
    fake_cuda::reset();
    {
        const cuda::green_contexts parts{0, 4, 32};
        CHECK(parts.size() == 4);
        CHECK(parts.multiprocessors(3) == 32);
        auto s = parts.make_stream(2);
        const cuda::event e;
        s.record(e);
        s.synchronize();
        CHECK(e.done());
    }
    CHECK_THROWS_AS((cuda::green_contexts{0, 8, 24}), cuda::error); // 132 are enough for five of them
    CHECK(fake_cuda::alive() == fake_cuda::census{});
}

TEST_CASE("a machine without a GPU has none, and that is no error") {
    fake_cuda::reset({.devices = 0});
    CHECK(cuda::device_count() == 0);
    fake_cuda::reset({.devices = 2});
    CHECK(cuda::device_count() == 2);
    {
        const cuda::current_device second{1};
        int now = 0;
        cudaGetDevice(&now);
        CHECK(now == 1);
    }
    int now = 1;
    cudaGetDevice(&now);
    CHECK(now == 0);
    CHECK_THROWS_AS(cuda::current_device{5}, cuda::error);
    const cuda::range label{"PP:0F0"};
}
