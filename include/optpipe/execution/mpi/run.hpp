#pragma once

#include "optpipe/core/caught_reason.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/execution/measured.hpp"
#include "optpipe/execution/mpi/executor.hpp"
#include "optpipe/execution/run.hpp"
#include "optpipe/program/check.hpp"

#include <cstddef>
#include <span>
#include <utility>

namespace optpipe::mpi {

/// Checks all programs, which must be the same in every process, and runs `steps` steps of this process's program.
/// Returns the times of the instructions of the last step, if the member records them. Throws the common error of all
/// ranks if a step fails, and `input_error` if the programs have errors.
template <class Model>
rank_times run(std::span<const rank_program> programs, member& on, Model& model, std::size_t steps = 1) {
    auto& here = on.executor();
    try {
        if (auto found = check_programs(programs); !found.empty()) throw input_error{"programs", std::move(found)};
        if (programs.size() != here.ranks()) throw optpipe::error{"another number of programs than of ranks"};
        const auto& mine = programs[here.self().position()];
        runner<executor, Model> runs{mine, here, model};
        for (std::size_t i = 0; i < steps; ++i) {
            runs.forget_times();
            runs.step();
        }
        return {&mine, runs.times()};
    } catch (...) {
        here.cancel("outside of operations", caught_reason());
        throw;
    }
}

} // namespace optpipe::mpi
