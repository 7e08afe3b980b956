// Example 13: your own training loop, without an executor of the library.
//
// Suppose that you have a framework: it computes stages, copies tensors to the host, and moves them between devices.
// The library only says which task each stream runs, in which order, and what the task waits for. Here a stream is a
// thread. Stashes are kept, offloaded or recomputed, and the steps are measured and planned again. Copy this file, and
// insert your numbers and calls.

#include "engine/mailbox.hpp"
#include "engine/model.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/pipeline.hpp>
#include <optpipe/planner/plan.hpp>
#include <optpipe/program.hpp>
#include <optpipe/schedule.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;
using engine::layer;
using engine::matrix;
using steady_clock = std::chrono::steady_clock;
using milliseconds = std::chrono::duration<double, std::milli>;

constexpr std::size_t ranks = 4, microbatches = 8, samples = 8, width = 32;
constexpr std::size_t matrix_bytes = samples * width * sizeof(double);

// Costs of a microbatch on each stage, in milliseconds: those estimated before the first step, and those of the
// devices, which nobody knows yet.
struct stage_times {
    double forward, backward_input, backward_weight, to_host, from_host;
};
using times_by_stage = std::array<stage_times, ranks>;
constexpr times_by_stage estimated{
    {{2.2, 2.0, 1.2, 0.9, 0.9}, {2.0, 2.0, 1.2, 0.9, 0.9}, {2.0, 2.0, 1.2, 0.9, 0.9}, {2.5, 2.5, 1.4, 0.9, 0.9}}};
constexpr times_by_stage real{
    {{2.2, 2.0, 1.2, 4.2, 4.2}, {2.0, 2.0, 1.2, 4.2, 4.2}, {2.0, 2.0, 1.2, 4.2, 4.2}, {2.5, 3.5, 1.4, 4.2, 4.2}}};

// Milliseconds for a message from one rank to another: two nodes with two devices each.
constexpr double hop_ms[ranks][ranks] = {
    {0.0, 0.1, 0.3, 0.3}, {0.1, 0.0, 0.3, 0.3}, {0.3, 0.3, 0.0, 0.1}, {0.3, 0.3, 0.1, 0.0}};

/// The unit of memory is a matrix. A stash is the input and the output of a layer; the weight gradient needs as much.
problem problem_of(const times_by_stage& times) {
    memory_per_stage<> costs{per_stage<stage_costs>(ranks)};
    for (const stage s : costs.each.indices()) {
        const auto& t = times[s.position()];
        costs.each[s] = {duration{t.forward},
                         duration{t.backward_input},
                         duration{t.backward_weight},
                         memory_size{2},
                         memory_size{2},
                         transfer_times{duration{t.to_host}, duration{t.from_host}}};
    }
    auto p = to_problem(make_problem(graph<ranks, dynamic>{ranks, microbatches}, costs));
    for (const stage s : p.graph.all_stages()) // a third option: keep the input, repeat the forward
        p.storage[s].push_back({.name = "recompute", .held = memory_size{1}, .recompute = p.costs[s].forward});
    bounded_vector<duration, dynamic> hops; // row by row: from the first rank to all others, and so on
    for (const auto& row : hop_ms)
        for (const double hop : row)
            hops.push_back(duration{hop});
    p.p2p = hop_times<>{ranks, hops};
    for (auto& limit : p.memory_limit) // the memory that is left without weights, gradients and optimizer state
        limit = memory_size{5};
    p.transfer.engines = 2;  // copies in both directions at once
    p.full_backward = false; // `device` has no full backward, only I and W
    p.name = "own loop";
    p.time_unit = "ms";
    return p;
}

/// Your tensors in one memory, which counts the bytes that are in use at once.
class tensor_store {
public:
    enum class role { input, output, activation, gradient };
    using key = std::tuple<stage, microbatch, role>;

    const matrix& put(const key& k, matrix what) {
        const std::scoped_lock lock{mutex_};
        used_ += what.bytes();
        most_ = std::max(most_, used_);
        return tensors_.emplace(k, std::move(what)).first->second;
    }
    matrix take(const key& k) {
        const std::scoped_lock lock{mutex_};
        auto found = std::move(tensors_.extract(k).mapped());
        used_ -= found.bytes();
        return found;
    }
    const matrix& at(const key& k) {
        const std::scoped_lock lock{mutex_};
        return tensors_.at(k);
    }
    [[nodiscard]] std::size_t most_bytes() const { return most_; }

private:
    std::mutex mutex_;
    std::map<key, matrix> tensors_;
    std::size_t used_ = 0, most_ = 0;
};
using role = tensor_store::role;

matrix input_of(microbatch m) { return engine::random_matrix(samples, width, 100 + m.value(), 1.0); }
layer layer_of(stage s) { return layer{width, s.value()}; }

/// Your messages. They carry tensors by stage and microbatch; the library only says when to send and to receive.
struct network {
    engine::mailbox activations, gradients;
    engine::mailbox& of(role what) { return what == role::activation ? activations : gradients; }
};

/// Your device: one stage, with memory for stashes, host memory, and message buffers.
class device {
public:
    device(const problem& p, stage s, network& others) : p_{p}, layer_{layer_of(s)}, others_{others} {}

    void run(const task_label& task) {
        using enum task_label::task_kind;
        const auto [s, kind, m, storage, is_paired] = task.op;
        const auto what = kind == operation_kind::forward ? role::activation : role::gradient;
        switch (task.kind) {
        case operation: return run(task.op);
        case pair: return; // not planned, as the problem has no `overlaps`
        case send: return others_.of(what).send({s.value(), m.value()}, messages.take({s, m, what}));
        case receive: messages.put({s, m, what}, others_.of(what).receive({s.value(), m.value()})); return;
        case update:
        case reduce: return; // not asked of `lower`
        }
    }
    [[nodiscard]] const matrix& gradient() const { return layer_.gradient(); }

    tensor_store stashes, host, messages;

private:
    void run(const operation& op) {
        const auto s = op.stage;
        const auto m = op.microbatch;
        switch (op.kind) {
        case operation_kind::forward: return forward(op);
        case operation_kind::recompute:
            stashes.put({s, m, role::output}, layer_.forward(stashes.at({s, m, role::input})));
            return;
        case operation_kind::backward_input: return backward_input(s, m);
        case operation_kind::backward_weight:
            return layer_.backward_weight(stashes.take({s, m, role::input}), stashes.take({s, m, role::output}));
        case operation_kind::backward: return; // not planned, as `full_backward` is false
        case operation_kind::offload: return copy(s, m, stashes, host);
        case operation_kind::reload: return copy(s, m, host, stashes);
        }
    }
    void forward(const operation& op) {
        const auto s = op.stage;
        const auto m = op.microbatch;
        auto x = p_.is_first(s) ? input_of(m) : messages.take({s.previous(), m, role::activation});
        auto y = layer_.forward(stashes.put({s, m, role::input}, std::move(x)));
        if (!p_.is_last(s)) messages.put({s, m, role::activation}, y);
        if (!storage_of(p_, op).recomputes()) stashes.put({s, m, role::output}, std::move(y));
    }
    /// Replaces the output by the gradient that the weight gradient needs. The gradient of the loss is the output.
    void backward_input(stage s, microbatch m) {
        const auto y = stashes.take({s, m, role::output});
        auto dy = p_.is_last(s) ? y : messages.take({s.next(), m, role::gradient});
        const auto& inner = stashes.put({s, m, role::output}, layer::inner_gradient(y, std::move(dy)));
        if (!p_.is_first(s)) messages.put({s, m, role::gradient}, layer_.backward_input(inner));
    }
    static void copy(stage s, microbatch m, tensor_store& from, tensor_store& to) {
        for (const auto which : {role::input, role::output}) {
            to.put({s, m, which}, from.at({s, m, which}));
            from.take({s, m, which});
        }
    }

    const problem& p_;
    layer layer_;
    network& others_;
};

/// One rank's step: its tasks; for each task, whether it has ended, and its times.
struct rank_step {
    explicit rank_step(const rank_program& program)
        : tasks{issue_order(program)}, ended(tasks.size()), times(tasks.size()) {}
    std::vector<issued_task> tasks;
    std::vector<std::atomic<bool>> ended; // on a GPU, events
    std::vector<timed_operation> times;
};

/// The loop of one stream. All streams of all ranks run it at the same time.
void run_lane(rank_step& step, lane_kind lane, device& mine, const problem& devices, steady_clock::time_point begin) {
    const auto now = [&] { return duration{milliseconds{steady_clock::now() - begin}.count()}; };
    for (std::size_t i = 0; i < step.tasks.size(); ++i) {
        const auto& [task, its_lane, after] = step.tasks[i];
        if (its_lane != lane) continue;
        for (const auto before : after)
            step.ended[before].wait(false);
        const auto start = now();
        mine.run(task);
        if (task.kind == task_label::task_kind::operation) // it lasts as long as on a device
            std::this_thread::sleep_until(begin + milliseconds{(start + duration_of(devices, task.op)).value()});
        step.times[i] = {task.op, start, now()};
        step.ended[i] = true;
        step.ended[i].notify_all();
    }
}

/// The gradients of the model without a pipeline. Microbatches are added up in the order of the plan.
std::vector<matrix> gradients_in_one_piece(const accumulation_order& sums) {
    std::map<std::pair<std::size_t, microbatch>, std::pair<matrix, matrix>> for_weights;
    std::vector<layer> layers;
    for (const stage s : sums.indices())
        layers.push_back(layer_of(s));
    for (const microbatch m : sums[stage{0}]) {
        std::vector<matrix> values{input_of(m)};
        for (const auto& each : layers)
            values.push_back(each.forward(values.back()));
        auto dy = values.back();
        for (std::size_t s = ranks; s-- > 0;) {
            const auto inner = layer::inner_gradient(values[s + 1], std::move(dy));
            dy = layers[s].backward_input(inner);
            for_weights[{s, m}] = {values[s], inner};
        }
    }
    std::vector<matrix> gradients;
    for (const stage s : sums.indices()) {
        for (const microbatch m : sums[s])
            std::apply([&](const auto&... parts) { layers[s.position()].backward_weight(parts...); },
                       for_weights.at({s.position(), m}));
        gradients.push_back(layers[s.position()].gradient());
    }
    return gradients;
}

/// Runs a step on all streams of all ranks. Returns it as a schedule with the measured times.
schedule run_step(const problem& p, const per_rank<rank_program>& programs, std::deque<device>& devices) {
    const auto devices_take = problem_of(real);
    std::deque<rank_step> steps;
    for (const auto& program : programs)
        steps.emplace_back(program);
    std::vector<std::jthread> streams;
    const auto begin = steady_clock::now();
    for (const auto& program : programs)
        for (const auto lane : program.lanes)
            streams.emplace_back(
                [&, lane, r = program.self.position()] { run_lane(steps[r], lane, devices[r], devices_take, begin); });
    streams.clear();
    schedule measured{p.graph, {}};
    for (const auto& step : steps)
        for (std::size_t i = 0; i < step.tasks.size(); ++i)
            if (step.tasks[i].what.kind == task_label::task_kind::operation)
                measured.operations.push_back(step.times[i]);
    return measured;
}

/// Whether a step had the gradients of the model without a pipeline, within the memory of the plan.
bool is_right(const per_rank<rank_program>& programs, const std::deque<device>& devices,
              const std::vector<matrix>& gradients) {
    return std::all_of(programs.begin(), programs.end(), [&](const rank_program& program) {
        const auto r = program.self.position();
        return devices[r].stashes.most_bytes() <= program.device_bytes &&
               devices[r].host.most_bytes() <= program.host_bytes &&
               devices[r].gradient().values == gradients[r].values;
    });
}

/// Trains steps by a plan, and measures them. False if a step isn't right.
bool train(const problem& p, const schedule& plan, cost_profile& profile) {
    // Messages have no bytes, the default, because `network` moves the tensors. Sizes aren't rounded, so that they can
    // be compared.
    const auto programs = lower(p, plan, {.bytes_per_unit = matrix_bytes, .alignment = 1});
    if (!programs) return std::cerr << describe(programs.why()) << '\n', false;
    const auto gradients = gradients_in_one_piece(accumulation_order_of(plan));
    auto shortest = duration::unlimited();
    constexpr std::size_t steps = 8;
    for (std::size_t n = 0; n < steps; ++n) {
        network others;
        std::deque<device> devices;
        for (const stage s : p.graph.all_stages())
            devices.emplace_back(p, s, others);
        const auto measured = run_step(p, *programs, devices);
        if (!is_right(*programs, devices, gradients)) return std::cerr << "wrong gradients or memory\n", false;
        for (const auto& program : *programs)
            if (const auto& its = devices[program.self.position()]; n == 0)
                std::cout << "rank " << program.self.value() << ": " << its.stashes.most_bytes() << " of "
                          << program.device_bytes << " planned bytes at once, " << its.host.most_bytes() << " of "
                          << program.host_bytes << " on the host\n";
        profile.add(p, measured);
        shortest = std::min(shortest, objective_of(p, measured));
    }
    const auto planned = measure(p, plan);
    std::cout << planned.offloads << " stashes offloaded, " << planned.recomputes << " recomputed; a step of "
              << format_number(planned.objective.value(), 3) << " ms was planned, and took "
              << format_number(shortest.value(), 3) << " ms\n";
    return true;
}

} // namespace

int main() {
    const auto p = problem_of(estimated);
    for (const auto& wrong : validate(p)) // such as a time below 0, or a limit that one microbatch exceeds
        return std::cerr << wrong.text() << '\n', 1;
    const auto first = plan(p);
    if (!first) return std::cerr << describe(first.why()) << '\n', 1;
    if (measure(p, first->schedule).offloads == 0) return std::cerr << "all stashes fit the memory\n", 1;
    cost_profile profile;
    if (!train(p, first->schedule, profile)) return 1;

    for (const auto& each : drift(p, profile))
        std::cout << describe(each) << '\n';
    const auto updated = with_measured_costs(p, profile);
    const auto in_use = retime(updated, first->schedule); // the order in use, with the times that it really takes
    if (!in_use) return std::cerr << describe(in_use.why()) << '\n', 1;
    const auto second = plan(updated, {.start = *in_use}); // example 21 plans on a thread of its own
    if (!second) return std::cerr << describe(second.why()) << '\n', 1;
    cost_profile after;
    return train(updated, second->schedule, after) ? 0 : 1;
}
