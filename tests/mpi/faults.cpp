// A fault on one process soon ends the run on all of them, with one error that names rank and operation. All can go on
// with a new member.
#include "execution/offloading.hpp"
#include "mpi/support/world.hpp"
#include "optpipe/execution/mpi/run.hpp"
#include "optpipe/testing/executor_model.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using optpipe::microbatch;
using optpipe::operation;
using optpipe::per_rank;
using optpipe::rank;
using optpipe::rank_program;
using optpipe::stage;
using optpipe::execution::receive_of;
using optpipe::execution::send_of;
using optpipe::testing::tracing_model;
namespace mpi = optpipe::mpi;

constexpr auto patience = 1500ms;

struct fixture {
    per_rank<rank_program> programs = offloading::programs(world::ranks());

    /// The error on each rank; empty if nothing went wrong.
    std::vector<std::string> errors_with(const mpi::options& how, const tracing_model::spend_time& spend = {}) {
        std::string mine;
        try {
            mpi::member here{MPI_COMM_WORLD, how};
            tracing_model model{programs[rank{0}].stages, spend};
            optpipe::run(programs[world::self()], here.executor(), model);
        } catch (const optpipe::error& e) {
            mine = e.what();
        }
        return world::collect(mine);
    }
    /// Removes this message from its sender's program.
    void lose(const operation& message) {
        for (auto& program : programs)
            for (auto& now : program.instructions) {
                if (now.kind != optpipe::instruction_kind::exchange || now.parts != 1) continue;
                const auto& part = program.parts[now.first_part];
                if (is_same_work(part.message, message) && part.side == optpipe::exchange_part::side_kind::send)
                    now.parts = 0;
            }
    }
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// All ranks got the same error, which contains all of these texts.
void all_say(const std::vector<std::string>& errors, const std::vector<std::string>& parts) {
    for (const auto& e : errors) {
        CAPTURE(e);
        CHECK(e == errors[0]);
        for (const auto& part : parts)
            CHECK(contains(e, part));
        CHECK(!contains(e, "no answer"));
        CHECK(!contains(e, "under way"));
    }
}

TEST_CASE_FIXTURE(fixture, "without faults") {
    for (int i = 0; i < 3; ++i)
        for (const auto& e : errors_with({.patience = 20s}))
            CHECK(e == "");
}

TEST_CASE_FIXTURE(fixture, "an exception in a stage, on any rank") {
    for (const rank bad : optpipe::index_range<rank>{world::ranks()}) {
        const auto spend = [&](const operation& op) {
            if (op == forward(stage{bad.value()}, microbatch{5})) throw std::runtime_error{"division by zero"};
        };
        const auto name = std::to_string(bad.value());
        all_say(errors_with({.patience = 20s}, spend), {"rank " + name + ", " + name + "F5: division by zero"});
    }
}

TEST_CASE_FIXTURE(fixture, "exceptions on all ranks at once: all hear of one of them") {
    const auto spend = [&](const operation& op) {
        if (op.kind == optpipe::operation_kind::forward) throw std::runtime_error{"out of luck"};
    };
    all_say(errors_with({.patience = 20s}, spend), {"0: out of luck"});
}

TEST_CASE_FIXTURE(fixture, "an exception beside the program") {
    std::string mine;
    try {
        mpi::member here{MPI_COMM_WORLD, {.patience = 20s}};
        if (here.executor().self() == rank{1}) throw std::runtime_error{"of my own"};
        tracing_model model{programs[rank{0}].stages};
        mpi::run(programs, here, model);
    } catch (const std::exception& e) {
        mine = e.what();
    }
    auto errors = world::collect(mine);
    CHECK(errors[1] == "of my own");
    errors.erase(errors.begin() + 1);
    all_say(errors, {"rank 1, outside of operations: left by an exception"});
}

TEST_CASE_FIXTURE(fixture, "a rank that takes too long") {
    const auto spend = [&](const operation& op) {
        if (op == forward(stage{1}, microbatch{4})) std::this_thread::sleep_for(patience + 1s);
    };
    all_say(errors_with({.patience = patience}, spend),
            {"rank ", " of ", ": rank ", "hasn't come for it within 1500 ms"});
}

TEST_CASE_FIXTURE(fixture, "a message that is lost") {
    lose(forward(stage{1}, microbatch{2}));
    all_say(errors_with({.patience = 20s}), {"rank 2, receive of 1F2 from rank 1: 1F3 came where 1F2 was to come"});
}

TEST_CASE_FIXTURE(fixture, "the last of its messages is lost") {
    lose(forward(stage{1}, microbatch{7}));
    all_say(errors_with({.patience = patience}), {"hasn't come for it within 1500 ms"});
}

/// Sends one message from rank 1 to rank 2, with another number of bytes than expected. Returns rank 2's error.
std::string send_bytes(std::size_t sent, std::size_t expected) {
    const auto self = world::self();
    const auto op = forward(stage{1}, microbatch{0});
    std::vector<std::byte> data(self == rank{1} ? sent : expected);
    std::string mine;
    try {
        mpi::member here{MPI_COMM_WORLD, {.patience = 20s}};
        auto on = here.executor().open_lane(optpipe::lane_kind::communication, 8);
        using task_kind = optpipe::task_label::task_kind;
        std::vector<optpipe::execution::message_end> ends;
        if (self == rank{1}) ends.push_back(send_of({task_kind::send, op, rank{2}}, data));
        if (self == rank{2}) ends.push_back(receive_of({task_kind::receive, op, rank{1}}, data));
        here.executor().transport().exchange(on, ends);
        here.executor().finish();
    } catch (const optpipe::error& e) {
        mine = e.what();
    }
    return world::collect(mine)[2];
}

TEST_CASE("a message of another length") {
    // MPICH needs this (`mpi::error`). Only these calls run with it, because the tests don't check the results of their
    // own calls.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(send_bytes(24, 24) == "");
    CHECK(send_bytes(16, 24) == "rank 2, receive of 1F0 from rank 1: 16 bytes came where 24 were to come");
    CHECK(send_bytes(32, 24) == "rank 2, receive of 1F0 from rank 1: more bytes came where 24 were to come");
    // Too large to be sent before its receiver is ready: its buffer isn't kept when it fails.
    CHECK(send_bytes(1 << 20, 24) == "rank 2, receive of 1F0 from rank 1: more bytes came where 24 were to come");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

TEST_CASE_FIXTURE(fixture, "memory that isn't there") {
    const auto self = world::self();
    const auto& mine = programs[self];
    const auto enough = mine.device_bytes + mine.message_bytes;
    all_say(errors_with({.patience = 20s, .device_memory = self == rank{3} ? enough - 1 : enough}),
            {"rank 3, loading its program: ", "bytes on the device beside", "exceed its limit of"});
    REQUIRE(programs[rank{0}].host_bytes > 0);
    mpi::options how{.patience = 20s};
    if (self == rank{0}) how.host_memory = 0;
    all_say(errors_with(how), {"rank 0, loading its program: ", " bytes on the host beside 0 exceed its limit of 0"});
}

TEST_CASE_FIXTURE(fixture, "programs with a fault, and one too few") {
    const auto stages = programs[rank{0}].stages;
    const auto say = [&](std::span<const rank_program> given) {
        std::string mine;
        try {
            mpi::member here{MPI_COMM_WORLD, {.patience = 20s}};
            tracing_model model{stages};
            mpi::run(given, here, model);
        } catch (const optpipe::error& e) {
            mine = e.what();
        }
        return world::collect(mine);
    };
    lose(forward(stage{1}, microbatch{2}));
    all_say(say(programs), {"programs: ", "1F2"});
    programs = offloading::programs(world::ranks());
    all_say(say(std::span<const rank_program>{programs}.first(programs.size() - 1)), {"programs: "});
    all_say(say({}), {"another number of programs than of ranks"});
}

TEST_CASE_FIXTURE(fixture, "a rank that doesn't come") {
    std::string mine;
    // On a communicator of its own: once a copy has begun, it is retried until all have joined.
    MPI_Comm among = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &among);
    if (world::self() == rank{3}) {
        MPI_Barrier(MPI_COMM_WORLD);
    } else {
        try {
            const mpi::member here{among, {.patience = 200ms}};
        } catch (const mpi::timeout_error& e) {
            mine = e.what();
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    const auto errors = world::collect(mine);
    CHECK(errors[1] == "mpi: rank 1 of " + std::to_string(world::ranks()) + " waited 200 ms for the others to come");
    CHECK(errors[3] == "");
}

TEST_CASE_FIXTURE(fixture, "after all that, as if nothing had been") {
    for (const auto& e : errors_with({.patience = 20s}))
        CHECK(e == "");
}

} // namespace
