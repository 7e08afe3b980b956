#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/core/index.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace optpipe::execution {

/// The number that the launcher gives to a process, among all processes that train the model. A `rank` is the number of
/// a process in its pipeline.
using world_rank = index<struct world_rank_tag>;

/// The way in which the processes along a dimension share the work.
enum class mesh_dimension : std::uint8_t {
    tensor,   ///< each process has a part of every tensor of a stage
    data,     ///< each process has the same stage, and different microbatches
    pipeline, ///< each process has different stages
};
inline constexpr std::array all_mesh_dimensions{mesh_dimension::tensor, mesh_dimension::data, mesh_dimension::pipeline};

/// The number of processes along each dimension, at least 1.
struct mesh_extents {
    std::size_t tensor = 1;
    std::size_t data = 1;
    std::size_t pipeline = 1;

    [[nodiscard]] constexpr std::size_t along(mesh_dimension d) const {
        switch (d) {
        case mesh_dimension::tensor: return tensor;
        case mesh_dimension::data: return data;
        case mesh_dimension::pipeline: return pipeline;
        }
        return 1;
    }
    friend constexpr bool operator==(const mesh_extents&, const mesh_extents&) = default;
};

/// The coordinates of a process, each counted from 0.
struct mesh_place {
    std::size_t tensor = 0;
    std::size_t data = 0;
    std::size_t pipeline = 0;

    /// The rank of the process within its pipeline: `rank_program::self`.
    [[nodiscard]] constexpr optpipe::rank rank() const { return optpipe::rank{pipeline}; }
    [[nodiscard]] constexpr std::size_t& along(mesh_dimension d) {
        return d == mesh_dimension::tensor ? tensor : d == mesh_dimension::data ? data : pipeline;
    }
    [[nodiscard]] constexpr std::size_t along(mesh_dimension d) const { return mesh_place{*this}.along(d); }
    friend constexpr bool operator==(const mesh_place&, const mesh_place&) = default;
};

/// Processes that differ only in one coordinate. The processes of a group form a pipeline, hold the replicas of a
/// stage, or hold the parts of a stage's tensors.
struct mesh_group {
    /// Index of the group among all groups along this dimension. Serves as the colour for `MPI_Comm_split`.
    std::size_t number = 0;
    /// Position of this process in `peers`. Serves as the key for `MPI_Comm_split`.
    std::size_t self = 0;
    /// All processes of the group, sorted by the coordinate in which they differ.
    std::vector<world_rank> peers;
};

/// A mesh of processes for pipeline, data and tensor parallelism. `order` lists the dimensions from the fastest-varying
/// to the slowest. By default, processes that exchange most data are next to each other, as in Megatron-LM
/// ("tp-dp-pp").
class device_mesh {
public:
    using dimension_order = std::array<mesh_dimension, 3>;

    constexpr explicit device_mesh(const mesh_extents& extents, const dimension_order& order = all_mesh_dimensions)
        : extents_{extents}, order_{order} {
        OPTPIPE_EXPECT(std::is_permutation(order.begin(), order.end(), all_mesh_dimensions.begin()),
                       "device_mesh: an order has each dimension once");
        for (const auto d : order)
            OPTPIPE_EXPECT(extents.along(d) > 0, "device_mesh: at least one process along each dimension");
    }

    [[nodiscard]] constexpr const mesh_extents& extents() const { return extents_; }
    [[nodiscard]] constexpr std::size_t size() const { return extents_.tensor * extents_.data * extents_.pipeline; }

    [[nodiscard]] constexpr mesh_place place_of(world_rank r) const {
        OPTPIPE_EXPECT(r.position() < size(), "device_mesh: a process beyond the mesh");
        mesh_place at;
        std::size_t left = r.position();
        for (const auto d : order_) {
            at.along(d) = left % extents_.along(d);
            left /= extents_.along(d);
        }
        return at;
    }
    [[nodiscard]] constexpr world_rank rank_at(const mesh_place& at) const {
        std::size_t position = 0;
        for (std::size_t i = order_.size(); i-- > 0;) {
            OPTPIPE_EXPECT(at.along(order_[i]) < extents_.along(order_[i]), "device_mesh: a place beyond the mesh");
            position = position * extents_.along(order_[i]) + at.along(order_[i]);
        }
        return world_rank{position};
    }
    [[nodiscard]] OPTPIPE_CONSTEXPR mesh_group group_of(world_rank r, mesh_dimension along) const {
        auto at = place_of(r);
        mesh_group group{.number = number_of(at, along), .self = at.along(along), .peers = {}};
        for (std::size_t i = 0; i < extents_.along(along); ++i) {
            at.along(along) = i;
            group.peers.push_back(rank_at(at));
        }
        return group;
    }
    [[nodiscard]] constexpr std::size_t groups(mesh_dimension along) const { return size() / extents_.along(along); }

private:
    /// The index of a process's group along one dimension. Groups are numbered like processes, except that the
    /// coordinate in the dimension `along` is ignored.
    [[nodiscard]] constexpr std::size_t number_of(const mesh_place& at, mesh_dimension along) const {
        std::size_t number = 0;
        for (std::size_t i = order_.size(); i-- > 0;)
            if (order_[i] != along) number = number * extents_.along(order_[i]) + at.along(order_[i]);
        return number;
    }

    mesh_extents extents_;
    dimension_order order_;
};

/// Gives each group along a dimension its own id (`nccl::world_id`, `ncclUniqueId`). Process 0 creates all ids by
/// `make()`, and each process takes the id of its group. `share(bytes, self, processes)` must distribute the bytes of
/// process 0 to all processes, as `share_by_tcp` and `share_by_mpi` do. All processes must call `share_group_id`
/// together. Throws the exceptions of `make` and `share`.
template <class Make, class Share>
[[nodiscard]] auto share_group_id(const device_mesh& mesh, world_rank self, mesh_dimension along, Make make,
                                  const Share& share) {
    using id = std::decay_t<decltype(make())>;
    static_assert(std::is_trivially_copyable_v<id>, "share_group_id: an id is handed round as its bytes");
    std::vector<id> ids(mesh.groups(along));
    if (self == world_rank{0}) std::generate(ids.begin(), ids.end(), make);
    share(std::as_writable_bytes(std::span{ids}), static_cast<int>(self.value()), static_cast<int>(mesh.size()));
    return ids[mesh.group_of(self, along).number];
}

} // namespace optpipe::execution
