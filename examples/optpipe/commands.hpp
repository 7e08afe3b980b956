#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// The commands of the program. Each returns its exit status, or throws an `optpipe::error`, which counts as bad input.
namespace program {

inline constexpr int success = 0;
inline constexpr int invalid_schedule = 1;
inline constexpr int different = 1;
inline constexpr int bad_input = 2;
inline constexpr int no_schedule = 3;
inline constexpr int no_solution = 3;
/// Ended by the first SIGINT or SIGTERM; the results found until then are written and printed.
inline constexpr int stopped_by_signal = 4;

/// A file of a problem, or of layers, and changes of its fields, each as in "memory_limit[3]=40".
struct problem_file {
    std::string path;
    std::vector<std::string> changes;
};

struct search_options {
    std::optional<double> time_limit;
    unsigned threads = 0;
    std::uint64_t seed = 1;
    double gap = 0.0;
    std::vector<std::string> without;
    std::optional<std::size_t> most_distinct_pairs;
    std::string cache;
    bool progress = false;
};

/// Output files of a plan.
struct plan_files {
    std::string schedule;
    std::string svg;
    std::string html;
    std::string trace;
};

struct plan_options {
    problem_file problem;
    /// All problems, if there are several; the first is `problem`.
    std::vector<std::string> problems;
    std::string method;
    /// Problems with costs at other sizes of a microbatch, and the numbers of microbatches to plan; see `plan_sizes`.
    std::vector<std::string> costs_at;
    std::vector<std::size_t> microbatches;
    std::string out_problem;
    search_options search;
    bool deterministic = false;
    /// A schedule file to start from.
    std::string start;
    bool forward_only = false;
    /// The relative standard deviation of durations, and the percentile of the step time to optimize with it.
    std::optional<double> noise;
    std::optional<double> percentile;
    plan_files files;
    /// Output file of the table of several problems.
    std::string csv;
    bool json = false;
    bool quiet = false;
};
int plan(const plan_options& options);

struct sweep_options {
    /// The problem to vary: one field has several values in the changes.
    problem_file problem;
    search_options search;
    /// "plan" (the search), names of builders, or "all".
    std::vector<std::string> methods{"plan"};
    std::string csv;
    std::string svg;
    /// The file that keeps finished rows from one run to the next.
    std::string resume;
    bool quiet = false;
};
/// Plans `problem` for each value with each method. Only with the MILP solver (OPTPIPE_HAS_MILP).
int sweep(const sweep_options& options);

struct partition_options {
    problem_file layers;
    search_options search;
    /// Output file of the problem.
    std::string out;
    plan_files files;
    /// Whether to print the plan beside the uniform layout, and beside `layout` (`optpipe::parse_layout`) if it is
    /// given.
    bool table = false;
    std::string layout;
    bool json = false;
    bool quiet = false;
};
/// Only with the MILP solver (OPTPIPE_HAS_MILP).
int partition(const partition_options& options);

struct new_options {
    /// One of `model_names()`; empty if `config` is given, a config.json.
    std::string model;
    std::string config;
    std::size_t ranks = 0;
    /// Memory of each device in gigabytes.
    double memory = 0.0;
    /// 0: four for each rank.
    std::size_t microbatches = 0;
    std::string placement = "linear";
    /// Tokens per sequence; 0: as in the model.
    std::size_t sequence = 0;
    std::size_t microbatch_size = 1;
    std::size_t tensor_parallel = 1;
    std::size_t expert_parallel = 1;
    std::size_t optimizer_shards = 1;
    double compute_rate = 400.0;
    double host_link_rate = 20.0;
    double rank_link_rate = 50.0;
    /// Whether to write layers instead of a problem.
    bool layers = false;
    std::string out = "-";
};
int new_problem(const new_options& options);
/// The names that `new --model` takes, separated by commas.
std::string model_names();

struct compare_options {
    problem_file problem;
    /// All problems, if there are several; the first is `problem`.
    std::vector<std::string> problems;
    /// Time limit of the methods that search, in seconds.
    std::optional<double> time_limit;
    /// A schedule file, for a row of its own.
    std::string plan;
    std::string json;
    std::string csv;
    bool markdown = false;
};
int compare(const compare_options& options);

struct check_options {
    problem_file problem;
    std::string schedule;
    bool json = false;
};
int check(const check_options& options);

struct diff_options {
    problem_file problem;
    std::string a;
    std::string b;
    bool json = false;
};
int diff(const diff_options& options);

struct why_options {
    problem_file problem;
    std::string schedule;
    /// Time limit of each plan in seconds.
    double time_limit = 1.0;
    unsigned threads = 0;
    bool json = false;
};
int why(const why_options& options);

struct whatif_options {
    problem_file problem;
    std::string schedule;
    /// What is added to a memory limit, in the problem's unit, and how many times as fast a device and transfers
    /// become.
    double memory = 1.0;
    double speed = 1.1;
    double bandwidth = 2.0;
    /// The most changes that are planned again.
    std::size_t most = 5;
    /// Time limit of each plan in seconds.
    double time_limit = 1.0;
    unsigned threads = 0;
    bool json = false;
};
int whatif(const whatif_options& options);

struct run_options {
    problem_file problem;
    std::string schedule;
    std::size_t steps = 1;
    /// Seconds per unit of the problem's time.
    std::optional<double> scale;
    bool progress = false;
    bool online = false;
    /// Factor on the durations of transfers in the second third of the steps.
    std::optional<double> slow_link;
    std::string out;
    std::string svg;
    std::string trace;
    bool quiet = false;
};
int run(const run_options& options);

struct profile_options {
    problem_file problem;
    /// Schedule files, each with one step, and profile files.
    std::vector<std::string> measured;
    /// Traces, each with ranks of its own; how their ranges are named (`optpipe::range_pattern`), and the plan that
    /// ran.
    std::vector<std::string> traces;
    std::vector<std::string> ranges;
    std::string plan;
    std::string out;
    std::string save;
    std::optional<std::size_t> warm_up;
    bool quiet = false;
};
int profile(const profile_options& options);

struct draw_options {
    std::string schedule;
    problem_file problem;
    std::string measured;
    std::string svg;
    std::string html;
    std::string trace;
    /// "3", or "2-5"; empty: all.
    std::string ranks;
    std::optional<double> from;
    std::optional<double> to;
};
int draw(const draw_options& options);

struct lower_options {
    problem_file problem;
    std::string schedule;
    /// Bytes of a unit of the problem's memory; by default 1 for the unit B, and 1e9 for others.
    std::optional<double> bytes_per_unit;
    std::size_t alignment = 256;
    /// Bytes of a message; 0: the runtime has its own memory for messages.
    std::size_t message_bytes = 0;
    std::string messages = "separate";
    std::string receives = "early";
    std::string out;
};
/// Writes the programs of all ranks.
int lower(const lower_options& options);

struct export_csv_options {
    problem_file problem;
    std::string schedule;
    std::string format = "compute_only";
    bool without_storage = false;
    std::size_t unsharded_stages = 0;
    std::string out;
};
/// Exports for PyTorch.
int export_csv(const export_csv_options& options);

struct import_csv_options {
    problem_file problem;
    std::string csv;
    std::string out;
};
/// Imports from PyTorch.
int import_csv(const import_csv_options& options);

struct export_megatron_options {
    problem_file problem;
    std::string schedule;
    /// Layers of each stage: "8", or "7+1" with layers of multi-token prediction. One text for all stages, or one per
    /// stage.
    std::vector<std::string> layers;
    std::vector<std::string> offload_modules;
    /// Standard output if empty.
    std::string out;
};
int export_megatron(const export_megatron_options& options);

struct solve_options {
    std::string model;
    std::optional<double> time_limit;
    unsigned threads = 0;
    std::uint64_t seed = 1;
    double gap = 0.0;
    bool log = false;
    std::string out;
};
/// Only with the MILP solver (OPTPIPE_HAS_MILP).
int solve(const solve_options& options);

struct export_mps_options {
    problem_file problem;
    std::string out;
    std::optional<double> horizon;
    bool in_order = false;
    bool plain = false;
};
/// Only with the MILP solver (OPTPIPE_HAS_MILP), like the next one.
int export_mps(const export_mps_options& options);

struct import_solution_options {
    problem_file problem;
    std::string solution;
    std::string out;
};
int import_solution(const import_solution_options& options);

/// The names that `--method` takes, separated by commas.
std::string method_names();

} // namespace program
