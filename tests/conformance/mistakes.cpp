// Executors with one mistake each. The suite must find every one, every time, even if few bytes are copied: premature
// actions happen while a lane is held, and stuck ones are given up.
#include "conformance/faults_of.hpp"
#include "execution/trace_executor.hpp"
#include "optpipe/execution/threads/executor.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using conformance::faults_of;
using optpipe::rank;
using optpipe::task_label;
using optpipe::execution::copy_direction;
using optpipe::execution::copy_pieces;
using optpipe::execution::message_ends;
namespace threads = optpipe::threads;

// Lanes and markers.

struct deaf_lane : threads::lane {
    explicit deaf_lane(threads::lane&& l) : threads::lane{std::move(l)} {}
    void wait(const marker&) {}
};
struct mute_lane : threads::lane {
    explicit mute_lane(threads::lane&& l) : threads::lane{std::move(l)} {}
    void record(marker&) {}
};
/// A marker is reached as soon as it is recorded.
struct premature_lane : threads::lane {
    explicit premature_lane(threads::lane&& l) : threads::lane{std::move(l)} {}
    void record(marker& m) { m.state().reach(m.state().record(), {}); }
};
/// The calling thread waits instead of the lane.
struct blocking_lane : threads::lane {
    explicit blocking_lane(threads::lane&& l) : threads::lane{std::move(l)} {}
    void wait(const marker& m) { m.state().await(m.state().recorded()); }
};
struct awaits {
    threads::marker_state* state;
    std::uint32_t count;
    void operator()(auto&) const { state->await(count); }
};
struct awaits_latest {
    threads::marker_state* state;
    void operator()(auto&) const { state->await(state->recorded()); }
};
/// A wait is for the latest record when the lane reaches it.
struct late_lane : threads::lane {
    explicit late_lane(threads::lane&& l) : threads::lane{std::move(l)} {}
    void wait(const marker& m) { launch({}, awaits_latest{&m.state()}); }
};
/// A marker that was reached once stays reached.
struct sticky_lane : threads::lane {
    explicit sticky_lane(threads::lane&& l) : threads::lane{std::move(l)} {}
    void wait(const marker& m) { launch({}, awaits{&m.state(), std::min(1U, m.state().recorded())}); }
};
/// Waits for a marker that was never recorded.
struct hoping_lane : threads::lane {
    explicit hoping_lane(threads::lane&& l) : threads::lane{std::move(l)} {}
    void wait(const marker& m) { launch({}, awaits{&m.state(), std::max(1U, m.state().recorded())}); }
};
/// Only the last of several waits counts.
struct forgetful_lane : threads::lane {
    explicit forgetful_lane(threads::lane&& l) : threads::lane{std::move(l)} {}
    void wait(const marker& m) { last = &m; }
    template <class Work> void launch(const task_label& label, const Work& work) {
        if (const auto* m = std::exchange(last, nullptr)) threads::lane::wait(*m);
        threads::lane::launch(label, work);
    }
    const marker* last = nullptr;
};
/// Only one lane continues when a marker is reached.
struct turnstile_lane : threads::lane {
    struct marker : threads::marker {
        explicit marker(threads::marker&& m) : threads::marker{std::move(m)} {}
        std::unique_ptr<std::uint32_t> passed = std::make_unique<std::uint32_t>(0);
    };
    explicit turnstile_lane(threads::lane&& l) : threads::lane{std::move(l)} {}
    void wait(const marker& m) {
        const auto count = m.state().recorded();
        if (count > 0) launch({}, awaits{&m.state(), *m.passed == count ? count + 1 : count});
        *m.passed = count;
    }
};
/// Every other piece of work overtakes those before it.
struct double_lane : threads::lane {
    double_lane(threads::lane&& l, threads::lane&& m) : threads::lane{std::move(l)}, second{std::move(m)} {}
    template <class Work> void launch(const task_label& label, const Work& work) {
        is_odd = !is_odd;
        if (is_odd)
            threads::lane::launch(label, work);
        else
            second.launch(label, work);
    }
    threads::lane second;
    bool is_odd = false;
};
/// Continues after work has failed, and reports the failure at the end.
struct undaunted_lane : threads::lane {
    template <class Work> struct tries {
        Work work;
        std::atomic<bool>* failed;
        void operator()(auto& on) const {
            try {
                work(on);
            } catch (const optpipe::error&) {
                failed->store(true);
            }
        }
    };
    explicit undaunted_lane(threads::lane&& l) : threads::lane{std::move(l)} {}
    template <class Work> void launch(const task_label& label, const Work& work) {
        threads::lane::launch(label, tries<Work>{work, failed});
    }
    std::atomic<bool>* failed = nullptr;
};

template <class Lane> struct executor_with : threads::executor {
    using lane_type = Lane;
    using threads::executor::executor;
    Lane open_lane(optpipe::lane_kind kind, std::size_t commands) {
        return Lane{threads::executor::open_lane(kind, commands)};
    }
    typename Lane::marker make_marker() { return typename Lane::marker{threads::executor::make_marker()}; }
};
struct unordered_executor : threads::executor {
    using lane_type = double_lane;
    using threads::executor::executor;
    double_lane open_lane(optpipe::lane_kind kind, std::size_t commands) {
        return {threads::executor::open_lane(kind, commands), threads::executor::open_lane(kind, commands)};
    }
};
struct undaunted_executor : threads::executor {
    using lane_type = undaunted_lane;
    using threads::executor::executor;
    undaunted_lane open_lane(optpipe::lane_kind kind, std::size_t commands) {
        undaunted_lane made{threads::executor::open_lane(kind, commands)};
        made.failed = &failed_;
        return made;
    }
    void finish() {
        threads::executor::finish();
        if (!failed_.load()) return;
        cancel("3B5", "on purpose");
        threads::executor::finish();
    }

private:
    std::atomic<bool> failed_{false};
};

// All lanes are the same.

struct shared_lane {
    using marker = threads::marker;
    threads::lane* all;
    template <class Work> void launch(const task_label& label, const Work& work) { all->launch(label, work); }
    void record(marker& m) { all->record(m); }
    void wait(const marker& m) { all->wait(m); }
};
struct shared_copies {
    threads::copy_engine* by;
    void copy(shared_lane& on, copy_direction way, const task_label& label, copy_pieces pieces) {
        by->copy(*on.all, way, label, pieces);
    }
};
struct shared_transport {
    threads::transport* by;
    void exchange(shared_lane& on, message_ends messages) { by->exchange(*on.all, messages); }
};
struct one_queue_executor : threads::executor {
    using lane_type = shared_lane;
    one_queue_executor(threads::world& of, rank self)
        : threads::executor{of, self}, all_{threads::executor::open_lane(optpipe::lane_kind::compute, 4096)} {}
    shared_lane open_lane(optpipe::lane_kind, std::size_t) { return {&all_}; }
    shared_copies copies() { return {&threads::executor::copies()}; }
    shared_transport transport() { return {&threads::executor::transport()}; }

private:
    threads::lane all_;
};

// Copies.

struct one_way_copies : threads::copy_engine {
    explicit one_way_copies(threads::copy_engine& c) : threads::copy_engine{c} {}
    void copy(threads::lane& on, copy_direction way, const task_label& label, copy_pieces pieces) {
        if (way == copy_direction::in) threads::copy_engine::copy(on, way, label, pieces);
    }
};
struct one_way_executor : threads::executor {
    using threads::executor::executor;
    one_way_copies copies() { return one_way_copies{threads::executor::copies()}; }
};
/// Copies are made as soon as they are requested.
struct eager_copies {
    void copy(threads::lane&, copy_direction, const task_label&, copy_pieces pieces) {
        for (const auto& [to, from] : pieces)
            if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
    }
};
struct eager_executor : threads::executor {
    using threads::executor::executor;
    eager_copies copies() { return {}; }
};

// Lanes that don't wait for actions on their side lanes.

struct lane_with_side : threads::lane {
    lane_with_side(threads::lane&& l, threads::lane&& beside, threads::marker&& m)
        : threads::lane{std::move(l)}, begun{std::move(m)}, side{std::move(beside)} {}
    /// The next work on the side comes after the work in the lane.
    threads::lane& beside() {
        record(begun);
        side.wait(begun);
        return side;
    }
    threads::marker begun;
    threads::lane side;
};
template <class Base> struct executor_with_sides : Base {
    using lane_type = lane_with_side;
    using Base::Base;
    lane_with_side open_lane(optpipe::lane_kind kind, std::size_t commands) {
        return {Base::open_lane(kind, 2 * commands), Base::open_lane(kind, 2 * commands), Base::make_marker()};
    }
};
/// Copies that don't wait for the work in the lane.
struct stray_copies {
    threads::copy_engine* by;
    void copy(lane_with_side& on, copy_direction way, const task_label& label, copy_pieces pieces) {
        by->copy(on.side, way, label, pieces);
    }
};
struct stray_executor : executor_with_sides<threads::executor> {
    using executor_with_sides::executor_with_sides;
    stray_copies copies() { return {&threads::executor::copies()}; }
};
/// For its lane, an exchange is over as soon as it has begun.
struct hurried_transport {
    threads::transport* by;
    void exchange(lane_with_side& on, message_ends messages) { by->exchange(on.beside(), messages); }
};
struct hurried_executor : executor_with_sides<threads::executor> {
    using executor_with_sides::executor_with_sides;
    hurried_transport transport() { return {&threads::executor::transport()}; }
};

/// Gradients and activations share one queue, in order of arrival.
struct mixing_transport {
    threads::transport* inner;
    void exchange(threads::lane& on, message_ends messages) {
        std::vector mixed(messages.begin(), messages.end());
        for (auto& each : mixed)
            each.label.op = forward(optpipe::stage{0}, optpipe::microbatch{0});
        inner->exchange(on, mixed);
    }
};
struct mixing_executor : threads::executor {
    using threads::executor::executor;
    mixing_transport transport() { return {&threads::executor::transport()}; }
};

// The end.

struct hasty_executor : threads::executor {
    using threads::executor::executor;
    void finish() {}
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

struct unbending_executor : threads::executor {
    using threads::executor::executor;
    void cancel(std::string_view, std::string_view) {}
};

/// The parts of a cluster other than its executors.
struct process {
    explicit process(std::size_t ranks) : all{ranks, {.patience = 60s}, board}, board{ranks, all.how, all.failed} {}
    threads::world all;
    threads::message_board board;
};

template <class Executor>
bool is_found(std::size_t ranks, const std::string& sentence,
              const optpipe::testing::conformance_options& how = {.bytes = 64, .rounds = 2}) {
    process all{ranks};
    const auto text = faults_of(ranks, how, [&](rank r) { return std::make_unique<Executor>(all.all, r); });
    if (text.find(sentence) != std::string::npos) return true;
    MESSAGE(sentence << "\nisn't among\n" << text);
    return false;
}

// Some of them are races, which the thread sanitizer finds first.
#if defined(__SANITIZE_THREAD__)
constexpr bool races_are_reported = true;
#else
constexpr bool races_are_reported = false;
#endif

constexpr const char* doesnt_wait = "marker: a lane doesn't wait for what another one has recorded";

TEST_CASE("of lanes and markers" * doctest::skip(races_are_reported)) {
    for (const auto ranks : {std::size_t{1}, std::size_t{2}}) {
        CAPTURE(ranks);
        CHECK(is_found<executor_with<deaf_lane>>(ranks, doesnt_wait));
        CHECK(is_found<executor_with<mute_lane>>(ranks, doesnt_wait));
        CHECK(is_found<executor_with<premature_lane>>(ranks, doesnt_wait));
        CHECK(is_found<executor_with<sticky_lane>>(ranks, "doesn't wait for a marker that is recorded again"));
        CHECK(is_found<executor_with<forgetful_lane>>(ranks, "doesn't wait for all that it was told to wait for"));
        CHECK(is_found<unordered_executor>(ranks, "what is behind work comes before that is over"));
    }
}

TEST_CASE("of what gets stuck" * doctest::skip(races_are_reported)) {
    constexpr optpipe::testing::conformance_options impatient{.bytes = 64, .rounds = 1, .patience = 10'000};
    CHECK(is_found<executor_with<blocking_lane>>(1, "a call that puts something into a lane waits for what is in",
                                                 impatient));
    CHECK(is_found<executor_with<late_lane>>(1, "waits for what was recorded after it was told to wait", impatient));
    CHECK(is_found<executor_with<hoping_lane>>(1, "waits for a marker that was never recorded", impatient));
    CHECK(is_found<executor_with<turnstile_lane>>(1, "of the lanes that wait for a marker not all go on", impatient));
    CHECK(is_found<one_queue_executor>(1, "two lanes don't go on at the same time", impatient));
}

TEST_CASE("of copies" * doctest::skip(races_are_reported)) {
    CHECK(is_found<one_way_executor>(2, "doesn't do things in order, or `finish` returns too early"));
    for (const auto ranks : {std::size_t{1}, std::size_t{2}}) {
        CHECK(is_found<eager_executor>(ranks, "what is behind work comes before that is over"));
        CHECK(is_found<stray_executor>(ranks, "what is behind work comes before that is over"));
    }
}

TEST_CASE("of messages" * doctest::skip(races_are_reported)) {
    CHECK(is_found<mixing_executor>(2, "a message isn't the one whose turn it is"));
    CHECK(is_found<hurried_executor>(2, "what is behind an exchange in its lane comes before that is over"));
    CHECK(is_found<hurried_executor>(2, "what is behind a send in its lane comes before that is over"));
}

TEST_CASE("of the end" * doctest::skip(races_are_reported)) {
    CHECK(is_found<hasty_executor>(1, "finish: returns before what is in a lane is over"));
    CHECK(is_found<silent_executor>(2, "says nothing of an exception in work"));
    CHECK(is_found<unbending_executor>(1, "says nothing of what a rank cancelled",
                                       {.bytes = 64, .rounds = 2, .by_cancel = true}));
    CHECK(is_found<undaunted_executor>(1, "what is behind work that failed is done all the same"));
}

// On virtual time work can't hold a lane, but messages can.

struct deaf_trace_lane : optpipe::testing::trace_lane {
    void wait(const marker&) {}
};
struct mute_trace_lane : optpipe::testing::trace_lane {
    void record(marker&) {}
};
template <class Lane> struct trace_executor_with : optpipe::testing::trace_executor {
    using lane_type = Lane;
    using optpipe::testing::trace_executor::trace_executor;
    Lane open_lane(optpipe::lane_kind kind, std::size_t commands) {
        return Lane{optpipe::testing::trace_executor::open_lane(kind, commands)};
    }
};

TEST_CASE("on virtual time, whatever happens first") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        CAPTURE(seed);
        const optpipe::testing::conformance_options how{.bytes = 64, .rounds = 1, .work_may_block = false};
        const auto faults_with = [&](auto make) {
            optpipe::testing::trace_world all{2, {.seed = seed}};
            return faults_of(2, how, [&](rank r) { return make(all, r); });
        };
        CHECK(faults_with([](auto& all, rank r) {
                  return std::make_unique<trace_executor_with<deaf_trace_lane>>(all, r);
              }).find(doesnt_wait) != std::string::npos);
        CHECK(faults_with([](auto& all, rank r) {
                  return std::make_unique<trace_executor_with<mute_trace_lane>>(all, r);
              }).find(doesnt_wait) != std::string::npos);
    }
}

} // namespace
