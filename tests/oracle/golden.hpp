#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "oracle/random_cases.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

/// Numbers of the published schedulers, from `tests/data`.
namespace oracle {

/// A table of comma-separated values, without its header; `name` is below `tests/data`.
inline std::vector<std::vector<std::string>> rows_of(const std::string& name) {
    std::ifstream file{OPTPIPE_SOURCE_DIR "/tests/data/" + name};
    std::vector<std::vector<std::string>> rows;
    std::string line;
    for (std::getline(file, line); std::getline(file, line);) {
        std::istringstream fields{line};
        rows.emplace_back();
        for (std::string field; std::getline(fields, field, ',');)
            rows.back().push_back(field);
    }
    return rows;
}

/// The rows that a test compares with: the first, and then every n-th, with n from `stride`.
inline std::vector<std::vector<std::string>> some_rows_of(const std::string& name, std::uint64_t most) {
    const auto all = rows_of(name);
    std::vector<std::vector<std::string>> some;
    for (std::size_t i = 0; i < all.size(); i += stride(most))
        some.push_back(all[i]);
    return some;
}

/// Durations of a full stage, in ms.
struct profile {
    double forward, backward_input, backward_weight, p2p;
};
inline profile profile_of(const std::string& name) {
    if (name == "unit") return {1, 1, 1, 0};
    if (name == "p1.5B") return {18.522, 18.086, 9.337, 0.601};
    return {29.718, 29.444, 19.927, 0.527};
}

inline optpipe::problem linear_problem(std::size_t ranks, std::size_t microbatches, const profile& c,
                                       double activation = 1.0, double weight_stash = 0.5) {
    using namespace optpipe;
    per_stage<rank> map(ranks);
    for (const stage s : map.indices())
        map[s] = rank{s.position()};
    const stage_costs each{duration{c.forward},     duration{c.backward_input}, duration{c.backward_weight},
                           memory_size{activation}, memory_size{weight_stash},  {}};
    problem p{any_graph{ranks, microbatches, placement::map<>{map}}, per_stage<stage_costs>(ranks, each)};
    p.p2p = hop_times<>{duration{c.p2p}};
    return p;
}

inline double largest_peak(const optpipe::measures& m) {
    return std::max_element(m.peak_memory.begin(), m.peak_memory.end())->value();
}

} // namespace oracle
