#include "optpipe/execution/threads/control_channel.hpp"

#include "optpipe/core/index.hpp"
#include "optpipe/testing/control_channel.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using optpipe::rank;
using optpipe::testing::control_channel_options;
namespace threads = optpipe::threads;

/// The results of the checks on all ranks, each with a channel of this type around the real one.
template <class Channel> std::string faults_of(std::size_t ranks, const control_channel_options& how) {
    threads::failure failed;
    threads::control_board board{ranks, 20s, failed};
    std::vector<std::string> found(ranks);
    {
        std::vector<std::jthread> hosts;
        for (const rank r : optpipe::index_range<rank>{ranks})
            hosts.emplace_back([&, r] {
                Channel channel{board[r]};
                for (const auto& v : check_control_channel(channel, how))
                    found[r.position()] += v.text() + '\n';
            });
    }
    std::string text;
    for (const auto& own : found)
        text += own;
    return text;
}

/// Forwards to the real channel.
class honest {
public:
    explicit honest(threads::control_channel& by) : by_{by} {}
    [[nodiscard]] rank self() const { return by_.self(); }
    [[nodiscard]] std::size_t ranks() const { return by_.ranks(); }
    void publish(std::string_view text) { by_.publish(text); }
    [[nodiscard]] std::optional<std::string> next_published() { return by_.next_published(); }
    void report(std::string_view text) { by_.report(text); }
    [[nodiscard]] std::optional<optpipe::execution::rank_text> next_report() { return by_.next_report(); }
    void begin_minimum(std::uint64_t value) { by_.begin_minimum(value); }
    [[nodiscard]] std::uint64_t minimum() { return by_.minimum(); }
    void cancel(std::string_view what_it_did, std::string_view reason) { by_.cancel(what_it_did, reason); }
    void send(rank to, std::string_view text) { by_.send(to, text); }
    [[nodiscard]] std::string receive(rank from) { return by_.receive(from); }

protected:
    threads::control_channel& by_;
};

TEST_CASE("threads keep to the concept") {
    for (const auto ranks : {std::size_t{1}, std::size_t{2}, std::size_t{5}}) {
        CAPTURE(ranks);
        for (std::uint64_t seed = 1; seed <= 5; ++seed)
            CHECK(faults_of<honest>(ranks, {.rounds = 100, .bytes = 4096, .seed = seed}) == "");
    }
}

/// Few checks with short patience, because lost messages never arrive.
constexpr control_channel_options few{.bytes = 100, .patience = 1000, .with_error = false};

struct swaps_texts : honest {
    using honest::honest;
    std::optional<std::string> next_published() {
        auto first = by_.next_published();
        auto second = first ? by_.next_published() : std::nullopt;
        if (!second) return held_ ? std::exchange(held_, std::nullopt) : first;
        held_ = std::move(first);
        return second;
    }
    std::optional<std::string> held_;
};
struct loses_texts : honest {
    using honest::honest;
    void publish(std::string_view text) {
        if (text.empty()) by_.publish(text);
    }
};
struct cuts_at_zero : honest {
    using honest::honest;
    void report(std::string_view text) { by_.report(text.substr(0, text.find('\0'))); }
};
/// Reports are late by one minimum.
struct reports_late : honest {
    using honest::honest;
    void report(std::string_view text) { held_.emplace_back(text); }
    std::uint64_t minimum() {
        const auto least = by_.minimum();
        for (const auto& text : std::exchange(due_, std::exchange(held_, {})))
            by_.report(text);
        return least;
    }
    std::vector<std::string> held_, due_;
};
struct crosses_texts : honest {
    using honest::honest;
    void send(rank to, std::string_view text) { by_.send(rank{(to.position() + 1) % ranks()}, text); }
};
struct cuts_texts : honest {
    using honest::honest;
    void send(rank to, std::string_view text) { by_.send(to, text.substr(0, 99)); }
};
/// Truncates to 32 bits.
struct small_minimum : honest {
    using honest::honest;
    std::uint64_t minimum() { return static_cast<std::uint32_t>(by_.minimum()); }
};
struct own_value : honest {
    using honest::honest;
    void begin_minimum(std::uint64_t value) { by_.begin_minimum(value_ = value); }
    std::uint64_t minimum() {
        const auto least = by_.minimum();
        return self() == rank{1} ? value_ : least;
    }
    std::uint64_t value_ = 0;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("what isn't right is found") {
    CHECK(contains(faults_of<swaps_texts>(2, few), "another one came, or in another order"));
    CHECK(contains(faults_of<loses_texts>(2, few), "a text that was published doesn't come"));
    CHECK(contains(faults_of<cuts_at_zero>(2, few), "a report: isn't there"));
    CHECK(contains(faults_of<reports_late>(2, few), "a report: isn't there"));
    CHECK(contains(faults_of<crosses_texts>(2, few), "a text of a rank: another one came"));
    CHECK(contains(faults_of<cuts_texts>(2, few), "a text of a rank: another one came"));
    CHECK(contains(faults_of<small_minimum>(2, few), "a minimum: isn't the least"));
    CHECK(contains(faults_of<own_value>(2, few), "rank 1, a minimum: isn't the least"));
}

TEST_CASE("a rank that doesn't come is named") {
    threads::failure failed;
    threads::control_board board{3, 50ms, failed};
    std::vector<std::string> said(3);
    {
        std::vector<std::jthread> hosts;
        for (const rank r : {rank{0}, rank{2}})
            hosts.emplace_back([&, r] {
                board[r].begin_minimum(1);
                try {
                    static_cast<void>(board[r].minimum());
                } catch (const optpipe::execution_error& e) {
                    said[r.position()] = e.what();
                }
            });
    }
    for (const auto r : {0U, 2U})
        CHECK(said[r] == "rank 0, a minimum of all ranks: rank 1 hasn't come for it within 50 ms");
}

TEST_CASE("so is one whose text doesn't come") {
    threads::failure failed;
    threads::control_board board{2, 50ms, failed};
    CHECK_THROWS_WITH(static_cast<void>(board[rank{0}].receive(rank{1})),
                      "rank 0, a text of rank 1: it hasn't come within 50 ms");
    CHECK_THROWS_AS(board[rank{1}].send(rank{0}, "too late"), optpipe::execution_error);
}

} // namespace
