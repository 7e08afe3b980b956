// A plan replaces another on ranks whose messages go by NCCL and whose handover goes by a control channel.
#include "optpipe/execution/handover.hpp"

#include "cuda/streamed.hpp"
#include "execution/check_handovers.hpp"
#include "execution/free_port.hpp"
#include "execution/handovers.hpp"
#include "fakes/cuda.hpp"
#include "fakes/nccl.hpp"
#include "nccl/joined.hpp"
#include "optpipe/execution/bootstrap/tcp_control.hpp"
#include "optpipe/execution/nccl/executor.hpp"
#include "optpipe/execution/run.hpp"
#if defined(OPTPIPE_HAS_MILP) && defined(OPTPIPE_HAS_JSON)
#include "optpipe/online/online_run.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#endif

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using optpipe::rank;
namespace cuda = optpipe::cuda;
namespace nccl = optpipe::nccl;

namespace {

using programs_type = optpipe::per_rank<optpipe::rank_program>;
using channel_type = optpipe::threads::control_channel;

constexpr auto patience = 60s;

/// Calls `body(executor, channel)` for every rank, each on a thread and a device of its own. Its control channel goes
/// over TCP, and also reports failures. Returns each rank's error.
template <class Body>
std::vector<std::string> on_ranks(std::size_t ranks, const Body& body, bool record_times = false) {
    const auto port = tcp_ports::free_port();
    const auto id = nccl::world_id::make(nccl::communicator_layout::per_sender);
    std::vector<std::string> errors(ranks);
    std::vector<std::jthread> hosts;
    for (const rank r : optpipe::index_range<rank>{ranks})
        hosts.emplace_back([&, r] {
            try {
                optpipe::bootstrap::tcp_control control{"127.0.0.1", port, r, ranks, patience};
                auto how = joined::options_of(r, patience);
                how.record_times = record_times;
                how.failures = &control;
                nccl::member here{id, r, ranks, how};
                body(here.executor(), control.channel());
            } catch (const std::exception& e) {
                errors[r.position()] = e.what();
            }
        });
    hosts.clear();
    return errors;
}

void reset(const fake_cuda::settings& how = {}) {
    fake_cuda::reset(how);
    fake_nccl::reset();
}
void check_nothing_is_left() {
    CHECK(streamed::lines(fake_nccl::complaints()) == "");
    CHECK(fake_cuda::alive() == fake_cuda::census{});
    CHECK(fake_nccl::alive() == 0);
}

void run_handovers(std::size_t ranks, std::size_t wanted, std::uint64_t seed) {
    const auto plans = handovers::plans(ranks);
    std::vector<handovers::record> seen(ranks);
    std::vector<std::string> complaints(ranks);
    const auto errors = on_ranks(ranks, [&](cuda::executor& here, channel_type& channel) {
        const auto r = here.self().position();
        streamed::model model{ranks};
        seen[r] = handovers::run_rank(here, channel, model, plans, wanted, seed);
        complaints[r] = model.complaint();
    });
    CHECK(errors == std::vector<std::string>(ranks));
    CHECK(complaints == std::vector<std::string>(ranks));
    handovers::check(seen, wanted);
    check_nothing_is_left();
}

TEST_CASE("random handovers over NCCL: all ranks exchange their programs between the same steps, or none does") {
    for (const auto ranks : {std::size_t{2}, std::size_t{4}}) {
        CAPTURE(ranks);
        reset({.seed = ranks});
        run_handovers(ranks, 40, ranks);
    }
}

TEST_CASE("nothing that one program leaves on the device is in the way of the next") {
    reset({.log_accesses = true});
    run_handovers(2, 20, 5);
    CHECK(streamed::lines(fake_cuda::races()) == "");
}

TEST_CASE("captured steps are of the programs that ran when they were captured") {
    constexpr std::size_t more = handovers::microbatches;
    constexpr std::size_t fewer = more / 2;
    for (const auto ranks : {std::size_t{2}, std::size_t{4}}) {
        CAPTURE(ranks);
        reset({.seed = ranks});
        // The first plan offloads stashes. The other has fewer microbatches, which distinguishes the two.
        const auto first = handovers::plans(ranks, more).front();
        const auto other = handovers::plans(ranks, fewer).back();
        std::vector<std::vector<std::size_t>> weights(ranks);
        std::vector<std::string> complaints(ranks);
        const auto errors = on_ranks(ranks, [&](cuda::executor& here, channel_type&) {
            const auto r = here.self();
            streamed::model model{ranks};
            optpipe::runner<cuda::executor, streamed::model> run{first[r], here, model,
                                                                 handovers::room_for({first, other}, r)};
            const auto issue = [&] { run.issue(); };
            const auto launch = [&](cuda::step_graph which) {
                here.launch(which);
                here.finish();
                weights[r.position()].push_back(model.weights());
            };
            const auto before = here.capture(issue);
            launch(before);
            const auto old = run.replace(run.load(run.bind(other[r])));
            const auto after = here.capture(issue);
            launch(after);
            launch(before);
            run.step();
            launch(after);
            complaints[r.position()] = model.complaint();
        });
        CHECK(errors == std::vector<std::string>(ranks));
        CHECK(complaints == std::vector<std::string>(ranks));
        const std::vector<std::size_t> expected{more, more + fewer, 2 * more + fewer, 2 * more + 3 * fewer};
        CHECK(weights == std::vector<std::vector<std::size_t>>(ranks, expected));
        check_nothing_is_left();
    }
}

/// Fails at one stage once the flag is set.
class failing_model : public streamed::model {
public:
    failing_model(std::size_t stages, const std::atomic<bool>& fails) : streamed::model{stages}, fails_{fails} {}
    void forward(cuda::lane& on, const optpipe::execution::forward_task& t) {
        if (fails_.load() && t.stage == optpipe::stage{1}) throw std::runtime_error{"division by zero"};
        streamed::model::forward(on, t);
    }

private:
    const std::atomic<bool>& fails_;
};

TEST_CASE("a stage that fails during a handover over NCCL ends it on all ranks, with its error") {
    for (const auto ranks : {std::size_t{2}, std::size_t{4}}) {
        CAPTURE(ranks);
        reset();
        const auto plans = handovers::plans(ranks);
        std::atomic<bool> fails{false};
        const auto errors = on_ranks(ranks, [&](cuda::executor& here, channel_type& channel) {
            const auto r = here.self();
            failing_model model{ranks, fails};
            const auto make = [&](const std::string&) -> programs_type {
                fails.store(true);
                return plans.back();
            };
            optpipe::handover run{plans.front()[r], here, model, channel, optpipe::program_maker{make}};
            if (r == rank{0}) run.publish("the plan");
            while (true)
                run.step();
        });
        CHECK(errors[1].find("division by zero") != std::string::npos);
        CHECK(errors == std::vector<std::string>(ranks, errors[1]));
        check_nothing_is_left();
    }
}

#if defined(OPTPIPE_HAS_MILP) && defined(OPTPIPE_HAS_JSON)

TEST_CASE("training over NCCL that measures itself takes a better plan, between the same steps on all ranks") {
    constexpr std::size_t most_steps = 5000; // far more than any machine needs
    constexpr std::size_t steps_after = 10;
    const optpipe::duration unit{1};
    const optpipe::stage_costs costs{unit, unit, unit, optpipe::memory_size{1}, optpipe::memory_size{0.5}, {}};
    // All steps are measured, but no costs are taken from them: times of a fake device say nothing.
    optpipe::online_options options;
    options.costs_are_measured = true;
    options.measure_every = 1;
    options.window = 2 * most_steps;
    options.calm_steps = 1;
    for (const auto ranks : {std::size_t{2}, std::size_t{4}}) {
        CAPTURE(ranks);
        reset({.seed = ranks});
        using optpipe::dynamic;
        const auto p = to_problem(make_problem(optpipe::graph<dynamic, dynamic>{ranks, handovers::microbatches},
                                               optpipe::uniform_memory{costs}));
        const auto first = build_schedule(p, optpipe::gpipe);
        REQUIRE(first);
        std::vector<std::vector<std::uint64_t>> versions(ranks);
        std::vector<std::string> complaints(ranks);
        std::vector<std::size_t> weights(ranks);
        const auto train = [&](cuda::executor& here, channel_type& channel) {
            const auto r = here.self().position();
            streamed::model model{ranks};
            optpipe::online_run run{
                p, *first, here, model, channel, {{.bytes_per_unit = 64.0, .message_bytes = 24}, 100us}, options};
            for (std::size_t end = most_steps; run.steps() < end;) {
                versions[r].push_back(run.version());
                run.step();
                if (end == most_steps && run.version() > 0) end = run.steps() + steps_after;
            }
            complaints[r] = model.complaint();
            weights[r] = model.weights();
        };
        CHECK(on_ranks(ranks, train, true) == std::vector<std::string>(ranks));
        CHECK(complaints == std::vector<std::string>(ranks));
        CHECK(versions[0].back() > 0);
        CHECK(versions == std::vector<std::vector<std::uint64_t>>(ranks, versions[0]));
        CHECK(weights == std::vector<std::size_t>(ranks, versions[0].size() * handovers::microbatches));
        MESSAGE(versions[0].size() << " steps");
        check_nothing_is_left();
    }
}

#endif

} // namespace
