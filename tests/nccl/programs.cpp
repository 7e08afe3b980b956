#include "cuda/streamed.hpp"
#include "fakes/cuda.hpp"
#include "fakes/nccl.hpp"
#include "nccl/joined.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

void check_nothing_is_left() {
    CHECK(streamed::lines(fake_nccl::complaints()) == "");
    CHECK(fake_cuda::alive() == fake_cuda::census{});
    CHECK(fake_nccl::alive() == 0);
    CHECK(fake_nccl::open_groups() == 0);
}

} // namespace

TEST_CASE("programs run over NCCL as planned") {
    std::size_t runs = 0;
    streamed::for_each_program(
        10, [&](const optpipe::problem& p, const optpipe::schedule&, const auto& programs, auto seed) {
            // Neighbours in a placement of any kind may be any two ranks.
            fake_cuda::reset({.seed = seed});
            fake_nccl::reset();
            const auto all = joined::run(programs, {});
            CHECK(all.errors == std::vector<std::string>(programs.size()));
            CHECK(all.complaints == std::vector<std::string>(programs.size()));
            CHECK(all.weights == 2 * p.graph.cells());
            check_nothing_is_left();
            ++runs;
        });
    CHECK(runs > 10);
}
