#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/board.hpp"
#include "optpipe/schedule/builder.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace optpipe {

/// What a part of the search is told each time it is called.
struct part_options {
    /// Of its random numbers.
    std::uint64_t seed = 1;
    /// How much to do, in units of the part's own; the same effort is the same work on every machine.
    std::size_t effort = std::numeric_limits<std::size_t>::max();
    /// Threads that it may use, the caller's among them.
    std::size_t threads = 1;
};

template <class P> concept has_search = requires(const P& part, search_board& board, const part_options& options) {
    { part(board, options) } -> std::same_as<void>;
};
/// Whether there is anything that the part can do for a problem.
template <class P> concept has_suits = requires(const P& part, const problem& p) {
    { part.suits(p) } -> std::same_as<bool>;
};
/// An effort that takes some tens of milliseconds; larger ones are tried later. 0: whatever it does takes longer, and
/// it is only called where there is time.
template <class P> concept has_first_effort = requires(const P& part, const problem& p) {
    { part.first_effort(p) } -> std::same_as<std::size_t>;
};
/// `draws`: whether another seed finds something else, so that several calls side by side make sense.
template <class P> concept has_draws = requires {
    { P::draws } -> std::convertible_to<bool>;
};
/// How much of the time it gets at first, as a multiple of what others get.
template <class P> concept has_share = requires {
    { P::share } -> std::convertible_to<double>;
};
/// `timed`: whether its effort is measured by a clock, so that the same effort isn't always the same work. Such a part
/// only takes part where that doesn't matter.
template <class P> concept has_timed = requires {
    { P::timed } -> std::convertible_to<bool>;
};
/// Whether the part loses what it has learned when a call ends, and a problem is of a size that it may finish: where
/// there are several threads, it gets one to itself.
template <class P> concept has_steady = requires(const P& part, const problem& p) {
    { part.steady(p) } -> std::same_as<bool>;
};

/// One way to better schedules or better bounds, run side by side with others by a portfolio.
///
/// Semantics: `part(board, options)` looks for schedules and bounds of `board.to_solve()` and offers them to the board.
/// It returns when `board.done()`, when the effort is spent, or when it has nothing left to try. All that it offers as
/// a bound is proven. Copies may run at once on several threads. Without a clock running out, what it offers depends on
/// the problem, on what the board knew at the call, on the options, and on what others offer meanwhile. `name` is the
/// one under which the plan says what it contributed.
template <class P> concept search_part = std::copyable<P> && has_name<P> && has_search<P>;

/// The sentence that a type lacks to be a part of the search.
template <class P> consteval bool check_search_part() {
    static_assert(std::copyable<P>, "search part: must be copyable");
    static_assert(has_name<P>, "search part: needs `static constexpr std::string_view name`");
    static_assert(has_search<P>, "search part: needs `void operator()(search_board&, const part_options&) const`");
    return search_part<P>;
}

/// Any part, as a value.
class any_search_part {
public:
    template <class P>
    requires(!std::same_as<P, any_search_part>) any_search_part(P part) // NOLINT(google-explicit-constructor)
        : name_{P::name} {
        static_assert(check_search_part<P>());
        if constexpr (has_draws<P>) draws_ = P::draws;
        if constexpr (has_share<P>) share_ = P::share;
        if constexpr (has_timed<P>) timed_ = P::timed;
        if constexpr (has_suits<P>) suits_ = [part](const problem& p) { return part.suits(p); };
        if constexpr (has_steady<P>) steady_ = [part](const problem& p) { return part.steady(p); };
        if constexpr (has_first_effort<P>) first_effort_ = [part](const problem& p) { return part.first_effort(p); };
        search_ = [part = std::move(part)](search_board& board, const part_options& options) { part(board, options); };
    }

    [[nodiscard]] const std::string& name() const { return name_; }
    void operator()(search_board& board, const part_options& options) const { search_(board, options); }
    [[nodiscard]] bool suits(const problem& p) const { return !suits_ || suits_(p); }
    [[nodiscard]] bool draws() const { return draws_; }
    [[nodiscard]] double share() const { return share_; }
    [[nodiscard]] bool timed() const { return timed_; }
    [[nodiscard]] bool steady(const problem& p) const { return steady_ && steady_(p); }
    [[nodiscard]] std::size_t first_effort(const problem& p) const {
        constexpr std::size_t usual = 100'000;
        return first_effort_ ? first_effort_(p) : usual;
    }

private:
    std::string name_;
    bool draws_ = false;
    double share_ = 1.0;
    bool timed_ = false;
    std::function<bool(const problem&)> suits_{};
    std::function<bool(const problem&)> steady_{};
    std::function<std::size_t(const problem&)> first_effort_{};
    std::function<void(search_board&, const part_options&)> search_{};
};

} // namespace optpipe
