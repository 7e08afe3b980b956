#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/execution/control_channel.hpp"
#include "optpipe/execution/error.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace optpipe::testing {

struct control_channel_options {
    std::size_t rounds = 20;
    /// Size of the longest text in bytes. The default is more than any transport sends at once.
    std::size_t bytes = std::size_t{1} << 20U;
    /// Number of sleeps (of 0.1 ms) after which a waiting rank counts as stuck.
    std::size_t patience = 200'000;
    /// Whether a rank cancels in the last check, which makes the channel unusable.
    bool with_error = true;
    std::uint64_t seed = 1;
};

namespace detail {

/// All ranks draw the same random numbers, so each rank knows the other ranks' texts.
template <class Channel> class control_channel_checks {
public:
    control_channel_checks(Channel& by, const control_channel_options& how)
        : by_{by}, how_{how}, random_{how.seed}, reports_(by.ranks()) {}

    std::vector<violation> run() {
        try {
            for (std::size_t round = 0; round < how_.rounds; ++round)
                check_round(round);
            check_texts();
            check_end();
            if (how_.with_error) check_error();
        } catch (const std::exception& e) {
            report("the channel", std::string{"throws: "} + e.what());
        }
        return std::move(found_);
    }

private:
    void report(const std::string& place, std::string reason) {
        violation found{"rank " + std::to_string(by_.self().value()) + ", " + place, std::move(reason)};
        if (std::find(found_.begin(), found_.end(), found) == found_.end()) found_.push_back(std::move(found));
    }
    [[nodiscard]] bool is_first() const { return by_.self() == rank{0}; }

    /// A text of random length, with zero bytes and line ends.
    [[nodiscard]] std::string some_text() {
        const std::array<std::size_t, 4> lengths{0, 1, 100, how_.bytes};
        std::string text(lengths[random_.below(lengths.size())], '\0');
        const auto salt = random_.next();
        for (std::size_t i = 0; i < text.size(); ++i)
            text[i] = static_cast<char>((salt >> (i % 8 * 7)) + i / 8);
        return text;
    }
    [[nodiscard]] std::uint64_t some_value() {
        switch (random_.below(4)) {
        case 0: return std::numeric_limits<std::uint64_t>::max();
        case 1: return random_.below(3);
        default: return random_.next();
        }
    }
    void await_published(const std::vector<std::string>& expected) {
        for (const auto& text : expected) {
            auto came = by_.next_published();
            for (std::size_t asked = 0; !came && asked < how_.patience; ++asked) {
                std::this_thread::sleep_for(a_moment);
                came = by_.next_published();
            }
            if (!came) return by_.cancel("the checks", "a text that was published doesn't come");
            if (*came != text) report("a published text", "another one came, or in another order");
        }
    }

    /// Publishes and reports texts, and computes the minimum of the ranks' numbers (`begin_minimum`, `minimum`). In
    /// some rounds, one rank calls `begin_minimum` only after it has received rank 0's texts.
    void check_round(std::size_t round) {
        std::vector<std::string> published;
        for (auto count = random_.below(3); count > 0; --count)
            published.push_back(some_text());
        std::vector<std::vector<std::string>> reported(by_.ranks());
        for (auto& own : reported)
            for (auto count = random_.below(3); count > 0; --count)
                own.push_back(some_text());
        std::vector<std::uint64_t> values(by_.ranks());
        for (auto& each : values)
            each = some_value();
        const bool early = random_.chance(50);
        const auto publish = [&] {
            if (!is_first()) return;
            for (const auto& text : published)
                by_.publish(text);
        };
        const bool waits_first = early && by_.self().position() == round % by_.ranks();
        if (early) publish();
        for (const auto& text : reported[by_.self().position()])
            by_.report(text);
        if (waits_first) await_published(published);
        by_.begin_minimum(values[by_.self().position()]);
        if (!early) publish();
        if (by_.minimum() != *std::min_element(values.begin(), values.end()))
            report("a minimum", "isn't the least of what all ranks began it with");
        if (!waits_first) await_published(published);
        if (is_first()) check_reports(reported);
    }
    /// Checks that rank 0 has all reports sent before `begin_minimum`. Reports of the next round may also have arrived.
    void check_reports(const std::vector<std::vector<std::string>>& expected) {
        while (auto next = by_.next_report())
            reports_[next->from.position()].push_back(std::move(next->text));
        for (std::size_t r = 0; r < expected.size(); ++r)
            for (const auto& text : expected[r]) {
                if (reports_[r].empty() || reports_[r].front() != text)
                    report("a report", "isn't there with the minimum that was begun after it, or in another order");
                if (!reports_[r].empty()) reports_[r].pop_front();
            }
    }
    /// All ranks send texts to all ranks, including themselves, and then receive them.
    void check_texts() {
        if constexpr (execution::peer_channel<Channel>)
            for (std::size_t round = 0; round < how_.rounds; ++round) {
                std::vector<std::vector<std::string>> sent(by_.ranks(), std::vector<std::string>(by_.ranks()));
                for (auto& own : sent)
                    for (auto& text : own)
                        text = some_text();
                const auto self = by_.self().position();
                const bool reads_first = round % by_.ranks() == self && self > 0;
                if (reads_first) check_text_of(0, sent);
                for (std::size_t to = by_.ranks(); to-- > 0;)
                    by_.send(rank{to}, sent[self][to]);
                for (std::size_t from = reads_first ? 1 : 0; from < by_.ranks(); ++from)
                    check_text_of(from, sent);
            }
    }
    void check_text_of(std::size_t from, const std::vector<std::vector<std::string>>& sent) {
        if (by_.receive(rank{from}) != sent[from][by_.self().position()])
            report("a text of a rank", "another one came, or in another order");
    }
    void check_end() {
        by_.begin_minimum(0);
        static_cast<void>(by_.minimum());
        if (by_.next_published()) report("a published text", "came twice, or was never published");
        if (is_first()) check_reports({});
        for (const auto& own : reports_)
            if (!own.empty()) report("a report", "came twice, or was never made");
    }

    void check_error() {
        const rank bad{by_.ranks() - 1};
        try {
            by_.begin_minimum(0);
            static_cast<void>(by_.minimum()); // no rank is still in an earlier check
            if (by_.self() == bad) {
                by_.cancel("the checks", "on purpose");
            } else {
                by_.begin_minimum(0);
                static_cast<void>(by_.minimum());
                report("an error", "doesn't end a minimum");
            }
        } catch (const execution_error& e) {
            check_names(e, bad);
        }
        for (const bool publishes : {true, false})
            try {
                if (publishes && is_first())
                    by_.publish("too late");
                else
                    static_cast<void>(by_.next_published());
                report("an error", "is forgotten");
            } catch (const execution_error& e) {
                check_names(e, bad);
            }
    }
    void check_names(const execution_error& e, rank where) {
        if (e.rank() != where || e.operation() != "the checks" ||
            std::string{e.what()}.find("on purpose") == std::string::npos)
            report("an error", std::string{"names another rank or reason: "} + e.what());
    }

    static constexpr std::chrono::microseconds a_moment{100};

    Channel& by_;
    control_channel_options how_;
    random_numbers random_;
    /// Each rank's reports at rank 0 that aren't checked yet.
    std::vector<std::deque<std::string>> reports_;
    std::vector<violation> found_;
};

} // namespace detail

/// Violations of the concept by a control channel, one sentence for each. The list is empty if the channel violates
/// nothing. A channel that is also a peer channel is checked as both.
///
/// All ranks must call `check_control_channel` at the same time, each from its own thread or process.
template <class Channel>
[[nodiscard]] std::vector<violation> check_control_channel(Channel& by, const control_channel_options& how = {}) {
    static_assert(execution::check_control_channel<Channel>());
    return detail::control_channel_checks<Channel>{by, how}.run();
}

} // namespace optpipe::testing
