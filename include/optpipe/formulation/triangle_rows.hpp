#pragma once

#include "optpipe/formulation/model_builder.hpp"

#include <cstddef>

namespace optpipe::formulation {

/// Adds P_ab + P_bc − 1 ≤ P_ac for all triples of a rank (README, equation 8). Each triple gets the two rows of 1 ≤
/// P_ab + P_bc + P_ca ≤ 2. Triples with one known order are in `monotone_rows`.
inline void add_triangle_rows(model_builder& d) {
    for (const rank r : d.problem().graph.all_ranks()) {
        const auto& own = d.precedences().computations_on(r);
        for (std::size_t i = 0; i < own.size(); ++i)
            for (std::size_t j = i + 1; j < own.size(); ++j)
                for (std::size_t k = j + 1; k < own.size(); ++k) {
                    const auto ab = d.order(own[i], own[j]);
                    const auto bc = d.order(own[j], own[k]);
                    const auto ca = d.order(own[k], own[i]);
                    if (ab.is_constant() || bc.is_constant() || ca.is_constant()) continue;
                    if (d.is_too_large()) return;
                    d.add_row(family::triangles, sum{}.add(1.0, ab).add(1.0, bc).add(1.0, ca), 1.0, 2.0);
                }
    }
}

} // namespace optpipe::formulation
