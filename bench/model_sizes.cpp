// Effect of the size of a microbatch on a step, and the largest model that fits the memory: a transformer by arithmetic
// (optpipe/pipeline/transformer.hpp) on 8 devices of 80 GB. Then published models (optpipe/pipeline/model_shapes.hpp)
// on typical numbers of devices, also with layers divided among stages by plan_partition. Markdown tables on standard
// output.
//
//     bench_model_sizes [--time SECONDS] [--threads N]
//
// By default 5 seconds and 2 threads for each plan. Columns: `keep`: the best published schedule that neither offloads
// nor recomputes, or "no room"; `one option`: the best published schedule, with the best single storage option for all
// microbatches; `plan`: with all options, and its bound. All are in ms per sequence. `work`: of the busiest device
// without recomputation; `weights` and `stash`: the largest of a device; `tensor`, `experts`: ranks that share layers,
// or experts. In the last table `even`: the plan with layers divided evenly; `partition`: the plan of plan_partition;
// `any placement`: its plan if it also chooses between one stage per rank and two, in a loop or a v; `bound`: no
// schedule of any partition is shorter. Kernels are equally efficient at every size here; on a device small ones are
// slower.
#include "problem_files.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/pipeline/layer_costs.hpp>
#include <optpipe/pipeline/make_problem.hpp>
#include <optpipe/pipeline/model_shapes.hpp>
#include <optpipe/pipeline/partition_problem.hpp>
#include <optpipe/pipeline/transformer.hpp>
#include <optpipe/pipeline/validate_problem.hpp>
#include <optpipe/planner.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace optpipe;

constexpr std::size_t devices = 8;
constexpr memory_size device_memory{80.0};
constexpr double teraflops = 300.0;
/// GB/s, to the host and between devices.
constexpr double host_link = 20.0, device_link = 50.0;

struct settings {
    double seconds = 5.0;
    std::size_t threads = 2;
};

/// A model with the hidden size of Llama 2 13B.
constexpr transformer<> model_of(std::size_t layers, std::size_t microbatch_size) {
    return {.layers = {.total = layers},
            .hidden = 5120,
            .sequence = 4096,
            .microbatch_size = microbatch_size,
            .compute_rate = teraflops,
            .host_link_rate = host_link,
            .rank_link_rate = device_link};
}

/// A published model and its layout.
struct layout {
    const char* name;
    decoder model;
    std::size_t ranks;
    std::size_t tensor_parallel = 1, expert_parallel = 1, optimizer_shards = 1;
    std::size_t microbatches = 32;

    [[nodiscard]] decoder laid_out() const {
        auto m = model;
        m.tensor_parallel = tensor_parallel;
        m.expert_parallel = expert_parallel;
        m.optimizer_shards = optimizer_shards;
        m.compute_rate = teraflops;
        m.host_link_rate = host_link;
        m.rank_link_rate = device_link;
        if (expert_parallel > 1) m.expert_link_rate = device_link;
        return m;
    }
};
const layout published_models[] = {
    {"Llama 2 7B", model_shapes::llama2_7b, 4},
    {"Llama 2 13B", model_shapes::llama2_13b, 4},
    {"Llama 3 8B", model_shapes::llama3_8b, 4},
    {"Llama 3 70B", model_shapes::llama3_70b, 8, 4},
    {"Qwen3 32B", model_shapes::qwen3_32b, 8, 2},
    {"Qwen3 235B-A22B", model_shapes::qwen3_235b_a22b, 16, 1, 8},
    {"Mixtral 8x7B", model_shapes::mixtral_8x7b, 8, 1, 4},
    {"DeepSeek-V3", model_shapes::deepseek_v3, 16, 1, 64, 128},
};

constexpr auto all_options = storage::keep | storage::offload | storage::selective | storage::full;

/// Empty if a device lacks the memory for weights and one microbatch.
template <class Model, class Policy>
std::optional<problem> problem_of(const Model& model, std::size_t ranks, std::size_t microbatches,
                                  const Policy& policy) {
    const graph<dynamic, dynamic> shape{ranks, microbatches};
    auto p = to_problem(make_problem(to_any_graph(shape), model, memory_size::unlimited(), policy));
    for (const rank r : p.graph.all_ranks()) {
        const auto weights = model.static_memory(stage{r.position()}, ranks);
        if (weights >= device_memory) return std::nullopt;
        p.memory_limit[r] = device_memory - weights;
    }
    return validate(p).empty() ? std::optional{p} : std::nullopt;
}

std::optional<plan_result> planned(const std::optional<problem>& p, const settings& s) {
    if (!p) return std::nullopt;
    plan_options how{.time_limit = std::chrono::duration<double>{s.seconds}};
    how.threads = s.threads;
    auto found = plan(*p, how);
    return found ? std::optional{*found} : std::nullopt;
}

/// Unlimited if none fits.
duration published(const std::optional<plan_result>& of) {
    const auto* best = of ? best_published(*of) : nullptr;
    return best ? best->objective.value_or(duration::unlimited()) : duration::unlimited();
}

/// Returns the plan with all options.
template <class Model>
std::optional<plan_result> write_row(const Model& model, std::size_t ranks, std::size_t microbatches,
                                     const settings& s) {
    const auto kept = planned(problem_of(model, ranks, microbatches, storage::keep), s);
    const auto every = planned(problem_of(model, ranks, microbatches, all_options), s);
    const auto per_sequence = [&](duration t) {
        const auto sequences = static_cast<double>(microbatches * model.microbatch_size);
        return t.is_unlimited() ? std::string{"no room"} : format_number(t.value() / sequences, 4);
    };
    duration work{};
    memory_size weights{}, stash{};
    for (std::size_t i = 0; i < ranks; ++i) {
        const auto costs = model.costs(stage{i}, ranks);
        work = std::max(work, static_cast<double>(microbatches) * costs.work());
        weights = std::max(weights, model.static_memory(stage{i}, ranks));
        stash = std::max(stash, costs.activation);
    }
    std::cout << " | " << format_number(weights.value(), 3) << " | " << format_number(stash.value(), 3) << " | "
              << per_sequence(work) << " | " << per_sequence(published(kept)) << " | " << per_sequence(published(every))
              << " | " << per_sequence(every ? every->objective : duration::unlimited()) << " | "
              << per_sequence(every ? every->bound : duration::unlimited()) << " |" << std::endl;
    return every;
}

void write_divided(const outcome<partition_plan>& divided, const std::optional<plan_result>& even) {
    if (!divided) {
        std::cout << "no room | | | ";
        return;
    }
    std::cout << format_number(divided->planned.objective.value(), 5) << " | "
              << (even ? format_number(divided->planned.objective / even->objective, 4) : "") << " |";
    for (const auto count : divided->layers)
        std::cout << ' ' << count;
    std::cout << " | ";
}

/// Writes `even`, the plan with layers divided evenly, and the plans with layers divided by the planner: with one stage
/// per rank, and in any of the usual placements.
void write_partition(const layout& l, const std::optional<plan_result>& even, const settings& s) {
    const auto model = l.laid_out();
    problem p{to_any_graph(graph<dynamic, dynamic>{l.ranks, l.microbatches}), per_stage<stage_costs>(l.ranks)};
    p.memory_limit = per_rank<memory_size>(l.ranks, device_memory);
    p.p2p = hop_times<>{model.p2p()};
    partition_problem pipelines{layer_costs_of(model, model.layers, all_options), usual_placements(p, model.layers)};
    plan_options how{.time_limit = std::chrono::duration<double>{s.seconds}};
    how.threads = s.threads;
    std::cout << "| " << l.name << " | " << l.ranks << " | "
              << (even ? format_number(even->objective.value(), 5) : "no room") << " | ";
    write_divided(plan_partition(p, pipelines.layers, how), even);
    const auto any = plan_partition(pipelines, how);
    write_divided(any, even);
    std::cout << (any ? std::array{"linear", "loop", "v"}.at(any->chosen) : "") << " | "
              << (any ? format_number(any->bound.value(), 5) : "") << " |" << std::endl;
}

void write_head(const std::string& title, const std::string& first_columns, std::size_t columns) {
    std::cout << "\n"
              << title << "\n\n"
              << first_columns << " | weights [GB] | stash [GB] | work | keep | one option | plan | bound |\n";
    for (std::size_t i = 0; i < columns + 7; ++i)
        std::cout << "|---";
    std::cout << "|\n";
}

} // namespace

int main(int count, char** arguments) {
    settings s;
    bench::read_options(count, arguments, "model_sizes",
                        {{"--time", [&](const std::string& v) { s.seconds = std::stod(v); }},
                         {"--threads", [&](const std::string& v) { s.threads = std::stoul(v); }}});
    constexpr std::size_t sequences = 64;
    write_head("64 sequences a step, 80 layers, in microbatches of different sizes:", "| size | microbatches", 2);
    for (const std::size_t size : {1U, 2U, 4U, 8U}) {
        std::cout << "| " << size << " | " << sequences / size;
        write_row(model_of(80, size), devices, sequences / size, s);
    }
    write_head("More and more layers, 16 microbatches of one sequence:", "| layers", 1);
    for (const std::size_t layers : {40U, 64U, 80U, 88U, 96U, 104U, 112U}) {
        std::cout << "| " << layers;
        write_row(model_of(layers, 1), devices, 16, s);
    }
    write_head("Models as published, one sequence in a microbatch:",
               "| model | sequence | ranks | tensor | experts | microbatches", 6);
    std::vector<std::optional<plan_result>> evenly;
    for (const auto& l : published_models) {
        std::cout << "| " << l.name << " | " << l.model.sequence << " | " << l.ranks << " | " << l.tensor_parallel
                  << " | " << l.expert_parallel << " | " << l.microbatches;
        evenly.push_back(write_row(l.laid_out(), l.ranks, l.microbatches, s));
    }
    std::cout << "\nThe same, with layers divided evenly, and by plan_partition; ms for a step:\n\n"
                 "| model | ranks | even | partition | of even | layers of each stage | any placement | of even | "
                 "layers of each stage | placement | bound |\n"
                 "|---|---|---|---|---|---|---|---|---|---|---|\n";
    for (std::size_t i = 0; i < evenly.size(); ++i)
        write_partition(published_models[i], evenly[i], s);
}
