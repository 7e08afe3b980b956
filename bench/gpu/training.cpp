// Training steps of the language model on virtual ranks of one GPU, by schedules of the literature and by plans.
//
// First the costs are measured (a step by ZB-H1, each computation between two events; copies of stashes both ways at
// once) and written as a problem. Then every method plans for them, within what 1F1B needs and within half of it, and
// what it planned is run: against the plan by events, by the clock, as a graph; with gradients that have to be those of
// the model without a pipeline, and a loss that has to fall.
//
//     gpu_training [--ranks N] [--on streams|green-contexts] [--products single|tf32|bf16] [--microbatches N]
//                  [--layers N] [--hidden N] [--sequence N] [--sequences N] [--steps N] [--seconds N]
//                  [--text FILE] [--out PREFIX]
#include "arguments.hpp"
#include "costs.hpp"
#include "methods.hpp"
#include "report.hpp"
#include "trainer.hpp"
#include <optpipe/execution/cuda/device.hpp>
#include <optpipe/io/file.hpp>
#include <optpipe/io/write_json.hpp>
#include <optpipe/program/check.hpp>
#include <optpipe/program/lower.hpp>
#include <optpipe/schedule/builders/one_forward_one_backward.hpp>
#include <optpipe/schedule/builders/zero_bubble_h1.hpp>
#include <optpipe/schedule/time/evaluate.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;
using gpu_bench::cell;
using clock_type = std::chrono::steady_clock;

double median(std::vector<double> values) {
    if (values.empty()) return std::nan("");
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

class experiment {
public:
    experiment(const gpu_bench::arguments& options, const gpu_bench::training_setup& how)
        : how_{how}, steps_{options.number("--steps")}, prefix_{options["--out"]}, out_{prefix_},
          deadline_{clock_type::now() + std::chrono::seconds{options.number("--seconds")}},
          tolerance_{tolerance_of(how.products)}, model_{how}, p_{gpu_bench::first_guess(model_, how)} {}

    /// Whether all went well.
    bool run() {
        measure_costs();
        const auto common = build_schedule(p_, one_forward_one_backward);
        if (!common) throw error{"1F1B has no schedule: " + describe(common.why())};
        const auto peaks = measure(p_, *common).peak_memory;
        const auto needed = *std::max_element(peaks.begin(), peaks.end());
        bool is_well = true;
        for (const double share : {1.0, 0.5}) {
            // One microbatch at a time has to fit.
            for (const stage s : p_.graph.all_stages())
                p_.memory_limit[p_.rank_of(s)] = std::max(share * needed, p_.costs[s].activation);
            begin_table(share);
            for (const auto& m : gpu_bench::methods())
                is_well = attempt(m) && is_well;
        }
        return is_well;
    }

private:
    static double gigabytes(double bytes) { return bytes / 1e9; }
    /// For gradients whose sums were taken in another order; where factors are rounded, that decides where to.
    static double tolerance_of(language_model::precision products) {
        return products == language_model::precision::single ? 1e-4 : 2e-2;
    }

    void measure_costs() {
        const auto profile = build_schedule(p_, zero_bubble_h1);
        if (!profile) throw error{"no schedule to measure costs with: " + describe(profile.why())};
        const auto times = model_.record(p_.graph, programs_of(*profile));
        gpu_bench::set_costs(p_, times.measured, model_.message_bytes());
        write_file(prefix_ + "-problem.json", problem_to_json(p_));
        out_.table("Costs [ms], " + p_.name,
                   {"stage", "F", "I", "W", "to the host", "from it", "message", "stash [GB]", "of it for W [GB]"});
        for (const stage s : p_.graph.all_stages()) {
            const auto& c = p_.costs[s];
            out_.row({static_cast<double>(s.position()), c.forward.value(), c.backward_input.value(),
                      c.backward_weight.value(), c.transfer->offload.value(), c.transfer->reload.value(),
                      p_.p2p(rank{0}, rank{1}).value(), gigabytes(c.activation.value()),
                      gigabytes(c.weight_stash.value())});
        }
    }
    void begin_table(double share) {
        out_.table(p_.name + ", " + std::to_string(how_.microbatches) + " microbatches, " + format_number(share) +
                       " of what 1F1B needs: " + format_number(gigabytes(p_.memory_limit[rank{0}].value())) +
                       " GB per rank",
                   {"method", "planned [ms]", "by events [ms]", "above plan [%]", "step [ms]", "as a graph [ms]",
                    "transfers", "planned peak [GB]", "held at most [GB]", "gradients off by", "same bits",
                    "first loss", "last loss", "verdict"});
    }

    /// Buffers lie in one piece each; what is lost to gaps comes on top of the limit.
    per_rank<rank_program> programs_of(const schedule& s) const {
        auto open = p_;
        for (auto& limit : open.memory_limit)
            limit = memory_size::unlimited();
        auto programs = lower(open, s,
                              {.bytes_per_unit = 1.0,
                               .alignment = gpu_bench::alignment,
                               .message_bytes = model_.message_bytes(),
                               .lanes = message_lanes::per_direction,
                               .placement = part_placement::contiguous,
                               .update = true});
        if (!programs) throw error{"can't be lowered: " + describe(programs.why())};
        if (auto found = check_programs(*programs); !found.empty()) throw input_error{"programs", std::move(found)};
        return *std::move(programs);
    }

    bool attempt(const gpu_bench::method& m) {
        const auto say = [&](const std::string& verdict) {
            std::vector<cell> cells(14, std::string{});
            cells.front() = m.name;
            cells.back() = verdict;
            out_.row(cells);
        };
        if (clock_type::now() > deadline_) {
            say("not run: out of time");
            return false;
        }
        try {
            const auto planned = m.build(p_);
            if (planned) return run_plan(m.name, *planned);
            say("no schedule: " + describe(planned.why()));
            return true;
        } catch (const std::exception& e) {
            say(std::string{"failed: "} + e.what());
            return false;
        }
    }
    bool run_plan(const std::string& name, const schedule& planned) {
        const auto expected = measure(p_, planned);
        const auto programs = programs_of(planned);
        const auto times = model_.record(p_.graph, programs);
        const auto trained = model_.train(programs, steps_);
        const auto verdict = verdict_on(trained);
        const auto measured = objective_of(p_, times.measured).value();
        const auto peak = *std::max_element(expected.peak_memory.begin(), expected.peak_memory.end());
        out_.row({name, expected.objective.value(), measured, 100.0 * (measured / expected.objective.value() - 1.0),
                  median(trained.milliseconds), median(trained.graph_milliseconds),
                  static_cast<double>(expected.offloads), gigabytes(peak.value()),
                  gigabytes(static_cast<double>(times.most_bytes)), trained.gradient_difference,
                  trained.has_same_gradients ? "yes" : "no", trained.losses.front(), trained.losses.back(),
                  verdict.value_or("")});
        return !verdict;
    }
    /// What is wrong.
    [[nodiscard]] std::optional<std::string> verdict_on(const gpu_bench::training_result& r) const {
        if (!(r.gradient_difference <= tolerance_)) return "gradients differ";
        if (!(r.losses.back() < r.losses.front())) return "the loss doesn't fall";
        if (!r.graph_failure.empty()) return "no graph: " + r.graph_failure;
        return std::nullopt;
    }

    gpu_bench::training_setup how_;
    std::size_t steps_;
    std::string prefix_;
    gpu_bench::report out_;
    clock_type::time_point deadline_;
    double tolerance_;
    gpu_bench::trainer model_;
    problem p_;
};

template <class Value>
Value chosen(const gpu_bench::arguments& options, const std::string& name,
             const std::vector<std::pair<std::string, Value>>& choices) {
    std::string all;
    for (const auto& [spelling, value] : choices) {
        if (options[name] == spelling) return value;
        all += (all.empty() ? "" : ", ") + spelling;
    }
    throw error{name + " is one of " + all + ", not '" + options[name] + "'"};
}

gpu_bench::training_setup setup_of(const gpu_bench::arguments& options) {
    using language_model::precision;
    gpu_bench::training_setup how;
    how.shape = {.hidden = options.number("--hidden"),
                 .heads = std::max<std::size_t>(1, options.number("--hidden") / 64),
                 .sequence = options.number("--sequence"),
                 .sequences = options.number("--sequences")};
    how.ranks = options.number("--ranks");
    how.layers_per_stage = options.number("--layers");
    how.microbatches = options.number("--microbatches");
    how.products = chosen<precision>(
        options, "--products", {{"single", precision::single}, {"tf32", precision::tf32}, {"bf16", precision::bf16}});
    how.is_divided = chosen<bool>(options, "--on", {{"streams", false}, {"green-contexts", true}});
    how.text = read_file(options["--text"]);
    if (how.ranks < 2) throw error{"--ranks: at least 2"};
    if (how.shape.hidden % how.shape.heads != 0) throw error{"--hidden: a multiple of 64, or less than 128"};
    if (how.text.size() <= how.shape.sequence) throw error{"--text: the file is shorter than a sequence"};
    return how;
}

} // namespace

int main(int count, char** given) try {
    const gpu_bench::arguments options{count,
                                       given,
                                       {{"--ranks", "4"},
                                        {"--on", "streams"},
                                        {"--products", "single"},
                                        {"--microbatches", "8"},
                                        {"--layers", "2"},
                                        {"--hidden", "1024"},
                                        {"--sequence", "512"},
                                        {"--sequences", "2"},
                                        {"--steps", "4"},
                                        {"--seconds", "60"},
                                        {"--text", "README.md"},
                                        {"--out", "gpu_training"}}};
    const auto how = setup_of(options);
    if (cuda::device_count() == 0) throw error{"no GPU"};
    return experiment{options, how}.run() ? 0 : 1;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
