#include "commands.hpp"
#include "files.hpp"
#include "interruption.hpp"
#include "methods.hpp"
#include "search.hpp"
#include "sweep_picture.hpp"
#include "sweep_rows.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/core/format.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/file.hpp>
#include <optpipe/io/suggestion.hpp>
#include <optpipe/parallel/arena.hpp>
#include <optpipe/parallel/workers.hpp>
#include <optpipe/planner/plan.hpp>
#include <optpipe/schedule/bounds/structural_bounds.hpp>
#include <optpipe/schedule/time/evaluate.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace program {
namespace {

/// A field, and the values that it is to have.
struct field_values {
    std::string field;
    std::vector<std::string> values;
};

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> pieces;
    for (auto at = text.find(separator); at != std::string_view::npos; at = text.find(separator)) {
        pieces.push_back(text.substr(0, at));
        text.remove_prefix(at + 1);
    }
    pieces.push_back(text);
    return pieces;
}

std::optional<double> number_in(std::string_view text) {
    double number = 0.0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_number = failure == std::errc{} && end == text.data() + text.size() && std::isfinite(number);
    return is_number ? std::optional{number} : std::nullopt;
}

/// The values of "20:80:10".
std::vector<std::string> values_in(double first, double last, double step, const std::string& change) {
    constexpr double most_values = 1000.0;
    constexpr double rounding = 1e-9; // so that 0:1:0.1 ends with 1
    constexpr int digits = 12;
    const double count = std::floor((last - first) / step + rounding) + 1.0;
    if (!(step > 0.0) || !(count >= 1.0 && count <= most_values))
        throw optpipe::error{"--set " + optpipe::printable(change, 60) +
                             ": must be FIRST:LAST:STEP with at most 1000 values in rising order"};
    std::vector<std::string> values;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
        values.push_back(optpipe::format_number(first + static_cast<double>(i) * step, digits));
    return values;
}

/// The values of a change such as "memory_limit=20:80:10" or "memory_limit=20,40,80"; none if it has just one.
std::optional<field_values> values_of(const std::string& change) {
    const auto equals = change.find('=');
    if (equals == std::string::npos) return std::nullopt;
    const auto value = std::string_view{change}.substr(equals + 1);
    const auto range = split(value, ':');
    const auto listed = split(value, ',');
    const auto& pieces = range.size() == 3 ? range : listed;
    if (pieces.size() < 2) return std::nullopt;
    std::vector<double> numbers;
    for (const auto piece : pieces) {
        const auto number = number_in(piece);
        if (!number) return std::nullopt;
        numbers.push_back(*number);
    }
    field_values found{change.substr(0, equals), {}};
    if (range.size() == 3)
        found.values = values_in(numbers[0], numbers[1], numbers[2], change);
    else
        found.values.assign(listed.begin(), listed.end());
    return found;
}

/// The field with several values, and the problem with all other changes.
struct swept_problem {
    field_values swept;
    problem_file fixed;

    [[nodiscard]] problem_file with(const std::string& value) const {
        auto file = fixed;
        file.changes.push_back(swept.field + "=" + value);
        return file;
    }
};

swept_problem read_changes(const problem_file& given) {
    std::optional<field_values> swept;
    problem_file fixed{given.path, {}};
    for (const auto& change : given.changes) {
        auto values = values_of(change);
        if (values && swept) throw optpipe::error{"--set: only one field can have several values"};
        if (values)
            swept = std::move(values);
        else
            fixed.changes.push_back(change);
    }
    if (!swept)
        throw optpipe::error{"--set: one field must have several values, each a number, as in memory_limit=20:80:10 "
                             "or memory_limit=20,40,80"};
    return {*std::move(swept), std::move(fixed)};
}

constexpr std::string_view search_name = "plan";

/// The ways to plan: the search, or builders. "all" stands for all of them.
std::vector<std::string> ways_of(const sweep_options& options) {
    std::vector<std::string> known{std::string{search_name}};
    const auto builders = all_methods();
    known.insert(known.end(), builders.begin(), builders.end());
    std::vector<std::string> ways;
    const auto add = [&](const std::string& way) {
        if (std::find(ways.begin(), ways.end(), way) == ways.end()) ways.push_back(way);
    };
    for (const auto& name : options.methods) {
        if (name == "all")
            std::for_each(known.begin(), known.end(), add);
        else if (std::find(known.begin(), known.end(), name) != known.end())
            add(name);
        else
            throw optpipe::error{"--methods: there is no \"" + optpipe::printable(name, 60) + "\"" +
                                 optpipe::suggestion(name, known) + "; there are all, plan, " + method_names()};
    }
    return ways;
}

/// A problem, or the reason why it is invalid.
struct valued_problem {
    std::string value;
    std::optional<optpipe::problem> problem{};
    std::string reason{};
};

/// Throws if the problem is invalid for every value.
std::vector<valued_problem> read_all(const swept_problem& given) {
    std::vector<valued_problem> all;
    std::size_t invalid = 0;
    for (const auto& value : given.swept.values) {
        try {
            all.push_back({value, read_problem(given.with(value))});
        } catch (const optpipe::input_error& e) {
            if (++invalid == given.swept.values.size()) throw;
            all.push_back({value, std::nullopt, e.violations().front().text()});
        }
    }
    return all;
}

/// The row of the search; nothing if it was stopped.
std::optional<sweep_row> searched_row(const sweep_options& options, const valued_problem& at, std::size_t threads,
                                      const std::stop_token& stop) {
    auto how = options_from(options.search);
    how.threads = threads;
    how.stop = stop;
    const auto start = std::chrono::steady_clock::now();
    const auto planned = optpipe::plan(*at.problem, how);
    if (stop.stop_requested()) return std::nullopt;
    sweep_row row{at.value, std::string{search_name}};
    row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (planned) {
        row.method = planned->method;
        row.objective = planned->objective.value();
        row.bound = planned->bound.value();
    } else {
        row.reason = optpipe::reason_text(*at.problem, planned.why());
    }
    return row;
}

/// The row of a builder; nothing if it was stopped.
std::optional<sweep_row> built_row(const sweep_options& options, const valued_problem& at, const std::string& name,
                                   const std::stop_token& stop) {
    const auto& p = *at.problem;
    method_options how;
    how.is_only = true;
    how.time_limit = options.search.time_limit;
    how.seed = options.search.seed;
    how.most_distinct_pairs = options.search.most_distinct_pairs;
    how.stop = stop;
    const auto attempts = run_methods(
        p, [&](std::string_view each) { return each == name; }, how);
    if (attempts.empty() || stop.stop_requested()) return std::nullopt;
    const auto& made = attempts.front();
    sweep_row row{at.value, name, made.method};
    row.seconds = made.seconds;
    if (made.result) {
        row.objective = optpipe::objective_of(p, *made.result).value();
        row.bound = without_rounding(optpipe::bounds_of(p).best(), optpipe::duration{*row.objective}).value();
    } else {
        row.reason = optpipe::reason_text(p, made.result.why());
    }
    return row;
}

/// Rows that have been planned, here and in the file that keeps them.
class kept_rows {
public:
    /// Reads the file if it exists.
    kept_rows(outputs& files, std::string path, nlohmann::ordered_json setting)
        : files_{files}, path_{std::move(path)}, setting_(std::move(setting)) {
        std::error_code none;
        if (!path_.empty() && std::filesystem::exists(path_, none))
            rows_ = parse_rows(optpipe::read_file(path_), name_of(path_), setting_);
    }

    [[nodiscard]] const sweep_row* find(const std::string& value, const std::string& by) const {
        const auto at = std::find_if(rows_.begin(), rows_.end(),
                                     [&](const sweep_row& row) { return row.value == value && row.by == by; });
        return at == rows_.end() ? nullptr : &*at;
    }

    /// May be called from any thread.
    void add(sweep_row row) {
        const std::scoped_lock lock{mutex_};
        unwritten_ += row.seconds;
        rows_.push_back(std::move(row));
        if (unwritten_ < most_unwritten || files_.status(success) != success) return;
        write();
        unwritten_ = 0.0;
    }

    void write() const {
        files_.write("--resume", [&] { return rows_to_json(setting_, rows_); });
    }

private:
    outputs& files_;
    std::string path_;
    nlohmann::ordered_json setting_;
    std::vector<sweep_row> rows_;
    std::mutex mutex_;
    /// Seconds of planning that are lost at most if the program is killed. Many short rows are written together.
    static constexpr double most_unwritten = 1.0;
    double unwritten_ = most_unwritten;
};

/// A row to be planned.
struct sweep_job {
    const valued_problem* at = nullptr;
    const std::string* way = nullptr;
};

/// The rows that are missing; searches first, as they take longest.
std::vector<sweep_job> missing_rows(const std::vector<valued_problem>& problems, const std::vector<std::string>& ways,
                                    const kept_rows& kept) {
    std::vector<sweep_job> jobs;
    for (const auto& way : ways)
        for (const auto& at : problems)
            if (at.problem && !kept.find(at.value, way)) jobs.push_back({&at, &way});
    std::stable_partition(jobs.begin(), jobs.end(), [](const sweep_job& job) { return *job.way == search_name; });
    return jobs;
}

/// For example "memory_limit 20, plan: 943.2\n".
std::string text_of(const std::string& field, const sweep_row& row) {
    return optpipe::printable(field, 60) + " " + row.value + ", " + row.by + ": " +
           (row.objective ? optpipe::format_number(*row.objective) : optpipe::printable(row.reason, 400)) + "\n";
}

/// Plans one row per thread at a time. A search has several threads only if there are fewer rows than threads.
void plan_all(const sweep_options& options, const std::string& field, const std::vector<sweep_job>& jobs,
              kept_rows& kept, const std::stop_token& stop) {
    const auto cores = optpipe::parallel::available_cores();
    const auto threads = options.search.threads == 0 ? cores : std::min<std::size_t>(options.search.threads, cores);
    const auto threads_each = std::max<std::size_t>(1, threads / std::max<std::size_t>(1, jobs.size()));
    const auto plan_row = [&](std::size_t k) {
        if (stop.stop_requested()) return;
        const auto& [at, way] = jobs[k];
        auto row =
            *way == search_name ? searched_row(options, *at, threads_each, stop) : built_row(options, *at, *way, stop);
        if (!row) return;
        kept.add(*row);
        if (options.search.progress) std::cerr << text_of(field, *row);
    };
    optpipe::parallel::workers run{jobs.size(), plan_row};
    optpipe::parallel::arena{threads}.execute([&] { run.run(threads); });
}

/// The rows in the order of values and ways, as far as they were planned; with the reason where the problem is invalid.
std::vector<sweep_row> rows_in_order(const std::vector<valued_problem>& problems, const std::vector<std::string>& ways,
                                     const kept_rows& kept) {
    std::vector<sweep_row> rows;
    for (const auto& at : problems)
        for (const auto& way : ways) {
            if (!at.problem) {
                rows.push_back({at.value, way});
                rows.back().reason = at.reason;
            } else if (const auto* row = kept.find(at.value, way)) {
                rows.push_back(*row);
            }
        }
    return rows;
}

bool has_schedules(const std::vector<std::string>& values, const std::vector<sweep_row>& rows) {
    return std::all_of(values.begin(), values.end(), [&](const std::string& value) {
        return std::any_of(rows.begin(), rows.end(),
                           [&](const sweep_row& row) { return row.value == value && row.objective; });
    });
}

} // namespace

int sweep(const sweep_options& options) {
    const auto given = read_changes(options.problem);
    const auto ways = ways_of(options);
    if (options.resume == "-" || (!options.resume.empty() && given.fixed.path == "-"))
        throw optpipe::error{"--resume: neither it nor PROBLEM can be a stream, as both are read again"};
    if (std::find(ways.begin(), ways.end(), search_name) == ways.end()) {
        refuse_search_options(options.search, false, "only the search uses it; add plan to --methods");
        refuse_unused_limits(options.search, ways);
    }
    outputs files{{{"PROBLEM", given.fixed.path}},
                  {{"--csv", options.csv}, {"--svg", options.svg}, {"--resume", options.resume}}};
    const auto& [field, values] = given.swept;
    const auto problems = read_all(given);
    kept_rows kept{files, options.resume,
                   options.resume.empty() ? nlohmann::ordered_json{} : setting_of(field, given.fixed, options)};
    const auto jobs = missing_rows(problems, ways, kept);
    const interruption interrupted{!options.quiet};
    plan_all(options, field, jobs, kept, interrupted.token());
    kept.write();
    const auto rows = rows_in_order(problems, ways, kept);
    const auto unit = std::find_if(problems.begin(), problems.end(), [](const auto& at) { return at.problem; });
    files.write("--csv", [&] { return rows_to_csv(field, rows); });
    files.write("--svg", [&] { return picture_of(field, unit->problem->time_unit, values, ways, rows); });
    if (!options.quiet) print_rows(files.text(), field, values, ways, rows);
    const auto all = values.size() * ways.size();
    const bool is_complete = rows.size() == all;
    if (!is_complete && !options.quiet)
        files.text() << "stopped: " << rows.size() << " of " << all << " rows are planned"
                     << (options.resume.empty() ? "" : "; the same command goes on from there") << '\n';
    return files.status(!is_complete ? stopped_by_signal : has_schedules(values, rows) ? success : no_schedule);
}

} // namespace program
