// The gain of deciding on keeping, offloading and recomputing together. Every problem is planned with parts of its
// storage options and with all of them. A Markdown table on standard output.
//
//     bench_storage [--time SECONDS] [--threads N] [--seed N] [--only TEXT]... [--sweep POINTS] [--svg FOLDER]
//                   [--drawn MODELS] [FOLDER | PROBLEM.json]...
//
// By default the problems with storage options of the tests, 10 seconds and 2 threads. Columns: the work of the busiest
// rank without any recomputation; the best published schedule with one option for all microbatches; the plans without
// recomputation, without transfers, and with all options; the bound of the last one. `idle`: objective less work, as a
// share of the better of `uniform` and `offload only`. `--sweep` plans each problem with POINTS memory limits from 0.15
// to 1 of the memory of 1F1B, and prints these four objectives over the work. `--svg` draws the last plans, or the
// curves of each sweep. `--drawn` takes MODELS random models (`random_model`) instead of files, with seeds from
// `--seed` on.
#include "curves_picture.hpp"
#include "problem_files.hpp"
#include "random_model.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/io/file.hpp>
#include <optpipe/io/json.hpp>
#include <optpipe/io/svg.hpp>
#include <optpipe/pipeline/validate_problem.hpp>
#include <optpipe/planner.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;

struct settings {
    double seconds = 10.0;
    std::size_t threads = 2;
    std::uint64_t seed = 1;
    std::vector<std::string> only{};
    std::size_t sweep = 0;
    std::size_t drawn = 0;
    std::string svg{};
    std::vector<std::string> places{};
};

/// The problem with the options that `keeps` accepts; empty if that leaves a stage without an option, or a rank without
/// the memory for one microbatch.
std::optional<problem> with_options(problem p, const std::function<bool(const storage_option&)>& keeps) {
    for (auto& list : p.storage) {
        std::erase_if(list, [&](const storage_option& o) { return !keeps(o); });
        if (list.empty()) return std::nullopt;
    }
    return validate(p).empty() ? std::optional{std::move(p)} : std::nullopt;
}

std::optional<plan_result> planned(const std::optional<problem>& p, const settings& s) {
    if (!p) return std::nullopt;
    plan_options how;
    how.time_limit = std::chrono::duration<double>{s.seconds};
    how.threads = s.threads;
    how.seed = s.seed;
    const auto found = plan(*p, how);
    return found ? std::optional{*found} : std::nullopt;
}

struct row {
    double work = 0.0;
    std::optional<double> uniform{};
    std::string uniform_method{};
    std::optional<plan_result> offload_only{};
    std::optional<plan_result> recompute_only{};
    std::optional<plan_result> joint{};
};

row make_row(const problem& p, const settings& s) {
    row r;
    for (const rank on : p.graph.all_ranks())
        r.work = std::max(r.work, p.load(on).value());
    r.offload_only = planned(with_options(p, [](const auto& o) { return !(o.extra_work() > duration{}); }), s);
    r.recompute_only = planned(with_options(p, [](const auto& o) { return !o.offloads(); }), s);
    r.joint = planned(p, s);
    if (!r.joint) return r;
    if (const auto* best = best_published(*r.joint)) {
        r.uniform = best->objective->value();
        r.uniform_method = best->method;
    }
    return r;
}

std::string shown(const std::optional<double>& value, int digits = 6) {
    return value ? format_number(*value, digits) : "–";
}
std::optional<double> objective_of(const std::optional<plan_result>& plan) {
    return plan ? std::optional{plan->objective.value()} : std::nullopt;
}
std::optional<double> least(const std::optional<double>& a, const std::optional<double>& b) {
    return a && b ? std::min(*a, *b) : a ? a : b;
}

/// Numbers of stashes that are kept, offloaded, recomputed, or both of the latter.
std::string mix_of(const problem& p, const schedule& s) {
    std::size_t kept = 0, offloaded = 0, recomputed = 0, both = 0;
    for (const auto& timed : s.operations) {
        if (timed.op.kind != operation_kind::forward) continue;
        const auto o = storage_of(p, timed.op);
        const bool again = o.extra_work() > duration{};
        ++(o.offloads() ? (again ? both : offloaded) : again ? recomputed : kept);
    }
    return std::to_string(kept) + " / " + std::to_string(offloaded) + " / " + std::to_string(recomputed) + " / " +
           std::to_string(both);
}

std::string percent(double share) { return format_number(100.0 * share, 3) + " %"; }

double median(std::vector<double> values) {
    if (values.empty()) return 0.0;
    std::sort(values.begin(), values.end());
    const auto half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

void compare(const std::vector<problem>& problems, const settings& s) {
    std::cout << "| problem | work | uniform | by | offload only | recompute only | all | bound | gap | idle | "
                 "kept / offloaded / recomputed / both |\n|---|---|---|---|---|---|---|---|---|---|---|\n";
    std::vector<double> idle, gaps, gains;
    for (const auto& p : problems) {
        const auto r = make_row(p, s);
        if (!r.joint) continue;
        const auto other = least(r.uniform, objective_of(r.offload_only));
        const auto objective = r.joint->objective.value();
        gaps.push_back(r.joint->gap);
        if (r.uniform) gains.push_back(*r.uniform / objective - 1.0);
        if (other && *other > r.work) idle.push_back((objective - r.work) / (*other - r.work));
        std::cout << "| " << p.name << " | " << format_number(r.work, 6) << " | " << shown(r.uniform) << " | "
                  << r.uniform_method << " | " << shown(objective_of(r.offload_only)) << " | "
                  << shown(objective_of(r.recompute_only)) << " | " << format_number(objective, 6) << " | "
                  << format_number(r.joint->bound, 6) << " | " << percent(r.joint->gap) << " | "
                  << (other && *other > r.work ? format_number(idle.back(), 3) : "–") << " | "
                  << mix_of(p, r.joint->schedule) << " |" << std::endl;
        if (!s.svg.empty()) write_file(s.svg + "/" + p.name + ".svg", schedule_to_svg(p, report_of(p, *r.joint)));
    }
    std::cout << "\nMedians: gap " << percent(median(gaps)) << ", idle " << format_number(median(idle), 3)
              << ", `uniform` takes " << percent(median(gains)) << " longer.\n";
}

/// Every rank may hold this share of its memory under 1F1B, in which stage s of S keeps S − s stashes.
problem with_memory(problem p, double share) {
    per_rank<memory_size> held(p.graph.ranks());
    for (const stage s : p.graph.all_stages()) {
        const auto stashes = std::min(p.graph.stages() - s.position(), p.graph.microbatches());
        held[p.rank_of(s)] += static_cast<double>(stashes) * p.costs[s].activation;
    }
    auto most = memory_size{};
    for (const auto h : held)
        most = std::max(most, h);
    for (auto& limit : p.memory_limit)
        limit = share * most;
    return p;
}

/// The curves of a sweep, and a row of its table for each point: objectives over the work of the busiest rank.
class sweep_table {
public:
    explicit sweep_table(const std::string& name) : name_{name} {
        std::cout << "\n" << name << ", objective over the work of the busiest rank:\n\n| memory of 1F1B's |";
        for (const auto& each : curves_)
            std::cout << " " << each.name << " |";
        std::cout << "\n|---|---|---|---|---|---|\n";
    }
    void add(double share, const row& r) {
        shares_.push_back(share);
        std::cout << "| " << percent(share) << " |";
        const std::optional<double> bound = r.joint ? std::optional{r.joint->bound.value()} : std::nullopt;
        std::size_t next = 0;
        for (const auto& value :
             {r.uniform, objective_of(r.offload_only), objective_of(r.recompute_only), objective_of(r.joint), bound}) {
            const auto over = value ? std::optional{*value / r.work} : std::nullopt;
            curves_[next++].values.push_back(over);
            std::cout << " " << shown(over, 4) << " |";
        }
        std::cout << std::endl;
    }
    /// Draws nothing if there are fewer than two points.
    void draw(const std::string& folder) && {
        if (shares_.size() < 2) return;
        bench::curves_picture picture{name_ + ": objective over work", "memory limit, as a share of 1F1B's peak",
                                      std::move(shares_), std::move(curves_)};
        write_file(folder + "/sweep_" + name_ + ".svg", std::move(picture).draw());
    }

private:
    std::string name_;
    std::vector<double> shares_{};
    std::vector<bench::curve> curves_{{"uniform", "#9467bd"},
                                      {"offload only", "#1f77b4"},
                                      {"recompute only", "#ff7f0e"},
                                      {"all", "#2ca02c"},
                                      {"bound", "#999"}};
};

void sweep(const std::vector<problem>& problems, const settings& s) {
    for (const auto& p : problems) {
        sweep_table table{p.name};
        for (std::size_t i = 0; i < s.sweep; ++i) {
            const double share =
                0.15 + 0.85 * static_cast<double>(i) / static_cast<double>(std::max<std::size_t>(s.sweep - 1, 1));
            const auto limited = with_memory(p, share);
            if (validate(limited).empty()) table.add(share, make_row(limited, s));
        }
        if (!s.svg.empty()) std::move(table).draw(s.svg);
    }
}

/// Random models that can be planned at all.
std::vector<problem> draw_models(std::size_t count, std::uint64_t seed) {
    std::vector<problem> result;
    for (; result.size() < count; ++seed) {
        auto p = bench::random_model{seed}.make();
        if (validate(p).empty()) result.push_back(std::move(p));
    }
    return result;
}

std::vector<problem> problems_of(const settings& s) {
    if (s.drawn > 0) return draw_models(s.drawn, s.seed);
    std::vector<problem> result;
    for (const auto& file : bench::problem_files(s.places, s.only))
        result.push_back(read_problem(file.string()));
    return result;
}

settings read_settings(int count, char** arguments) {
    settings s;
    s.places = bench::read_options(count, arguments, "storage",
                                   {
                                       {"--time", [&](const std::string& v) { s.seconds = std::stod(v); }},
                                       {"--threads", [&](const std::string& v) { s.threads = std::stoul(v); }},
                                       {"--seed", [&](const std::string& v) { s.seed = std::stoull(v); }},
                                       {"--only", [&](const std::string& v) { s.only.push_back(v); }},
                                       {"--sweep", [&](const std::string& v) { s.sweep = std::stoul(v); }},
                                       {"--drawn", [&](const std::string& v) { s.drawn = std::stoul(v); }},
                                       {"--svg", [&](const std::string& v) { s.svg = v; }},
                                   });
    if (s.places.empty()) s.places.emplace_back(OPTPIPE_SOURCE_DIR "/tests/data/storage");
    return s;
}

} // namespace

int main(int count, char** arguments) {
    const auto s = read_settings(count, arguments);
    const auto problems = problems_of(s);
    if (s.sweep > 0)
        sweep(problems, s);
    else
        compare(problems, s);
}
