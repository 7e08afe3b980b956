// What the size of a microbatch does to a step, and how large a model fits the memory: a transformer by arithmetic
// (optpipe/pipeline/transformer.hpp) on 8 devices of 80 GB. Two Markdown tables on standard output.
//
//     bench_model_sizes [--time SECONDS] [--threads N]
//
// By default 5 seconds and 2 threads for each plan. Columns: `keep`: the best published schedule that neither offloads
// nor recomputes, or "no room"; `one option`: the best published schedule, with the best single storage option for all
// microbatches; `plan`: with all options, and its bound. All as ms for a sequence; `work`: of the busiest device without
// recomputation. Kernels are as efficient at every size here: on a device small ones are slower.
#include "problem_files.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/pipeline/make_problem.hpp>
#include <optpipe/pipeline/transformer.hpp>
#include <optpipe/pipeline/validate_problem.hpp>
#include <optpipe/planner.hpp>

#include <chrono>
#include <cstddef>
#include <iostream>
#include <optional>
#include <string>

namespace {

using namespace optpipe;

constexpr std::size_t devices = 8;
constexpr memory_size device_memory{80.0};

struct settings {
    double seconds = 5.0;
    std::size_t threads = 2;
};

/// With the hidden size of Llama 2 13B, on devices that reach 300 TFLOP/s, with 20 GB/s to the host and 50 GB/s to each
/// other.
constexpr transformer<> model_of(std::size_t layers, std::size_t microbatch_size) {
    return {.layers = {.total = layers},
            .hidden = 5120,
            .sequence = 4096,
            .microbatch_size = microbatch_size,
            .compute_rate = 300.0,
            .host_link_rate = 20.0,
            .rank_link_rate = 50.0};
}

constexpr auto all_options = storage::keep | storage::offload | storage::selective | storage::full;

/// Empty where a device hasn't the memory for weights and one microbatch.
template <class Policy>
std::optional<problem> problem_of(const transformer<>& model, std::size_t microbatches, const Policy& policy) {
    const graph<dynamic, dynamic> shape{devices, microbatches};
    const auto weights = model.static_memory(stage{0}, devices);
    if (weights >= device_memory) return std::nullopt;
    auto p = to_problem(make_problem(to_any_graph(shape), model, device_memory - weights, policy));
    p.p2p = hop_times<>{model.p2p()};
    return validate(p).empty() ? std::optional{p} : std::nullopt;
}

std::optional<plan_result> planned(const std::optional<problem>& p, const settings& s) {
    if (!p) return std::nullopt;
    plan_options how{.time_limit = std::chrono::duration<double>{s.seconds}};
    how.threads = s.threads;
    auto found = plan(*p, how);
    return found ? std::optional{*found} : std::nullopt;
}

/// Unlimited if none has room.
duration published(const std::optional<plan_result>& of) {
    const auto* best = of ? best_published(*of) : nullptr;
    return best ? best->objective.value_or(duration::unlimited()) : duration::unlimited();
}

void write_row(const transformer<>& model, std::size_t microbatches, const settings& s) {
    const auto kept = planned(problem_of(model, microbatches, storage::keep), s);
    const auto every = planned(problem_of(model, microbatches, all_options), s);
    const auto per_sequence = [&](duration t) {
        const auto sequences = static_cast<double>(microbatches * model.microbatch_size);
        return t.is_unlimited() ? std::string{"no room"} : format_number(t.value() / sequences, 4);
    };
    const auto work = static_cast<double>(microbatches) * model.costs(stage{0}, devices).work();
    std::cout << " | " << format_number(model.static_memory(stage{0}, devices).value(), 3) << " | "
              << format_number(model.costs(stage{0}, devices).activation.value(), 3) << " | " << per_sequence(work)
              << " | " << per_sequence(published(kept)) << " | " << per_sequence(published(every)) << " | "
              << per_sequence(every ? every->objective : duration::unlimited()) << " | "
              << per_sequence(every ? every->bound : duration::unlimited()) << " |" << std::endl;
}

void write_head(const std::string& title, const std::string& first_columns, std::size_t columns) {
    std::cout << "\n" << title << "\n\n"
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
    for (const std::size_t size : {1, 2, 4, 8}) {
        std::cout << "| " << size << " | " << sequences / size;
        write_row(model_of(80, size), sequences / size, s);
    }
    write_head("More and more layers, 16 microbatches of one sequence:", "| layers", 1);
    for (const std::size_t layers : {40, 64, 80, 88, 96, 104, 112}) {
        std::cout << "| " << layers;
        write_row(model_of(layers, 1), 16, s);
    }
}
