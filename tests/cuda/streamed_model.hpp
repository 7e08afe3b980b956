#pragma once

#include "../../examples/language_model/cuda/device_pipeline.hpp"
#include "../../examples/language_model/cuda/loop_device.hpp"
#include "../../examples/language_model/shape.hpp"
#include "../../examples/language_model/stage.hpp"
#include "optpipe/execution/cuda/error.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// A language model whose kernels are loops on a fake device.
namespace streamed_model {

using namespace language_model;

inline const std::string text =
    "a schedule is an order; times are derived. what runs is the order of each lane, and no lane waits "
    "for more than it has to; what is stashed is freed, what travels comes back.";
inline constexpr shape tiny{.hidden = 8, .heads = 2, .sequence = 6, .sequences = 2, .vocabulary = 128};
inline constexpr std::size_t ranks = 4;
inline constexpr std::size_t microbatches = 6;
inline constexpr std::uint64_t seed = 7;

/// A `loop_device` whose loops wait in a stream.
class streamed_loops : public loop_device {
public:
    void use(cudaStream_t stream) { stream_ = stream; }

    template <class Body> void for_each(std::size_t count, const Body& body) {
        put([=] { loop_device::for_each(count, body); });
    }
    template <class Body> void for_each_row(std::size_t rows, const Body& body) {
        put([=] { loop_device::for_each_row(rows, body); });
    }
    template <class Term> void add_column_sums(std::size_t rows, std::size_t columns, const Term& term, float* out) {
        put([=] { loop_device::add_column_sums(rows, columns, term, out); });
    }
    void multiply(const product& p) {
        put([=] { loop_device::multiply(p); });
    }
    void copy(const float* from, float* to, std::size_t count) {
        put([=] { loop_device::copy(from, to, count); });
    }
    void clear(float* to, std::size_t count) {
        put([=] { loop_device::clear(to, count); });
    }

    template <class T> [[nodiscard]] std::vector<T> load_in_order(std::span<const T> from) {
        optpipe::cuda::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
        return load<T>(from);
    }

private:
    void put(std::function<void()> run) {
        loops_.push_back(std::move(run));
        optpipe::cuda::check(
            cudaLaunchHostFunc(
                stream_, [](void* loop) { (*static_cast<std::function<void()>*>(loop))(); }, &loops_.back()),
            "cudaLaunchHostFunc");
    }
    cudaStream_t stream_ = nullptr;
    std::deque<std::function<void()>> loops_;
};

template <class Device> std::vector<device_stage<Device>> make_device_stages(std::vector<Device>& devices) {
    std::vector<device_stage<Device>> stages;
    for (std::size_t i = 0; i < ranks; ++i)
        stages.emplace_back(tiny, stage_place{i % 2 + 1, i == 0, i + 1 == ranks}, seed + i,
                            device_math<Device>{devices[i]});
    return stages;
}

using stages_type = std::vector<device_stage<streamed_loops>>;

/// `tight`: with memory for two stashes, which can be offloaded.
inline optpipe::problem make_problem(const stages_type& stages, bool tight) {
    optpipe::per_stage<optpipe::stage_costs> costs(ranks);
    for (std::size_t i = 0; i < ranks; ++i) {
        auto& c = costs[optpipe::stage{i}];
        c.forward = c.backward_input = c.backward_weight = optpipe::duration{1.0};
        c.weight_stash = optpipe::memory_size{static_cast<double>(sizeof(float) * stages[i].kept())};
        c.activation = c.weight_stash + optpipe::memory_size{static_cast<double>(sizeof(float) * stages[i].freed())};
        if (tight) c.transfer = optpipe::transfer_times{optpipe::duration{0.8}, optpipe::duration{0.8}};
    }
    optpipe::problem p{to_any_graph(optpipe::graph<ranks, microbatches>{}), std::move(costs)};
    p.transfer.engines = 2;
    if (tight)
        for (const auto r : p.graph.all_ranks())
            p.memory_limit[r] = 2.0 * p.costs[optpipe::stage{r.position()}].activation;
    return p;
}

} // namespace streamed_model
