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

/// Sums the gradients of a rank's stages over all replicas of the rank. Each replica has its own device. Sums use a
/// separate communicator, which the pipeline's messages don't use. The function `reduce` of a stage model can call a
/// `gradient_sum`.
///
/// All replicas must construct their `gradient_sum` together, before the first step. The member must outlive the
/// `gradient_sum`. All replicas must run the same programs. If a replica misses a sum, this pipeline fails after
/// `cuda::options::patience`.
class gradient_sum {
public:
    /// `id` is made by one of the replicas, or by `execution::share_group_id` for all groups. `limits` restricts the
    /// device resources that sums take from concurrent computations.
    gradient_sum(member& of, const ncclUniqueId& id, const execution::mesh_group& replicas,
                 const communicator_limits& limits = {})
        : by_{of.join_beside(id, static_cast<int>(replicas.self), static_cast<int>(replicas.peers.size()),
                             "sums of gradients", limits)} {}

    /// The index of this replica. `replicas` is the number of replicas.
    [[nodiscard]] int replica() const { return by_.rank(); }
    [[nodiscard]] int replicas() const { return by_.ranks(); }

    /// Puts a sum over all replicas into the lane's stream. On every replica, the sum replaces `gradients`, which are
    /// on the device. Call this function only from work in the lane, such as `reduce`.
    template <class Real> void operator()(cuda::lane& on, std::span<Real> gradients) {
        batch open;
        open.add_up(by_, gradients, on.stream().native());
        open.close("adding up gradients");
    }

private:
    communicator& by_;
};

} // namespace optpipe::nccl
