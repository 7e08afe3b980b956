#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/standard.hpp"

#include <cstddef>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace optpipe::milp {

/// A limit that ended an unfinished search. `numerics` means that some nodes of the tree could neither be searched nor
/// pruned within the tolerances.
enum class limit : unsigned char { time, nodes, memory, stop_requested, numerics };

/// The incumbent is optimal within the requested gap.
struct optimal {
    friend bool operator==(optimal, optimal) = default;
};
struct infeasible {
    friend bool operator==(infeasible, infeasible) = default;
};
struct unbounded {
    friend bool operator==(unbounded, unbounded) = default;
};
struct stopped {
    limit why = limit::time;
    friend bool operator==(stopped, stopped) = default;
};

/// Why a solver stopped.
using termination = std::variant<optimal, infeasible, unbounded, stopped>;

struct model_size {
    std::size_t variables = 0;
    std::size_t integers = 0;
    std::size_t rows = 0;
    std::size_t nonzeros = 0;

    friend bool operator==(const model_size&, const model_size&) = default;
};

/// The objective of the incumbent and the bound at one time. Objective and bound have the sign of the model, and are
/// infinite while unknown.
struct gap_sample {
    double seconds = 0.0;
    double objective = 0.0;
    double bound = 0.0;
};

struct statistics {
    model_size given;
    model_size presolved;
    std::size_t nodes = 0;
    std::size_t lp_iterations = 0;
    std::size_t conflicts = 0;
    std::size_t cuts = 0;
    std::size_t restarts = 0;
    std::size_t solutions = 0;
    /// Peak memory in bytes, counted as for `solve_options::memory_limit`.
    std::size_t memory = 0;
    double seconds = 0.0;
    std::vector<gap_sample> history;
};

struct result {
    termination why = stopped{};
    /// A bound on all points' objectives: from below if minimizing, from above if maximizing.
    double bound = 0.0;
    /// Objective of the incumbent; infinite (the worst value) without an incumbent.
    double objective = 0.0;
    /// The incumbent, with one value per variable. `check` finds no violation in an incumbent.
    std::optional<std::vector<double>> incumbent;
    statistics stats;
};

[[nodiscard]] std::string_view status_of(const termination& why);

[[nodiscard]] std::string_view text_of(limit why);

/// Gap between objective and bound, relative to |objective|; infinite if either is infinite.
[[nodiscard]] double relative_gap(double objective, double bound);

struct solution {
    double objective = 0.0;
    std::vector<double> values;
};

/// The best known solution, readable by any thread during the search.
class shared_incumbent {
public:
    [[nodiscard]] std::optional<solution> read() const;
    void write(solution s);

private:
    mutable std::mutex mutex_;
    std::optional<solution> best_;
};

} // namespace optpipe::milp

#if OPTPIPE_DEFINES(milp)
#include "optpipe/core/tolerance.hpp"

#include <algorithm>
#include <cmath>

namespace optpipe::milp {

OPTPIPE_INLINE std::string_view status_of(const termination& why) {
    struct spelling {
        std::string_view operator()(optimal) const { return "optimal"; }
        std::string_view operator()(infeasible) const { return "infeasible"; }
        std::string_view operator()(unbounded) const { return "unbounded"; }
        std::string_view operator()(stopped) const { return "stopped"; }
    };
    return std::visit(spelling{}, why);
}

OPTPIPE_INLINE std::string_view text_of(limit why) {
    switch (why) {
    case limit::time: return "time limit";
    case limit::nodes: return "node limit";
    case limit::memory: return "memory limit";
    case limit::stop_requested: return "asked to stop";
    case limit::numerics: return "numerical trouble";
    }
    return {};
}

OPTPIPE_INLINE double relative_gap(double objective, double bound) {
    if (!std::isfinite(objective) || !std::isfinite(bound)) return std::numeric_limits<double>::infinity();
    const double distance = std::abs(objective - bound);
    return distance == 0.0 ? 0.0 : distance / std::max(std::abs(objective), std::numeric_limits<double>::min());
}

OPTPIPE_INLINE std::optional<solution> shared_incumbent::read() const {
    const std::scoped_lock lock{mutex_};
    return best_;
}

OPTPIPE_INLINE void shared_incumbent::write(solution s) {
    const std::scoped_lock lock{mutex_};
    best_ = std::move(s);
}

} // namespace optpipe::milp
#endif
