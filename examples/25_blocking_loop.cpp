// Example 25: a framework whose sends block and whose backwards are whole.
//
// Suppose that your framework runs one thread per rank, that a send returns once the message has been received, and
// that autograd computes the gradients of inputs and weights at once. A rank reads the plan from files, lowers it, and
// runs its tasks one after the other, in the order of `issue_order`. That order doesn't deadlock. None of this needs
// Eigen or oneTBB. examples/adopting explains it.

#include "engine/model.hpp"
#include <optpipe/io/file.hpp>
#include <optpipe/io/json_problem.hpp>
#include <optpipe/io/json_schedule.hpp>
#include <optpipe/io/write_json.hpp>
#include <optpipe/pipeline.hpp>
#include <optpipe/program.hpp>
#include <optpipe/schedule.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <filesystem>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;
using engine::layer;
using engine::matrix;

constexpr std::size_t ranks = 4, microbatches = 8, samples = 8, width = 32;

/// What a message is named by: its direction, and the stage and microbatch that it comes from. An `operation` is no
/// key, as it also has a storage option, which differs from stage to stage.
using content = std::tuple<message_direction, stage, microbatch>;
content content_of(const operation& made_by) { return {direction_of(made_by), made_by.stage, made_by.microbatch}; }

/// Your network. A send returns once the message has been received.
class network {
public:
    void send(const content& name, matrix what) {
        std::unique_lock lock{mutex_};
        waiting_.emplace(name, std::move(what));
        changed_.notify_all();
        changed_.wait(lock, [&] { return !waiting_.contains(name); });
    }
    matrix receive(const content& name) {
        std::unique_lock lock{mutex_};
        changed_.wait(lock, [&] { return waiting_.contains(name); });
        auto what = std::move(waiting_.extract(name).mapped());
        changed_.notify_all();
        return what;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<content, matrix> waiting_;
};

matrix input_of(microbatch m) { return engine::random_matrix(samples, width, 100 + m.value(), 1.0); }
layer layer_of(stage s) { return layer{width, s.value()}; }

/// What autograd holds of a microbatch of a stage: the input and the output of a layer.
struct saved {
    matrix x, y;
};

/// One rank of your framework, with one stage.
class trainer {
public:
    trainer(const problem& p, stage s, network& others) : p_{p}, layer_{layer_of(s)}, others_{others} {}

    void step(const rank_program& program) {
        for (const auto& each : issue_order(program)) // a single thread needs neither `lane` nor `after`
            run(each.what);
    }
    [[nodiscard]] const matrix& gradient() const { return layer_.gradient(); }
    [[nodiscard]] std::size_t most_stashes() const { return most_; }

private:
    void run(const task_label& task) {
        using enum task_label::task_kind;
        const auto name = content_of(task.op);
        switch (task.kind) {
        case operation: return compute(task.op);
        case send: return others_.send(name, std::move(messages_.extract(name).mapped()));
        case receive: messages_.emplace(name, others_.receive(name)); return;
        case pair:
        case update:
        case reduce: return; // neither planned nor asked of `lower`
        }
    }
    void compute(const operation& op) {
        const auto m = op.microbatch;
        switch (op.kind) {
        case operation_kind::forward: return run_forward(op.stage, m);
        case operation_kind::backward: return run_backward(op.stage, m);
        case operation_kind::offload: host_.insert(stashes_.extract(m)); return;
        case operation_kind::reload: stashes_.insert(host_.extract(m)); return count();
        case operation_kind::backward_input:
        case operation_kind::backward_weight:   // not planned, as `split_backward` is false
        case operation_kind::recompute: return; // not planned, as no storage option recomputes
        }
    }
    void run_forward(stage s, microbatch m) {
        auto x = p_.is_first(s) ? input_of(m) : take(forward(s.previous(), m));
        auto y = layer_.forward(x);
        if (!p_.is_last(s)) messages_.emplace(content_of(forward(s, m)), y);
        stashes_.emplace(m, saved{std::move(x), std::move(y)});
        count();
    }
    /// Your autograd's backward. The gradient of the loss is the output.
    void run_backward(stage s, microbatch m) {
        const auto [x, y] = std::move(stashes_.extract(m).mapped());
        const auto inner = layer::inner_gradient(y, p_.is_last(s) ? y : take(backward(s.next(), m)));
        layer_.backward_weight(x, inner);
        if (!p_.is_first(s)) messages_.emplace(content_of(backward(s, m)), layer_.backward_input(inner));
    }
    matrix take(const operation& made_by) { return std::move(messages_.extract(content_of(made_by)).mapped()); }
    void count() { most_ = std::max(most_, stashes_.size()); }

    const problem& p_;
    layer layer_;
    network& others_;
    std::map<content, matrix> messages_;
    std::map<microbatch, saved> stashes_, host_;
    std::size_t most_ = 0;
};

/// Writes the files that `optpipe plan` would write. The unit of memory is a stash.
void write_files(const std::string& problem_file, const std::string& plan_file) {
    const stage_costs costs{duration{2},    duration{2},    duration{1},
                            memory_size{1}, memory_size{1}, transfer_times{duration{3}, duration{3}}};
    auto p = to_problem(make_problem(graph<ranks, microbatches>{}, uniform_memory{costs}, memory_size{3}));
    p.name = "blocking loop";
    p.split_backward = false; // each backward is a B
    const auto planned = build_schedule(p, adaptive).value();
    write_file(problem_file, problem_to_json(p));
    write_file(plan_file, schedule_to_json(p, make_report(p, "adaptive", planned)));
}

/// The gradient of each stage without a pipeline. Microbatches are added up in the order of the plan.
std::vector<matrix> gradients_in_one_piece(const accumulation_order& sums) {
    std::vector<layer> layers;
    for (const stage s : sums.indices())
        layers.push_back(layer_of(s));
    std::map<std::pair<stage, microbatch>, std::pair<matrix, matrix>> for_weights;
    for (const microbatch m : sums[stage{0}]) {
        std::vector<matrix> values{input_of(m)};
        for (const auto& each : layers)
            values.push_back(each.forward(values.back()));
        auto dy = values.back();
        for (auto s = stage{ranks - 1};; s = s.previous()) {
            const auto at = s.position();
            const auto inner = layer::inner_gradient(values[at + 1], std::move(dy));
            dy = layers[at].backward_input(inner);
            for_weights[{s, m}] = {values[at], inner};
            if (at == 0) break;
        }
    }
    std::vector<matrix> gradients;
    for (const stage s : sums.indices()) {
        for (const microbatch m : sums[s])
            layers[s.position()].backward_weight(for_weights.at({s, m}).first, for_weights.at({s, m}).second);
        gradients.push_back(layers[s.position()].gradient());
    }
    return gradients;
}

bool train(const std::string& problem_file, const std::string& plan_file) {
    const auto p = read_problem(problem_file);
    const auto plan = read_plan(p, plan_file);
    const auto programs = lower(p, plan).value();
    network others;
    std::deque<trainer> trainers;
    for (const stage s : p.graph.all_stages())
        trainers.emplace_back(p, s, others);
    std::vector<std::jthread> threads;
    for (const auto& program : programs)
        threads.emplace_back([&] { trainers[program.self.position()].step(program); });
    threads.clear();

    const auto expected = gradients_in_one_piece(accumulation_order_of(plan));
    const auto planned = measure(p, plan);
    bool is_right = planned.offloads > 0;
    for (const rank r : p.graph.all_ranks()) {
        const auto& mine = trainers[r.position()];
        const auto stashes = static_cast<double>(mine.most_stashes());
        std::cout << "rank " << r.value() << ": at most " << stashes << " stashes, planned "
                  << planned.peak_memory[r].value() << '\n';
        is_right = is_right && stashes <= planned.peak_memory[r].value() &&
                   mine.gradient().values == expected[r.position()].values;
    }
    return is_right;
}

} // namespace

int main() {
    const auto folder = std::filesystem::temp_directory_path() / ("optpipe-" + std::to_string(std::random_device{}()));
    const auto problem_file = (folder / "problem.json").string();
    const auto plan_file = (folder / "plan.json").string();
    try {
        std::filesystem::create_directories(folder);
        write_files(problem_file, plan_file);
        const bool trained = train(problem_file, plan_file);
        std::filesystem::remove_all(folder);
        return trained ? 0 : 1;
    } catch (const std::exception& e) {
        std::cerr << e.what() << '\n';
        return 1;
    }
}
