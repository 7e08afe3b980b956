#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/planner/board.hpp"
#include "optpipe/planner/part.hpp"

#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <string_view>
#include <utility>

/// Small parts whose behaviour is known, for tests of those who run parts.
namespace fake {

/// Swaps random neighbours of the best order and keeps what is better: `effort` swaps.
struct shuffler {
    static constexpr std::string_view name = "shuffler";
    static constexpr bool draws = true;
    static std::size_t first_effort(const optpipe::problem&) { return 200; }

    void operator()(optpipe::search_board& board, const optpipe::part_options& options) const {
        const auto start = board.incumbent();
        if (!start) return;
        auto best = order_of(*start);
        auto value = objective_of(board.to_solve(), *start);
        optpipe::random_numbers random{options.seed};
        for (std::size_t i = 0; i < options.effort && !board.done(); ++i) {
            auto changed = best;
            const auto from = random.below(changed.operations.size() - 1);
            std::swap(changed.operations[from], changed.operations[from + 1]);
            const auto timed = time_order(board.to_solve(), changed);
            if (!timed || objective_of(board.to_solve(), *timed) > value) continue;
            value = board.offer(changed, name);
            best = std::move(changed);
        }
    }
};

/// Knows a bound, but only after so much effort.
struct prover {
    static constexpr std::string_view name = "prover";
    static std::size_t first_effort(const optpipe::problem&) { return 1; }
    optpipe::duration knows{};
    std::size_t needs = 1;

    void operator()(optpipe::search_board& board, const optpipe::part_options& options) const {
        if (options.effort >= needs) board.raise_bound(std::min(knows, board.objective()), name);
    }
};

/// Has a schedule up its sleeve, and knows that none is better.
struct oracle {
    static constexpr std::string_view name = "oracle";
    optpipe::order knows{};
    void operator()(optpipe::search_board& board, const optpipe::part_options&) const {
        board.raise_bound(board.offer(knows, name), name);
    }
};

struct thrower {
    static constexpr std::string_view name = "thrower";
    void operator()(optpipe::search_board&, const optpipe::part_options&) const { throw std::runtime_error{"thrown"}; }
};

/// Goes on until it is told to stop, whatever its effort, and says how often it has been.
struct endless {
    static constexpr std::string_view name = "endless";
    std::atomic<std::size_t>* stopped = nullptr;
    void operator()(optpipe::search_board& board, const optpipe::part_options&) const {
        while (!board.done()) {
        }
        if (stopped) ++*stopped;
    }
};

/// Asks for a stop as soon as it runs.
struct stopper {
    static constexpr std::string_view name = "stopper";
    std::stop_source source{};
    void operator()(optpipe::search_board&, const optpipe::part_options&) const {
        auto own = source;
        own.request_stop();
    }
};

/// Counts its calls.
struct counter {
    static constexpr std::string_view name = "counter";
    std::atomic<std::size_t>* calls = nullptr;
    bool suited = true;
    [[nodiscard]] bool suits(const optpipe::problem&) const { return suited; }
    void operator()(optpipe::search_board&, const optpipe::part_options&) const { ++*calls; }
};

} // namespace fake
