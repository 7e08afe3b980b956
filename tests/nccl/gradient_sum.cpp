// Gradients of replicas, each in a pipeline of its own, are added up on other communicators than the messages.
#include "optpipe/execution/nccl/gradient_sum.hpp"

#include "cuda/streamed.hpp"
#include "fakes/cuda.hpp"
#include "fakes/nccl.hpp"
#include "nccl/joined.hpp"
#include "optpipe/execution/device_mesh.hpp"
#include "optpipe/execution/nccl/executor.hpp"
#include "optpipe/execution/nccl/lowering.hpp"
#include "optpipe/execution/run.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using optpipe::rank;
using optpipe::execution::mesh_dimension;
using optpipe::execution::world_rank;
namespace cuda = optpipe::cuda;
namespace nccl = optpipe::nccl;

namespace {

constexpr std::size_t stages = 3;
constexpr std::size_t replicas = 2;
const optpipe::execution::device_mesh mesh{{.data = replicas, .pipeline = stages}};

/// A stage's gradients are made where they are reduced, and read by the update. Entry i on replica r is (r + 1) · (i +
/// 1).
class summing_model : public streamed::model {
public:
    using entries = std::array<float, 8>;

    summing_model(nccl::gradient_sum& sum) : streamed::model{stages}, sum_{sum} {
        for (std::size_t i = 0; i < entries{}.size(); ++i)
            numbers(0)[i] = static_cast<float>(sum_.replica() + 1) * static_cast<float>(i + 1);
    }
    void reduce(cuda::lane& on, optpipe::stage) {
        on.stream().copy(device_.memory().data(), host_.memory().data(), sizeof(entries), cudaMemcpyHostToDevice);
        sum_(on, gradients());
    }
    void update(cuda::lane& on, optpipe::stage) {
        on.stream().copy(&numbers(1)[0], device_.memory().data(), sizeof(entries), cudaMemcpyDeviceToHost);
    }
    [[nodiscard]] entries seen() {
        entries all{};
        std::memcpy(all.data(), &numbers(1)[0], sizeof all);
        return all;
    }

private:
    [[nodiscard]] std::span<float> gradients() const {
        return {reinterpret_cast<float*>(device_.memory().data()), entries{}.size()};
    }
    /// The entries that go to the device, and the ones that came from it.
    [[nodiscard]] std::span<float> numbers(std::size_t which) const {
        return {reinterpret_cast<float*>(host_.memory().data() + which * sizeof(entries)), entries{}.size()};
    }

    nccl::gradient_sum& sum_;
    cuda::device_slab device_{sizeof(entries)};
    cuda::pinned_slab host_{2 * sizeof(entries)};
};

optpipe::per_rank<optpipe::rank_program> training_programs() {
    optpipe::stage_costs each;
    each.forward = each.backward_input = each.backward_weight = optpipe::duration{1.0};
    each.activation = optpipe::memory_size{2.0};
    each.weight_stash = optpipe::memory_size{1.0};
    const optpipe::problem p{to_any_graph(optpipe::graph<stages, 4>{}),
                             optpipe::per_stage<optpipe::stage_costs>(stages, each)};
    auto how = nccl::lowering_defaults();
    how.bytes_per_unit = 4.0;
    how.message_bytes = 24;
    how.update = how.reduce = true;
    return *lower(p, *build_schedule(p, optpipe::one_forward_one_backward), how);
}

struct outcome {
    std::vector<std::string> errors = std::vector<std::string>(mesh.size());
    std::vector<summing_model::entries> seen = std::vector<summing_model::entries>(mesh.size());
};
/// Trains all processes of the mesh, each a thread with a device, by `train(process, executor, program, model)`.
template <class Train>
outcome on_mesh(const std::array<std::chrono::milliseconds, replicas>& patience, const Train& train) {
    const auto programs = training_programs();
    std::vector<nccl::world_id> lines(mesh.groups(mesh_dimension::pipeline));
    std::vector<ncclUniqueId> columns(mesh.groups(mesh_dimension::data));
    for (auto& each : lines)
        each = nccl::world_id::make();
    for (auto& each : columns)
        each = nccl::communicator::make_id();
    outcome all;
    std::vector<std::jthread> processes;
    for (std::size_t i = 0; i < mesh.size(); ++i)
        processes.emplace_back([&, i] {
            const auto line = mesh.group_of(world_rank{i}, mesh_dimension::pipeline);
            const auto column = mesh.group_of(world_rank{i}, mesh_dimension::data);
            try {
                nccl::member here{lines[line.number],
                                  rank{line.self},
                                  stages,
                                  {.device = static_cast<int>(i), .patience = patience[column.self], .drain = 10s}};
                nccl::gradient_sum sum{here, columns[column.number], column};
                summing_model model{sum};
                train(i, here.executor(), programs[rank{line.self}], model);
                all.seen[i] = model.seen();
            } catch (const optpipe::error& e) {
                all.errors[i] = e.what();
            }
        });
    processes.clear();
    return all;
}
using summing_runner = optpipe::runner<cuda::executor, summing_model>;

void check_nothing_is_left() {
    CHECK(streamed::lines(fake_nccl::complaints()) == "");
    CHECK(fake_cuda::alive() == fake_cuda::census{});
    CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("every replica has the sum of all, beside its pipeline, step after step") {
    for (const bool is_captured : {false, true}) {
        CAPTURE(is_captured);
        fake_cuda::reset({.log_accesses = true});
        fake_nccl::reset();
        const auto all =
            on_mesh({20s, 20s}, [&](std::size_t, cuda::executor& on, const auto& program, summing_model& model) {
                summing_runner mine{program, on, model};
                if (!is_captured) {
                    for (int step = 0; step < 3; ++step)
                        mine.step();
                    return;
                }
                const auto step = on.capture([&] { mine.issue(); });
                for (int i = 0; i < 3; ++i)
                    on.launch(step);
                on.finish();
            });
        CHECK(streamed::lines(all.errors) == std::string(mesh.size(), '\n'));
        for (const auto& seen : all.seen)
            for (std::size_t i = 0; i < seen.size(); ++i)
                CHECK(seen[i] == 3.0F * static_cast<float>(i + 1));
        CHECK(fake_nccl::count("ncclAllReduce") == mesh.size() * (is_captured ? 2 : 4)); // and when they joined
        CHECK(streamed::lines(fake_cuda::races()) == "");
        check_nothing_is_left();
    }
}

TEST_CASE("a replica that goes before its second step is missed, on its pipeline and on the other") {
    fake_cuda::reset();
    // Its pipeline gives up first, one communicator after the other: none of its sums may end meanwhile.
    fake_nccl::reset({.abort_pause = 20ms});
    const auto gone = mesh.rank_at({.data = 1, .pipeline = 2}).position();
    const auto train = [&](std::size_t i, cuda::executor& on, const auto& program, summing_model& model) {
        summing_runner mine{program, on, model};
        for (int step = 0; step < (i == gone ? 1 : 2); ++step)
            mine.step();
    };
    const auto all = on_mesh({1000ms, 500ms}, train);
    // The ranks of its pipeline wait for its messages, their replicas wait for them, and the whole other pipeline waits
    // too.
    for (std::size_t s = 0; s < stages; ++s) {
        const auto stage = std::to_string(s);
        const auto& here = all.errors[mesh.rank_at({.data = 0, .pipeline = s}).position()];
        CHECK(here == "rank " + stage + ", reduction of stage " + stage + ": not over after 1000 ms");
        const auto place = mesh.rank_at({.data = 1, .pipeline = s}).position();
        CHECK(all.errors[place].empty() == (place == gone));
    }
    check_nothing_is_left();
}

TEST_CASE("a sum that fails ends the step, with its place") {
    for (const std::size_t number : {1U, 9U}) { // when replicas join, and in the first step
        CAPTURE(number);
        fake_cuda::reset();
        fake_nccl::reset({.failing_call = "ncclAllReduce", .failing_number = number});
        const auto all =
            on_mesh({500ms, 500ms}, [&](std::size_t, cuda::executor& on, const auto& program, auto& model) {
                summing_runner mine{program, on, model};
                mine.step();
            });
        std::size_t said = 0;
        for (const auto& e : all.errors)
            said += e.find("ncclAllReduce: failed as the test wants it") != std::string::npos ? 1 : 0;
        CHECK(said == 1);
        check_nothing_is_left();
    }
}

} // namespace
