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

/// Command line and files of COIN-OR's `cbc`.
struct cbc_format {
    static std::vector<std::string> arguments(const std::string& program, const scratch_folder& folder,
                                              const solve_options& options) {
        std::vector<std::string> list{program,   folder / "model.mps", "-timeMode",
                                      "elapsed", "-seconds",           seconds_text(options.time_limit)};
        if (options.threads > 1) list.insert(list.end(), {"-threads", std::to_string(options.threads)});
        list.insert(list.end(),
                    {"-ratioGap", std::to_string(options.relative_gap), "-randomCbcSeed",
                     std::to_string(options.seed % 1000), "-solve", "-solution", folder / "solution", "-quit"});
        return list;
    }

    static answer read(const scratch_folder& folder, const model& m) {
        std::istringstream lines{folder.read("solution")};
        std::string status;
        std::getline(lines, status);
        const auto says = [&](std::string_view word) { return status.find(word) != std::string::npos; };
        answer a;
        if (says("nfeasible"))
            a.why = infeasible{};
        else if (says("nbounded"))
            a.why = unbounded{};
        else if (says("Optimal"))
            a.why = optimal{};
        else if (says("time"))
            a.why = stopped{limit::time};
        const bool has_point = says("Optimal") || (says("Stopped") && !says("continuous used"));
        if (has_point && !says("nfeasible")) a.values = values_of(lines, m.variables());
        a.bound = bound_in(folder.read("log"));
        return a;
    }

private:
    /// Reads lines such as "  12 x12   3.5   0". Columns that aren't listed are 0.
    static std::optional<std::vector<double>> values_of(std::istringstream& lines, std::size_t count) {
        std::vector<double> values(count, 0.0);
        for (std::string line; std::getline(lines, line);) {
            if (line.starts_with("**")) line.erase(0, 2);
            std::istringstream fields{line};
            std::size_t column = 0;
            std::string name;
            std::string value;
            if (!(fields >> column >> name >> value) || column >= count) return std::nullopt;
            values[column] = std::strtod(value.c_str(), nullptr);
        }
        return values;
    }

    static std::optional<double> bound_in(const std::string& log) {
        constexpr std::string_view label = "Lower bound:";
        const auto at = log.rfind(label);
        if (at == std::string::npos) return std::nullopt;
        return std::strtod(log.c_str() + at + label.size(), nullptr);
    }
};

/// The program `cbc` as a solver. Its answers are only as exact as its tolerances: check them.
struct cbc_solver {
    std::string program = "cbc";

    /// The solver, if the program is installed.
    [[nodiscard]] static std::optional<cbc_solver> find() {
        auto path = find_program("cbc");
        return path ? std::optional{cbc_solver{std::move(*path)}} : std::nullopt;
    }
    result operator()(const model& m, const solve_options& options) const {
        return solve_with<cbc_format>(program, m, options);
    }
    [[nodiscard]] static std::string_view name() { return "CBC"; }
};
static_assert(check_milp_solver<cbc_solver>());

} // namespace optpipe::milp::external
