#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/testing/conformance.hpp"

#include <barrier>
#include <cstddef>
#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace conformance {

/// The faults of one rank's executor, which is destroyed once nobody needs it.
template <class Make>
std::string faults_on(optpipe::rank r, const optpipe::testing::conformance_options& how, const Make& make,
                      std::barrier<>& everybody_is_done) {
    std::string text;
    try {
        const auto executor = make(r);
        for (const auto& v : optpipe::testing::check_executor(*executor, how))
            text += v.text() + "\n";
        everybody_is_done.arrive_and_wait();
    } catch (const std::exception& e) {
        text += "no executor: " + std::string{e.what()} + "\n";
        everybody_is_done.arrive_and_drop();
    }
    return text;
}

/// Runs the suite on all ranks at once. `make(rank)` is called by each rank's thread and returns a pointer to an
/// executor.
template <class Make>
std::string faults_of(std::size_t ranks, const optpipe::testing::conformance_options& how, const Make& make) {
    std::vector<std::string> found(ranks);
    std::barrier everybody_is_done{static_cast<std::ptrdiff_t>(ranks)};
    std::vector<std::jthread> hosts;
    for (const optpipe::rank r : optpipe::index_range<optpipe::rank>{ranks})
        hosts.emplace_back([&, r] { found[r.position()] = faults_on(r, how, make, everybody_is_done); });
    hosts.clear();
    std::string text;
    for (const auto& own : found)
        text += own;
    return text;
}

} // namespace conformance
