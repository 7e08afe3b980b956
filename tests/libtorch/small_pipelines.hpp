#pragma once

#include "execution/mixed_storage.hpp"
#include "execution/quick_adaptive.hpp"
#include "libtorch/small_model.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/execution/libtorch/measure.hpp"
#include "optpipe/execution/libtorch/message.hpp"
#include "optpipe/execution/libtorch/report.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/interleaved.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/v_half.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/builders/zero_bubble_v.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// Problems of the small model, with plans in which each microbatch has a storage option of its own.
namespace small_pipelines {

using namespace optpipe;

/// Measured sizes, and times that don't depend on this machine; every kind of storage option.
inline problem problem_of(const libtorch::training& model, const any_graph& shape, bool offloads_parts) {
    auto p = libtorch::measured_problem(model, shape, {.repeats = 1});
    const duration one{1.0};
    for (const stage s : shape.all_stages()) {
        auto costs = p.costs[s];
        costs.forward = costs.backward_input = costs.backward_weight = one;
        auto options = p.storage[s];
        for (auto& each : options) {
            if (each.offloads()) each.transfer = transfer_times{one, one};
            if (each.recomputes()) each.recompute = one;
        }
        const auto held = options[2].held;
        CHECK(std::string{options[2].name.view()} == "recompute");
        options.push_back({"inside", held, {}, one, {}, {}});
        options.push_back({"offload and recompute", held, one, {}, held, transfer_times{one, one}});
        if (offloads_parts)
            options.push_back({"half", costs.activation, {}, {}, 0.5 * costs.activation, transfer_times{one, one}});
        p.set_stage(s, costs, options);
    }
    return p;
}

/// The operations of a rank's compute lane, or of one kind of transfer, in the order of their starts.
inline std::vector<std::string> names_in_order(const std::vector<timed_operation>& of_rank, bool computes,
                                               operation_kind kind) {
    std::vector<std::string> names;
    for (const auto& each : of_rank)
        if (computes ? !is_transfer(each.op.kind) : each.op.kind == kind) names.push_back(to_string(each.op));
    return names;
}

inline void check_order(const schedule& measured, const schedule& planned, rank r) {
    CAPTURE(r.value());
    const auto done = operations_by_rank(measured)[r];
    const auto wanted = operations_by_rank(planned)[r];
    CHECK(names_in_order(done, true, {}) == names_in_order(wanted, true, {}));
    for (const auto kind : {operation_kind::offload, operation_kind::reload})
        CHECK(names_in_order(done, false, kind) == names_in_order(wanted, false, kind));
}

inline bool is_within(const libtorch::planned_bytes& bytes) {
    return static_cast<double>(bytes.measured) <= 1.02 * static_cast<double>(bytes.planned);
}

inline void check_report(const libtorch::stash_report& report, bool offloads_parts) {
    for (const auto& each : report.ranks) {
        CHECK(is_within(each.device));
        CHECK(each.device.measured > 0);
        // Of a stash, whole tensors are offloaded: the share is rounded up.
        if (!offloads_parts) CHECK(is_within(each.host));
    }
    for (const auto& each : report.stashes) {
        CAPTURE(each.option);
        CHECK(each.after_forward.measured == each.after_forward.planned);
        CHECK(is_within(each.after_recompute));
        CHECK(is_within(each.after_input_gradient));
    }
}

/// A problem, a plan of it, and the model that it trains. The same in every process.
struct case_of_all_options {
    libtorch::training model;
    problem tight;
    schedule plan;
    bool offloads_parts;
};

template <class Builder>
case_of_all_options make_case(const any_graph& shape, const Builder& build, std::uint64_t seed, bool offloads_parts,
                              at::Device on = at::kCPU) {
    const auto model = small_model::training_of(shape.stages(), false, on);
    const auto p = problem_of(model, shape, offloads_parts);
    const auto plain = build_schedule(mixed_storage::without_options(p), build);
    REQUIRE(plain.has_value());
    random_numbers random{seed};
    auto [tight, plan] = mixed_storage::make(p, *plain, random);
    return {model, std::move(tight), std::move(plan), offloads_parts};
}

/// Visits eight problems, with linear, loop and v placements and with tight memory: those whose number of ranks
/// `takes` accepts.
template <class Takes, class Visit>
void for_each_case(const Takes& takes, const Visit& visit, at::Device on = at::kCPU) {
    at::set_num_threads(1);
    std::uint64_t seed = 7000;
    const auto run = [&](const auto& shape, const auto& build, bool offloads_parts) {
        const auto own_seed = seed++;
        CAPTURE(own_seed);
        if (takes(shape.ranks())) visit(make_case(to_any_graph(shape), build, own_seed, offloads_parts, on));
    };
    run(graph<2, 4>{}, gpipe, false);
    run(graph<2, 8>{}, zero_bubble_h1, true);
    run(graph<4, 8>{}, one_forward_one_backward, false);
    run(graph<4, 8>{}, quick_adaptive, true);
    run(graph<2, 4, placement::loop<2>>{}, interleaved, false);
    run(graph<2, 6, placement::loop<2>>{}, quick_adaptive, true);
    run(graph<2, 6, placement::v>{}, zero_bubble_v, false);
    run(graph<4, 8, placement::v>{}, v_half, true);
}

/// The size of a message of the small model.
inline std::size_t bytes_of_message() { return libtorch::message_bytes({small_model::input_of(0, microbatch{})}); }

/// Whether the gradients of a stage are equal, bit for bit.
inline void check_gradients(const libtorch::training& model, stage s, const std::vector<libtorch::tensors>& expected) {
    const auto& own = expected[s.position()];
    for (std::size_t i = 0; i < own.size(); ++i)
        CHECK(at::equal(model.stages[s.position()].parameters[i].grad(), own[i]));
}

} // namespace small_pipelines
