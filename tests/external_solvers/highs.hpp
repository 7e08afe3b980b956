#pragma once

#include "external_solvers/adapter.hpp"
#include "external_solvers/program.hpp"
#include "optpipe/milp/model.hpp"
#include "optpipe/milp/options.hpp"
#include "optpipe/milp/result.hpp"
#include "optpipe/milp/solver.hpp"

#include <cstddef>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe::milp::external {

/// Command line and files of `highs`. All options are passed in a file, which every version reads.
struct highs_format {
    static std::vector<std::string> arguments(const std::string& program, const scratch_folder& folder,
                                              const solve_options& options) {
        constexpr std::size_t largest_seed = 1000;
        std::ostringstream text;
        text << "solution_file = " << folder / "solution"
             << "\nwrite_solution_to_file = true"
             << "\ntime_limit = " << seconds_text(options.time_limit) << "\nthreads = " << options.threads
             << "\nrandom_seed = " << options.seed % largest_seed << "\nmip_rel_gap = " << options.relative_gap
             << "\nmip_abs_gap = " << options.absolute_gap << '\n';
        folder.write("options", text.str());
        return {program, "--options_file", folder / "options", folder / "model.mps"};
    }

    static answer read(const scratch_folder& folder, const model& m) {
        std::istringstream lines{folder.read("solution")};
        std::string heading, status;
        std::getline(lines, heading);
        std::getline(lines, status);
        answer a;
        a.why = termination_of(status);
        a.values = values_in(lines, m.variables());
        a.bound = bound_in(folder.read("log"));
        return a;
    }

private:
    static termination termination_of(std::string_view status) {
        if (status == "Optimal") return optimal{};
        if (status == "Infeasible") return infeasible{};
        if (status == "Unbounded" || status == "Primal infeasible or unbounded") return unbounded{};
        if (status == "Time limit reached") return stopped{limit::time};
        return stopped{limit::numerics};
    }

    /// Reads the lines "# Primal solution values", "Feasible", the objective, "# Columns 2", then "x0 1.5" for each
    /// column.
    static std::optional<std::vector<double>> values_in(std::istringstream& lines, std::size_t count) {
        bool is_feasible = false;
        for (std::string line; std::getline(lines, line) && !line.starts_with("# Columns");)
            is_feasible = is_feasible || line == "Feasible";
        if (!is_feasible) return std::nullopt;
        std::vector<double> values(count, 0.0);
        std::string name, value;
        for (auto& v : values) {
            if (!(lines >> name >> value)) return std::nullopt;
            v = std::strtod(value.c_str(), nullptr);
        }
        return values;
    }

    /// The bound in the final report, which is missing for a model without integers.
    static std::optional<double> bound_in(const std::string& log) {
        constexpr std::string_view label = "Dual bound ";
        const auto at = log.rfind(label);
        if (at == std::string::npos) return std::nullopt;
        return std::strtod(log.c_str() + at + label.size(), nullptr);
    }
};

/// The program `highs` as a solver. Its answers are only as exact as its tolerances: check them.
struct highs_solver {
    std::string program = "highs";

    /// The solver, if the program is installed.
    [[nodiscard]] static std::optional<highs_solver> find() {
        auto path = find_program("highs");
        return path ? std::optional{highs_solver{std::move(*path)}} : std::nullopt;
    }
    result operator()(const model& m, const solve_options& options) const {
        return solve_with<highs_format>(program, m, options);
    }
    [[nodiscard]] static std::string_view name() { return "HiGHS"; }
};
static_assert(check_milp_solver<highs_solver>());

} // namespace optpipe::milp::external
