#pragma once

#include <optpipe/milp/io/read_mps.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

/// The models of `tests/data/milp` and their known optima.
namespace oracle {

struct known_model {
    std::string name;   ///< "lp/afiro"
    std::string status; ///< optimal, infeasible, unbounded; known: the best objective found yet, not proven
    double objective = 0.0;

    [[nodiscard]] std::string path() const { return OPTPIPE_SOURCE_DIR "/tests/data/milp/" + name + ".mps.gz"; }
    [[nodiscard]] optpipe::milp::model read() const { return optpipe::milp::read_mps(path()); }
    /// The published optima have up to eight digits, those of pipelines are exact.
    [[nodiscard]] bool agrees(double value, double relative = 1e-6) const {
        return std::abs(value - objective) <= relative * std::max(1.0, std::abs(objective));
    }
};

/// The models whose names start with `prefix`, in alphabetical order.
inline std::vector<known_model> known_models(std::string_view prefix) {
    std::vector<known_model> models;
    std::ifstream table{OPTPIPE_SOURCE_DIR "/tests/data/milp/optima.csv"};
    std::string line;
    for (std::getline(table, line); std::getline(table, line);) {
        std::istringstream fields{line};
        known_model m;
        std::string objective;
        std::getline(fields, m.name, ',');
        std::getline(fields, m.status, ',');
        std::getline(fields, objective, ',');
        m.objective = objective.empty() ? 0.0 : std::strtod(objective.c_str(), nullptr);
        if (m.name.starts_with(prefix)) models.push_back(m);
    }
    std::sort(models.begin(), models.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return models;
}

/// Whether the files, which are compressed, can be read here. Prints a message if they can't.
inline bool can_read_known_models() {
#if defined(OPTPIPE_HAS_ZLIB)
    return true;
#else
    MESSAGE("skipped: built without zlib");
    return false;
#endif
}

} // namespace oracle
