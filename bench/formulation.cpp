// Composition of a problem's model, and the effect of each strengthening, as Markdown tables: sizes per family, then
// the time and conflicts of the proof with all strengthenings, and with each one left out.
//
//     bench_formulation [--time-limit SECONDS] [--threads N] [--sizes] [PROBLEM.json]...
//
// The horizon is the objective of the model in which microbatches keep their order, so the measured proof is that no
// schedule of the model is shorter. (The bound of `pooled` holds for all schedules.) Seconds are of the processor.
#include "problem_files.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/formulation/formulate.hpp>
#include <optpipe/formulation/microbatch_order.hpp>
#include <optpipe/formulation/operation_table.hpp>
#include <optpipe/formulation/schedule_of.hpp>
#include <optpipe/io/json_problem.hpp>
#include <optpipe/milp/solve.hpp>
#include <optpipe/schedule/builders/adaptive.hpp>
#include <optpipe/schedule/time/evaluate.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

namespace formulation = optpipe::formulation;
namespace milp = optpipe::milp;
using formulation::overtaking;

struct settings {
    double time_limit = 20.0;
    std::size_t threads = 1;
    bool only_sizes = false;
    std::vector<std::string> problems;
};

struct variant {
    const char* name;
    bool formulation::strengthenings::*switched;
};
constexpr variant variants[] = {
    {"all", nullptr},
    {"without propagation", &formulation::strengthenings::propagation},
    {"without monotone", &formulation::strengthenings::monotone},
    {"without load", &formulation::strengthenings::load},
    {"without tails", &formulation::strengthenings::tails},
    {"without memory area", &formulation::strengthenings::memory_area},
};

const char* name_of(overtaking how) {
    switch (how) {
    case overtaking::forbidden: return "in order";
    case overtaking::allowed: return "exact";
    case overtaking::pooled: return "pooled";
    }
    return "";
}

void print_sizes(const formulation::formulated& f) {
    std::printf("\n| family | variables | integers | rows | nonzeros |\n| --- | --- | --- | --- | --- |\n");
    const auto line = [](std::string_view name, const milp::model_size& s) {
        std::printf("| %.*s | %zu | %zu | %zu | %zu |\n", static_cast<int>(name.size()), name.data(), s.variables,
                    s.integers, s.rows, s.nonzeros);
    };
    for (std::size_t k = 0; k < formulation::families; ++k)
        if (const auto& s = f.sizes[k]; s.variables + s.rows > 0)
            line(formulation::name_of(static_cast<formulation::family>(k)), s);
    line("all", f.size());
}

struct measurement {
    milp::result result;
    double seconds = 0.0;
};
measurement measure(const milp::model& m, const settings& s) {
    milp::solve_options o;
    o.time_limit = std::chrono::duration<double>{s.time_limit};
    o.threads = s.threads;
    const auto start = std::clock();
    auto result = milp::solve(m, o);
    return {std::move(result), static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC};
}

optpipe::duration best_in_order(const optpipe::problem& p, const settings& s) {
    formulation::options o;
    o.overtaking = overtaking::forbidden;
    const auto built = optpipe::build_schedule(p, optpipe::adaptive);
    if (built) o.horizon = optpipe::objective_of(p, *built);
    const auto f = formulation::formulate(p, o);
    if (!f) return o.horizon;
    const auto r = measure((*f)->model, s).result;
    return r.incumbent ? optpipe::duration{r.objective} : o.horizon;
}

void run(const std::string& path, const settings& s) {
    const auto p = optpipe::read_problem(path);
    const auto horizon = best_in_order(p, s);
    const formulation::operation_table operations{p};
    const bool has_forms = formulation::has_form(operations, overtaking::forbidden) && operations.any_may_offload();
    for (const auto how : {overtaking::forbidden, overtaking::pooled, overtaking::allowed}) {
        if (!has_forms && how != overtaking::allowed) continue;
        std::printf("\n### %s, %s, horizon %s\n", p.name.c_str(), name_of(how),
                    optpipe::format_number(horizon).c_str());
        for (const auto& v : variants) {
            formulation::options o;
            o.overtaking = how;
            o.horizon = horizon;
            if (v.switched) o.with.*v.switched = !(o.with.*v.switched);
            const auto f = formulation::formulate(p, o);
            if (!f) {
                std::printf("\ntoo large\n");
                break;
            }
            if (!v.switched) print_sizes(**f);
            if (s.only_sizes) break;
            if (!v.switched)
                std::printf("\n| | rows | answer | bound | seconds | conflicts | nodes |\n"
                            "| --- | --- | --- | --- | --- | --- | --- |\n");
            const auto m = measure((*f)->model, s);
            const auto& r = m.result;
            std::printf("| %s | %zu | %s | %s | %.2f | %zu | %zu |\n", v.name, (*f)->model.rows(),
                        std::string{milp::status_of(r.why)}.c_str(), optpipe::format_number(r.bound).c_str(), m.seconds,
                        r.stats.conflicts, r.stats.nodes);
            std::fflush(stdout);
        }
    }
}

settings read_settings(int count, char** arguments) {
    settings s;
    s.problems = bench::read_options(count, arguments, "formulation",
                                     {{"--threads", [&](const std::string& v) { s.threads = std::stoul(v); }},
                                      {"--time-limit", [&](const std::string& v) { s.time_limit = std::stod(v); }}},
                                     {{"--sizes", [&] { s.only_sizes = true; }}});
    const auto folder = std::string{bench::test_problems} + '/';
    if (s.problems.empty())
        for (const char* name : {"unit-p8-m16-mem075", "offload-p2-m4-mem050-k050", "offload-p3-m6-mem075-k050",
                                 "offload-p4-m8-mem050-k100", "offload-p6-m12-mem050-k050"})
            s.problems.push_back(folder + name + ".json");
    return s;
}

} // namespace

int main(int count, char** arguments) try {
    const auto s = read_settings(count, arguments);
    for (const auto& path : s.problems)
        run(path, s);
} catch (const std::exception& e) {
    std::fprintf(stderr, "bench_formulation: %s\n", e.what());
    return 2;
}
