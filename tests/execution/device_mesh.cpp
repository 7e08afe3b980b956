// The places of processes among pipelines, data and tensor groups, and the ids of their groups.
#include "optpipe/execution/device_mesh.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace {

using optpipe::execution::all_mesh_dimensions;
using optpipe::execution::device_mesh;
using optpipe::execution::mesh_dimension;
using optpipe::execution::mesh_extents;
using optpipe::execution::mesh_place;
using optpipe::execution::world_rank;

std::vector<std::size_t> numbers(const std::vector<world_rank>& ranks) {
    std::vector<std::size_t> all;
    for (const auto r : ranks)
        all.push_back(r.position());
    return all;
}

// The usual order: tensor groups are neighbours, pipelines span the mesh.
constexpr device_mesh sixteen{{.tensor = 2, .data = 2, .pipeline = 4}};
static_assert(sixteen.size() == 16);
static_assert(sixteen.place_of(world_rank{7}) == mesh_place{.tensor = 1, .data = 1, .pipeline = 1});
static_assert(sixteen.place_of(world_rank{7}).rank() == optpipe::rank{1});
static_assert(sixteen.rank_at({.tensor = 1, .data = 1, .pipeline = 1}) == world_rank{7});

TEST_CASE("groups are those of Megatron's order tp-dp-pp") {
    const auto tensor = sixteen.group_of(world_rank{7}, mesh_dimension::tensor);
    CHECK(numbers(tensor.peers) == std::vector<std::size_t>{6, 7});
    CHECK(tensor.number == 3);
    CHECK(tensor.self == 1);
    const auto data = sixteen.group_of(world_rank{7}, mesh_dimension::data);
    CHECK(numbers(data.peers) == std::vector<std::size_t>{5, 7});
    CHECK(data.number == 3); // {0,2} {1,3} {4,6} {5,7} …
    const auto pipeline = sixteen.group_of(world_rank{7}, mesh_dimension::pipeline);
    CHECK(numbers(pipeline.peers) == std::vector<std::size_t>{3, 7, 11, 15});
    CHECK(pipeline.number == 3);
    CHECK(pipeline.self == 1);
}

TEST_CASE("in every order, groups along a dimension part all processes, and places lead back") {
    using enum mesh_dimension;
    for (const auto& order : {all_mesh_dimensions, std::array{pipeline, data, tensor},
                              std::array{data, tensor, pipeline}, std::array{tensor, pipeline, data}})
        for (const mesh_extents extents : {mesh_extents{}, mesh_extents{2, 3, 4}, mesh_extents{1, 2, 2}}) {
            const device_mesh mesh{extents, order};
            CHECK(mesh.extents() == extents);
            for (std::size_t i = 0; i < mesh.size(); ++i)
                CHECK(mesh.rank_at(mesh.place_of(world_rank{i})) == world_rank{i});
            for (const auto along : all_mesh_dimensions) {
                std::set<std::pair<std::size_t, std::size_t>> seen;
                for (std::size_t i = 0; i < mesh.size(); ++i) {
                    const auto group = mesh.group_of(world_rank{i}, along);
                    REQUIRE(group.number < mesh.groups(along));
                    REQUIRE(group.peers.size() == extents.along(along));
                    CHECK(group.peers[group.self] == world_rank{i});
                    CHECK(seen.emplace(group.number, group.self).second);
                    for (const auto peer : group.peers) // they all refer to the same group
                        CHECK(mesh.group_of(peer, along).number == group.number);
                }
            }
        }
}

/// Shares process 0's bytes with all, between threads.
class shared_bytes {
public:
    void operator()(std::span<std::byte> bytes, int self, int processes) {
        CHECK(processes == 12);
        if (self == 0) {
            const std::lock_guard lock{mutex_};
            bytes_.assign(bytes.begin(), bytes.end());
            there_ = true;
            return;
        }
        for (;;) {
            const std::lock_guard lock{mutex_};
            if (!there_) continue;
            REQUIRE(bytes.size() == bytes_.size());
            std::memcpy(bytes.data(), bytes_.data(), bytes.size());
            return;
        }
    }

private:
    std::mutex mutex_;
    bool there_ = false;
    std::vector<std::byte> bytes_;
};

TEST_CASE("each group gets an id of its own") {
    const device_mesh mesh{{.tensor = 2, .data = 3, .pipeline = 2}};
    for (const auto along : all_mesh_dimensions) {
        shared_bytes share;
        std::vector<int> got(mesh.size());
        {
            std::vector<std::jthread> processes;
            for (std::size_t i = 0; i < mesh.size(); ++i)
                processes.emplace_back([&, i] {
                    got[i] = share_group_id(
                        mesh, world_rank{i}, along,
                        [i, next = 100]() mutable {
                            CHECK(i == 0);
                            return next++;
                        },
                        [&](std::span<std::byte> bytes, int self, int all) { share(bytes, self, all); });
                });
        }
        for (std::size_t i = 0; i < mesh.size(); ++i)
            CHECK(got[i] == 100 + static_cast<int>(mesh.group_of(world_rank{i}, along).number));
    }
}

} // namespace
