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

/// Command line and files of GLPK's `glpsol`.
struct glpk_format {
    static std::vector<std::string> arguments(const std::string& program, const scratch_folder& folder,
                                              const solve_options& options) {
        std::vector<std::string> list{program,
                                      "--freemps",
                                      folder / "model.mps",
                                      "--write",
                                      folder / "solution",
                                      "--tmlim",
                                      seconds_text(options.time_limit)};
        if (options.relative_gap > 0.0) list.insert(list.end(), {"--mipgap", std::to_string(options.relative_gap)});
        return list;
    }

    static answer read(const scratch_folder& folder, const model& m) {
        std::istringstream lines{folder.read("solution")};
        const auto log = folder.read("log");
        const auto says = [&](std::string_view words) { return log.find(words) != std::string::npos; };
        answer a;
        bool has_point = false;
        for (std::string line; std::getline(lines, line);) {
            if (line.starts_with("s ")) {
                a.why = status_in(line);
                has_point = line.find(" o ") != std::string::npos || line.find(" f ") != std::string::npos;
            }
            if (line.starts_with("j ")) add_value(line, m.variables(), a);
        }
        // The presolver reports its results only in the log.
        if (says("NO PRIMAL FEASIBLE SOLUTION") || says("NO INTEGER FEASIBLE") || says("NO FEASIBLE SOLUTION"))
            a.why = infeasible{};
        if (says("UNBOUNDED") || says("NO DUAL FEASIBLE SOLUTION")) a.why = unbounded{};
        if (says("TIME LIMIT EXCEEDED")) a.why = stopped{limit::time};
        if (!has_point) a.values.reset();
        return a;
    }

private:
    /// Reads a line such as "s bas 27 32 f f -464.75" for linear models, "s mip 27 32 o -464.75" for others.
    static termination status_in(const std::string& line) {
        std::istringstream fields{line};
        std::string s, kind, rows, columns, primal, dual;
        fields >> s >> kind >> rows >> columns >> primal >> dual;
        if (kind == "mip") return primal == "o" ? termination{optimal{}} : primal == "n" ? infeasible{} : other();
        return primal == "f" && dual == "f" ? termination{optimal{}} : primal == "n" ? infeasible{} : other();
    }
    static termination other() { return stopped{limit::numerics}; }

    /// Reads a line such as "j 3 b 25.5 0", or "j 3 25.5" without basis and dual.
    static void add_value(const std::string& line, std::size_t count, answer& a) {
        std::istringstream fields{line};
        std::string j, first, second;
        std::size_t column = 0;
        fields >> j >> column >> first >> second;
        if (column == 0 || column > count) return;
        if (!a.values) a.values.emplace(count, 0.0);
        const bool has_status = std::string_view{"bluf"}.find(first.front()) != std::string_view::npos || first == "s";
        (*a.values)[column - 1] = std::strtod((has_status ? second : first).c_str(), nullptr);
    }
};

/// The program `glpsol` as a solver. Its answers are only as exact as its tolerances: check them.
struct glpk_solver {
    std::string program = "glpsol";

    /// The solver, if the program is installed.
    [[nodiscard]] static std::optional<glpk_solver> find() {
        auto path = find_program("glpsol");
        return path ? std::optional{glpk_solver{std::move(*path)}} : std::nullopt;
    }
    result operator()(const model& m, const solve_options& options) const {
        return solve_with<glpk_format>(program, m, options);
    }
    [[nodiscard]] static std::string_view name() { return "GLPK"; }
};
static_assert(check_milp_solver<glpk_solver>());

} // namespace optpipe::milp::external
