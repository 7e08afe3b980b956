// Compares a stage of the language model on this GPU with the same stage on the host in double precision.
//
//     gpu_arithmetic [--out PREFIX]
#include "../../examples/language_model/cuda/comparison.hpp"
#include "../../examples/language_model/cuda/stream_device.cuh"
#include "arguments.hpp"
#include "report.hpp"
#include <optpipe/execution/cuda/device.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <iostream>
#include <string>

namespace {

using namespace language_model;

struct kind {
    precision how;
    const char* name;
    /// Small parts are only compared in float: where terms cancel, the error of rounded factors is all that is left.
    bool is_exact;
    /// Largest accepted difference: at least three times the rounding error measured on the host.
    double most;
};
constexpr std::array kinds{kind{precision::single, "float", true, 1e-4}, kind{precision::tf32, "tf32", false, 1e-2}};

/// Whether all parts agree.
bool compare(gpu_bench::report& out, const kind& k, const shape& s, const stage_place& place) {
    stream_device device{k.how};
    const auto found = stage_comparison<stream_device>{device, s, place, k.is_exact ? s.hidden : 0}.run();
    const std::string where = place.first ? (place.last ? "only" : "first") : (place.last ? "last" : "middle");
    // A value that isn't a number is the worst.
    const auto worst = *std::ranges::max_element(found, [](const auto& a, const auto& b) {
        return !std::isnan(a.relative) && (std::isnan(b.relative) || a.relative < b.relative);
    });
    const bool are_alike = worst.relative < k.most;
    out.row({k.name, static_cast<double>(s.hidden), where, worst.what, worst.relative,
             are_alike ? "" : "above " + optpipe::format_number(k.most)});
    return are_alike;
}

} // namespace

int main(int count, char** given) try {
    const gpu_bench::arguments options{count, given, {{"--out", "gpu_arithmetic"}}};
    if (optpipe::cuda::device_count() == 0) throw optpipe::error{"no GPU"};
    gpu_bench::report out{options["--out"]};
    out.table("A stage on the GPU and on the host",
              {"products in", "hidden", "stage", "worst", "relative difference", "verdict"});
    constexpr std::array shapes{shape{.hidden = 24, .heads = 3, .sequence = 11, .sequences = 3, .vocabulary = 70},
                                shape{.hidden = 128, .heads = 2, .sequence = 64, .sequences = 2, .vocabulary = 256}};
    constexpr std::array places{stage_place{2, true, false}, stage_place{1, false, false}, stage_place{1, false, true}};
    bool are_alike = true;
    for (const auto& k : kinds)
        for (const auto& s : shapes)
            for (const auto& place : places)
                are_alike = compare(out, k, s, place) && are_alike;
    return are_alike ? 0 : 1;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
