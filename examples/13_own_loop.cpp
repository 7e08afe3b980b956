// Example 13: from measured numbers to a plan, and from the plan to your own training loop.
//
// Suppose that you have a framework: it runs stages, moves tensors, communicates between devices, and only needs the
// order. You have measured the costs of one microbatch. Copy this file, and insert your numbers and calls.

#include <optpipe/optpipe.hpp>
#include <optpipe/planner.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <vector>

namespace {

using namespace optpipe;

// Measured costs per stage: milliseconds, and gigabytes that the forward leaves for the backward. The first stage
// includes the embedding, the last one the loss.
struct profile {
    double forward, backward_input, backward_weight;
    double stash, stash_for_weights;
    double to_host, from_host;
};
constexpr std::size_t ranks = 4;
constexpr std::array<profile, ranks> measured{{{10.9, 10.1, 6.3, 1.4, 0.6, 5.6, 5.3},
                                               {10.2, 10.4, 6.0, 1.1, 0.5, 4.4, 4.1},
                                               {10.3, 10.4, 6.0, 1.1, 0.5, 4.4, 4.1},
                                               {12.8, 13.5, 7.1, 1.3, 0.6, 5.2, 4.9}}};

// Milliseconds for a message from one rank to another: two nodes with two devices each.
constexpr double hop_ms[ranks][ranks] = {
    {0.0, 0.2, 0.9, 0.9}, {0.2, 0.0, 0.9, 0.9}, {0.9, 0.9, 0.0, 0.2}, {0.9, 0.9, 0.2, 0.0}};

// Device memory left for stashes, without weights, gradients and optimizer state.
constexpr std::array<double, ranks> free_gb{2.9, 2.6, 2.6, 3.0};

problem measured_problem(std::size_t microbatches) {
    memory_per_stage<> costs{per_stage<stage_costs>(ranks)};
    for (const stage s : costs.each.indices()) {
        const auto& m = measured[s.position()];
        costs.each[s] = {duration{m.forward},
                         duration{m.backward_input},
                         duration{m.backward_weight},
                         memory_size{m.stash},
                         memory_size{m.stash_for_weights},
                         transfer_times{duration{m.to_host}, duration{m.from_host}}};
    }
    auto p = to_problem(make_problem(graph<ranks, dynamic>{ranks, microbatches}, costs));
    bounded_vector<duration, dynamic> hops; // row by row: from the first rank to all others, and so on
    for (const auto& row : hop_ms)
        for (const double hop : row)
            hops.push_back(duration{hop});
    p.p2p = hop_times<>{ranks, hops};
    for (const rank r : p.graph.all_ranks())
        p.memory_limit[r] = memory_size{free_gb[r.position()]};
    p.transfer.share_link(rank{0}, rank{1}); // two devices behind one PCIe switch
    p.transfer.share_link(rank{2}, rank{3});
    p.full_backward = false; // `train_step` has no backward in one piece: I and W each take their memory
    p.name = "measured";
    p.time_unit = "ms";
    p.memory_unit = "GB";
    return p;
}

/// Stands for your framework. Each call would launch kernels on one stream, or start a copy on another. Events express
/// the waits that the comments name; `lower` (example 8) can compute these waits for you. Sends must not block, because
/// neighbours may both send first.
struct your_engine {
    void forward(std::uint32_t, std::uint32_t) { ++calls; }         // receive, compute, send on
    void backward_input(std::uint32_t, std::uint32_t) { ++calls; }  // the same, in the other direction
    void backward_weight(std::uint32_t, std::uint32_t) { ++calls; } // local
    void offload(std::uint32_t, std::uint32_t) { ++calls; }
    void reload(std::uint32_t, std::uint32_t) { ++calls; }
    void recompute(std::uint32_t, std::uint32_t) { ++calls; } // if stages list storage options
    std::size_t calls = 0;
};

/// The loop of one rank: its operations, one after the other.
void train_step(your_engine& engine, const std::vector<timed_operation>& mine) {
    for (const auto& [op, start, end] : mine) {
        const auto s = op.stage.value();
        const auto m = op.microbatch.value();
        switch (op.kind) {
        case operation_kind::forward: engine.forward(s, m); break;
        case operation_kind::backward_input: engine.backward_input(s, m); break;
        case operation_kind::backward_weight: engine.backward_weight(s, m); break;
        case operation_kind::backward: break; // not planned, as `full_backward` is false
        case operation_kind::offload: engine.offload(s, m); break;
        case operation_kind::reload: engine.reload(s, m); break;
        case operation_kind::recompute: engine.recompute(s, m); break;
        }
    }
}

} // namespace

int main() {
    const auto p = measured_problem(8);
    for (const auto& wrong : validate(p)) // such as a time below 0, or a limit that one microbatch exceeds
        return std::cerr << wrong.text() << '\n', 1;

    const auto planned = plan(p); // about a second; `plan_options` can set a time limit and a target (example 7)
    if (!planned) return std::cerr << describe(planned.why()) << '\n', 1;
    std::cout << format_number(planned->objective) << " ms per step, no schedule takes less than "
              << format_number(planned->bound) << " ms\n";

    // One list per rank. Give each process its list, or write the whole schedule to a file (example 5).
    const auto lists = operations_by_rank(planned->schedule);
    for (const rank r : lists.indices()) {
        std::cout << "rank " << r.value() << ':';
        for (const auto& each : lists[r])
            std::cout << ' ' << to_string(each.op);
        your_engine engine;
        train_step(engine, lists[r]);
        std::cout << "\n  " << engine.calls << " calls\n";
        if (engine.calls < 3 * p.graph.microbatches()) return 1;
    }
}
