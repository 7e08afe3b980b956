#pragma once

#include "optpipe/milp/lp/linear_program.hpp"
#include "optpipe/milp/model.hpp"

#include <cstddef>
#include <vector>

namespace optpipe::milp {

/// The model without integrality, as a minimization: costs change sign if the model maximizes. The offset of the
/// objective is left out.
[[nodiscard]] inline linear_program relaxation_of(const model& m) {
    linear_program p;
    const double sign = m.direction() == sense::maximize ? -1.0 : 1.0;
    for (std::size_t j = 0; j < m.variables(); ++j) {
        const variable v{j};
        p.cost.push_back(sign * m.cost(v));
        p.column_lower.push_back(m.lower(v));
        p.column_upper.push_back(m.upper(v));
    }
    std::vector<Eigen::Triplet<double>> entries;
    entries.reserve(m.nonzeros());
    for (std::size_t i = 0; i < m.rows(); ++i) {
        const row r{i};
        p.row_lower.push_back(m.row_lower(r));
        p.row_upper.push_back(m.row_upper(r));
        for (const auto& t : m.terms(r))
            entries.emplace_back(static_cast<int>(i), static_cast<int>(t.column.position()), t.coefficient);
    }
    p.matrix.resize(static_cast<Eigen::Index>(m.rows()), static_cast<Eigen::Index>(m.variables()));
    p.matrix.setFromTriplets(entries.begin(), entries.end());
    return p;
}

} // namespace optpipe::milp
