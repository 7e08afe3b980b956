#pragma once

#include <optpipe/milp/model.hpp>

#include <vector>

/// The optimum of a tiny model, by looking at every assignment of its integers and, for each, at every vertex of what
/// is left. Shares nothing with the solver but the model.
namespace oracle {

enum class exhaustive_status { optimal, infeasible, unbounded };

struct exhaustive_result {
    exhaustive_status status = exhaustive_status::infeasible;
    double objective = 0.0; ///< in the model's direction
    std::vector<double> values;
};

/// Integers must be bounded. Continuous variables may be unbounded, while the model's numbers are so small that no
/// vertex lies farther out than `box`: if the optimum over twice that box is a better one, there is none.
exhaustive_result exhaustive_optimum(const optpipe::milp::model& m, double box = 1e4, double slack = 1e-7);

} // namespace oracle
