// Steps of a transformer of LibTorch, with stashes kept, offloaded, recomputed, or as the planner likes it best within
// half of the memory: times and saved bytes beside those of the plan, and gradients beside those of the model in one
// piece.
//
//     gpu_libtorch [--out PREFIX] [--device cuda|cpu] [--ranks N] [--width N] [--length N] [--steps N]
#include "../../examples/libtorch/transformer.hpp"
#include "arguments.hpp"
#include "report.hpp"
#include <optpipe/execution/cuda/device.hpp>
#include <optpipe/execution/libtorch/cuda/pipeline.hpp>
#include <optpipe/execution/libtorch/measure.hpp>
#include <optpipe/execution/libtorch/pipeline.hpp>
#include <optpipe/planner/plan.hpp>
#include <optpipe/program/lower.hpp>
#include <optpipe/schedule.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;
using transformer::tensors;

/// The problem with this storage option alone, or with all options and half of the memory that keeping takes.
problem with_storage(problem p, const std::string& name, const schedule& keeps) {
    if (name == "planned") {
        const auto peaks = measure(p, keeps).peak_memory;
        for (const rank r : p.graph.all_ranks())
            p.memory_limit[r] = 0.5 * peaks[r];
        return p;
    }
    for (const stage s : p.graph.all_stages()) {
        auto options = p.storage[s];
        std::erase_if(options, [&](const auto& each) { return std::string{each.name.view()} != name; });
        p.set_stage(s, p.costs[s], options);
    }
    return p;
}

double length_of(const schedule& step) {
    duration first{std::numeric_limits<double>::infinity()}, last{0.0};
    for (const auto& each : step.operations) {
        first = std::min(first, each.start);
        last = std::max(last, each.end);
    }
    return (last - first).value();
}

/// The largest difference between two gradients, relative to the largest number of the expected one.
double difference(const libtorch::training& model, const std::vector<tensors>& expected) {
    double most = 0.0;
    for (std::size_t s = 0; s < expected.size(); ++s)
        for (std::size_t i = 0; i < expected[s].size(); ++i) {
            const auto off = (model.stages[s].parameters[i].grad() - expected[s][i]).abs().max().item<double>();
            most = std::max(most, off / std::max(1e-30, expected[s][i].abs().max().item<double>()));
        }
    return most;
}

void forget_gradients(const libtorch::training& model) {
    for (const auto& stage : model.stages)
        for (const auto& each : stage.parameters)
            each.mutable_grad().reset();
}

double gigabytes(std::int64_t bytes) { return 1e-9 * static_cast<double>(bytes); }

class steps_of_plans {
public:
    steps_of_plans(gpu_bench::report& out, const transformer::sizes& size, std::size_t stages, std::size_t steps)
        : out_{out}, size_{size}, model_{transformer::training_of(stages, size)}, steps_{steps} {}

    /// Returns whether the gradients are right.
    template <class Pipeline> bool run(const std::string& name, const problem& p, const schedule& planned) {
        const auto bytes =
            libtorch::message_bytes({at::empty({size_.sequences, size_.length, size_.width}, size_.type)});
        const auto programs = lower(p, planned, libtorch::lowering_defaults(bytes));
        if (!programs) throw error{describe(programs.why())};
        forget_peak();
        Pipeline pipeline{p, *programs, model_};
        double best = std::numeric_limits<double>::infinity(), off = 0.0;
        std::int64_t taken = 0;
        for (std::size_t n = 0; n < steps_; ++n) {
            forget_gradients(model_);
            best = std::min(best, length_of(pipeline.step().measured));
            taken = peak();
            if (n > 0) continue;
            off = difference(model_, transformer::gradients_in_one_piece(model_, accumulation_order_of(planned)));
            forget_peak();
        }
        std::size_t saved = 0, saved_in_plan = 0;
        for (const auto& each : pipeline.report().ranks) {
            saved = std::max(saved, each.device.measured);
            saved_in_plan = std::max(saved_in_plan, each.device.planned);
        }
        const double planned_length = length_of(planned);
        out_.row({name, planned_length, best, best / planned_length,
                  gigabytes(static_cast<std::int64_t>(saved_in_plan)), gigabytes(static_cast<std::int64_t>(saved)),
                  gigabytes(taken), off});
        constexpr double tolerance = 1e-3; // of sums in float, whose order differs
        return off <= tolerance;
    }
    [[nodiscard]] const libtorch::training& model() const { return model_; }

private:
    /// All memory that LibTorch has on the device, including weights and gradients.
    [[nodiscard]] std::int64_t peak() const {
        if (size_.device.is_cpu()) return 0;
        return at::getDeviceAllocator(size_.device.type())->getDeviceStats(0).reserved_bytes[0].peak;
    }
    void forget_peak() const {
        libtorch::return_unused_memory(size_.device);
        if (!size_.device.is_cpu()) at::getDeviceAllocator(size_.device.type())->resetPeakStats(0);
    }

    gpu_bench::report& out_;
    transformer::sizes size_;
    libtorch::training model_;
    std::size_t steps_;
};

} // namespace

int main(int count, char** given) try {
    const gpu_bench::arguments options{count,
                                       given,
                                       {{"--out", "gpu_libtorch"},
                                        {"--device", "cuda"},
                                        {"--ranks", "4"},
                                        {"--width", "1024"},
                                        {"--length", "1024"},
                                        {"--steps", "5"}}};
    transformer::sizes size;
    size.width = static_cast<std::int64_t>(options.number("--width"));
    size.length = static_cast<std::int64_t>(options.number("--length"));
    size.heads = std::max<std::int64_t>(1, size.width / 64);
    size.type = at::kFloat;
    const bool is_gpu = options["--device"] == "cuda";
    if (is_gpu && cuda::device_count() == 0) throw error{"no GPU"};
    if (is_gpu) size.device = at::Device{at::kCUDA, 0};
    gpu_bench::report out{options["--out"]};
    const auto ranks = options.number("--ranks");
    steps_of_plans steps{out, size, ranks, options.number("--steps")};
    const auto p = libtorch::measured_problem(steps.model(),
                                              to_any_graph(graph<dynamic, dynamic>{ranks, transformer::microbatches}));
    out.table("A step of LibTorch, " + std::to_string(ranks) + " ranks on one device, a layer of width " +
                  options["--width"] + " each",
              {"stashes", "planned ms", "measured ms (best)", "ratio", "planned GB saved", "measured GB saved",
               "GB that LibTorch has", "gradients off by"});
    bool is_well = true;
    const auto keeps = plan(with_storage(p, "keep", {p.graph, {}}), {.time_limit = std::chrono::seconds{2}});
    if (!keeps) throw error{describe(keeps.why())};
    for (const std::string name : {"keep", "offload", "recompute", "selective", "planned"}) {
        const auto own = with_storage(p, name, keeps->schedule);
        const auto planned = plan(own, {.time_limit = std::chrono::seconds{3}});
        if (!planned) {
            out.row({name, describe(planned.why())});
            is_well = false;
        } else if (is_gpu) {
            is_well = steps.run<libtorch::cuda_pipeline>(name, own, planned->schedule) && is_well;
        } else {
            is_well = steps.run<libtorch::pipeline>(name, own, planned->schedule) && is_well;
        }
    }
    out.note(
        "The ranks share the device, while the plan counts on one for each; so the ratio may be up to the number of "
        "ranks.");
    return is_well ? 0 : 1;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
