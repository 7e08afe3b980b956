// How long a pair takes on this GPU against its parts and against its model, on virtual ranks: computation beside
// copies to and from the host, which stand for exchanges between ranks.
//
//     gpu_pairs [--ranks N] [--milliseconds N] [--out PREFIX]
#include "arguments.hpp"
#include "copies.hpp"
#include "paired_stage.hpp"
#include "partition.hpp"
#include "report.hpp"
#include <optpipe/core/outcome.hpp>
#include <optpipe/execution/cuda/device.hpp>
#include <optpipe/execution/cuda/executor.hpp>
#include <optpipe/execution/measured.hpp>
#include <optpipe/execution/run.hpp>
#include <optpipe/pipeline/layer_pairs.hpp>
#include <optpipe/pipeline/placement.hpp>
#include <optpipe/pipeline/problem.hpp>
#include <optpipe/program/lower.hpp>
#include <optpipe/schedule/builders/dual_pipe_v.hpp>
#include <optpipe/schedule/pair.hpp>
#include <optpipe/schedule/profile/estimate.hpp>
#include <optpipe/schedule/time/evaluate.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;

constexpr std::size_t microbatches = 12;
constexpr std::size_t message_bytes = 4096;
constexpr unsigned threads_per_block = 256;

__global__ void multiply_and_add(std::size_t rounds, std::byte* memory, std::byte value) {
    auto x = static_cast<float>(threadIdx.x);
    for (std::size_t i = 0; i < rounds; ++i)
        x = fmaf(x, 0.999F, 0.5F);
    // Never true, but the compiler can't know, so the loop stays.
    const bool is_first = blockIdx.x == 0 && threadIdx.x == 0;
    if (is_first || x < 0.0F) *memory = value;
}

/// Keeps the multiprocessors of a virtual rank busy.
struct busy_kernel {
    unsigned blocks = 1;

    void operator()(cuda::stream_ref on, std::size_t rounds, std::span<std::byte> memory, std::byte value) const {
        multiply_and_add<<<blocks, threads_per_block, 0, on.native()>>>(rounds, memory.data(), value);
        cuda::check(cudaGetLastError(), "multiply_and_add");
    }
};
using stage_type = gpu_bench::paired_stage<busy_kernel>;
using runner_type = runner<cuda::executor, stage_type>;

/// Equal stages, two on each rank, with pairs of their forwards and full backwards or without.
problem two_per_rank(std::size_t ranks, bool has_pairs) {
    const stage_costs costs{duration{1.0}, duration{1.0}, duration{1.0},
                            memory_size{static_cast<double>(message_bytes)},
                            memory_size{static_cast<double>(message_bytes)}};
    problem p{to_any_graph(graph<dynamic, dynamic, placement::v>{ranks, microbatches}),
              per_stage<stage_costs>(2 * ranks, costs)};
    for (const stage f : p.graph.all_stages())
        for (const stage b : p.graph.all_stages())
            if (has_pairs && p.rank_of(f) == p.rank_of(b))
                p.overlaps.add({f, b, overlap_kind::backward, duration{2.0}, {}});
    return p;
}

/// Medians, in milliseconds; 0 where nothing was measured.
struct measured_times {
    duration forward{}, backward{}, pair{}, step{};
    bool is_well = true;
};
measured_times measure(const gpu_bench::partition& parts, const gpu_bench::paired_work& work, std::size_t ranks,
                       bool has_pairs, busy_kernel kernel) {
    const auto p = two_per_rank(ranks, has_pairs);
    const auto s = build_schedule(p, dual_pipe_v).value();
    const auto programs = lower(p, s,
                                {.bytes_per_unit = 1.0,
                                 .message_bytes = message_bytes,
                                 .lanes = message_lanes::per_direction,
                                 .placement = part_placement::contiguous})
                              .value();
    cuda::cluster cluster{ranks,
                          {.patience = std::chrono::seconds{20}, .streams = parts.streams(), .record_times = true}};
    std::vector<std::unique_ptr<stage_type>> stages;
    std::vector<std::unique_ptr<runner_type>> runners;
    for (const auto& program : programs) {
        stages.push_back(std::make_unique<stage_type>(kernel, work, microbatches, message_bytes));
        runners.push_back(std::make_unique<runner_type>(program, cluster[program.self], *stages.back()));
    }
    constexpr int steps = 4; // the first isn't counted
    std::vector<double> forwards, backwards, pairs, lengths;
    for (int step = 0; step < steps; ++step) {
        for (auto& each : runners)
            each->forget_times();
        for (auto& each : runners)
            each->issue();
        cluster.finish();
        if (step == 0) continue;
        std::vector<rank_times> times;
        for (const auto& program : programs)
            times.push_back({&program, runners[program.self.position()]->times()});
        const auto measured = measured_schedule(p.graph, times, std::chrono::milliseconds{1});
        lengths.push_back(last_end(measured).value());
        for (const auto& each : measured.operations) {
            const auto took = (each.end - each.start).value();
            if (!each.op.is_paired && each.op.kind == operation_kind::forward) forwards.push_back(took);
            if (!each.op.is_paired && each.op.kind == operation_kind::backward) backwards.push_back(took);
        }
        for_each_pair(measured, [&](const timed_operation& f, const timed_operation&) {
            pairs.push_back((f.end - f.start).value());
        });
    }
    const auto median = [](std::vector<double> of) {
        return duration{of.empty() ? 0.0 : detail::median_of(std::move(of))};
    };
    measured_times result{median(std::move(forwards)), median(std::move(backwards)), median(std::move(pairs)),
                          median(std::move(lengths))};
    for (const auto& each : stages)
        result.is_well = result.is_well && each->has_seen_all();
    return result;
}

/// Compares pairs with their parts. The computations of an operation last about `milliseconds`.
class comparison {
public:
    comparison(gpu_bench::report& out, std::size_t ranks, double milliseconds, bool is_divided)
        : out_{out}, ranks_{ranks}, milliseconds_{milliseconds}, is_divided_{is_divided}, parts_{ranks, is_divided} {
        const auto all = cuda::attribute(0, cudaDevAttrMultiProcessorCount);
        const auto own = parts_.multiprocessors() > 0 ? parts_.multiprocessors() : all;
        constexpr unsigned blocks_per_multiprocessor = 4;
        kernel_.blocks = blocks_per_multiprocessor * static_cast<unsigned>(own);
        // On streams, the ranks share all multiprocessors.
        constexpr std::size_t tried = 200'000;
        const auto took = measure(parts_, {tried, tried, tried, 1}, ranks, false, kernel_).forward;
        rounds_ = static_cast<std::size_t>(static_cast<double>(tried) * milliseconds / took.value()) + 1;
        constexpr std::size_t copied = std::size_t{1} << 25U;
        const auto rates = gpu_bench::copy_meter{copied}.rates(6);
        rate_ = std::min(rates.out_beside_in, rates.in_beside_out);
    }

    /// Whether all data arrived. `share`: about how much of a forward is copying.
    bool run(double share) {
        const gpu_bench::paired_work alone{rounds_, rounds_, rounds_, 1};
        auto work = alone;
        // All ranks share the copy engines.
        const double copying = milliseconds_ * share / (1.0 - share) / static_cast<double>(ranks_);
        work.bytes = static_cast<std::size_t>(copying * rate_ * 1e6) + 1;
        const auto computing = measure(parts_, alone, ranks_, false, kernel_);
        const auto single = measure(parts_, work, ranks_, false, kernel_);
        const auto paired = measure(parts_, work, ranks_, true, kernel_);
        const auto parts_of = [](duration all, duration computes) {
            return work_parts{std::min(all, computes), std::max(duration{}, all - computes)};
        };
        const auto model = overlap_duration(parts_of(single.forward, computing.forward),
                                            parts_of(single.backward, computing.backward), 0.0);
        const auto succession = single.forward + single.backward;
        const bool is_well = computing.is_well && single.is_well && paired.is_well;
        out_.row({static_cast<double>(ranks_), is_divided_ ? "green contexts" : "streams",
                  1.0 - computing.forward / single.forward, single.forward.value(), single.backward.value(),
                  paired.pair.value(), paired.pair / succession, paired.pair / model, single.step.value(),
                  paired.step.value(), is_well ? "" : "data is missing"});
        return is_well;
    }

private:
    gpu_bench::report& out_;
    std::size_t ranks_;
    double milliseconds_;
    bool is_divided_;
    gpu_bench::partition parts_;
    busy_kernel kernel_{};
    std::size_t rounds_ = 1;
    /// GB/s of copies in both directions at once.
    double rate_ = 0.0;
};

} // namespace

int main(int count, char** given) try {
    const gpu_bench::arguments options{
        count, given, {{"--ranks", "2"}, {"--milliseconds", "2"}, {"--out", "gpu_pairs"}}};
    if (cuda::device_count() == 0) throw error{"no GPU"};
    gpu_bench::report out{options["--out"]};
    out.table("A pair against its parts, and a step of DualPipeV with and without pairs",
              {"ranks", "on", "copies of F", "F [ms]", "B [ms]", "pair [ms]", "of its parts", "of its model",
               "step without [ms]", "step with [ms]", "verdict"});
    bool is_well = true;
    for (const bool is_divided : {true, false}) {
        comparison compare{out, options.number("--ranks"), static_cast<double>(options.number("--milliseconds")),
                           is_divided};
        for (const double share : {0.2, 0.35, 0.5})
            is_well = compare.run(share) && is_well;
    }
    return is_well ? 0 : 1;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
