// Plans of graphs, of slices and of microbatches that differ, beside what is known: published orders, and the best
// schedule of a plain search, with each problem's proven bound. Markdown tables on standard output.
//
//     bench_format3 [--time SECONDS] [--threads N] [--only TEXT]... [--known FILE.csv] [--svg FOLDER]
//                   [FOLDER | PROBLEM.json]...
//
// By default the problems of the tests, 10 seconds and 2 threads. `--only` selects the problems whose names contain the
// text. After the table come medians, what is asked of the plans, and slices of causal attention whose lengths or whose
// times are equal. `--svg` draws the gaps, and the plans of two small problems.
#include "problem_files.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/io/file.hpp>
#include <optpipe/io/json.hpp>
#include <optpipe/io/svg.hpp>
#include <optpipe/io/svg_canvas.hpp>
#include <optpipe/pipeline/pipeline_builder.hpp>
#include <optpipe/pipeline/slices.hpp>
#include <optpipe/planner.hpp>
#include <optpipe/schedule/builders/all.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;

constexpr std::string_view problems_of_format3 = OPTPIPE_SOURCE_DIR "/tests/data/format3";
constexpr std::string_view known_of_format3 = OPTPIPE_SOURCE_DIR "/tests/data/format3_objectives.csv";

struct settings {
    double seconds = 10.0;
    std::size_t threads = 2;
    std::vector<std::string> only{};
    std::string known{known_of_format3};
    std::string svg{};
    std::vector<std::string> places{};
};

settings read_settings(int count, char** arguments) {
    settings s;
    s.places = bench::read_options(count, arguments, "format3",
                                   {{"--time", [&](const std::string& v) { s.seconds = std::stod(v); }},
                                    {"--threads", [&](const std::string& v) { s.threads = std::stoul(v); }},
                                    {"--only", [&](const std::string& v) { s.only.push_back(v); }},
                                    {"--known", [&](const std::string& v) { s.known = v; }},
                                    {"--svg", [&](const std::string& v) { s.svg = v; }}});
    if (s.places.empty()) s.places.emplace_back(problems_of_format3);
    return s;
}

/// The best published order that fits the memory, if any, and the best schedule known.
struct known_objectives {
    std::string method{};
    std::optional<double> published{};
    std::optional<double> best{};
};
/// A table with the columns problem, published method, published, best known; by problem.
std::map<std::string, known_objectives> read_known(const std::string& path) {
    std::map<std::string, known_objectives> known;
    std::ifstream file{path};
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
        std::istringstream fields{line};
        std::string name, method, published, best;
        for (auto* field : {&name, &method, &published, &best})
            std::getline(fields, *field, ',');
        auto& entry = known[name];
        entry.method = method;
        if (!published.empty()) entry.published = std::stod(published);
        if (!best.empty()) entry.best = std::stod(best);
    }
    return known;
}

/// The results for one problem.
struct row {
    problem of{};
    known_objectives known{};
    plan_result planned{};

    [[nodiscard]] double objective() const { return planned.objective.value(); }
    [[nodiscard]] double bound() const { return planned.bound.value(); }
    [[nodiscard]] std::optional<double> proof_seconds() const {
        if (planned.why != plan_end::optimal || planned.history.empty()) return std::nullopt;
        return planned.history.back().seconds;
    }
    /// Whether a proof is expected: the problem is as small as those of the folder whose optimum other solvers prove.
    [[nodiscard]] bool is_small() const { return of.graph.cells() <= 20; }
};

std::optional<plan_result> planned(const settings& s, const problem& p) {
    plan_options options{.threads = s.threads};
    options.time_limit = std::chrono::duration<double>{s.seconds};
    auto result = plan(p, options);
    if (result && validate(p, result->schedule).empty()) return *std::move(result);
    std::cerr << "bench_format3: " << p.name << ": " << (result ? "not valid" : describe(result.why())) << '\n';
    return std::nullopt;
}

// Tables.

std::string number(double value) { return format_number(value, 7); }
std::string number(const std::optional<double>& value) { return value ? number(*value) : ""; }
std::string percent(double part) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f %%", 100.0 * part);
    return text;
}

void print_head(const settings& s) {
    std::printf("%g s, %zu threads\n\n", s.seconds, s.threads);
    std::puts(
        "| problem | published | best known | plan | bound | gap | proven after [s] | found by | to best known |");
    std::puts("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
}
void print_row(const row& r) {
    const auto proof = r.proof_seconds();
    std::printf("| %s | %s %s | %s | %s | %s | %s | %s | %s | %s |\n", r.of.name.c_str(), r.known.method.c_str(),
                number(r.known.published).c_str(), number(r.known.best).c_str(), number(r.objective()).c_str(),
                number(r.bound()).c_str(), percent(r.planned.gap).c_str(),
                proof ? format_number(*proof, 3).c_str() : "", r.planned.method.c_str(),
                r.known.best ? format_number(r.objective() / *r.known.best, 4).c_str() : "");
    std::fflush(stdout);
}

bool not_above(double value, double limit) { return value <= limit * (1.0 + tolerance{}.relative); }

void print_summary(const std::vector<row>& rows) {
    if (rows.empty()) return;
    std::vector<double> gaps;
    std::size_t proven = 0, small = 0, small_proven = 0;
    std::string behind, beaten;
    for (const auto& r : rows) {
        gaps.push_back(r.planned.gap);
        proven += r.proof_seconds() ? 1U : 0U;
        small += r.is_small() ? 1U : 0U;
        small_proven += r.is_small() && r.proof_seconds() ? 1U : 0U;
        for (const auto& known : {r.known.published, r.known.best}) {
            if (!known) continue;
            if (!not_above(r.objective(), *known)) behind += " " + r.of.name;
            if (!not_above(r.bound(), *known)) beaten += " " + r.of.name;
        }
    }
    std::sort(gaps.begin(), gaps.end());
    const double median = 0.5 * (gaps[(gaps.size() - 1) / 2] + gaps[gaps.size() / 2]);
    std::puts(
        "\n| problems | proven | small, proven | median gap | worst gap | behind what is known | bound above it |");
    std::puts("| --- | --- | --- | --- | --- | --- | --- |");
    std::printf("| %zu | %zu | %zu of %zu | %s | %s | %s | %s |\n", rows.size(), proven, small_proven, small,
                percent(median).c_str(), percent(gaps.back()).c_str(), behind.empty() ? "none" : behind.c_str(),
                beaten.empty() ? "none" : beaten.c_str());
}

// Slices of causal attention.

constexpr std::size_t causal_ranks = 8, causal_sequences = 16, causal_slices = 8;
constexpr double causal_share = 0.5;

/// Sixteen sequences on eight ranks. F takes 1 and B takes 2, and half of both is attention.
problem causal(std::size_t slices_of_each, const microbatch_list<>& list) {
    pipeline_builder model;
    std::vector<rank> ranks;
    for (std::size_t r = 0; r < causal_ranks; ++r)
        ranks.emplace_back(r);
    model.add_chain(ranks, uniform_memory{{.forward = duration{1.0},
                                           .backward_input = duration{1.5},
                                           .backward_weight = duration{0.5},
                                           .activation = memory_size{1.0}}});
    auto p = model.build(causal_sequences * slices_of_each);
    p.microbatches = list;
    return p;
}

void print_causal_row(const char* what, const problem& p, const schedule& made, const std::string& method,
                      std::optional<double> bound) {
    std::printf("| %s | %s | %s | %s | %s |\n", what, method.c_str(), number(objective_of(p, made).value()).c_str(),
                number(bound).c_str(), number(measure(p, made).peak_memory[rank{0}].value()).c_str());
    std::fflush(stdout);
}
template <class Builder> void print_built(const char* what, const problem& p, const Builder& build) {
    if (const auto made = build_schedule(p, build)) print_causal_row(what, p, *made, std::string{build.name}, {});
}

/// Published orders, and plans within the memory that Seq1F1B needs for slices of equal length.
void print_causal(const settings& s) {
    std::puts("\n| causal slices, 8 ranks, 16 sequences | method | step | bound | rank 0 holds |");
    std::puts("| --- | --- | --- | --- | --- |");
    const std::vector<double> tokens(causal_sequences, 1.0);
    auto by_length = causal(causal_slices, slices(tokens, causal_share, causal_slices));
    auto by_time = causal(causal_slices, equal_time_slices(tokens, causal_share, causal_slices));
    print_built("whole sequences", causal(1, {}), one_forward_one_backward);
    print_built("8 slices of equal length", by_length, sequence_1f1b);
    print_built("8 slices of equal time", by_time, sequence_1f1b);
    constexpr memory_size limit{(causal_ranks + causal_slices - 1.0) / causal_slices};
    for (auto* p : {&by_length, &by_time}) {
        p->memory_limit = per_rank<memory_size>(causal_ranks, limit);
        const auto result = planned(s, *p);
        const auto* what = p == &by_length ? "8 slices of equal length" : "8 slices of equal time";
        if (result) print_causal_row(what, *p, result->schedule, "plan", result->bound.value());
    }
}

// Pictures.

/// A row for each problem: published order, best known schedule and plan, as multiples of the plan's bound.
std::string gaps_svg(const std::vector<row>& rows) {
    constexpr double left = 300.0, right = 700.0, top = 50.0, line = 20.0, most = 1.5;
    const auto x = [&](double ratio) { return left + (right - left) * (std::min(ratio, most) - 1.0) / (most - 1.0); };
    const double bottom = top + line * static_cast<double>(rows.size());
    const auto height = format_number(bottom + 48.0);
    optpipe::detail::svg_canvas canvas;
    canvas.add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 " + height +
               "\" font-family=\"sans-serif\" font-size=\"12\">\n<style>.axis{stroke:#ddd}.published{fill:#aaa}"
               ".known{fill:#ff7f0e}.plan{fill:#1f77b4}</style>\n<rect width=\"720\" height=\"" +
               height + "\" fill=\"#fff\"/>\n");
    const std::pair<const char*, const char*> legend[] = {
        {"published", "published order"}, {"known", "best known"}, {"plan", "plan"}};
    double at = left;
    for (const auto& [style, name] : legend) {
        canvas.circle(style, at, 20.0, 5.0);
        canvas.text("", at + 10.0, 24.0, name);
        at += 140.0;
    }
    for (const double ratio : {1.0, 1.1, 1.2, 1.3, 1.4, 1.5}) {
        canvas.line("axis", x(ratio), top - 10.0, x(ratio), bottom);
        canvas.text("", x(ratio) - 10.0, bottom + 18.0, format_number(ratio));
    }
    canvas.text("", left, bottom + 38.0, "step, as a multiple of the plan's proven bound; 1.5: or more");
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto& r = rows[i];
        const double y = top + line * static_cast<double>(i) + 5.0;
        canvas.text("", 8.0, y + 4.0, r.of.name);
        if (r.known.published) canvas.circle("published", x(*r.known.published / r.bound()), y, 5.0);
        if (r.known.best) canvas.circle("known", x(*r.known.best / r.bound()), y, 5.0);
        canvas.circle("plan", x(r.objective() / r.bound()), y, 3.0);
    }
    canvas.add("</svg>\n");
    return std::move(canvas).take();
}

void draw(const settings& s, const std::vector<row>& rows) {
    if (s.svg.empty() || rows.empty()) return;
    write_file(s.svg + "/format3.svg", gaps_svg(rows));
    const std::pair<std::string_view, std::string_view> drawn[] = {{"vision-small", "vision"},
                                                                   {"slice-small-linear", "slices"}};
    for (const auto& [begin, name] : drawn)
        for (const auto& r : rows)
            if (r.of.name.starts_with(begin))
                write_file(s.svg + "/format3_" + std::string{name} + ".svg",
                           schedule_to_svg(r.of, report_of(r.of, r.planned)));
}

} // namespace

int main(int count, char** arguments) try {
    const auto s = read_settings(count, arguments);
    const auto known = read_known(s.known);
    std::vector<row> rows;
    print_head(s);
    for (const auto& file : bench::problem_files(s.places, s.only)) {
        row r;
        r.of = read_problem(file.string());
        if (const auto found = known.find(r.of.name); found != known.end()) r.known = found->second;
        auto result = planned(s, r.of);
        if (!result) continue;
        r.planned = *std::move(result);
        print_row(r);
        rows.push_back(std::move(r));
    }
    print_summary(rows);
    if (s.only.empty()) print_causal(s);
    draw(s, rows);
} catch (const std::exception& e) {
    std::cerr << "bench_format3: " << e.what() << '\n';
    return 2;
}
