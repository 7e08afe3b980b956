// A captured step over NCCL is launched several times. If a rank is lost, every other rank ends.
#include "cuda/streamed.hpp"
#include "fakes/cuda.hpp"
#include "fakes/nccl.hpp"
#include "nccl/joined.hpp"
#include "optpipe/execution/nccl/executor.hpp"
#include "optpipe/execution/run.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
namespace cuda = optpipe::cuda;
namespace nccl = optpipe::nccl;

namespace {

struct outcome {
    std::vector<std::string> errors;
    std::vector<std::string> complaints;
    std::vector<std::size_t> weights;
};

/// Each rank captures its step and launches it as often as `steps` says.
outcome run(std::chrono::milliseconds patience, const std::vector<std::size_t>& steps) {
    const auto programs = streamed::small_programs(optpipe::message_lanes::per_direction);
    const auto id = nccl::world_id::make();
    outcome all{std::vector<std::string>(programs.size()), std::vector<std::string>(programs.size()),
                std::vector<std::size_t>(programs.size())};
    std::vector<std::jthread> ranks;
    for (const auto& p : programs)
        ranks.emplace_back([&] {
            const auto r = p.self.position();
            streamed::model model{p.stages};
            try {
                nccl::member here{id, p.self, programs.size(), joined::options_of(p.self, patience)};
                auto& on = here.executor();
                optpipe::runner<cuda::executor, streamed::model> mine{p, on, model};
                const auto step = on.capture([&] { mine.issue(); });
                for (std::size_t k = 0; k < steps[r]; ++k) {
                    on.launch(step);
                    on.finish();
                }
            } catch (const optpipe::error& e) {
                all.errors[r] = e.what();
            }
            all.complaints[r] = model.complaint();
            all.weights[r] = model.weights();
        });
    ranks.clear();
    return all;
}

void check_nothing_is_left() {
    CHECK(streamed::lines(fake_nccl::complaints()) == "");
    CHECK(fake_cuda::alive() == fake_cuda::census{});
    CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("a step over NCCL is captured once and launched three times") {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        fake_cuda::reset({.seed = seed});
        fake_nccl::reset();
        const auto all = run(20s, {3, 3, 3});
        CHECK(all.errors == std::vector<std::string>(3));
        CHECK(all.complaints == std::vector<std::string>(3));
        CHECK(all.weights == std::vector<std::size_t>(3, 12));
        CHECK(fake_nccl::count("ncclCommAbort") == 0);
        check_nothing_is_left();
    }
}

TEST_CASE("the survivors of a captured step end, though their graphs hold messages") {
    fake_cuda::reset();
    fake_nccl::reset();
    const auto all = run(300ms, {2, 1, 2});
    for (const std::size_t r : {0U, 2U})
        CHECK(all.errors[r] == "rank " + std::to_string(r) + ", a captured step: not over after 300 ms");
    CHECK(all.errors[1] == "");
    check_nothing_is_left();
}

} // namespace
