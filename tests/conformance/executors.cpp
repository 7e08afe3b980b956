#include "conformance/faults_of.hpp"
#include "optpipe/execution/threads/executor.hpp"
#include "optpipe/testing/trace_executor.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace {

using namespace std::chrono_literals;
using conformance::faults_of;
using optpipe::rank;
namespace threads = optpipe::threads;

TEST_CASE("threads keep to the concepts") {
    for (const auto ranks : {std::size_t{1}, std::size_t{2}, std::size_t{3}}) {
        CAPTURE(ranks);
        threads::cluster all{ranks, {.patience = 20s}};
        CHECK(faults_of(ranks, {}, [&](rank r) { return &all[r]; }) == "");
    }
}

TEST_CASE("so do slow links") {
    threads::options how{.patience = 20s};
    how.copies = threads::limited_copies(4e9, 2e9);
    how.messages = [](rank, rank, std::size_t) { return threads::nanoseconds{200us}; };
    how.transfer = optpipe::transfer_rules<>{2};
    how.transfer.share_link(rank{0}, rank{1});
    how.transfer.duplex = optpipe::duplex_kind::half;
    threads::cluster all{2, how};
    CHECK(faults_of(2, {}, [&](rank r) { return &all[r]; }) == "");
}

TEST_CASE("virtual time keeps to the concepts") {
    for (const auto ranks : {std::size_t{1}, std::size_t{2}, std::size_t{3}}) {
        CAPTURE(ranks);
        optpipe::testing::trace_world all{ranks, {.seed = 5}};
        const auto make = [&](rank r) { return std::make_unique<optpipe::testing::trace_executor>(all, r); };
        CHECK(faults_of(ranks, {.bytes = 4096}, make) == "");
    }
}

// Executors with one mistake each: the suite has to find it.

struct deaf_lane : threads::lane {
    explicit deaf_lane(threads::lane&& l) : threads::lane{std::move(l)} {}
    void wait(const marker&) {}
};
struct mute_lane : threads::lane {
    explicit mute_lane(threads::lane&& l) : threads::lane{std::move(l)} {}
    void record(marker&) {}
};
template <class Lane> struct executor_with : threads::executor {
    using lane_type = Lane;
    using threads::executor::executor;
    Lane open_lane(optpipe::lane_kind kind, std::size_t commands) {
        return Lane{threads::executor::open_lane(kind, commands)};
    }
};
struct one_way_copies : threads::copy_engine {
    explicit one_way_copies(threads::copy_engine& c) : threads::copy_engine{c} {}
    void copy_out(threads::lane&, const optpipe::task_label&, optpipe::execution::copy_pieces) {}
};
struct one_way_executor : threads::executor {
    using threads::executor::executor;
    one_way_copies copies() { return one_way_copies{threads::executor::copies()}; }
};
/// Gradients and activations in one queue, whichever comes first.
struct mixing_transport {
    threads::transport* inner;
    struct batch {
        threads::transport::batch* inner;
        static optpipe::task_label mixed(optpipe::task_label what) {
            what.op = forward(optpipe::stage{0}, optpipe::microbatch{0});
            return what;
        }
        void send(const optpipe::task_label& what, std::span<const std::byte> data) { inner->send(mixed(what), data); }
        void receive(const optpipe::task_label& what, std::span<std::byte> data) { inner->receive(mixed(what), data); }
    };
    template <class Messages> void exchange(threads::lane& on, const Messages& messages) {
        inner->exchange(on, [&](auto& open) {
            batch all{&open};
            messages(all);
        });
    }
};
struct mixing_executor : threads::executor {
    using threads::executor::executor;
    mixing_transport transport() { return {&threads::executor::transport()}; }
};
struct silent_executor : threads::executor {
    using threads::executor::executor;
    void finish() {
        try {
            threads::executor::finish();
        } catch (const optpipe::error&) {
        }
    }
};

/// What a cluster has beside its executors.
struct process {
    explicit process(std::size_t ranks) : all{ranks, {.patience = 5s}, board}, board{ranks, all.how, all.failed} {}
    threads::world all;
    threads::message_board board;
};

template <class Executor> bool is_found(const std::string& sentence) {
    process both{2};
    const auto text = faults_of(2, {}, [&](rank r) { return std::make_unique<Executor>(both.all, r); });
    INFO(text);
    return text.find(sentence) != std::string::npos;
}

// Some of them are races, which the thread sanitizer finds first.
#if defined(__SANITIZE_THREAD__)
constexpr bool races_are_reported = true;
#else
constexpr bool races_are_reported = false;
#endif

TEST_CASE("mistakes are found" * doctest::skip(races_are_reported)) {
    CHECK(is_found<executor_with<deaf_lane>>("a lane doesn't wait for what another one has recorded"));
    CHECK(is_found<executor_with<mute_lane>>("a lane doesn't wait for what another one has recorded"));
    CHECK(is_found<one_way_executor>("doesn't do things in order, or `finish` returns too early"));
    CHECK(is_found<mixing_executor>("a message isn't the one whose turn it is"));
    CHECK(is_found<silent_executor>("says nothing of an exception in work"));
}

} // namespace
