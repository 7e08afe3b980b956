// Speed of solving models, as Markdown tables: each model is solved by this library and, where they are installed, by
// the programs cbc and glpsol, one after the other in the same run.
//
//     bench_milp [--time-limit SECONDS] [--threads N] [--only-ours | --scaling] [--seeded] [MODEL.mps[.gz] | FOLDER]...
//     bench_milp --write FOLDER
//     bench_milp --answer [--processor-limit SECONDS] MODEL.mps[.gz]
//
// By default the folders lp, mip and pipeline of the tests' models. A ratio above 1 means that we take longer. Times
// are processor times of all threads together, from the model in memory to the solution in memory, so that other load
// on the machine matters little. The time of a program for a model without a choice (to start, and to read and write
// files) is subtracted. --scaling reports our own times and nodes on one thread and on N, and the speed-up; by default
// for the folder mip and for models made from seeds. --seeded takes the sixty models of seeded_models.hpp, and --write
// writes them for other solvers (beside_others.py); --answer prints the input of that script.
#include "external_solvers/cbc.hpp"
#include "external_solvers/glpk.hpp"
#include "hard_models.hpp"
#include "problem_files.hpp"
#include "seeded_models.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/io/read_mps.hpp>
#include <optpipe/milp/io/write_mps.hpp>
#include <optpipe/milp/solve.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <stop_token>
#include <string>
#include <thread>
#include <variant>
#include <vector>

namespace {

namespace milp = optpipe::milp;
using clock_type = std::chrono::steady_clock;

/// User and system time of this process and of the children that it has waited for.
double processor_seconds() {
    double sum = 0.0;
    for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
        rusage used{};
        getrusage(who, &used);
        for (const auto& t : {used.ru_utime, used.ru_stime})
            sum += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    }
    return sum;
}

struct settings {
    double time_limit = 60.0;
    double processor_limit = milp::infinity;
    std::size_t threads = 1;
    bool only_ours = false;
    bool scaling = false;
    bool seeded = false;
    bool answer = false;
    std::string write_to;
    std::vector<std::string> places;
};

/// A solver, and its time for a model without a choice.
struct contestant {
    std::string name;
    std::function<milp::result(const milp::model&, const milp::solve_options&)> solve;
    double overhead = 0.0;
};

struct measurement {
    milp::result result;
    double seconds = 0.0; ///< processor time
    double wall = 0.0;
};

/// Sums over the models that both solvers finished.
struct comparison {
    double ours = 0.0;
    double theirs = 0.0;
    double logarithms = 0.0;
    std::size_t count = 0;
    std::size_t only_ours = 0;
    std::size_t only_theirs = 0;
};

/// Times below this are noise: it is added to both before they are compared.
constexpr double shift = 0.01;

milp::solve_options options_of(const settings& s) {
    milp::solve_options options;
    options.time_limit = std::chrono::duration<double>{s.answer ? milp::infinity : s.time_limit};
    options.threads = s.threads;
    return options;
}

measurement measure(const contestant& c, const milp::model& m, const milp::solve_options& options) {
    const auto start = clock_type::now();
    const double used = processor_seconds();
    auto result = c.solve(m, options);
    const double seconds = processor_seconds() - used;
    const double wall = std::chrono::duration<double>(clock_type::now() - start).count();
    return {std::move(result), std::max(0.0, seconds - c.overhead), wall};
}

double overhead_of(const contestant& c) {
    milp::model nothing;
    nothing.set_cost(nothing.add_variable(0.0, 1.0), 1.0);
    constexpr int runs = 5;
    double least = 1.0;
    for (int i = 0; i < runs; ++i)
        least = std::min(least, measure(c, nothing, {}).seconds);
    return least;
}

std::vector<contestant> contestants(const settings& s) {
    std::vector<contestant> all{{"ours", milp::own_solver{}, 0.0}};
    if (s.only_ours) return all;
    if (const auto cbc = milp::external::cbc_solver::find()) all.push_back({"CBC", *cbc, 0.0});
    if (const auto glpk = milp::external::glpk_solver::find()) all.push_back({"GLPK", *glpk, 0.0});
    for (std::size_t i = 1; i < all.size(); ++i)
        all[i].overhead = overhead_of(all[i]);
    return all;
}

bool is_finished(const milp::result& r) { return !std::holds_alternative<milp::stopped>(r.why); }

std::string text_of(const milp::model& m, const measurement& m1) {
    const auto& r = m1.result;
    std::string text = optpipe::format_number(m1.seconds, 3) + " s";
    if (is_finished(r)) return text;
    text += r.incumbent ? ", " + optpipe::format_number(r.objective, 6) : ", none";
    const double gap = milp::relative_gap(r.objective, r.bound);
    if (std::isfinite(gap)) text += ", gap " + optpipe::format_number(100.0 * gap, 3) + " %";
    const bool is_feasible = !r.incumbent || milp::check(m, *r.incumbent).empty();
    return is_feasible ? text : text + ", infeasible!";
}

/// Whether two answers can both be true.
bool agree(const milp::model& m, const milp::result& a, const milp::result& b) {
    constexpr double tolerance = 1e-5;
    if (!is_finished(a) || !is_finished(b)) {
        if (!a.incumbent || !b.incumbent) return true;
        // Neither bound excludes the other's objective.
        const double sign = m.direction() == milp::sense::minimize ? 1.0 : -1.0;
        const auto excludes = [&](double bound, double objective) {
            return sign * (bound - objective) > tolerance * std::max(1.0, std::abs(objective));
        };
        return !excludes(a.bound, b.objective) && !excludes(b.bound, a.objective);
    }
    // Some solvers don't distinguish infeasible from unbounded.
    const bool has_optimum = std::holds_alternative<milp::optimal>(a.why);
    if (has_optimum != std::holds_alternative<milp::optimal>(b.why)) return false;
    if (!has_optimum) return true;
    return std::abs(a.objective - b.objective) <= tolerance * std::max(1.0, std::abs(b.objective));
}

void count(const measurement& ours, const measurement& theirs, comparison& sums) {
    const bool we_finished = is_finished(ours.result);
    const bool they_finished = is_finished(theirs.result);
    sums.only_ours += we_finished && !they_finished ? 1 : 0;
    sums.only_theirs += they_finished && !we_finished ? 1 : 0;
    if (!we_finished || !they_finished) return;
    sums.ours += ours.seconds;
    sums.theirs += theirs.seconds;
    sums.logarithms += std::log((ours.seconds + shift) / (theirs.seconds + shift));
    ++sums.count;
}

void print_row(const std::string& name, const milp::model& m, const std::vector<contestant>& all,
               const milp::solve_options& options, std::vector<comparison>& sums) {
    std::printf("| %s | %zu x %zu |", name.c_str(), m.rows(), m.variables());
    const auto ours = measure(all.front(), m, options);
    std::printf(" %s %s |", std::string{milp::status_of(ours.result.why)}.c_str(),
                !std::holds_alternative<milp::unbounded>(ours.result.why) && ours.result.incumbent
                    ? optpipe::format_number(ours.result.objective, 9).c_str()
                    : "");
    std::printf(" %s |", text_of(m, ours).c_str());
    for (std::size_t i = 1; i < all.size(); ++i) {
        const auto theirs = measure(all[i], m, options);
        const double ratio = (ours.seconds + shift) / (theirs.seconds + shift);
        std::printf(" %s, %.2f%s |", text_of(m, theirs).c_str(), ratio,
                    agree(m, ours.result, theirs.result) ? "" : ", DISAGREES");
        count(ours, theirs, sums[i]);
        std::fflush(stdout);
    }
    std::puts("");
    std::fflush(stdout);
}

void print_sums(const std::vector<contestant>& all, const std::vector<comparison>& sums) {
    for (std::size_t i = 1; i < all.size(); ++i) {
        const auto& s = sums[i];
        if (s.count == 0) continue;
        std::printf(
            "\n%s: both finished %zu, in %.3f s and %.3f s (ratio %.2f; in the geometric mean, with %g s added, "
            "%.2f); only we %zu, only it %zu.\n",
            all[i].name.c_str(), s.count, s.ours, s.theirs, s.ours / std::max(s.theirs, 1e-9), shift,
            std::exp(s.logarithms / static_cast<double>(s.count)), s.only_ours, s.only_theirs);
    }
}

bool is_model(const std::filesystem::path& path) {
    const auto name = path.filename().string();
    return name.ends_with(".mps") || name.ends_with(".mps.gz");
}

std::string folder_of(const std::string& kind) { return OPTPIPE_SOURCE_DIR "/tests/data/milp/" + kind; }

std::vector<std::filesystem::path> models_in(const std::string& place) {
    if (!std::filesystem::is_directory(place)) return {place};
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator{place})
        if (is_model(entry.path())) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
}

using bench::named_model;

std::vector<named_model> read_models(const std::string& place) {
    std::vector<named_model> all;
    for (const auto& file : models_in(place)) {
        auto name = file.filename().string();
        name.erase(name.find(".mps"));
        all.push_back({std::move(name), milp::read_mps(file.string())});
    }
    return all;
}

void bench_beside_others(const std::string& title, const std::vector<named_model>& models,
                         const std::vector<contestant>& all, const settings& s) {
    std::printf("\n%s, %g s, %zu %s\n\n| model | rows x columns | result | ours |", title.c_str(), s.time_limit,
                s.threads, s.threads == 1 ? "thread" : "threads");
    for (std::size_t i = 1; i < all.size(); ++i)
        std::printf(" %s, ratio |", all[i].name.c_str());
    std::printf("\n| --- | --- | --- | --- |");
    for (std::size_t i = 1; i < all.size(); ++i)
        std::printf(" --- |");
    std::puts("");
    std::vector<comparison> sums(all.size());
    for (const auto& [name, m] : models)
        print_row(name, m, all, options_of(s), sums);
    print_sums(all, sums);
}

/// Models that take 0.4 to 6 s on one thread.
std::vector<named_model> made_models() {
    std::vector<named_model> all;
    const auto add = [&](const std::string& kind, std::uint64_t seed, milp::model m) {
        all.push_back({kind + ", seed " + std::to_string(seed), std::move(m)});
    };
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        add("10 knapsacks, 80 items", seed, bench::make_knapsacks(seed, 80, 10));
        add("lots of 8 products, 10 periods", seed, bench::make_lot_sizing(seed, 8, 10));
        add("20 jobs to 6 agents", seed, bench::make_assignment(seed, 6, 20));
        add("24 jobs to 4 agents", seed, bench::make_assignment(seed, 4, 24));
        add("40 depots, 60 customers", seed, bench::make_facilities(seed, 40, 60));
        add("200 rows covered by 1000", seed, bench::make_covering(seed, 200, 1000, 3));
    }
    return all;
}

std::string text_of(const measurement& m) {
    return optpipe::format_number(m.wall, 3) + " s, " + optpipe::format_number(m.seconds, 3) + " s, " +
           std::to_string(m.result.stats.nodes);
}

/// Our own times on one thread and on several, for models that take long enough to measure.
void bench_scaling(const std::string& title, const std::vector<named_model>& models, const contestant& ours,
                   const settings& s) {
    constexpr double least_seconds = 0.25;
    std::printf("\n%s, %g s\n\n| model | 1 thread: wall, processor, nodes | %zu threads | speed-up |\n"
                "| --- | --- | --- | --- |\n",
                title.c_str(), s.time_limit, s.threads);
    auto alone = options_of(s);
    alone.threads = 1;
    double logarithms = 0.0, least = milp::infinity;
    std::size_t count = 0;
    for (const auto& [name, m] : models) {
        const auto one = measure(ours, m, alone);
        if (one.wall < least_seconds || !is_finished(one.result)) continue;
        const auto several = measure(ours, m, options_of(s));
        const double ratio = one.wall / std::max(several.wall, 1e-9);
        std::printf("| %s | %s | %s | %.2f%s |\n", name.c_str(), text_of(one).c_str(), text_of(several).c_str(), ratio,
                    agree(m, one.result, several.result) ? "" : ", DISAGREES");
        std::fflush(stdout);
        logarithms += std::log(ratio);
        least = std::min(least, ratio);
        ++count;
    }
    if (count > 0)
        std::printf("\nSpeed-up of %zu models: %.2f in the geometric mean, at least %.2f.\n", count,
                    std::exp(logarithms / static_cast<double>(count)), least);
}
void bench_scaling(const contestant& ours, const settings& s) {
    for (const auto& place : s.places)
        bench_scaling(std::filesystem::path{place}.filename().string(), read_models(place), ours, s);
    if (!s.places.empty()) return;
    bench_scaling("mip", read_models(folder_of("mip")), ours, s);
    bench_scaling("made from seeds", made_models(), ours, s);
}

void write_models(const std::string& folder) {
    std::filesystem::create_directories(folder);
    for (const auto& [name, m] : bench::seeded_models())
        std::ofstream{std::filesystem::path{folder} / (name + ".mps")} << milp::model_to_mps(m);
}

/// Prints one line of JSON; numbers that aren't finite are left out.
void print_answer(const milp::model& m, const settings& s) {
    auto options = options_of(s);
    std::stop_source source;
    options.stop = source.get_token();
    const double start = processor_seconds();
    const std::jthread watch{[&](const std::stop_token& finished) {
        while (!finished.stop_requested() && processor_seconds() - start < s.processor_limit)
            std::this_thread::sleep_for(std::chrono::milliseconds{10});
        source.request_stop();
    }};
    const auto r = milp::solve(m, options);
    std::printf("{\"seconds\": %.3f, \"nodes\": %zu", processor_seconds() - start, r.stats.nodes);
    if (std::isfinite(r.objective)) std::printf(", \"objective\": %.12g", r.objective);
    if (std::isfinite(r.bound)) std::printf(", \"bound\": %.12g", r.bound);
    std::printf(", \"proven\": %s}\n", is_finished(r) ? "true" : "false");
}

settings settings_from(int count, char** arguments) {
    settings s;
    s.places = bench::read_options(
        count, arguments, "milp",
        {
            {"--write", [&](const std::string& v) { s.write_to = v; }},
            {"--processor-limit", [&](const std::string& v) { s.processor_limit = std::stod(v); }},
            {"--time-limit", [&](const std::string& v) { s.time_limit = std::stod(v); }},
            {"--threads", [&](const std::string& v) { s.threads = std::stoul(v); }},
        },
        {
            {"--only-ours", [&] { s.only_ours = true; }},
            {"--scaling", [&] { s.only_ours = s.scaling = true; }},
            {"--seeded", [&] { s.seeded = true; }},
            {"--answer", [&] { s.answer = true; }},
        });
    if (s.places.empty() && !s.scaling && !s.seeded)
        for (const auto* folder : {"lp", "mip", "pipeline"})
            s.places.push_back(folder_of(folder));
    return s;
}

} // namespace

int main(int count, char** arguments) try {
    const auto s = settings_from(count, arguments);
    if (!s.write_to.empty()) {
        write_models(s.write_to);
        return 0;
    }
    if (s.answer) {
        print_answer(milp::read_mps(s.places.front()), s);
        return 0;
    }
    const auto all = contestants(s);
    for (std::size_t i = 1; i < all.size(); ++i)
        std::printf("%s: %.1f ms taken off\n", all[i].name.c_str(), 1e3 * all[i].overhead);
    if (s.scaling) {
        bench_scaling(all.front(), s);
        return 0;
    }
    if (s.seeded) bench_beside_others("made from seeds", bench::seeded_models(), all, s);
    for (const auto& place : s.places)
        bench_beside_others(std::filesystem::path{place}.filename().string(), read_models(place), all, s);
} catch (const std::exception& e) {
    std::cerr << "bench_milp: " << e.what() << '\n';
    return 2;
}
