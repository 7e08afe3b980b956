#pragma once

#include "oracle/random_cases.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace oracle {

/// The number of problem files in the project.
inline constexpr std::size_t all_problem_files = 59;

/// The problem files of the project, in the order of their names; for the sanitizers about every eighth (see
/// `random_cases`).
inline std::vector<std::string> problem_files() {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator{OPTPIPE_SOURCE_DIR "/tests/data/problems"})
        all.push_back(entry.path().string());
    std::sort(all.begin(), all.end());
    const auto stride = all.size() / random_cases(all.size());
    std::vector<std::string> chosen;
    for (std::size_t i = 0; i < all.size(); i += stride)
        chosen.push_back(all[i]);
    return chosen;
}

} // namespace oracle
