#pragma once

#include "optpipe/core/standard.hpp"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace optpipe::cuda::detail {

/// Reads the processors of a NUMA node from Linux's lists, such as "0-3,8". Empty if the node doesn't exist.
[[nodiscard]] inline std::vector<int>
processors_of_node(int node, const std::filesystem::path& nodes = "/sys/devices/system/node") {
    std::ifstream in{nodes / ("node" + std::to_string(node)) / "cpulist"};
    std::vector<int> all;
    for (std::string part; std::getline(in, part, ',');) {
        int first = 0;
        const auto* const end = part.data() + part.size();
        const auto [dash, error] = std::from_chars(part.data(), end, first);
        int last = first;
        if (error != std::errc{}) continue;
        if (dash != end && *dash == '-') std::from_chars(dash + 1, end, last);
        for (int each = first; each <= last; ++each)
            all.push_back(each);
    }
    return all;
}

/// Makes the calling thread run only on `processors` from now on. Does nothing if `processors` is empty or the system
/// refuses.
inline void run_on(std::span<const int> processors) {
    if (processors.empty()) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int each : processors)
        if (each >= 0 && each < CPU_SETSIZE) CPU_SET(static_cast<std::size_t>(each), &set);
    static_cast<void>(sched_setaffinity(0, sizeof set, &set));
}

/// Divides the range from 0 to `count` into consecutive subranges. Calls `work(from, to)` for each subrange on a
/// separate thread. The threads run on `processors`.
template <class Work> void divide_among(std::size_t count, std::span<const int> processors, const Work& work) {
    constexpr std::size_t most_threads = 16; // enough threads to use the full bandwidth of a node's memory
    const std::size_t available = processors.empty() ? std::thread::hardware_concurrency() : processors.size();
    const auto threads = std::clamp<std::size_t>(available, 1, most_threads);
    const auto share = (count + threads - 1) / threads;
    std::vector<std::jthread> running;
    for (std::size_t from = 0; from < count; from += share)
        running.emplace_back([&work, processors, from, to = std::min(count, from + share)] {
            run_on(processors);
            work(from, to);
        });
}

} // namespace optpipe::cuda::detail
