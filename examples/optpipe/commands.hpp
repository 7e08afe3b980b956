#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// What the program can do. Each returns its exit status, or throws an `optpipe::error`, which is bad input as well.
namespace program {

inline constexpr int success = 0;
inline constexpr int invalid_schedule = 1;
inline constexpr int bad_input = 2;
inline constexpr int no_schedule = 3;
inline constexpr int no_solution = 3;
/// By the first SIGINT or SIGTERM; what was found is written and printed.
inline constexpr int stopped_by_signal = 4;

/// How to search.
struct search_options {
    std::optional<double> time_limit;
    unsigned threads = 0;
    std::uint64_t seed = 1;
    double gap = 0.0;
    std::vector<std::string> without;
    std::string cache;
    bool progress = false;
};

/// What to make of a plan.
struct plan_files {
    std::string schedule;
    std::string svg;
    std::string html;
    std::string trace;
};

struct plan_options {
    std::string problem;
    std::string method;
    search_options search;
    bool deterministic = false;
    /// A schedule file to begin from.
    std::string start;
    bool forward_only = false;
    /// The relative standard deviation of durations, and the percentile of the step time to optimize under it.
    std::optional<double> noise;
    std::optional<double> percentile;
    plan_files files;
    bool json = false;
    bool quiet = false;
};
int plan(const plan_options& options);

struct partition_options {
    std::string layers;
    search_options search;
    /// Where the problem goes.
    std::string out;
    plan_files files;
    bool json = false;
    bool quiet = false;
};
/// Only where the MILP solver is there (OPTPIPE_HAS_MILP).
int partition(const partition_options& options);

struct compare_options {
    std::string problem;
    std::string json;
};
int compare(const compare_options& options);

struct check_options {
    std::string problem;
    std::string schedule;
    bool json = false;
};
int check(const check_options& options);

struct run_options {
    std::string problem;
    std::string schedule;
    std::size_t steps = 1;
    /// Seconds that a unit of the problem's time takes.
    std::optional<double> scale;
    bool progress = false;
    bool online = false;
    /// How many times as long transfers take in the second third of the steps.
    std::optional<double> slow_link;
    std::string out;
    std::string svg;
    std::string trace;
    bool quiet = false;
};
int run(const run_options& options);

struct profile_options {
    std::string problem;
    /// Schedule files, each one step, and profile files.
    std::vector<std::string> measured;
    std::string out;
    std::string save;
    std::optional<std::size_t> warm_up;
    bool quiet = false;
};
int profile(const profile_options& options);

struct draw_options {
    std::string schedule;
    std::string problem;
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

struct export_csv_options {
    std::string problem;
    std::string schedule;
    std::string format = "compute_only";
    bool without_storage = false;
    std::size_t unsharded_stages = 0;
    std::string out;
};
/// For PyTorch.
int export_csv(const export_csv_options& options);

struct import_csv_options {
    std::string problem;
    std::string csv;
    std::string out;
};
/// From PyTorch.
int import_csv(const import_csv_options& options);

struct export_megatron_options {
    std::string problem;
    std::string schedule;
    /// "8", or "7+1" with layers of multi-token prediction.
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
/// Only where the MILP solver is there (OPTPIPE_HAS_MILP).
int solve(const solve_options& options);

struct export_mps_options {
    std::string problem;
    std::string out;
    std::optional<double> horizon;
    bool in_order = false;
    bool plain = false;
    bool triangles = false;
};
/// Only where the MILP solver is there (OPTPIPE_HAS_MILP), like the next.
int export_mps(const export_mps_options& options);

struct import_solution_options {
    std::string problem;
    std::string solution;
    std::string out;
};
int import_solution(const import_solution_options& options);

/// The names that `--method` takes, separated by commas.
std::string method_names();

} // namespace program
