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

struct plan_options {
    std::string problem;
    std::string method;
    std::optional<double> time_limit;
    unsigned threads = 0;
    std::uint64_t seed = 1;
    double gap = 0.0;
    bool deterministic = false;
    std::vector<std::string> without;
    std::string cache;
    bool progress = false;
    std::string out;
    std::string svg;
    std::string trace;
    bool json = false;
    bool quiet = false;
};
int plan(const plan_options& options);

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
    std::string out;
    std::string svg;
    std::string trace;
    bool quiet = false;
};
int run(const run_options& options);

struct draw_options {
    std::string schedule;
    std::string problem;
    std::string measured;
    std::string svg;
    std::string trace;
    /// "3", or "2-5"; empty: all.
    std::string ranks;
    std::optional<double> from;
    std::optional<double> to;
};
int draw(const draw_options& options);

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
