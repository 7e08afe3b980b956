#pragma once

#include "pipeline_model.hpp"
#include <optpipe/core/index.hpp>

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace language_model {

/// One of several pipelines that train the same model. `sum(stage, gradients)` leaves the sum of all pipelines'
/// gradients with each. It is called on the lane for reductions, concurrently with the computations of other stages.
template <class Real, class Sum> class data_parallel_model : public pipeline_model<Real> {
public:
    /// See `pipeline_model`.
    data_parallel_model(std::vector<model_stage<Real>>& stages, std::string_view text, const shape& s,
                        std::size_t microbatches, const replica_place& replica, Sum sum)
        : pipeline_model<Real>{stages, text, s, microbatches, {}, {}, replica}, stages_{&stages}, sum_{std::move(sum)} {
    }

    template <class Lane> void reduce(Lane&, optpipe::stage s) { sum_(s, (*stages_)[s.position()].gradients()); }

private:
    std::vector<model_stage<Real>>* stages_;
    Sum sum_;
};

} // namespace language_model
