// Training steps of the language model on virtual ranks of one GPU, by schedules of the literature and by plans.
//
// First the costs are measured and written as a problem: a step by ZB-H1 with each computation between two events,
// another step for each way to recompute, and copies of stashes in both directions at once. Then every method plans for
// these costs, within the memory of 1F1B and within half of it, and its plan is run: compared with the plan by events
// and by the clock, and as a graph. Gradients must be those of the model without a pipeline, and the loss must fall.
// The measured times of each kind of operation are reported next to the planned ones.
//
//     gpu_training [--ranks N] [--on streams|green-contexts] [--products single|tf32] [--microbatches N]
//                  [--layers N] [--hidden N] [--sequence N] [--sequences N] [--steps N] [--seconds N]
//                  [--storage transfers|options] [--online none|STEPS] [--text FILE] [--out PREFIX]
//
// With `--storage options` a stash may be kept, offloaded, or recomputed in four ways, which are also measured; the
// memory is then half and 0.3 of that of 1F1B. `--online` adds this number of steps, which start without known costs
// and replan during training.
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
#include <optpipe/schedule/construct/uniform_storage.hpp>
#include <optpipe/schedule/profile/cost_profile.hpp>
#include <optpipe/schedule/profile/measured_costs.hpp>
#include <optpipe/schedule/time/differences.hpp>
#include <optpipe/schedule/time/evaluate.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
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
        : how_{how}, steps_{options.number("--steps")},
          online_steps_{options["--online"] == "none" ? 0 : options.number("--online")}, prefix_{options["--out"]},
          out_{prefix_}, deadline_{clock_type::now() + std::chrono::seconds{options.number("--seconds")}},
          tolerance_{tolerance_of(how.products)}, model_{how}, p_{gpu_bench::first_guess(model_, how)} {}

    /// Whether all runs succeeded.
    bool run() {
        const auto guess = p_;
        measure_costs();
        const auto peaks = measure(p_, keeping(one_forward_one_backward)).peak_memory;
        const auto needed = *std::max_element(peaks.begin(), peaks.end());
        bool is_well = true;
        for (const double share : how_.storage.empty() ? std::vector{1.0, 0.5} : std::vector{0.5, 0.3}) {
            // One microbatch at a time must fit.
            for (const stage s : p_.graph.all_stages())
                p_.memory_limit[p_.rank_of(s)] = std::max(share * needed, p_.costs[s].activation);
            begin_table(share);
            for (const auto& m : gpu_bench::methods(p_))
                is_well = attempt(m) && is_well;
            tell_operation_times();
        }
        return (online_steps_ == 0 || plan_again(guess)) && is_well;
    }

private:
    static double gigabytes(double bytes) { return bytes / 1e9; }
    /// Tolerance for gradients summed in another order; with rounded factors, the order decides their rounding.
    static double tolerance_of(language_model::precision products) {
        return products == language_model::precision::single ? 1e-4 : 2e-2;
    }

    /// The builder's schedule with every stash kept as a whole.
    template <class Builder> schedule keeping(const Builder& builder) const {
        return !is_described_by_costs(p_) ? uniform(builder, how_.storage.front().name)
                                          : valid(build_schedule(p_, builder));
    }
    template <class Builder> schedule uniform(const Builder& builder, std::string_view option) const {
        return valid(build_uniform_schedule(p_, builder, *find_common_option(p_, option)));
    }
    static schedule valid(const outcome<schedule>& built) {
        if (!built) throw error{"no schedule to measure with: " + describe(built.why())};
        return *built;
    }

    /// The schedule with its measured times.
    schedule recorded(const schedule& s) { return model_.record(p_.graph, programs_of(s)).measured; }
    void measure_costs() {
        cost_profile profile;
        profile.set_warm_up(0); // already before the reported step
        const auto add = [&](const schedule& measured) { profile.add(p_, profile.steps(), measured, {}); };
        add(recorded(keeping(zero_bubble_h1)));
        for (const auto& option : how_.storage) {
            if (option.again == language_model::recomputation::none) continue;
            auto measured = recorded(uniform(zero_bubble_h1, option.name));
            // The operations common to all options were measured with everything kept.
            const auto own = option.inside ? operation_kind::backward_input : operation_kind::recompute;
            std::erase_if(measured.operations, [&](const auto& timed) { return timed.op.kind != own; });
            add(measured);
        }
        p_ = with_measured_costs(std::move(p_), profile);
        gpu_bench::set_copy_times(p_, model_.message_bytes());
        write_file(prefix_ + "-problem.json", problem_to_json(p_));
        if (!is_described_by_costs(p_)) return tell_storage_costs();
        out_.table("Costs [ms], " + p_.name,
                   {"stage", "F", "I", "W", "to the host", "from it", "message", "stash [GB]", "of it for W [GB]"});
        for (const stage s : p_.graph.all_stages()) {
            const auto& c = p_.costs[s];
            const auto& transfer = *p_.storage_of(s, 1).transfer;
            out_.row({static_cast<double>(s.position()), c.forward.value(), c.backward_input.value(),
                      c.backward_weight.value(), transfer.offload.value(), transfer.reload.value(),
                      p_.p2p(rank{0}, rank{1}).value(), gigabytes(c.activation.value()),
                      gigabytes(c.weight_stash.value())});
        }
    }
    void tell_storage_costs() {
        out_.table("Costs [ms], " + p_.name, {"stage", "F", "I", "W", "message", "option", "holds [GB]",
                                              "recomputation", "to the host", "from it"});
        for (const stage s : p_.graph.all_stages())
            for (const auto& o : p_.storage[s]) {
                const auto& c = p_.costs[s];
                const auto way = [](duration taken) { return cell{taken.value()}; };
                out_.row({static_cast<double>(s.position()), c.forward.value(), c.backward_input.value(),
                          c.backward_weight.value(), p_.p2p(rank{0}, rank{1}).value(), std::string{o.name.view()},
                          gigabytes(o.held.value()), o.extra_work() > duration{} ? way(o.extra_work()) : cell{},
                          o.offloads() ? way(o.transfer->offload) : cell{},
                          o.offloads() ? way(o.transfer->reload) : cell{}});
            }
    }
    void begin_table(double share) {
        out_.table(p_.name + ", " + std::to_string(how_.microbatches) + " microbatches, " + format_number(share) +
                       " of what 1F1B needs: " + format_number(gigabytes(p_.memory_limit[rank{0}].value())) +
                       " GB per rank",
                   {"method", "planned [ms]", "by events [ms]", "above plan [%]", "step [ms]", "as a graph [ms]",
                    "transfers", "recomputes", "planned peak [GB]", "held at most [GB]", "gradients off by",
                    "same bits", "first loss", "last loss", "verdict"});
    }

    /// Reports how much longer than planned the operations of each kind took in each method's step.
    void tell_operation_times() {
        std::vector<std::string> columns{"method"};
        for (const auto kind : all_operation_kinds)
            columns.emplace_back(spelling(kind));
        out_.table("Durations of the operations by events, above plan [%]", columns);
        for (const auto& [name, kinds] : std::exchange(operation_times_, {})) {
            std::vector<cell> cells(columns.size(), std::string{});
            cells.front() = name;
            for (const auto& sum : kinds)
                cells[1 + static_cast<std::size_t>(sum.kind)] = 100.0 * (sum.measured / sum.planned - 1.0);
            out_.row(cells);
        }
    }

    /// Each buffer is in one piece if nothing packs them; the memory lost to gaps is added to the limit.
    lowering_options lowering() const {
        return {.bytes_per_unit = 1.0,
                .alignment = gpu_bench::alignment,
                .message_bytes = model_.message_bytes(),
                .lanes = message_lanes::per_direction,
                .placement = how_.storage.empty() ? part_placement::contiguous : part_placement::exact,
                .update = true};
    }
    per_rank<rank_program> programs_of(const schedule& s) const {
        auto open = p_;
        for (auto& limit : open.memory_limit)
            limit = memory_size::unlimited();
        auto programs = lower(open, s, lowering());
        if (!programs) throw error{"can't be lowered: " + describe(programs.why())};
        if (auto found = check_programs(*programs); !found.empty()) throw input_error{"programs", std::move(found)};
        return *std::move(programs);
    }

    bool attempt(const gpu_bench::method& m) {
        const auto say = [&](const std::string& verdict) {
            std::vector<cell> cells(15, std::string{});
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
        operation_times_.emplace_back(name, compare_kinds(planned, times.measured));
        const auto measured = objective_of(p_, times.measured).value();
        const auto recomputes = std::ranges::count_if(
            planned.operations, [](const auto& timed) { return timed.op.kind == operation_kind::recompute; });
        const auto peak = *std::max_element(expected.peak_memory.begin(), expected.peak_memory.end());
        out_.row({name, expected.objective.value(), measured, 100.0 * (measured / expected.objective.value() - 1.0),
                  median(trained.milliseconds), median(trained.graph_milliseconds),
                  static_cast<double>(expected.offloads), static_cast<double>(recomputes), gigabytes(peak.value()),
                  gigabytes(static_cast<double>(times.most_bytes)), trained.gradient_difference,
                  trained.has_same_gradients ? "yes" : "no", trained.losses.front(), trained.losses.back(),
                  verdict.value_or("")});
        return !verdict;
    }
    /// The fault, if there is one.
    [[nodiscard]] std::optional<std::string> verdict_on(const gpu_bench::training_result& r) const {
        if (!(r.gradient_difference <= tolerance_)) return "gradients differ";
        if (!(r.losses.back() < r.losses.front())) return "the loss doesn't fall";
        if (!r.graph_failure.empty()) return "no graph: " + r.graph_failure;
        return std::nullopt;
    }

    /// Training with the knowledge before the first step: 1F1B with the option that holds least, in half of the memory
    /// for keeping all stashes.
    bool plan_again(problem p) {
        for (const rank r : p.graph.all_ranks())
            p.memory_limit[r] = 0.5 * static_cast<double>(how_.ranks) * p.costs[stage{0}].activation;
        online_options how;
        how.planning.how.time_limit = std::chrono::seconds{2};
        const auto first = build_best_uniform_schedule(p, one_forward_one_backward);
        const auto r =
            model_.train_online(p, valid(first.result), {lowering(), std::chrono::milliseconds{1}}, how, online_steps_);
        out_.table("Planning again while it trains, in " + format_number(gigabytes(p.memory_limit[rank{0}].value())) +
                       " GB per rank; at first 1f1b, " + std::string{first.option.view()},
                   {"step", "event", "what"});
        for (const auto& e : r.log)
            out_.row({static_cast<double>(e.step), std::string{spelling(e.kind)}, e.text});
        constexpr std::size_t most = 10;
        const auto some = static_cast<std::ptrdiff_t>(std::min(most, r.milliseconds.size() / 2));
        const std::vector<double> begin(r.milliseconds.begin() + 1, r.milliseconds.begin() + 1 + some);
        const std::vector<double> end(r.milliseconds.end() - some, r.milliseconds.end());
        out_.table("Steps of that training",
                   {"steps", "of the first [ms]", "of the last [ms]", "planned [ms]", "first loss", "last loss"});
        out_.row({static_cast<double>(r.milliseconds.size()), median(begin), median(end),
                  objective_of(r.problem, r.schedule).value(), r.losses.front(), r.losses.back()});
        return r.losses.back() < r.losses.front() && median(end) < median(begin);
    }

    gpu_bench::training_setup how_;
    std::size_t steps_;
    std::size_t online_steps_;
    std::string prefix_;
    gpu_bench::report out_;
    clock_type::time_point deadline_;
    double tolerance_;
    std::vector<std::pair<std::string, std::vector<kind_difference>>> operation_times_; ///< per method
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
    using language_model::recomputation;
    gpu_bench::training_setup how;
    how.shape = {.hidden = options.number("--hidden"),
                 .heads = std::max<std::size_t>(1, options.number("--hidden") / 64),
                 .sequence = options.number("--sequence"),
                 .sequences = options.number("--sequences")};
    how.ranks = options.number("--ranks");
    how.layers_per_stage = options.number("--layers");
    how.microbatches = options.number("--microbatches");
    how.products = chosen<precision>(options, "--products", {{"single", precision::single}, {"tf32", precision::tf32}});
    if (chosen<bool>(options, "--storage", {{"transfers", false}, {"options", true}}))
        how.storage = {{.name = "keep"},
                       {.name = "offload", .offloaded = 1.0},
                       {.name = "attention", .again = recomputation::attention},
                       {.name = "activations", .again = recomputation::feed_forward},
                       {.name = "full", .again = recomputation::full},
                       {.name = "full inside", .again = recomputation::full, .inside = true}};
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
                                        {"--storage", "transfers"},
                                        {"--online", "none"},
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
