#include "commands.hpp"
#include "help.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/core/format.hpp>
#include <optpipe/version.hpp>

#include <CLI/CLI.hpp>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr const char* exit_statuses =
    "Exit status:\n"
    "  0  done\n"
    "  1  check: the schedule is invalid; diff: the plans differ\n"
    "  2  bad input, or an output that can't be written\n"
    "  3  there is no schedule or no solution, or the method has none\n"
    "  4  stopped by SIGINT (Ctrl-C) or SIGTERM: what was found is written and printed; a second signal ends the\n"
    "     program at once";

/// CLI11 accepts "nan" and "inf" as numbers, and "-1" for an unsigned option.
std::string not_negative(const std::string& text) {
    const double value = std::strtod(text.c_str(), nullptr);
    return std::isfinite(value) && value >= 0.0 ? "" : "must be finite and not negative, is " + text;
}

std::string positive(const std::string& text) {
    const double value = std::strtod(text.c_str(), nullptr);
    return std::isfinite(value) && value > 0.0 ? "" : "must be finite and more than 0, is " + text;
}

/// CLI11 itself refuses texts that aren't numbers.
std::string share(const std::string& text) {
    const double value = std::strtod(text.c_str(), nullptr);
    return value >= 0.0 && value <= 1.0 ? "" : "must be a share between 0 and 1, is " + text;
}

/// "0.02" for "2%". Other texts stay as they are, for the check.
std::string from_percent(std::string text) {
    constexpr double percent = 0.01;
    constexpr int digits = 17;
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (end == text.c_str() || std::string_view{end} != "%") return text;
    return optpipe::format_number(percent * value, digits);
}

void add_changes(CLI::App& command, program::problem_file& o) {
    command
        .add_option("--set", o.changes,
                    "Another value for a field of the file: microbatches=64, memory_limit=40, memory_limit[3]=40, "
                    "stages[2].forward=12 or, for all stages, stages.forward=12; may be repeated")
        ->allow_extra_args(false)
        ->type_name("FIELD=VALUE");
}

void add_problem(CLI::App& command, program::problem_file& o) {
    command.add_option("PROBLEM", o.path, "Problem file (optpipe.problem/1 to /3)")->required();
    add_changes(command, o);
}

/// Takes one problem or more.
void add_problems(CLI::App& command, program::problem_file& o, std::vector<std::string>& all) {
    command
        .add_option_function<std::vector<std::string>>(
            "PROBLEM",
            [&](const std::vector<std::string>& paths) {
                all = paths;
                o.path = paths.front();
            },
            "Problem file (optpipe.problem/1 to /3); of several, a table is printed")
        ->required();
    add_changes(command, o);
}

CLI::Option* add_plan_file(CLI::App& command, std::string& path) {
    return command.add_option("PLAN", path, "Schedule file (optpipe.schedule/1 to /3)")->required();
}

void add_gap(CLI::App& command, double& gap) {
    command
        .add_option("--gap", gap, "Stop once objective and bound are this close, as a share of the objective, or 2%")
        ->transform(from_percent)
        ->check(share)
        ->capture_default_str();
}

/// `no_limit` describes the search without a time limit.
void add_search(CLI::App& command, const std::string& no_limit, program::search_options& o) {
    command
        .add_option("--time-limit", o.time_limit,
                    "Search until the proof or for this many seconds (default: " + no_limit + ")")
        ->check(not_negative);
    command.add_option("--threads", o.threads, "Threads to search with (default: one for each of the machine's cores)")
        ->check(not_negative);
    command.add_option("--seed", o.seed, "Seed of the random numbers")->check(not_negative)->capture_default_str();
    add_gap(command, o.gap);
    command.add_option("--without", o.without, "Methods and search strategies to leave out, separated by commas")
        ->allow_extra_args(false)
        ->delimiter(',');
    command
        .add_option("--most-distinct-pairs", o.most_distinct_pairs,
                    "The most distinct pairs (two stages, and B or I) that a rank may run; each is a graph to compile")
        ->check(not_negative);
    command.add_option("--cache", o.cache, "Keep plans in this folder, and begin with what is there");
    command.add_flag("--progress", o.progress,
                     "Show incumbent, bound and gap on standard error although it isn't a terminal");
}

/// `schedule` is the option for the output file of the schedule.
void add_files(CLI::App& command, const std::string& schedule, program::plan_files& o) {
    command.add_option(
        schedule, o.schedule,
        "Write the schedule (optpipe.schedule/1, /2 with storage options or forwards alone, or /3 with pairs)");
    command.add_option("--svg", o.svg, "Write a picture of it");
    command.add_option("--html", o.html,
                       "Write a page of it: timeline, memory, search, and the best published schedule beside it");
    command.add_option("--trace", o.trace, "Write a Chrome trace of it, for Perfetto");
}

void add_csv(CLI::App& command, std::string& csv, const std::string& what) {
    command.add_option("--csv", csv, "Write a table as CSV: " + what);
}

void add_plan(CLI::App& app, program::plan_options& o, std::function<int()>& chosen) {
    auto* command =
        app.add_subcommand("plan", "Find the schedule that trains a step fastest within each device's memory");
    add_problems(*command, o.problem, o.problems);
    command->add_option("--method", o.method,
                        "best (default), or one of: " + program::method_names() +
                            "; parameters as in gis:g=3, a storage option as in 1f1b:storage=full");
    add_search(*command, "deterministic work of a second or a few", o.search);
#if defined(OPTPIPE_HAS_MILP)
    auto* costs = command->add_option("--costs-at", o.costs_at,
                                      "Choose the number of microbatches: problem files with costs at other sizes of a "
                                      "microbatch, each with the number for its size");
    costs->allow_extra_args(false);
    command
        ->add_option("--microbatches", o.microbatches,
                     "With --costs-at: the numbers to plan, separated by commas (default: those of the files)")
        ->allow_extra_args(false)
        ->delimiter(',')
        ->check(CLI::Range(1, 1 << 20))
        ->needs(costs);
    command->add_option("--out-problem", o.out_problem, "With --costs-at: write the problem that the plan belongs to")
        ->needs(costs);
#endif
    command->add_flag("--deterministic", o.deterministic,
                      "With a time limit: a search whose outcome doesn't depend on the number of threads");
    command->add_option("--start", o.start,
                        "Begin with this schedule (optpipe.schedule/1 to /3), which may be timed for other costs");
    command
        ->add_option("--noise", o.noise,
                     "Plan for durations that vary by this share of themselves (standard deviation), as 0.1 or 10%")
        ->transform(from_percent)
        ->check(not_negative);
    command->add_option("--percentile", o.percentile,
                        "With --noise: the percentile of the step time to optimize (default: 95)");
    command->add_flag("--forward-only", o.forward_only,
                      "Plan forwards alone, for evaluation and inference: the best list schedule, and its bound");
    add_files(*command, "--out", o.files);
    add_csv(*command, o.csv, "objective, bound, gap, method and seconds of each problem");
    command->add_flag("--json", o.json, "Print the result as JSON, in place of the text");
    command->add_flag("--quiet", o.quiet, "Print nothing but errors");
    command->callback([&] { chosen = [&] { return program::plan(o); }; });
}

void add_compare(CLI::App& app, program::compare_options& o, std::function<int()>& chosen) {
    auto* command = app.add_subcommand("compare", "Plan with every method that applies and list what each reaches");
    add_problems(*command, o.problem, o.problems);
    command->add_option("--time-limit", o.time_limit, "Seconds for each method that searches (default: a fixed effort)")
        ->check(not_negative);
    command->add_option("--plan", o.plan, "A plan of one problem, for a row of its own");
    command->add_option("--json", o.json, "Write the table of one problem as JSON");
    add_csv(*command, o.csv, "what each method reaches on each problem");
    command->add_flag("--markdown", o.markdown, "Print the table as Markdown, for a pull request");
    command->callback([&] { chosen = [&] { return program::compare(o); }; });
}

#if defined(OPTPIPE_HAS_MILP)
void add_sweep(CLI::App& app, program::sweep_options& o, std::function<int()>& chosen) {
    auto* command = app.add_subcommand("sweep", "Plan a problem for several values of one field, and print a table");
    add_problem(*command, o.problem);
    command->get_option("--set")->required()->description("A field and its values: memory_limit=20:80:10 (from 20 to "
                                                          "80 in steps of 10) or memory_limit=20,40,80; further "
                                                          "ones have one value each, as in other commands");
    command
        ->add_option("--methods", o.methods,
                     "What to plan with, separated by commas: plan (default), builders as in plan --method, or all")
        ->allow_extra_args(false)
        ->delimiter(',');
    add_search(*command, "deterministic work of a second or a few for each", o.search);
    add_csv(*command, o.csv, "objective, bound, gap, method and seconds for each value and method");
    command->add_option("--svg", o.svg,
                        "Write a picture of it: the objective over the values, a curve for each method");
    command->add_option("--resume", o.resume,
                        "Keep finished rows in this file (optpipe.sweep/1), and don't plan again what it has");
    command->add_flag("--quiet", o.quiet, "Print nothing but errors");
    command->callback([&] { chosen = [&] { return program::sweep(o); }; });
}
#endif

void add_diff(CLI::App& app, program::diff_options& o, std::function<int()>& chosen) {
    auto* command = app.add_subcommand(
        "diff", "Say what two plans do differently: measures, storage, peaks, and the first difference in order");
    add_problem(*command, o.problem);
    command->add_option("A", o.a, "Schedule file (optpipe.schedule/1 to /3)")->required();
    command->add_option("B", o.b, "Schedule file (optpipe.schedule/1 to /3)")->required();
    command->add_flag("--json", o.json, "Print the result as JSON, in place of the text");
    command->callback([&] { chosen = [&] { return program::diff(o); }; });
}

void add_check(CLI::App& app, program::check_options& o, std::function<int()>& chosen) {
    auto* command =
        app.add_subcommand("check", "Say whether a schedule is valid, and if not, all that is wrong with it");
    add_problem(*command, o.problem);
    add_plan_file(*command, o.schedule);
    command->add_flag("--json", o.json, "Print the result as JSON, in place of the text");
    command->callback([&] { chosen = [&] { return program::check(o); }; });
}

void add_new(CLI::App& app, program::new_options& o, std::function<int()>& chosen) {
    auto* command =
        app.add_subcommand("new", "Write the problem of training a published model, or one of your own shapes");
    auto* model = command->add_option("--model", o.model, "One of: " + program::model_names());
    command->add_option("--config", o.config, "The config.json of a model, as Hugging Face's transformers write it")
        ->excludes(model);
    command->add_option("--ranks", o.ranks, "Devices of the pipeline")->required()->check(CLI::Range(1, 1 << 12));
    command->add_option("--memory", o.memory, "Memory of each device in GB, with weights and optimizer")
        ->required()
        ->check(positive);
    command->add_option("--microbatches", o.microbatches, "Microbatches of a step (default: four for each rank)")
        ->check(positive);
    command
        ->add_option("--placement", o.placement,
                     "linear: one stage on each rank; loop, v: two, in a loop or a v (not with --layers)")
        ->capture_default_str();
    command->add_option("--sequence", o.sequence, "Tokens of a sequence (default: the model's, 4096 with --config)")
        ->check(positive);
    command->add_option("--microbatch-size", o.microbatch_size, "Sequences in a microbatch")
        ->check(positive)
        ->capture_default_str();
    command->add_option("--tensor-parallel", o.tensor_parallel, "Devices that share every layer")
        ->check(positive)
        ->capture_default_str();
    command->add_option("--expert-parallel", o.expert_parallel, "Groups of devices that share the experts")
        ->check(positive)
        ->capture_default_str();
    command->add_option("--optimizer-shards", o.optimizer_shards, "Devices that share the optimizer's state (ZeRO 1)")
        ->check(positive)
        ->capture_default_str();
    command->add_option("--compute-rate", o.compute_rate, "TFLOP/s that a device reaches")
        ->check(positive)
        ->capture_default_str();
    command->add_option("--host-link-rate", o.host_link_rate, "GB/s between device and host; 0: no offloading")
        ->check(not_negative)
        ->capture_default_str();
    command->add_option("--rank-link-rate", o.rank_link_rate, "GB/s between devices")
        ->check(positive)
        ->capture_default_str();
    command->add_flag("--layers", o.layers, "Write layers for `optpipe partition` in place of a problem");
    command->add_option("--out", o.out, "Where it goes (default: standard output)");
    command->callback([&] { chosen = [&] { return program::new_problem(o); }; });
}

void add_why(CLI::App& app, program::why_options& o, std::function<int()>& chosen) {
    auto* command = app.add_subcommand(
        "why",
        "Say why a step takes as long as it does: idle time by cause, what would help, the best published beside it");
    add_problem(*command, o.problem);
    add_plan_file(*command, o.schedule);
    command
        ->add_option("--time-limit", o.time_limit,
                     "Seconds for planning again with each limit lifted, one after the other")
        ->check(not_negative)
        ->capture_default_str();
    command->add_option("--threads", o.threads, "Threads to search with (default: one for each of the machine's cores)")
        ->check(not_negative);
    command->add_flag("--json", o.json, "Print the result as JSON, in place of the text");
    command->callback([&] { chosen = [&] { return program::why(o); }; });
}

#if defined(OPTPIPE_HAS_MILP)

void add_whatif(CLI::App& app, program::whatif_options& o, std::function<int()>& chosen) {
    auto* command = app.add_subcommand(
        "whatif", "Say what more memory, faster devices or faster links would bring, each on its own: an estimate from "
                  "the bound, and the best of them planned again");
    add_problem(*command, o.problem);
    add_plan_file(*command, o.schedule);
    const CLI::Range factor{1.0, 1e6};
    command->add_option("--memory", o.memory, "What is added to a memory limit, in the problem's unit of memory")
        ->check(not_negative)
        ->capture_default_str();
    command->add_option("--speed", o.speed, "How many times as fast a device computes")
        ->check(factor)
        ->capture_default_str();
    command->add_option("--bandwidth", o.bandwidth, "How many times as fast transfers and messages are")
        ->check(factor)
        ->capture_default_str();
    command->add_option("--most", o.most, "The most changes that are planned again, those of the best estimates")
        ->check(not_negative)
        ->capture_default_str();
    command->add_option("--time-limit", o.time_limit, "Seconds for planning again, for each change")
        ->check(not_negative)
        ->capture_default_str();
    command->add_option("--threads", o.threads, "Threads to search with (default: one for each of the machine's cores)")
        ->check(not_negative);
    command->add_flag("--json", o.json, "Print the result as JSON, in place of the text");
    command->callback([&] { chosen = [&] { return program::whatif(o); }; });
}

#endif

void add_run(CLI::App& app, program::run_options& o, std::function<int()>& chosen) {
    auto* command = app.add_subcommand(
        "run", "Run a schedule on threads, with operations that take as long as planned, and measure it");
    add_problem(*command, o.problem);
    add_plan_file(*command, o.schedule);
    command->add_option("--steps", o.steps, "Number of training steps. The step of median duration is shown")
        ->check(CLI::Range(1, 1000000))
        ->capture_default_str();
    command
        ->add_option("--scale", o.scale,
                     "Seconds that a unit of the problem's time takes (default: such that a step takes half a second, "
                     "or half a millisecond per operation)")
        ->check(not_negative);
    command->add_flag("--progress", o.progress, "Say on standard error how long each step took");
    auto* out = command->add_option("--out", o.out,
                                    "Write what was measured (optpipe.schedule/1 to /3); of five steps each, as "
                                    "step-1.json to step-5.json for step.json");
    command->add_option("--svg", o.svg,
                        "Write a picture of plan and measurement; with --online of step times and switches");
    auto* trace = command->add_option("--trace", o.trace, "Write a Chrome trace of both, for Perfetto");
#if defined(OPTPIPE_HAS_MILP)
    auto* online = command->add_flag(
        "--online", o.online, "Measure, plan again beside the steps, and hand better plans over between two steps");
    online->excludes(out)->excludes(trace);
    command
        ->add_option("--slow-link", o.slow_link,
                     "Transfers take so many times as long in the second third of the steps, to see it found")
        ->check(CLI::Range(0.01, 100.0))
        ->needs(online);
#else
    static_cast<void>(out);
    static_cast<void>(trace);
#endif
    command->add_flag("--quiet", o.quiet, "Print nothing but errors");
    command->callback([&] { chosen = [&] { return program::run(o); }; });
}

void add_profile(CLI::App& app, program::profile_options& o, std::function<int()>& chosen) {
    auto* command = app.add_subcommand("profile", "Say what operations and messages took in measured steps, how sure "
                                                  "that is, and how it differs from the plan");
    add_problem(*command, o.problem);
    command->add_option("MEASURED", o.measured,
                        "Measured steps in their order: one per schedule file, as optpipe run --out writes them; or "
                        "profiles (optpipe.profile/1)");
    auto* traces = command->add_option(
        "--trace", o.traces,
        "Traces of these steps, one for each rank or one of all: of PyTorch's profiler, or other Chrome traces");
    command
        ->add_option("--range", o.ranges,
                     "With --trace: how the ranges of a kind of operations are named, as in 'F=forward s{stage} "
                     "m{microbatch}', with * for any text (default: as in PP:2F5); may be repeated")
        ->allow_extra_args(false)
        ->type_name("KIND=NAME")
        ->needs(traces);
    command
        ->add_option("--plan", o.plan,
                     "With --trace: the plan that ran, which tells the storage options that operations don't")
        ->needs(traces);
    command->add_option("--out", o.out, "Write the problem with the measured costs");
    command->add_option("--save", o.save, "Write the profile (optpipe.profile/1), to go on from later");
    command
        ->add_option("--warm-up", o.warm_up,
                     "Steps at the beginning to leave out (default: those that are found to differ)")
        ->check(not_negative);
    command->add_flag("--quiet", o.quiet, "Print nothing but errors");
    command->callback([&] { chosen = [&] { return program::profile(o); }; });
}

/// Accepts `draw PLAN --problem PROBLEM`, as in version 0.1.
void allow_plan_first(CLI::App& command, program::draw_options& o, CLI::Option& plan) {
    command
        .add_option_function<std::string>("--problem",
                                          [&o](const std::string& path) {
                                              if (!o.schedule.empty())
                                                  throw CLI::ValidationError{"--problem: PROBLEM is given already"};
                                              o.schedule = std::exchange(o.problem.path, path);
                                          })
        ->group("")
        ->each([&plan](const std::string&) { plan.required(false); });
}

void add_draw(CLI::App& app, program::draw_options& o, std::function<int()>& chosen) {
    auto* command =
        app.add_subcommand("draw", "Draw a schedule, or a measurement over it; as text where no file is asked for");
    add_problem(*command, o.problem);
    auto* plan = add_plan_file(*command, o.schedule);
    allow_plan_first(*command, o, *plan);
    command->add_option(
        "--measured", o.measured,
        "What was measured of it (optpipe.schedule/1 to /3): draw both, and print them and how they differ");
    command->add_option("--svg", o.svg, "Write a picture (SVG)");
    command->add_option("--html", o.html, "Where a page goes, to look at in a browser: always of all ranks and times");
    command->add_option("--trace", o.trace, "Where a Chrome trace goes, for Perfetto");
    command->add_option("--ranks", o.ranks, "Draw these ranks alone: one, or the first and the last as in 2-5");
    command->add_option("--from", o.from, "Begin to draw at this time, in the problem's unit")->check(not_negative);
    command->add_option("--to", o.to, "Draw what is earlier than this")->check(not_negative);
    command->callback([&] { chosen = [&] { return program::draw(o); }; });
}

void add_lower(CLI::App& app, program::lower_options& o, std::function<int()>& chosen) {
    auto* command = app.add_subcommand(
        "lower", "Write what each rank does, instruction by instruction, for a runtime such as examples/pytorch");
    add_problem(*command, o.problem);
    add_plan_file(*command, o.schedule);
    command
        ->add_option("--bytes-per-unit", o.bytes_per_unit,
                     "Bytes of a unit of the problem's memory (default: 1 if the unit is B, or those of a GB)")
        ->check(CLI::Range(1e-9, 1e18));
    command->add_option("--alignment", o.alignment, "Sizes and offsets of buffers are multiples of this, in bytes")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    command
        ->add_option("--message-bytes", o.message_bytes,
                     "Bytes of an activation between two stages, and of its gradient (default: 0, which leaves the "
                     "memory of messages to the runtime)")
        ->check(CLI::Range(std::size_t{0}, std::size_t{1} << 50U));
    command
        ->add_option("--messages", o.messages,
                     "Lanes of messages: separate (one each for sends and receives of activations and of gradients), "
                     "per-direction (two), or single")
        ->check(CLI::IsMember({"separate", "per-direction", "single"}))
        ->capture_default_str();
    command
        ->add_option("--receives", o.receives,
                     "When a receive may start: early, or when-due, where a waiting receive occupies the device")
        ->check(CLI::IsMember({"early", "when-due"}))
        ->capture_default_str();
    command->add_option("--out", o.out, "Where the programs go (optpipe.programs/1)")->required();
    command->callback([&] { chosen = [&] { return program::lower(o); }; });
}

void add_export_csv(CLI::App& app, program::export_csv_options& o, std::function<int()>& chosen) {
    auto* command =
        app.add_subcommand("export-csv", "Write a schedule as PyTorch's torch.distributed.pipelining loads it");
    add_problem(*command, o.problem);
    add_plan_file(*command, o.schedule);
    command
        ->add_option("--format", o.format,
                     "compute_only: PyTorch adds sends and receives; compute_comms: with all of them, as planned")
        ->check(CLI::IsMember({"compute_only", "compute_comms"}))
        ->capture_default_str();
    command->add_flag("--without-storage", o.without_storage,
                      "Leave out offloading and recomputation, which PyTorch's schedules can't express");
    command
        ->add_option(
            "--unshard", o.unsharded_stages,
            "For stages under FSDP, in compute_comms: how many of a rank have their parameters gathered at once")
        ->check(CLI::Range(1, 1000));
    command->add_option("--out", o.out, "Where the CSV file goes")->required();
    command->callback([&] { chosen = [&] { return program::export_csv(o); }; });
}

void add_import_csv(CLI::App& app, program::import_csv_options& o, std::function<int()>& chosen) {
    auto* command = app.add_subcommand("import-csv", "Time a schedule of PyTorch's on a problem, to compare it");
    add_problem(*command, o.problem);
    command->add_option("CSV", o.csv, "Schedule file of PyTorch, compute_only or compute_comms")->required();
    command
        ->add_option("--out", o.out,
                     "Write the schedule (optpipe.schedule/1, /2 with storage options, or /3 with pairs)")
        ->required();
    command->callback([&] { chosen = [&] { return program::import_csv(o); }; });
}

void add_export_megatron(CLI::App& app, program::export_megatron_options& o, std::function<int()>& chosen) {
    auto* command = app.add_subcommand("export-megatron",
                                       "Print a schedule as settings of Megatron-Core, and what these can't express");
    add_problem(*command, o.problem);
    add_plan_file(*command, o.schedule);
    command
        ->add_option(
            "--layers", o.layers,
            "Transformer layers of each stage, separated by commas, or one number for all: for the layout; 7+1 "
            "with a layer of multi-token prediction")
        ->allow_extra_args(false)
        ->delimiter(',');
    command->add_option("--offload-modules", o.offload_modules, "Modules to offload, separated by commas, as core_attn")
        ->allow_extra_args(false)
        ->delimiter(',');
    command->add_option("--out", o.out, "Write them, in place of printing");
    command->callback([&] { chosen = [&] { return program::export_megatron(o); }; });
}

#if defined(OPTPIPE_HAS_MILP)
void add_partition(CLI::App& app, program::partition_options& o, std::function<int()>& chosen) {
    auto* command = app.add_subcommand(
        "partition", "Divide a model's layers among stages, choose where the stages are, and plan that pipeline");
    command->add_option("LAYERS", o.layers.path, "File of layers and devices (optpipe.layers/1, /2)")->required();
    add_changes(*command, o.layers);
    constexpr int usual_seconds = 10; // for all partitions together; a fixed effort for each may take minutes
    o.search.time_limit = usual_seconds;
    add_search(*command, std::to_string(usual_seconds), o.search);
    command->add_option("--out", o.out,
                        "Write the pipeline (optpipe.problem; /2 with storage options, /3 for graphs and pairs)");
    add_files(*command, "--plan", o.files);
    auto* table = command->add_flag("--table", o.table,
                                    "Print tables in Markdown: the uniform layout, yours and the plan, with step, "
                                    "bubble, bound, time per stage and peak per rank");
    command
        ->add_option("--layout", o.layout,
                     "With --table: your layout, as layers of each stage (3,8,8,9) or Megatron's "
                     "pipeline_model_parallel_layout (\"Et*3|(tt|)*13,m|L\")")
        ->needs(table);
    command->add_flag("--json", o.json, "Print the result as JSON, in place of the text")->excludes(table);
    command->add_flag("--quiet", o.quiet, "Print nothing but errors");
    command->callback([&] { chosen = [&] { return program::partition(o); }; });
}

void add_solve(CLI::App& app, program::solve_options& o, std::function<int()>& chosen) {
    auto* command = app.add_subcommand("solve", "Solve a mixed-integer linear model");
    command->add_option("MODEL", o.model, "Model file (MPS, free or fixed, or LP; may be compressed with gzip)")
        ->required();
    command->add_option("--time-limit", o.time_limit, "Stop after this many seconds and keep the best solution")
        ->check(not_negative);
    command->add_option("--threads", o.threads, "Threads (default: one for each of the machine's)")
        ->check(not_negative);
    command->add_option("--seed", o.seed, "Seed of the random numbers")->check(not_negative)->capture_default_str();
    add_gap(*command, o.gap);
    command->add_flag("--log", o.log, "Say on standard error what the search does");
    command->add_option("--out", o.out, "Write status, objective, bound and solution as JSON");
    command->callback([&] { chosen = [&] { return program::solve(o); }; });
}

void add_export_mps(CLI::App& app, program::export_mps_options& o, std::function<int()>& chosen) {
    auto* command = app.add_subcommand("export-mps", "Write a problem as a mixed-integer linear model, for any solver");
    add_problem(*command, o.problem);
    command->add_option("--out", o.out, "Where the model goes (MPS; compressed if the name ends in .gz)")->required();
    command
        ->add_option("--horizon", o.horizon,
                     "Leave out schedules that are longer (default: what the adaptive builder reaches)")
        ->check(not_negative);
    command->add_flag(
        "--in-order", o.in_order,
        "Leave out schedules in which microbatches overtake each other: a smaller model, whose optimum may be worse");
    command->add_flag("--plain", o.plain, "Without rows, bounds and fixed orders that only help the solver");
    command->callback([&] { chosen = [&] { return program::export_mps(o); }; });
}

void add_import_solution(CLI::App& app, program::import_solution_options& o, std::function<int()>& chosen) {
    auto* command =
        app.add_subcommand("import-solution", "Turn a solver's solution of an exported model into a schedule");
    add_problem(*command, o.problem);
    command
        ->add_option("SOLUTION", o.solution,
                     "Solution file of HiGHS, CBC, GLPK (glpsol --write), SCIP, or optpipe solve --out")
        ->required();
    command
        ->add_option("--out", o.out,
                     "Write the schedule (optpipe.schedule/1, /2 with storage options, or /3 with pairs)")
        ->required();
    command->callback([&] { chosen = [&] { return program::import_solution(o); }; });
}
#endif

[[nodiscard]] bool is_number(const CLI::Option& option) {
    const auto type = option.get_type_name();
    const auto name = type.substr(0, type.find(':')); // the possible values follow the colon
    return name == "FLOAT" || name == "UINT" || name == "INT";
}

/// CLI11 reads an empty text as 0.
void refuse_empty_numbers(CLI::App& app) {
    for (auto* command : app.get_subcommands({}))
        for (auto* option : command->get_options())
            if (is_number(*option))
                option->check([](const std::string& text) { return text.empty() ? "must be a number, is empty" : ""; });
}

int run(const std::function<int()>& command) {
    try {
        const int status = command();
        std::cout.flush();
        if (std::cout) return status;
        std::cerr << "optpipe: can't write to standard output\n";
    } catch (const optpipe::error& e) {
        std::cerr << "optpipe: " << e.what() << '\n';
    } catch (const std::bad_alloc&) {
        std::cerr << "optpipe: out of memory\n";
    }
    return program::bad_input;
}

} // namespace

int main(int count, char** arguments) {
    std::signal(SIGXFSZ, SIG_IGN); // a write beyond the limit of file sizes fails, and is reported
    CLI::App app{"Plans pipeline-parallel training within a memory limit, with a proof.\n"
                 "PROBLEM comes first, then PLAN. A file named - is standard input, or standard output.",
                 "optpipe"};
    app.footer(exit_statuses); // also the footer of each command
    app.set_version_flag("--version", std::string{"optpipe "} + optpipe::version_string);
    app.require_subcommand(1);
    app.failure_message(program::usage_message);
    program::plan_options plan;
    program::compare_options compare;
    program::check_options check;
    program::diff_options diff;
    program::sweep_options sweep;
    program::new_options new_problem;
    program::why_options why;
    program::whatif_options whatif;
    program::run_options run_plan;
    program::profile_options profile;
    program::draw_options draw;
    program::lower_options lower;
    program::export_csv_options export_csv;
    program::import_csv_options import_csv;
    program::export_megatron_options export_megatron;
    program::partition_options partition;
    program::solve_options solve;
    program::export_mps_options export_mps;
    program::import_solution_options import_solution;
    std::string help;
    program::own_text completion;
    program::own_text man_page;
    std::function<int()> chosen;
    add_plan(app, plan, chosen);
    add_new(app, new_problem, chosen);
    add_compare(app, compare, chosen);
    add_check(app, check, chosen);
    add_diff(app, diff, chosen);
    add_why(app, why, chosen);
    add_run(app, run_plan, chosen);
    add_profile(app, profile, chosen);
    add_draw(app, draw, chosen);
    add_lower(app, lower, chosen);
    add_export_csv(app, export_csv, chosen);
    add_import_csv(app, import_csv, chosen);
    add_export_megatron(app, export_megatron, chosen);
#if defined(OPTPIPE_HAS_MILP)
    add_whatif(app, whatif, chosen);
    add_sweep(app, sweep, chosen);
    add_partition(app, partition, chosen);
    add_solve(app, solve, chosen);
    add_export_mps(app, export_mps, chosen);
    add_import_solution(app, import_solution, chosen);
#endif
    program::add_help(app, help, chosen);
    program::add_completion(app, completion, chosen);
    program::add_man_page(app, man_page, chosen);
    refuse_empty_numbers(app);
    try {
        app.parse(count, arguments);
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? program::success : program::bad_input;
    }
    return run(chosen);
}
