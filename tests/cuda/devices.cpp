// Ranks of one process on several devices.
#include "cuda/streamed.hpp"
#include "fakes/cuda.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/run.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using optpipe::rank;
namespace cuda = optpipe::cuda;

namespace {

using cuda_runner = optpipe::runner<cuda::executor, streamed::model>;

TEST_CASE("ranks on several devices run as on one, whichever thread gets their work into the streams") {
    const auto programs = streamed::offloading_programs();
    for (const std::vector<int>& devices : {std::vector{0, 1, 2}, std::vector{2, 0, 2}}) {
        fake_cuda::reset({.devices = 3});
        {
            cuda::options how{.devices = devices, .patience = 20s};
            how.record_times = true;
            cuda::cluster cluster{3, how};
            std::vector<std::unique_ptr<streamed::model>> models;
            std::vector<std::unique_ptr<cuda_runner>> runners;
            for (const auto& p : programs) {
                models.push_back(std::make_unique<streamed::model>(p.stages));
                runners.push_back(std::make_unique<cuda_runner>(p, cluster[p.self], *models.back()));
            }
            for (auto& each : runners)
                each->issue();
            cluster.finish();
            std::size_t weights = 0;
            for (const auto& m : models) {
                CHECK(m->complaint() == "");
                weights += m->weights();
            }
            CHECK(weights == programs[rank{0}].stages * programs[rank{0}].microbatches);
            for (std::size_t r = 0; r < 3; ++r)
                CHECK(runners[r]->times().size() == programs[rank{r}].instructions.size());
        }
        CHECK(streamed::lines(fake_cuda::complaints()) == "");
        CHECK(fake_cuda::alive() == fake_cuda::census{});
    }
}

TEST_CASE("a step over several devices is captured, too") {
    const auto programs = streamed::small_programs();
    fake_cuda::reset({.devices = 3});
    {
        cuda::cluster cluster{3, {.devices = {0, 1, 2}, .patience = 20s}};
        std::vector<std::unique_ptr<streamed::model>> models;
        std::vector<std::unique_ptr<cuda_runner>> runners;
        for (const auto& p : programs) {
            models.push_back(std::make_unique<streamed::model>(p.stages));
            runners.push_back(std::make_unique<cuda_runner>(p, cluster[p.self], *models.back()));
        }
        const auto step = cluster.capture([&] {
            for (auto& each : runners)
                each->issue();
        });
        cluster.launch(step);
        cluster.finish();
        for (const auto& m : models)
            CHECK(m->complaint() == "");
        CHECK(models.front()->weights() == programs[rank{0}].microbatches);
    }
    CHECK(streamed::lines(fake_cuda::complaints()) == "");
    CHECK(fake_cuda::alive() == fake_cuda::census{});
}

TEST_CASE("a map of devices has one for each rank") {
    fake_cuda::reset({.devices = 2});
    CHECK_THROWS_WITH(cuda::cluster(3, {.devices = {0, 1}}), "cuda: 3 ranks, and devices for 2");
}

} // namespace
