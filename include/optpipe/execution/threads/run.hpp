#pragma once

#include "optpipe/core/caught_reason.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/execution/measured.hpp"
#include "optpipe/execution/run.hpp"
#include "optpipe/execution/threads/executor.hpp"
#include "optpipe/program/check.hpp"

#include <cstddef>
#include <exception>
#include <span>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace optpipe::threads {

/// Calls `body(executor)` for every rank on its own thread. If a body throws, the run ends for all ranks. Throws the
/// error of the first rank that has one. `ranks` is a cluster of executors, such as `threads::cluster`.
template <class Cluster, class Body> void on_all_ranks(Cluster& ranks, const Body& body) {
    std::vector<std::exception_ptr> errors(ranks.ranks());
    const auto run_rank = [&](rank r) {
        try {
            body(ranks[r]);
        } catch (...) {
            errors[r.position()] = std::current_exception();
            ranks[r].cancel("outside of operations", caught_reason());
        }
    };
    std::vector<std::jthread> threads;
    for (const rank r : index_range<rank>{ranks.ranks()}) {
        try {
            threads.emplace_back(run_rank, r);
        } catch (...) { // the cancel ends the other ranks' waits for this rank
            ranks[r].cancel("starting its thread", caught_reason());
            throw;
        }
    }
    threads.clear();
    for (const auto& e : errors)
        if (e) std::rethrow_exception(e);
}

/// Checks the programs, and runs `steps` steps of them on a cluster. Each rank uses the model `model_of(rank)`. If the
/// cluster records times, returns the times of the instructions in the last step. Throws `input_error` if the programs
/// have errors.
template <class ModelOf>
std::vector<rank_times> run(std::span<const rank_program> programs, cluster& on, ModelOf model_of,
                            std::size_t steps = 1) {
    if (auto found = check_programs(programs); !found.empty()) throw input_error{"programs", std::move(found)};
    if (programs.size() != on.ranks())
        throw error{std::to_string(programs.size()) + " programs for " + std::to_string(on.ranks()) + " ranks"};
    using model = std::remove_reference_t<decltype(model_of(rank{}))>;
    std::vector<rank_times> measured(programs.size());
    on_all_ranks(on, [&](executor& here) {
        const auto r = here.self();
        runner<executor, model> runs{programs[r.position()], here, model_of(r)};
        for (std::size_t i = 0; i < steps; ++i) {
            runs.forget_times();
            runs.step();
        }
        measured[r.position()] = {&programs[r.position()], runs.times()};
    });
    return measured;
}

} // namespace optpipe::threads
