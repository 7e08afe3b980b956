#pragma once

#include <optpipe/milp/model.hpp>
#include <optpipe/milp/options.hpp>
#include <optpipe/milp/search/context.hpp>
#include <optpipe/milp/search/control.hpp>
#include <optpipe/milp/search/incumbents.hpp>
#include <optpipe/milp/search/problem.hpp>

#include <span>

namespace optpipe::milp::search {

/// A search of a model without presolve.
struct bare_search {
    explicit bare_search(const model& m)
        : instance{problem_of(m)}, limits{options}, best{m, options.tolerance, nullptr} {
        shared.instance = &instance;
        shared.options = &options;
        shared.limits = &limits;
        shared.best = &best;
        shared.to_given = [this](std::span<const double> values) { return instance.to_model(values); };
    }
    bare_search(const bare_search&) = delete;
    bare_search& operator=(const bare_search&) = delete;

    solve_options options;
    problem instance;
    control limits;
    incumbents best;
    context shared;
};

} // namespace optpipe::milp::search
