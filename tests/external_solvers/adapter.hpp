#pragma once

#include "external_solvers/program.hpp"
#include "optpipe/milp/check.hpp"
#include "optpipe/milp/io/write_mps.hpp"
#include "optpipe/milp/model.hpp"
#include "optpipe/milp/options.hpp"
#include "optpipe/milp/result.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace optpipe::milp::external {

/// A program's answer in terms of the given model, which is minimized.
struct answer {
    termination why = stopped{limit::numerics};
    std::optional<std::vector<double>> values;
    std::optional<double> bound; ///< without the offset
};

/// The model without names, so that a file calls its columns x0, x1, …; minimized, and without offset.
[[nodiscard]] inline model plain(const model& m) {
    model result;
    const double sign = m.direction() == sense::minimize ? 1.0 : -1.0;
    for (const variable x : m.all_variables()) {
        result.add_variable(m.lower(x), m.upper(x), m.domain_of(x));
        result.set_cost(x, sign * m.cost(x));
    }
    for (const row r : m.all_rows())
        if (m.row_lower(r) > -infinity || m.row_upper(r) < infinity)
            result.add_row(m.row_lower(r), m.terms(r), m.row_upper(r));
    return result;
}

/// A time limit in whole seconds, for a command line.
[[nodiscard]] inline std::string seconds_text(std::chrono::duration<double> limit) {
    constexpr double most = 1e6;
    return std::to_string(static_cast<long>(std::ceil(std::min(limit.count(), most))));
}

/// Converts an answer to a result of the original model.
[[nodiscard]] inline result to_result(const model& m, answer a, double seconds) {
    const double sign = m.direction() == sense::minimize ? 1.0 : -1.0;
    result r;
    r.why = a.why;
    r.objective = sign * infinity;
    r.bound = -sign * infinity;
    r.stats.seconds = seconds;
    if (a.values) {
        r.objective = objective_value(m, *a.values);
        r.incumbent = std::move(a.values);
    }
    if (a.bound) r.bound = sign * *a.bound + m.offset();
    if (std::holds_alternative<optimal>(r.why)) r.bound = r.objective;
    if (std::holds_alternative<infeasible>(r.why)) r.bound = r.objective;
    return r;
}

/// Writes the model, runs the program on it, and reads its output. `Format` knows the program's command line and files.
template <class Format> result solve_with(const std::string& program, const model& m, const solve_options& options) {
    const auto start = std::chrono::steady_clock::now();
    const auto seconds = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    const scratch_folder folder;
    folder.write("model.mps", model_to_mps(plain(m)));
    constexpr std::chrono::duration<double> grace{5.0}; // until the program is killed
    child_process child{Format::arguments(program, folder, options), folder / "log"};
    if (!child.wait(options.time_limit + grace, options.stop)) {
        const auto why = options.stop.stop_requested() ? limit::stop_requested : limit::time;
        return to_result(m, {stopped{why}, std::nullopt, std::nullopt}, seconds());
    }
    return to_result(m, Format::read(folder, m), seconds());
}

} // namespace optpipe::milp::external
