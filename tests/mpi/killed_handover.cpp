// One of the processes is killed in the middle of a handover. The others hear of it in time, and name it. The launcher
// must leave them alone meanwhile.
//
//     killed_handover (published | ready | boundary | taken) RANK
//
// published: while it makes its program; ready: in the step at whose end all would take it; boundary: before it knows
// that all are ready; taken: after it took the program.
#include "execution/handovers.hpp"
#include "mpi/support/survivors.hpp"
#include "mpi/support/world.hpp"
#include "optpipe/execution/handover.hpp"
#include "optpipe/execution/mpi/executor.hpp"
#include "optpipe/testing/executor_model.hpp"

#include <mpi.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace {

using namespace std::chrono_literals;
using optpipe::rank;

/// The channel of a rank that is killed when it would hear that all are ready.
class killing_channel {
public:
    killing_channel(optpipe::threads::control_channel& by, bool kills) : by_{by}, kills_{kills} {}
    [[nodiscard]] rank self() const { return by_.self(); }
    [[nodiscard]] std::size_t ranks() const { return by_.ranks(); }
    void publish(std::string_view text) { by_.publish(text); }
    [[nodiscard]] std::optional<std::string> next_published() { return by_.next_published(); }
    void report(std::string_view text) { by_.report(text); }
    [[nodiscard]] std::optional<optpipe::execution::rank_text> next_report() { return by_.next_report(); }
    void begin_minimum(std::uint64_t value) {
        is_ready_ = value > 1; // for the first plan
        by_.begin_minimum(value);
    }
    [[nodiscard]] std::uint64_t minimum() {
        if (kills_ && is_ready_) std::raise(SIGKILL);
        return by_.minimum();
    }
    void cancel(std::string_view what_it_did, std::string_view reason) { by_.cancel(what_it_did, reason); }

private:
    optpipe::threads::control_channel& by_;
    bool kills_;
    bool is_ready_ = false;
};

/// Runs until a process is killed. Returns the text of the error that is thrown then.
std::string run_until(std::string_view stage, rank victim, optpipe::mpi::session& session) {
    const auto plans = handovers::plans(world::ranks());
    const bool is_victim = world::self() == victim;
    const auto make = [&](const std::string&) {
        if (is_victim && stage == "published") std::raise(SIGKILL);
        return plans[4];
    };
    std::function<bool()> is_ready = [] { return false; };
    const auto spend = [&](const optpipe::operation&) {
        if (is_victim && stage == "ready" && is_ready()) std::raise(SIGKILL);
    };
    try {
        optpipe::mpi::member here{session, {.patience = 1500ms}};
        optpipe::testing::tracing_model model{world::ranks(), spend};
        killing_channel channel{here.control(), is_victim && stage == "boundary"};
        optpipe::handover run{plans[0][world::self()],
                              here.executor(),
                              model,
                              channel,
                              optpipe::program_maker{make},
                              handovers::room_for(plans, world::self())};
        is_ready = [&] { return run.is_ready(); };
        if (world::self() == rank{0}) run.publish("the plan");
        while (true) {
            run.step();
            if (is_victim && stage == "taken" && run.version() == 1) std::raise(SIGKILL);
        }
    } catch (const optpipe::error& e) {
        return e.what();
    }
}

} // namespace

int main(int, char** arguments) {
    const rank victim{std::atoi(arguments[2])};
    const rank first{victim == rank{0} ? 1 : 0};
    optpipe::mpi::session session;
    const auto said = survivors::collect(run_until(arguments[1], victim, session), victim, first);
    if (world::self() != first) {
        std::this_thread::sleep_for(100ms); // a process that ends may take the others along
        return 0;
    }
    bool right = said.size() + 1 == world::ranks();
    for (const auto& text : said) {
        std::cout << text << '\n';
        right = right && text.starts_with("rank ") &&
                text.ends_with("; no answer from rank " + std::to_string(victim.value()));
    }
    std::cout << (right ? "the survivors know" : "that isn't right") << std::endl;
}
