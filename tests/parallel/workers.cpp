#include "optpipe/parallel/workers.hpp"

#include "optpipe/parallel/arena.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace optpipe;

TEST_CASE("every job runs once, whatever the number of threads") {
    for (std::size_t threads = 1; threads <= std::min<std::size_t>(3, parallel::available_cores()); ++threads) {
        std::vector<int> runs(50, 0);
        const auto job = [&](std::size_t k) { ++runs[k]; };
        parallel::arena{threads}.execute([&] { parallel::workers{runs.size(), job}.run(threads); });
        CHECK(std::count(runs.begin(), runs.end(), 1) == 50);
    }
}

TEST_CASE("an exception of a job leaves `run`") {
    const auto job = [](std::size_t k) {
        if (k == 7) throw std::runtime_error{"seven"};
    };
    for (const std::size_t threads : {1U, 2U})
        CHECK_THROWS_WITH_AS((parallel::workers{20, job}.run(threads)), "seven", std::runtime_error);
}

TEST_CASE("an arena returns the result of its work") {
    CHECK(parallel::arena{1}.execute([] { return 5; }) == 5);
    CHECK(parallel::arena{1}.execute([] { return std::this_thread::get_id(); }) == std::this_thread::get_id());
}
