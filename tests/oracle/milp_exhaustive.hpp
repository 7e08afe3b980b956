#pragma once

#include <optpipe/milp/model.hpp>

#include <vector>

/// The optimum of a tiny model, by looking at every assignment of its integers and, for each, at every vertex of the
/// remaining polyhedron. Shares only the model with the solver.
namespace oracle {

enum class exhaustive_status { optimal, infeasible, unbounded };

struct exhaustive_result {
    exhaustive_status status = exhaustive_status::infeasible;
    double objective = 0.0; ///< in the model's direction
    std::vector<double> values;
};

/// Integers must be bounded. Continuous variables may be unbounded if the model's numbers are small enough that no
/// vertex lies farther out than `box`: if the optimum over twice that box is better, there is none.
exhaustive_result exhaustive_optimum(const optpipe::milp::model& m, double box = 1e4, double slack = 1e-7);

} // namespace oracle
