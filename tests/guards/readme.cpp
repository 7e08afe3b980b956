// The context of the examples in README and other pages, which readers must imagine (readme.cmake).
#include "includes.inc"

#include <optpipe/testing/executor_model.hpp>

#include <chrono>
#include <cstddef>
#include <vector>

static_assert(EXAMPLES == 6, "each example needs its surroundings below");

namespace whole_program {
#include "example_1.inc"
}

void own_loop() {
    using namespace optpipe;
    constexpr std::size_t ranks = 4;
    constexpr std::size_t microbatches = 8;
    const bounded_vector<duration, dynamic> hops{};
#include "example_2.inc"
}

namespace policies {
using namespace optpipe;
#include "example_3.inc"
} // namespace policies

using my_stages = optpipe::testing::tracing_model;

void run_on_threads(const optpipe::problem& p, const optpipe::schedule& schedule, std::vector<my_stages>& stages,
                    std::size_t steps) {
    using namespace optpipe;
#include "example_4.inc"
}

void train(const optpipe::problem& p, const optpipe::schedule& first, optpipe::threads::executor& executor,
           my_stages& model, optpipe::threads::control_channel& channel, const optpipe::lowering_options& lowering,
           std::size_t steps) {
    using namespace optpipe;
    using namespace std::chrono_literals;
#include "example_5.inc"
}

void solver() {
#include "example_6.inc"
}
