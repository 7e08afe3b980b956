// A transformer that is trained by processes has the gradients, and the losses, that it has without a pipeline.
#include "../../examples/language_model/pipeline_model.hpp"
#include "mpi/support/world.hpp"
#include "optpipe/execution/mpi/run.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/lower.hpp"
#include "schedule/compiled/for_each_schedule.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

using namespace language_model;
using namespace std::chrono_literals;
namespace mpi = optpipe::mpi;

namespace {

const std::string text =
    "a schedule is an order; times are derived. what runs is the order of each lane, and no lane waits "
    "for more than it has to; what is stashed is freed, what travels comes back.";
constexpr shape tiny{.hidden = 8, .heads = 2, .sequence = 6, .sequences = 2, .vocabulary = 128};
constexpr std::size_t layers = 8;

using stages_type = std::vector<model_stage<double>>;

stages_type stages_of(std::size_t count) { return make_stages<double>(tiny, layers, count, 7); }

/// One step of this process's stages by a schedule, in exactly the memory that its program names.
void step(stages_type& stages, const optpipe::problem& p, const optpipe::schedule& s) {
    const auto programs = lower(p, s,
                                {.bytes_per_unit = 1.0,
                                 .alignment = alignof(double),
                                 .message_bytes = sizeof(double) * stages.front().boundary(),
                                 .placement = optpipe::part_placement::contiguous});
    REQUIRE(programs.has_value());
    const auto& mine = (*programs)[world::self().position()];
    mpi::options how{.patience = 60s, .device_memory = mine.device_bytes + mine.message_bytes, .record_times = true};
    mpi::member here{MPI_COMM_WORLD, how};
    pipeline_model<double> model{stages, text, tiny, p.graph.microbatches()};
    const auto ran = mpi::run(*programs, here, model);
    const auto most = high_water(ran, optpipe::memory_arena::device);
    CHECK(most <= mine.device_bytes);
    // Without transfers, the order of one lane alone decides.
    const auto planned = measure(p, s);
    if (planned.offloads == 0) CHECK(static_cast<double>(most) == planned.peak_memory[mine.self].value());
}

/// Whether the gradients of this process's stages are those of the model without a pipeline, bit for bit.
void compare(const optpipe::problem& p, const optpipe::schedule& s) {
    auto alone = stages_of(p.graph.stages());
    unpipelined_step(alone, text_step{text, tiny, p.graph.microbatches(), 0}, p.graph.microbatches());
    auto piped = stages_of(p.graph.stages());
    step(piped, p, s);
    for (const optpipe::stage at : p.graph.all_stages()) {
        if (p.rank_of(at) != world::self()) continue;
        const auto is = piped[at.position()].gradients();
        const auto was = alone[at.position()].gradients();
        CHECK(std::vector<double>(is.begin(), is.end()) == std::vector<double>(was.begin(), was.end()));
    }
}

/// Every builder that has a schedule for the problem: how many, and the stashes that travel in all.
struct tried {
    std::size_t builders = 0;
    std::size_t offloads = 0;
};
tried try_builders(const optpipe::problem& p) {
    tried all;
    std::string names;
    compiled::for_each_schedule(p, [&](const std::string& method, const optpipe::schedule& s) {
        CAPTURE(method);
        ++all.builders;
        all.offloads += measure(p, s).offloads;
        names += ' ' + method;
        compare(p, s);
    });
    if (world::self() == optpipe::rank{0}) MESSAGE(all.builders << " builders:" << names);
    return all;
}

/// Without a limit of memory, on the processes that there are.
template <class Placement>
optpipe::problem problem_on(const Placement& where, std::optional<optpipe::duration> transfer = std::nullopt) {
    using optpipe::dynamic;
    const optpipe::graph<dynamic, dynamic, Placement> graph{world::ranks(), 2 * world::ranks(), where};
    return problem_of(stages_of(graph.stages()), to_any_graph(graph), transfer);
}

} // namespace

TEST_CASE("with a stage per process") {
    CHECK(try_builders(problem_on(optpipe::placement::linear{}, optpipe::duration{0.8})).builders >= 10);
}
TEST_CASE("with two, one after the other") {
    CHECK(try_builders(problem_on(optpipe::placement::loop<2>{}, optpipe::duration{0.8})).builders >= 6);
}
TEST_CASE("with two, there and back") { CHECK(try_builders(problem_on(optpipe::placement::v{})).builders >= 5); }
TEST_CASE("in half the memory of 1F1B, with stashes that travel") {
    auto p = problem_on(optpipe::placement::linear{}, optpipe::duration{0.8});
    const auto ranks = static_cast<double>(world::ranks());
    for (const auto r : p.graph.all_ranks())
        p.memory_limit[r] = 0.5 * ranks * p.costs[optpipe::stage{r.position()}].activation;
    const auto all = try_builders(p);
    CHECK(all.builders >= 1);
    if (world::ranks() > 2) CHECK(all.offloads > 0);
}
