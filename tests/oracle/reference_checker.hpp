#pragma once

#include "optpipe/schedule/schedule.hpp"

#include <string>
#include <vector>

namespace oracle {

/// The verdict on a schedule, by the rules of a valid schedule one by one, slowly. Nothing here uses the library's
/// validator or measures.
struct verdict {
    std::vector<std::string> broken;
    double objective = 0.0;
    double bubble_rate = 0.0;
    double recompute_rate = 0.0;
    std::vector<double> peak_memory;
    std::vector<double> peak_host_memory;

    [[nodiscard]] bool valid() const { return broken.empty(); }
    [[nodiscard]] std::string text() const {
        std::string all;
        for (const auto& rule : broken)
            all += rule + "; ";
        return all;
    }
};

verdict judge(const optpipe::problem& p, const optpipe::schedule& s);

} // namespace oracle
