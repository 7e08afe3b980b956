#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/cuda/options.hpp"
#include "optpipe/execution/libtorch/cuda/lanes.hpp"
#include "optpipe/execution/libtorch/pipeline.hpp"
#include "optpipe/execution/libtorch/training.hpp"
#include "optpipe/execution/threads/control_channel.hpp"
#include "optpipe/execution/threads/failure.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace optpipe::libtorch {

/// The devices of all ranks, indexed by rank. Throws `error` unless all stages of a rank are on the same GPU. Contract:
/// the model has as many stages as the problem.
[[nodiscard]] inline std::vector<int> devices_of(const problem& p, const training& model) {
    std::vector<int> devices(p.graph.ranks(), -1);
    for (const stage s : p.graph.all_stages()) {
        const auto own = device_of(model.stages[s.position()]);
        auto& device = devices[p.rank_of(s).position()];
        if (!own.is_cuda())
            throw error{"stage " + std::to_string(s.value()) + " has no parameters or buffers on a GPU"};
        if (device >= 0 && device != own.index())
            throw error{"the stages of rank " + std::to_string(p.rank_of(s).value()) + " are on several GPUs"};
        device = own.index();
    }
    return devices;
}

/// Runs the ranks of a pipeline as threads of this process. Each rank uses the GPU of its stages. Ranks may share a
/// GPU. Messages are copies between the memories of GPUs.
class cuda_ranks {
public:
    cuda_ranks(const problem& p, const training& model, const pipeline_options& how)
        : ranks_{p.graph.ranks(), options_of(p, model, how)}, control_{p.graph.ranks(), how.patience, failed_} {}

    [[nodiscard]] std::size_t ranks() const { return ranks_.ranks(); }
    [[nodiscard]] cuda::executor& operator[](rank r) { return ranks_[r]; }
    [[nodiscard]] threads::control_channel& control(rank r) { return control_[r]; }

private:
    static cuda::options options_of(const problem& p, const training& model, const pipeline_options& how) {
        cuda::options of_ranks;
        of_ranks.devices = devices_of(p, model);
        of_ranks.patience = std::chrono::ceil<std::chrono::milliseconds>(how.patience);
        of_ranks.streams = pooled_streams();
        of_ranks.record_times = true;
        return of_ranks;
    }

    cuda::cluster ranks_;
    threads::failure failed_{};
    threads::control_board control_;
};

/// Trains a model on the GPUs of its stages. Messages must have bytes (`message_bytes`), and steps can't be paced. The
/// host only puts work into streams. `training::input` and `training::loss` should return device tensors, filled in the
/// current stream. The functions needn't wait for copies in the current stream.
using cuda_pipeline = basic_pipeline<cuda_ranks>;

} // namespace optpipe::libtorch
