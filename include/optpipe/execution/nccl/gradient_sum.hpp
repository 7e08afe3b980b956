#pragma once

#include "optpipe/execution/cuda/lane.hpp"
#include "optpipe/execution/device_mesh.hpp"
#include "optpipe/execution/nccl/communicator.hpp"
#include "optpipe/execution/nccl/executor.hpp"
#include "optpipe/program/ir.hpp"

#include <nccl.h>

#include <span>
#include <string>

namespace optpipe::nccl {

/// The replicas of a rank's stages, each on a device of its own: adds up their gradients, on a communicator beside
/// those of the pipeline. For `reduce` of a stage model.
///
/// All replicas make theirs at the same time, before the first step, and the member outlives it. Their pipelines run
/// the same programs, so that all of them reduce in one order. A replica that doesn't come ends the step of this rank,
/// and with it that of its pipeline, after `cuda::options::patience`.
class gradient_sum {
public:
    /// `id`: made by one of the replicas, or `execution::share_group_id` for all groups of them. `limits`: what the
    /// sums take of a device, beside the computations that are left.
    gradient_sum(member& of, const ncclUniqueId& id, const execution::mesh_group& replicas,
                 const communicator_limits& limits = {})
        : by_{of.join_beside(id, static_cast<int>(replicas.self), static_cast<int>(replicas.peers.size()),
                             "sums of gradients", limits)} {}

    /// Which of the replicas this is, and how many there are.
    [[nodiscard]] int replica() const { return by_.rank(); }
    [[nodiscard]] int replicas() const { return by_.ranks(); }

    /// Puts into the lane's stream what leaves the sum of all replicas' gradients, which are on the device, with each.
    /// Called by work of the lane, as `reduce` is.
    template <class Real> void operator()(cuda::lane& on, std::span<Real> gradients) {
        batch open;
        open.add_up(by_, gradients, on.stream().native());
        open.close("adding up gradients");
    }

private:
    communicator& by_;
};

} // namespace optpipe::nccl
