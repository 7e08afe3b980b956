// A transformer that is trained by processes has the same gradients and losses as without a pipeline.
#include "language_model/mixed_training.hpp"
#include "language_model/training.hpp"
#if defined(OPTPIPE_HAS_MILP)
#include "language_model/tight_plan.hpp"
#endif
#include "mpi/support/world.hpp"
#include "optpipe/execution/mpi/run.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "oracle/random_cases.hpp"
#include "schedule/compiled/for_each_schedule.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

using namespace std::chrono_literals;
namespace mpi = optpipe::mpi;

namespace {

/// Runs one step of this process's stages by a schedule; the process holds the memory of the plan's peaks at once.
void step(training::stages_type& stages, const optpipe::problem& p, const optpipe::schedule& s,
          const training::storage_options& storage) {
    const auto programs = training::programs_of(p, s);
    const auto& mine = programs[world::self()];
    training::rank_at_peak self{p, s, mine, stages, storage};
    const auto copies = [&](optpipe::rank, const optpipe::task_label& what, std::size_t) {
        return self.gate.pass_copy(what.op);
    };
    mpi::member here{MPI_COMM_WORLD,
                     {.patience = 60s,
                      .device_memory = mine.device_bytes + mine.message_bytes,
                      .host_memory = mine.host_bytes,
                      .copies = copies,
                      .record_times = true}};
    training::check_memory(self.model, mpi::run(programs, here, self.model));
}

/// Whether the gradients of this process's stages are those of the model without a pipeline, bit for bit.
void compare(const optpipe::problem& p, const optpipe::schedule& s, const training::storage_options& storage = {}) {
    auto alone = training::step_alone(s);
    auto piped = training::fresh_stages(p.graph.stages());
    step(piped, p, s, storage);
    for (const optpipe::stage at : p.graph.all_stages()) {
        if (p.rank_of(at) != world::self()) continue;
        const auto is = piped[at.position()].gradients();
        const auto was = alone[at.position()].gradients();
        CHECK(std::vector<double>(is.begin(), is.end()) == std::vector<double>(was.begin(), was.end()));
    }
}

/// Copies rank 0's text to all ranks: making it takes long, so one rank does it.
void share(std::string& text) {
    auto size = static_cast<int>(text.size());
    MPI_Bcast(&size, 1, MPI_INT, 0, MPI_COMM_WORLD);
    text.resize(static_cast<std::size_t>(size));
    MPI_Bcast(text.data(), size, MPI_CHAR, 0, MPI_COMM_WORLD);
}
void share(std::vector<optpipe::timed_operation>& operations) {
    static_assert(std::is_trivially_copyable_v<optpipe::timed_operation>);
    auto bytes = static_cast<int>(operations.size() * sizeof(optpipe::timed_operation));
    MPI_Bcast(&bytes, 1, MPI_INT, 0, MPI_COMM_WORLD);
    operations.resize(static_cast<std::size_t>(bytes) / sizeof(optpipe::timed_operation));
    MPI_Bcast(operations.data(), bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

struct named_schedule {
    std::string method;
    optpipe::schedule schedule;
};
/// The schedules that the builders make for the problem.
std::vector<named_schedule> built(const optpipe::problem& p) {
    std::vector<named_schedule> all;
    if (world::self() == optpipe::rank{0})
        compiled::for_each_schedule(p, [&](const std::string& method, const optpipe::schedule& s) {
            all.push_back({method, s});
        });
    auto count = static_cast<int>(all.size());
    MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    all.resize(static_cast<std::size_t>(count), {{}, {p.graph, {}}});
    for (auto& [method, schedule] : all) {
        share(method);
        share(schedule.operations);
    }
    return all;
}

/// Eight processes share a few cores: everything that four run would take them 18 s on two cores, twice as long as now.
bool is_crowded() { return world::ranks() >= 8; }
/// Under the sanitizers, and with eight processes, only some schedules are run.
std::size_t run_one_in() { return is_crowded() ? 3 : oracle::stride(6); }

/// The number of builders that have a schedule for the problem, and of offloaded stashes in total.
struct tried {
    std::size_t builders = 0;
    std::size_t offloads = 0;
};
tried try_builders(const optpipe::problem& p) {
    tried all;
    std::string names;
    for (const auto& each : built(p)) {
        CAPTURE(each.method);
        all.offloads += measure(p, each.schedule).offloads;
        if (all.builders++ % run_one_in() != 0) continue;
        names += ' ' + each.method;
        compare(p, each.schedule);
    }
    if (world::self() == optpipe::rank{0}) MESSAGE(all.builders << " builders; run:" << names);
    return all;
}

/// A problem for all processes, without a limit of memory.
template <class Placement> optpipe::problem problem_on(std::optional<optpipe::duration> transfer = std::nullopt) {
    return training::problem_with<Placement>(world::ranks(), 2 * world::ranks(), transfer);
}

} // namespace

TEST_CASE("with a stage per process") {
    CHECK(try_builders(problem_on<optpipe::placement::linear>(optpipe::duration{0.8})).builders >= 10);
}
TEST_CASE("with two, one after the other") {
    CHECK(try_builders(problem_on<optpipe::placement::loop<2>>(optpipe::duration{0.8})).builders >= 6);
}
TEST_CASE("with two, there and back") { CHECK(try_builders(problem_on<optpipe::placement::v>()).builders >= 5); }
TEST_CASE("in half the memory of 1F1B, with offloaded stashes") {
    auto p = problem_on<optpipe::placement::linear>(optpipe::duration{0.8});
    training::limit_stashes(p, 0.5 * static_cast<double>(world::ranks()));
    const auto all = try_builders(p);
    CHECK(all.builders >= 1);
    if (world::ranks() > 2) CHECK(all.offloads > 0);
}

TEST_CASE("with a mix of recomputations and offloads") {
    const auto& storage = training::all_storage;
    const auto ranks = world::ranks();
    const auto linear = training::stored_problem<optpipe::placement::linear>(ranks, 2 * ranks, storage);
    const auto v = training::stored_problem<optpipe::placement::v>(ranks, 2 * ranks, storage);
    const std::uint64_t mixes = is_crowded() ? 1 : 3;
    for (std::uint64_t seed = 1; seed <= mixes; ++seed) {
        CAPTURE(seed);
        const auto mix = [&](const optpipe::problem& p, const auto& build) {
            const auto [tight, s] = training::mixed_schedule(p, build, seed); // the same on all ranks
            compare(tight, s, storage);
        };
        mix(linear, optpipe::one_forward_one_backward);
        mix(linear, optpipe::zero_bubble_h1);
        mix(v, optpipe::gpipe);
    }
}

#if defined(OPTPIPE_HAS_MILP)

TEST_CASE("by the best plan that is found, with offloading") {
    const auto p = training::tight_problem(world::ranks());
    optpipe::schedule planned{p.graph, {}};
    if (world::self() == optpipe::rank{0}) planned = training::plan_of(p).schedule;
    share(planned.operations);
    compare(p, planned);
}

#endif
