// Results of the planner over time: every problem file of a folder is planned once, and the acceptance points of the
// planner are read from the history of its search. Markdown tables on standard output.
//
//     bench_planner [--time SECONDS] [--threads N] [--seed N] [--only TEXT]... [--without STRATEGY]... [--large]
//                   [--csv FILE] [--json FILE] [--svg FILE] [--reference FILE.csv] [FOLDER | PROBLEM.json]...
//     bench_planner --each-alone [--time SECONDS] [--random N] ...
//     bench_planner --without-each [--time SECONDS] [--seeds N] [--random N] ...
//
// By default the problems of the tests, 10 seconds and 2 threads. `--only` selects the problems whose names contain the
// text. The first table: the published schedule and the best known value, `adaptive` alone, the best after 1, 3, 10, 30
// and 100 seconds, the bound at the end. The second: time in which the busiest rank is idle, compared with
// PipeOffload's within the same memory. Then the number of problems that are as good as required, and those that
// aren't. CSV and JSON contain every step. `--large` takes problems with 64 ranks and 1024 microbatches instead of
// files, with 60 seconds each, and reports the peak memory of the process.
//
// `--each-alone` plans every problem with the published builders only, with each strategy in addition to them, and with
// all, and reports how far each is above the best of them over time.
//
// `--without-each` plans every problem with all strategies, and with each one left out, for several seeds (3), and
// reports results that got worse by more than the seeds differ. `--random` adds random problems, with seeds from
// `--seed` on. Without `--time` every plan gets the same deterministic work, about a second of it.
#include "each_alone.hpp"
#include "large_problem.hpp"
#include "problem_files.hpp"
#include "random_problem.hpp"
#include "without_each.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/io/file.hpp>
#include <optpipe/io/json.hpp>
#include <optpipe/planner.hpp>
#include <optpipe/schedule/builders/adaptive.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
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

struct settings {
    std::optional<double> given_seconds{};
    bool large = false;
    bool each_alone = false;
    bool without_each = false;
    std::size_t seeds = 3;
    std::size_t random = 0;
    std::size_t threads = 2;
    std::uint64_t seed = 1;
    std::vector<std::string> only{};
    std::vector<std::string> without{};
    std::string csv{};
    std::string json{};
    std::string svg{};
    std::string references{bench::known_objectives};
    std::vector<std::string> places{};

    [[nodiscard]] double seconds() const { return given_seconds.value_or(large ? 60.0 : 10.0); }
};

/// The results for one problem.
struct row {
    problem of{};
    std::optional<bench::known_objective> known{};
    plan_result planned{};
    /// `adaptive` alone, with its usual effort.
    double adaptive = 0.0;
    double adaptive_seconds = 0.0;
    std::optional<double> pipe_offload{};
    /// Peak of the whole process while this was planned; 0 if the system doesn't report it.
    double peak_mib = 0.0;

    [[nodiscard]] double objective() const { return planned.objective.value(); }
    [[nodiscard]] double bound() const { return planned.bound.value(); }
    [[nodiscard]] double busy() const {
        duration most{};
        for (const auto r : of.graph.all_ranks())
            most = std::max(most, of.load(r));
        return most.value();
    }
    [[nodiscard]] std::optional<double> proof_seconds() const {
        if (planned.why != plan_end::optimal || planned.history.empty()) return std::nullopt;
        return planned.history.back().seconds;
    }
};

constexpr double times[] = {1.0, 3.0, 10.0, 30.0, 100.0};

bool not_above(double value, double limit) { return value <= limit * (1.0 + tolerance{}.relative); }

/// The last step within `seconds` seconds.
const search_step* step_at(const row& r, double seconds) {
    const search_step* last = nullptr;
    for (const auto& step : r.planned.history)
        if (step.seconds <= seconds && !step.objective.is_unlimited()) last = &step;
    return last;
}

double gap_at(const row& r, double seconds) {
    const auto* step = step_at(r, seconds);
    return step ? std::max(0.0, (step->objective - step->bound) / step->objective) : 1.0;
}

// Reading.

bool wanted(const settings& s, const std::string& name) {
    const auto holds = [&](const std::string& text) { return name.find(text) != std::string::npos; };
    return s.only.empty() || std::any_of(s.only.begin(), s.only.end(), holds);
}

settings read_settings(int count, char** arguments) {
    settings s;
    s.places =
        bench::read_options(count, arguments, "planner",
                            {
                                {"--time", [&](const std::string& v) { s.given_seconds = std::stod(v); }},
                                {"--threads", [&](const std::string& v) { s.threads = std::stoul(v); }},
                                {"--seed", [&](const std::string& v) { s.seed = std::stoull(v); }},
                                {"--seeds", [&](const std::string& v) { s.seeds = std::stoul(v); }},
                                {"--random", [&](const std::string& v) { s.random = std::stoul(v); }},
                                {"--only", [&](const std::string& v) { s.only.push_back(v); }},
                                {"--without", [&](const std::string& v) { s.without.push_back(v); }},
                                {"--csv", [&](const std::string& v) { s.csv = v; }},
                                {"--json", [&](const std::string& v) { s.json = v; }},
                                {"--svg", [&](const std::string& v) { s.svg = v; }},
                                {"--reference", [&](const std::string& v) { s.references = v; }},
                            },
                            {{"--large", [&] { s.large = true; }},
                             {"--each-alone", [&] { s.each_alone = true; }},
                             {"--without-each", [&] { s.without_each = true; }}});
    if (s.places.empty()) s.places.emplace_back(bench::test_problems);
    return s;
}

std::vector<problem> large_problems(const settings& s) {
    std::vector<problem> problems;
    for (const auto& how : bench::large_settings()) {
        auto p = bench::make_large(how, 64, 1024);
        p.name = std::string{"large-"} + (how.unit ? "unit" : "real") + "-mem" +
                 format_number(std::round(100.0 * how.memory)) + (how.offloads ? "-offload" : "");
        if (wanted(s, p.name)) problems.push_back(std::move(p));
    }
    return problems;
}

// Planning.

/// Linux: resets the peak memory, and returns the peak since then.
void forget_peak() { std::ofstream{"/proc/self/clear_refs"} << "5"; }
double peak_mib() {
    std::ifstream status{"/proc/self/status"};
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024.0;
    return 0.0;
}

std::optional<row> plan_one(const settings& s, const problem& p,
                            const std::map<std::string, bench::known_objective>& references) {
    row r;
    r.of = p;
    forget_peak();
    const auto found = references.find(p.name);
    if (found != references.end()) r.known = found->second;
    const stopwatch watch;
    const auto alone = build_schedule(p, adaptive);
    r.adaptive_seconds = watch.seconds();
    if (alone) r.adaptive = objective_of(p, *alone).value();
    plan_options options{.threads = s.threads, .seed = s.seed, .without = s.without};
    options.time_limit = std::chrono::duration<double>{s.seconds()};
    auto planned = plan(p, options);
    if (!planned) {
        std::cerr << "bench_planner: " << p.name << ": " << describe(planned.why()) << '\n';
        return std::nullopt;
    }
    r.planned = *std::move(planned);
    r.peak_mib = peak_mib();
    for (const auto& b : r.planned.builders)
        if (b.method.starts_with("po") && b.objective)
            r.pipe_offload = std::min(r.pipe_offload.value_or(b.objective->value()), b.objective->value());
    return r;
}

// Tables.

std::string number(double value) { return format_number(value, 7); }

void print_head(const settings& s) {
    std::printf("%g s, %zu threads\n\n| problem | published | best known | adaptive | s |", s.seconds(), s.threads);
    for (const double t : times)
        if (t <= s.seconds()) std::printf(" %g s |", t);
    std::puts(" end | bound | gap | proof [s] | found by | to published | to best known |");
    std::printf("| --- | --- | --- | --- | --- |");
    for (const double t : times)
        if (t <= s.seconds()) std::printf(" --- |");
    std::puts(" --- | --- | --- | --- | --- | --- | --- |");
}

void print_row(const settings& s, const row& r) {
    const auto& known = r.known;
    std::printf("| %s | %s | %s | %s | %.2f |", r.of.name.c_str(),
                known ? (known->method + " " + number(known->published)).c_str() : "",
                known && known->best ? number(*known->best).c_str() : "", number(r.adaptive).c_str(),
                r.adaptive_seconds);
    for (const double t : times) {
        if (t > s.seconds()) continue;
        const auto* step = step_at(r, t);
        std::printf(" %s |", step ? number(step->objective.value()).c_str() : "none");
    }
    const auto proof = r.proof_seconds();
    std::printf(" %s | %s | %.2f %% | %s | %s |", number(r.objective()).c_str(), number(r.bound()).c_str(),
                100.0 * r.planned.gap, proof ? format_number(*proof, 3).c_str() : "-", r.planned.method.c_str());
    std::printf(" %s |", known ? format_number(r.objective() / known->published, 4).c_str() : "");
    std::printf(" %s |\n", known && known->best ? format_number(r.objective() / *known->best, 4).c_str() : "");
    std::fflush(stdout);
}

void print_peaks(const std::vector<row>& rows) {
    std::puts("\n| problem | gap | s | peak MiB |\n| --- | --- | --- | --- |");
    for (const auto& r : rows)
        std::printf("| %s | %.2f %% | %.1f | %.0f |\n", r.of.name.c_str(), 100.0 * r.planned.gap, r.planned.seconds,
                    r.peak_mib);
}

void print_idle(const std::vector<row>& rows) {
    std::puts("\n| problem | busiest rank | idle | PipeOffload idle | share | least by the bound |");
    std::puts("| --- | --- | --- | --- | --- | --- |");
    for (const auto& r : rows) {
        if (!r.pipe_offload) continue;
        const double theirs = *r.pipe_offload - r.busy();
        const double ours = r.objective() - r.busy();
        std::printf("| %s | %s | %s | %s | %s | %s |\n", r.of.name.c_str(), number(r.busy()).c_str(),
                    number(ours).c_str(), number(theirs).c_str(),
                    theirs > 0.0 ? format_number(ours / theirs, 3).c_str() : "-", number(r.bound() - r.busy()).c_str());
    }
}

// Acceptance.

/// A requirement for some problems.
struct demand {
    const char* what;
    std::function<bool(const row&)> concerns;
    std::function<bool(const row&)> holds;
};

bool begins(const row& r, const std::vector<std::string_view>& prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view p) { return r.of.name.starts_with(p); });
}

bool proven_within(const row& r, double seconds) {
    const auto proof = r.proof_seconds();
    return proof && *proof <= seconds;
}

/// Controllable Memory, appendix: max(6m + 6p − 3k − 1, 6m + p − 1) for unit passes and k stashes.
double v_unit_value(const row& r) {
    const double m = static_cast<double>(r.of.graph.microbatches());
    const double p = static_cast<double>(r.of.graph.ranks());
    const double k = r.of.memory_limit[rank{0}] / r.of.costs[stage{0}].activation;
    return std::max(6.0 * m + 6.0 * p - 3.0 * k - 1.0, 6.0 * m + p - 1.0);
}

bool half_the_idle_time(const row& r) {
    const double wanted = r.busy() + 0.5 * (*r.pipe_offload - r.busy());
    return not_above(r.objective(), std::max(wanted, r.bound()));
}

std::vector<demand> demands() {
    const auto beaten = [](const row& r) {
        return r.known && (r.known->published - r.bound()) / r.known->published > 0.03;
    };
    return {
        {"without offloading up to 8×16 (unit, skew): proven within 1 s",
         [](const row& r) {
             return begins(r, {"unit-", "skew-"});
         },
         [](const row& r) { return proven_within(r, 1.0); }},
        {"small (unit-p2 to p4, offload-p2 to p4, v-unit-p4): proven within 10 s",
         [](const row& r) {
             return begins(r, {"unit-p2", "unit-p3", "unit-p4", "offload-p2", "offload-p3", "offload-p4", "v-unit-p4"});
         },
         [](const row& r) { return proven_within(r, 10.0); }},
        {"offload-p6: proven within 60 s (most of them)", [](const row& r) { return begins(r, {"offload-p6"}); },
         [](const row& r) { return proven_within(r, 60.0); }},
        {"at least as good as the best published schedule", [](const row& r) { return r.known.has_value(); },
         [](const row& r) { return not_above(r.objective(), r.known->published); }},
        {"at least as good as the best value known", [](const row& r) { return r.known && r.known->best; },
         [](const row& r) { return not_above(r.objective(), *r.known->best); }},
        {"better than the best published schedule where that is more than 3 % above the bound", beaten,
         [](const row& r) { return !not_above(r.known->published, r.objective()); }},
        {"v-unit at max(6m + 6p - 3k - 1, 6m + p - 1)", [](const row& r) { return begins(r, {"v-unit"}); },
         [](const row& r) { return not_above(r.objective(), v_unit_value(r)); }},
        {"at most half of PipeOffload's idle time, or at the bound (offload-*)",
         [](const row& r) { return begins(r, {"offload-"}) && r.pipe_offload; }, half_the_idle_time},
        {"64×1024: within 5 % of the bound", [](const row& r) { return begins(r, {"large-"}); },
         [](const row& r) { return r.planned.gap <= 0.05; }},
        {"64×1024: within 60 s and under 4 GiB", [](const row& r) { return begins(r, {"large-"}); },
         [](const row& r) { return r.planned.seconds <= 61.0 && r.peak_mib > 0.0 && r.peak_mib < 4096.0; }},
    };
}

void print_demands(const std::vector<row>& rows) {
    std::puts("\n| what is asked | holds | of | not for |");
    std::puts("| --- | --- | --- | --- |");
    for (const auto& d : demands()) {
        std::size_t all = 0;
        std::size_t good = 0;
        std::string others;
        for (const auto& r : rows) {
            if (!d.concerns(r)) continue;
            ++all;
            if (d.holds(r))
                ++good;
            else
                others += (others.empty() ? "" : ", ") + r.of.name;
        }
        if (all > 0) std::printf("| %s | %zu | %zu | %s |\n", d.what, good, all, others.c_str());
    }
}

// Files.

std::string csv_of(const std::vector<row>& rows) {
    std::string text = "problem,seconds,part,objective,bound\n";
    for (const auto& r : rows)
        for (const auto& step : r.planned.history)
            text += r.of.name + ',' + format_number(step.seconds) + ',' + step.strategy + ',' +
                    (step.objective.is_unlimited() ? "" : exact_number(step.objective.value())) + ',' +
                    exact_number(step.bound.value()) + '\n';
    return text;
}

nlohmann::ordered_json json_of(const row& r) {
    nlohmann::ordered_json entry{{"problem", r.of.name},
                                 {"objective", r.objective()},
                                 {"bound", r.bound()},
                                 {"gap", r.planned.gap},
                                 {"why", std::string{text_of(r.planned.why)}},
                                 {"seconds", r.planned.seconds},
                                 {"method", r.planned.method},
                                 {"adaptive", r.adaptive},
                                 {"busy", r.busy()},
                                 {"peak_mib", r.peak_mib}};
    if (const auto proof = r.proof_seconds()) entry["proof_seconds"] = *proof;
    if (r.pipe_offload) entry["pipe_offload"] = *r.pipe_offload;
    if (r.known) {
        entry["published"] = r.known->published;
        entry["published_method"] = r.known->method;
        if (r.known->best) entry["best_known"] = *r.known->best;
    }
    for (const auto& one : r.planned.contributions)
        entry["strategies"].push_back({{"name", one.name},
                                       {"runs", one.runs},
                                       {"seconds", one.seconds},
                                       {"schedules", one.schedules},
                                       {"bounds", one.bounds}});
    for (const auto& step : r.planned.history) {
        nlohmann::ordered_json one{
            {"strategy", step.strategy}, {"seconds", step.seconds}, {"bound", step.bound.value()}};
        if (!step.objective.is_unlimited()) one["objective"] = step.objective.value();
        entry["history"].push_back(std::move(one));
    }
    return entry;
}

/// The mean gap of a group of problems over time, one line per group. Both axes start at the left and bottom edge; time
/// is logarithmic, from a hundredth of a second.
class gap_plot {
public:
    gap_plot(const std::vector<row>& rows, double seconds) : rows_{rows}, last_{std::max(seconds, 1.0)} {
        for (std::size_t i = 0; i <= points; ++i)
            times_.push_back(first * std::pow(last_ / first, static_cast<double>(i) / static_cast<double>(points)));
    }

    std::string svg() {
        const std::pair<const char*, std::vector<std::string_view>> groups[] = {
            {"all", {""}},
            {"unit, skew", {"unit", "skew"}},
            {"offload", {"offload"}},
            {"v-unit, po", {"v-unit", "po-"}},
            {"zb", {"zb-"}},
            {"models", {"gpt", "llama", "longcontext"}},
        };
        for (const auto& [name, prefixes] : groups)
            add(name, prefixes);
        for (const auto& line : lines_)
            for (const double gap : line.gaps)
                highest_ = std::max(highest_, gap);
        std::string text = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"400\" "
                           "font-family=\"sans-serif\" font-size=\"12\">\n";
        text += "<rect width=\"720\" height=\"400\" fill=\"white\"/>\n" + axes();
        for (std::size_t i = 0; i < lines_.size(); ++i)
            text += drawn(lines_[i], i);
        return text + "</svg>\n";
    }

private:
    static constexpr double first = 0.01;
    static constexpr std::size_t points = 200;
    static constexpr double left = 60, right = 560, top = 20, bottom = 350;

    struct curve {
        std::string name;
        std::vector<double> gaps;
        double adaptive = 0.0;
    };

    void add(const char* name, const std::vector<std::string_view>& prefixes) {
        curve l{name, std::vector<double>(times_.size(), 0.0)};
        double count = 0.0;
        for (const auto& r : rows_) {
            if (!begins(r, prefixes)) continue;
            count += 1.0;
            l.adaptive += r.adaptive > 0.0 ? std::max(0.0, (r.adaptive - r.bound()) / r.adaptive) : 1.0;
            for (std::size_t i = 0; i < times_.size(); ++i)
                l.gaps[i] += gap_at(r, times_[i]);
        }
        if (count == 0.0) return;
        for (auto& gap : l.gaps)
            gap /= count;
        l.adaptive /= count;
        lines_.push_back(std::move(l));
    }
    [[nodiscard]] double x(double seconds) const {
        return left + (right - left) * std::log(seconds / first) / std::log(last_ / first);
    }
    [[nodiscard]] double y(double gap) const { return bottom - (bottom - top) * std::min(gap / scale(), 1.0); }
    /// Before the first schedule the gap is 1; that shouldn't take most of the picture.
    [[nodiscard]] double scale() const { return std::min(highest_, 0.4) + 1e-9; }
    static std::string at(double value) { return format_number(value, 5); }
    [[nodiscard]] std::string axes() const {
        std::string text;
        for (const double t : {0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0}) {
            if (t > last_) continue;
            text += "<line x1=\"" + at(x(t)) + "\" x2=\"" + at(x(t)) +
                    "\" y1=\"20\" y2=\"350\" stroke=\"#ddd\"/><text x=\"" + at(x(t)) +
                    "\" y=\"368\" text-anchor=\"middle\">" + format_number(t) + " s</text>\n";
        }
        for (int i = 0; i <= 4; ++i) {
            const double gap = 0.25 * i * scale();
            text += "<line x1=\"60\" x2=\"560\" y1=\"" + at(y(gap)) + "\" y2=\"" + at(y(gap)) +
                    "\" stroke=\"#ddd\"/><text x=\"52\" y=\"" + at(y(gap) + 4.0) + "\" text-anchor=\"end\">" +
                    format_number(100.0 * gap, 3) + " %</text>\n";
        }
        return text + "<text x=\"310\" y=\"392\" text-anchor=\"middle\">mean gap over time; dots: adaptive alone, to "
                      "the final bound</text>\n";
    }
    [[nodiscard]] std::string drawn(const curve& l, std::size_t index) const {
        static constexpr const char* colours[] = {"#000000", "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e"};
        const std::string colour = colours[index % std::size(colours)];
        std::string text = "<polyline fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"" +
                           (index == 0 ? "2.5" : "1.5") + "\" points=\"";
        for (std::size_t i = 0; i < times_.size(); ++i)
            text += at(x(times_[i])) + ',' + at(y(l.gaps[i])) + ' ';
        text +=
            "\"/><circle cx=\"" + at(left) + "\" cy=\"" + at(y(l.adaptive)) + "\" r=\"4\" fill=\"" + colour + "\"/>";
        const auto height = at(top + 20.0 + 18.0 * static_cast<double>(index));
        return text + "<text x=\"575\" y=\"" + height + "\" fill=\"" + colour + "\">" + l.name + ": " +
               format_number(std::round(1e4 * l.gaps.back()) / 100.0, 3) + " %</text>\n";
    }

    const std::vector<row>& rows_;
    double last_;
    double highest_ = 0.0;
    std::vector<double> times_{};
    std::vector<curve> lines_{};
};

void write_files(const settings& s, const std::vector<row>& rows) {
    if (!s.csv.empty()) write_file(s.csv, csv_of(rows));
    if (!s.svg.empty()) write_file(s.svg, gap_plot{rows, s.seconds()}.svg());
    if (s.json.empty()) return;
    nlohmann::ordered_json all{{"seconds", s.seconds()},
                               {"threads", s.threads},
                               {"seed", s.seed},
                               {"problems", nlohmann::ordered_json::array()}};
    for (const auto& r : rows)
        all["problems"].push_back(json_of(r));
    write_file(s.json, all.dump(1) + '\n');
}

/// Calls `take` for all requested problems, one after the other.
template <class Take> void for_each_problem(const settings& s, const Take& take) {
    if (s.large)
        for (const auto& p : large_problems(s))
            take(p);
    else
        for (const auto& file : bench::problem_files(s.places, s.only))
            take(read_problem(file.string()));
    for (std::size_t i = 0; i < s.random; ++i)
        if (const auto p = bench::random_problem{s.seed + i}.make(); wanted(s, p.name)) take(p);
}

} // namespace

int main(int count, char** arguments) try {
    const auto s = read_settings(count, arguments);
    if (s.each_alone) {
        bench::each_alone table{{s.seconds(), s.threads, s.seed}};
        for_each_problem(s, [&](const problem& p) { table.add(p); });
        table.print();
        return 0;
    }
    if (s.without_each) {
        bench::without_each table{{s.given_seconds, s.threads, s.seed, s.seeds}};
        for_each_problem(s, [&](const problem& p) { table.add(p); });
        table.print();
        return 0;
    }
    const auto references = bench::read_known_objectives(s.references);
    std::vector<row> rows;
    print_head(s);
    const auto take = [&](const problem& p) {
        auto r = plan_one(s, p, references);
        if (!r) return;
        print_row(s, *r);
        rows.push_back(*std::move(r));
    };
    for_each_problem(s, take);
    s.large ? print_peaks(rows) : print_idle(rows);
    print_demands(rows);
    write_files(s, rows);
} catch (const std::exception& e) {
    std::cerr << "bench_planner: " << e.what() << '\n';
    return 2;
}
