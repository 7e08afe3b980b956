// The context of the examples in README and other pages, which readers must imagine (readme.cmake).
#include "includes.inc"

#include <optpipe/testing/executor_model.hpp>

#include <chrono>
#include <cstddef>
#include <vector>

static_assert(EXAMPLES == 10, "each example needs its surroundings below");

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

void graph_of_stages(std::size_t microbatches, const std::vector<int>& lengths,
                     const std::vector<std::vector<int>>& lists,
                     const std::vector<std::vector<int>>& documents, double attention_share, std::size_t k) {
    using namespace optpipe;
    const stage_costs encoder, embedding, layers;
#include "example_3.inc"
#include "example_4.inc"
}

namespace policies {
using namespace optpipe;
#include "example_5.inc"
} // namespace policies

using my_stages = optpipe::testing::tracing_model;

void run_on_threads(const optpipe::problem& p, const optpipe::schedule& schedule, std::vector<my_stages>& stages,
                    std::size_t steps) {
    using namespace optpipe;
#include "example_6.inc"
}

void train(const optpipe::problem& p, const optpipe::schedule& first, optpipe::threads::executor& executor,
           my_stages& model, optpipe::threads::control_channel& channel, const optpipe::lowering_options& lowering,
           std::size_t steps) {
    using namespace optpipe;
    using namespace std::chrono_literals;
#include "example_7.inc"
}

void plan_each_step(const optpipe::schedule& first, const optpipe::problem& next) {
    using namespace optpipe;
#include "example_8.inc"
}

void solver() {
#include "example_9.inc"
}

void adopt(std::size_t mine) {
    using namespace optpipe;
#include "example_10.inc"
}
