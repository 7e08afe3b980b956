#pragma once

#include "execution/quick_adaptive.hpp"
#include "fakes/cuda.hpp"
#include "optpipe/execution/cuda/lane.hpp"
#include "optpipe/execution/cuda/side_stream.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_pairs.hpp"

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// Common parts of the tests on streams.
namespace streamed {

/// All texts, one per line.
inline std::string lines(const std::vector<std::string>& all) {
    std::string text;
    for (const auto& each : all)
        text += each + "\n";
    return text;
}

/// Calls the tracing model from the stream, as a kernel would be called. One object per rank; it outlives the streams'
/// work.
class model {
public:
    explicit model(std::size_t stages) : inner_{stages}, gradients_(stages) {}

    void forward(optpipe::cuda::lane& on, const optpipe::execution::forward_task& t) { forward(on.stream(), t); }
    void backward_input(optpipe::cuda::lane& on, const optpipe::execution::backward_task& t) {
        backward_input(on.stream(), t);
    }
    void backward_weight(optpipe::cuda::lane& on, const optpipe::execution::weight_task& t) {
        backward_weight(on.stream(), t);
    }
    /// The backward has a stream of its own.
    void overlap(optpipe::cuda::lane& on, const optpipe::execution::forward_task& f,
                 const optpipe::execution::backward_task& b) {
        if (!side_) side_.emplace();
        ++pairs_;
        side_->fork(on);
        backward_input(side_->stream(), b);
        forward(on.stream(), f);
        if (b.is_full)
            backward_weight(side_->stream(),
                            {b.stage, b.microbatch, b.kept, b.added, b.restored_kept, b.storage, b.is_last});
        side_->join(on);
    }
    void forward(optpipe::cuda::stream_ref on, const optpipe::execution::forward_task& t) {
        put(on, {"a forward", ranges(t.input), ranges(t.output, t.kept, t.freed)},
            [this, t] { inner_.forward(nothing_, t); });
    }
    /// The part of the gradient that the weight gradient needs may be written to the place of the stash.
    void backward_input(optpipe::cuda::stream_ref on, const optpipe::execution::backward_task& t) {
        put(on,
            {"an input gradient", ranges(t.input, t.freed, t.restored_freed),
             ranges(t.output, t.kept, t.restored_kept, t.added)},
            [this, t] { inner_.backward_input(nothing_, t); });
    }
    void backward_weight(optpipe::cuda::stream_ref on, const optpipe::execution::weight_task& t) {
        put(on, {"a weight gradient", ranges(t.kept, t.restored_kept, t.added), ranges(gradients(t.stage))},
            [this, t] { inner_.backward_weight(nothing_, t); });
    }
    void update(optpipe::cuda::lane& on, optpipe::stage s) {
        put(on.stream(), {"an update", ranges(gradients(s)), {}}, [this, s] { inner_.update(nothing_, s); });
    }
    void reduce(optpipe::cuda::lane& on, optpipe::stage s) {
        put(on.stream(), {"a reduction", {}, ranges(gradients(s))}, [this, s] { inner_.reduce(nothing_, s); });
    }
    [[nodiscard]] std::string complaint() const {
        const std::scoped_lock lock{mutex_};
        return complaint_;
    }
    [[nodiscard]] std::size_t weights() const { return inner_.weights(); }
    [[nodiscard]] std::size_t pairs() const { return pairs_; }
    [[nodiscard]] std::size_t reductions() const { return inner_.reductions(); }

private:
    struct kernel {
        streamed::model* owner;
        std::function<void()> run;
    };
    /// The gradients of one stage, for the race detector.
    [[nodiscard]] std::span<const std::byte> gradients(optpipe::stage s) const {
        return std::span{gradients_}.subspan(s.position(), 1);
    }
    static void add(std::vector<fake_cuda::range>& all, std::span<const std::byte> one) {
        all.push_back({one.data(), one.size()});
    }
    static void add(std::vector<fake_cuda::range>& all, optpipe::execution::stash_part pieces) {
        for (const auto& each : pieces)
            add(all, std::span<const std::byte>{each});
    }
    template <class... Parts> static std::vector<fake_cuda::range> ranges(const Parts&... parts) {
        std::vector<fake_cuda::range> all;
        (add(all, parts), ...);
        return all;
    }
    void put(optpipe::cuda::stream_ref on, fake_cuda::accesses uses, std::function<void()> run) {
        const std::scoped_lock lock{mutex_};
        kernels_.push_back({this, std::move(run)});
        fake_cuda::declare(std::move(uses));
        optpipe::cuda::check(cudaLaunchHostFunc(
                                 on.native(),
                                 [](void* given) {
                                     auto& k = *static_cast<kernel*>(given);
                                     try {
                                         k.run();
                                     } catch (const optpipe::error& e) {
                                         const std::scoped_lock inner{k.owner->mutex_};
                                         k.owner->complaint_ = e.what();
                                     }
                                 },
                                 &kernels_.back()),
                             "cudaLaunchHostFunc");
    }

    int nothing_ = 0;
    std::optional<optpipe::cuda::side_stream> side_;
    std::size_t pairs_ = 0;
    optpipe::testing::tracing_model inner_;
    std::vector<std::byte> gradients_;
    mutable std::mutex mutex_;
    std::deque<kernel> kernels_;
    std::string complaint_;
};
inline constexpr std::uint64_t first_seed = 5100;
inline constexpr optpipe::testing::problem_ranges ranges{
    .ranks = 4, .stages = 8, .microbatches = 6, .cells = 24, .offloading_percent = 80};

template <class Visit> void for_each_program(std::size_t count, Visit visit) {
    for (std::uint64_t seed = first_seed; seed < first_seed + count; ++seed) {
        CAPTURE(seed);
        optpipe::random_numbers random{seed};
        const auto p = optpipe::testing::make_random_problem(random, ranges).problem;
        constexpr optpipe::message_lanes all[] = {
            optpipe::message_lanes::separate, optpipe::message_lanes::per_direction, optpipe::message_lanes::single};
        const auto run_by = [&](const optpipe::problem& of, const optpipe::schedule& s) {
            const auto programs = lower(of, s,
                                        {.bytes_per_unit = 4.0,
                                         .message_bytes = 24,
                                         .lanes = all[seed % 3],
                                         .update = true,
                                         .reduce = seed % 2 == 0});
            if (programs) visit(of, s, *programs, seed);
        };
        const auto run = [&](const auto& builder) {
            if (const auto s = build_schedule(p, builder)) run_by(p, *s);
        };
        run(quick_adaptive);
        run(optpipe::one_forward_one_backward);
        run(optpipe::gpipe);
        const auto paired = oracle::with_random_pairs(random, p);
        if (const auto s = build_schedule(paired, quick_adaptive)) run_by(paired, oracle::with_all_pairs(paired, *s));
    }
}

inline optpipe::per_rank<optpipe::rank_program>
small_programs(optpipe::message_lanes lanes = optpipe::message_lanes::separate) {
    optpipe::stage_costs each;
    each.forward = each.backward_input = each.backward_weight = optpipe::duration{1.0};
    each.activation = optpipe::memory_size{2.0};
    each.weight_stash = optpipe::memory_size{1.0};
    const optpipe::problem p{to_any_graph(optpipe::graph<3, 4>{}), optpipe::per_stage<optpipe::stage_costs>(3, each)};
    return *lower(p, *build_schedule(p, optpipe::one_forward_one_backward),
                  {.bytes_per_unit = 4.0, .message_bytes = 24, .lanes = lanes});
}

/// Three ranks whose stashes must be offloaded.
inline optpipe::per_rank<optpipe::rank_program> offloading_programs(const optpipe::lowering_options& how = {
                                                                        .bytes_per_unit = 4.0, .message_bytes = 24}) {
    optpipe::stage_costs each;
    each.forward = each.backward_input = each.backward_weight = optpipe::duration{1.0};
    each.activation = optpipe::memory_size{2.0};
    each.weight_stash = optpipe::memory_size{1.0};
    each.transfer = optpipe::transfer_times{optpipe::duration{0.5}, optpipe::duration{0.5}};
    optpipe::problem p{to_any_graph(optpipe::graph<3, 5>{}), optpipe::per_stage<optpipe::stage_costs>(3, each)};
    for (const auto r : p.graph.all_ranks())
        p.memory_limit[r] = optpipe::memory_size{4.0};
    p.transfer.engines = 2;
    const auto s = build_schedule(p, quick_adaptive);
    REQUIRE(s.has_value());
    auto programs = lower(p, *s, how);
    REQUIRE(programs.has_value());
    REQUIRE((*programs)[optpipe::rank{0}].host_bytes > 0);
    return *std::move(programs);
}

} // namespace streamed
