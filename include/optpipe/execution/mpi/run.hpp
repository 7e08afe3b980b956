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

/// Checks the programs of all ranks, and runs `steps` steps of this process's program. Every process must pass the same
/// programs. Returns the last step's times if the member records times. If a step fails, throws the same error on all
/// ranks. If the programs have errors, throws `input_error`.
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
