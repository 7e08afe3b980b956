// Whether the executor of CUDA streams meets the concepts on this GPU: the suite that every executor passes.
//
//     gpu_conformance [--out PREFIX]
#include "arguments.hpp"
#include "partition.hpp"
#include "report.hpp"
#include <optpipe/execution/cuda/executor.hpp>
#include <optpipe/testing/conformance.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace optpipe;

/// The violations of all ranks.
std::vector<violation> check_ranks(cuda::cluster& ranks) {
    std::vector<std::vector<violation>> found(ranks.ranks());
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < found.size(); ++r)
        threads.emplace_back([&, r] {
            try {
                found[r] = testing::check_executor(ranks[rank{r}]);
            } catch (const std::exception& e) {
                found[r].push_back({"rank " + std::to_string(r), e.what()});
            }
        });
    threads.clear();
    std::vector<violation> all;
    for (const auto& each : found)
        all.insert(all.end(), each.begin(), each.end());
    return all;
}

/// Whether there was no violation.
bool run(gpu_bench::report& out, std::size_t ranks, bool is_divided) {
    const std::string streams = is_divided ? "green contexts" : "streams";
    const auto count = static_cast<double>(ranks);
    try {
        const gpu_bench::partition parts{ranks, is_divided};
        cuda::cluster cluster{ranks,
                              {.patience = std::chrono::seconds{10}, .streams = parts.streams(), .record_times = true}};
        const auto found = check_ranks(cluster);
        out.row({count, streams,
                 found.empty() ? "keeps to the concepts" : found.front().place + ": " + found.front().reason,
                 static_cast<double>(found.size())});
        return found.empty();
    } catch (const std::exception& e) {
        out.row({count, streams, std::string{"failed: "} + e.what(), 1.0});
        return false;
    }
}

} // namespace

int main(int count, char** given) try {
    const gpu_bench::arguments options{count, given, {{"--out", "gpu_conformance"}}};
    if (cuda::device_count() == 0) throw error{"no GPU"};
    gpu_bench::report out{options["--out"]};
    out.table("Conformance", {"ranks", "on", "result", "violations"});
    bool is_well = true;
    for (const std::size_t ranks : {1U, 2U, 4U, 8U})
        for (const bool is_divided : {false, true})
            is_well = run(out, ranks, is_divided) && is_well;
    return is_well ? 0 : 1;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
