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

/// Sums the gradients of the replicas of a rank's stages. Each replica has its own device. The sums have their own
/// communicator, apart from the pipeline's communicators. `reduce` of a stage model can call a `gradient_sum`.
///
/// All replicas construct their `gradient_sum` at the same time, before the first step. The member must outlive the
/// `gradient_sum`. The pipelines of all replicas must run the same programs, so that all replicas reduce in one order.
/// If a replica doesn't come, the steps of this rank and of its pipeline end after `cuda::options::patience`.
class gradient_sum {
public:
    /// One of the replicas makes `id`, or `execution::share_group_id` makes the ids of all groups. `limits` restricts
    /// the resources that sums take from concurrent computations.
    gradient_sum(member& of, const ncclUniqueId& id, const execution::mesh_group& replicas,
                 const communicator_limits& limits = {})
        : by_{of.join_beside(id, static_cast<int>(replicas.self), static_cast<int>(replicas.peers.size()),
                             "sums of gradients", limits)} {}

    /// The number of this replica, and the number of all replicas.
    [[nodiscard]] int replica() const { return by_.rank(); }
    [[nodiscard]] int replicas() const { return by_.ranks(); }

    /// Puts the sum over all replicas into the lane's stream. On every replica, the sum replaces `gradients` on the
    /// device. Like `reduce`, it is called by work of the lane.
    template <class Real> void operator()(cuda::lane& on, std::span<Real> gradients) {
        batch open;
        open.add_up(by_, gradients, on.stream().native());
        open.close("adding up gradients");
    }

private:
    communicator& by_;
};

} // namespace optpipe::nccl
