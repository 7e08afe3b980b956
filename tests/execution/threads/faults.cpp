// A fault on one rank soon ends the run on all ranks, with one error that names rank and operation.
#include "execution/offloading.hpp"
#include "optpipe/execution/threads/run.hpp"
#include "optpipe/testing/executor_model.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using optpipe::microbatch;
using optpipe::per_rank;
using optpipe::rank;
using optpipe::rank_program;
using optpipe::stage;
using optpipe::testing::tracing_model;
namespace threads = optpipe::threads;

constexpr auto patience = 300ms;

struct fixture {
    per_rank<rank_program> programs = offloading::programs();

    /// The error of each rank; empty if there was none.
    std::vector<std::string> errors_with(const threads::options& how, const tracing_model::spend_time& spend = {}) {
        threads::cluster cluster{programs.size(), how};
        std::vector<std::string> errors(programs.size());
        std::vector<std::thread> hosts;
        for (const rank r : optpipe::index_range<rank>{programs.size()})
            hosts.emplace_back([&, r] {
                try {
                    tracing_model model{programs[rank{0}].stages, spend};
                    run(programs[r], cluster[r], model);
                } catch (const optpipe::error& e) {
                    errors[r.position()] = e.what();
                }
            });
        for (auto& h : hosts)
            h.join();
        return errors;
    }
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Checks that all ranks got the same error, which contains all of these.
void all_say(const std::vector<std::string>& errors, const std::vector<std::string>& parts) {
    for (const auto& e : errors) {
        CAPTURE(e);
        CHECK(e == errors[0]);
        for (const auto& part : parts)
            CHECK(contains(e, part));
    }
}

TEST_CASE_FIXTURE(fixture, "without faults") {
    for (const auto& e : errors_with({.patience = 20s}))
        CHECK(e == "");
}

TEST_CASE_FIXTURE(fixture, "an exception in a stage") {
    const auto spend = [](const optpipe::operation& op) {
        if (op == backward_input(stage{2}, microbatch{3}) || op == backward(stage{2}, microbatch{3}))
            throw std::runtime_error{"division by zero"};
    };
    all_say(errors_with({.patience = 20s}, spend), {"rank 2, 2", "3: division by zero"});
}

TEST_CASE_FIXTURE(fixture, "a rank that falls silent") {
    threads::options how{.patience = patience};
    how.faults.silent_at = forward(stage{1}, microbatch{4});
    auto errors = errors_with(how);
    // It isn't asked, but would report the same.
    CHECK(contains(errors[1], "1F4"));
    errors.erase(errors.begin() + 1);
    all_say(errors, {"rank ", " of ", "hasn't come for it within 300 ms"});
}

TEST_CASE_FIXTURE(fixture, "a message that is lost") {
    threads::options how{.patience = patience};
    how.faults.lost_message = forward(stage{1}, microbatch{7});
    all_say(errors_with(how), {"hasn't come for it within 300 ms"});
    how.faults.lost_message = forward(stage{1}, microbatch{2});
    all_say(errors_with(how), {"rank 2, receive of 1F2 from rank 1: 1F3 came where 1F2 was to come"});
}

TEST_CASE_FIXTURE(fixture, "a link that takes too long") {
    threads::options how{.patience = patience};
    how.messages = [](rank from, const optpipe::task_label& sent, std::size_t) -> threads::nanoseconds {
        return from == rank{1} && sent.peer == rank{2} ? 1h : 0ns;
    };
    // The wait for a message that is an hour away ends with the failure: this test has ten minutes.
    all_say(errors_with(how), {"hasn't come for it within 300 ms"});
}

TEST_CASE_FIXTURE(fixture, "a link to the host that takes too long") {
    threads::options how{.patience = patience};
    how.copies = [](rank r, const optpipe::task_label&, std::size_t) -> threads::nanoseconds {
        return r == rank{2} ? 1h : 0ns;
    };
    all_say(errors_with(how), {"rank ", " of ", "hasn't come for it within 300 ms"});
}

TEST_CASE_FIXTURE(fixture, "an exception of whoever tells how long messages and copies take") {
    threads::options how{.patience = 20s};
    how.messages = [](rank, const optpipe::task_label& sent, std::size_t) -> threads::nanoseconds {
        if (sent.peer == rank{2}) throw std::runtime_error{"no such link"};
        return 0ns;
    };
    all_say(errors_with(how), {"rank ", " of ", ": no such link"});
    how.messages = {};
    how.copies = [](rank r, const optpipe::task_label&, std::size_t) -> threads::nanoseconds {
        if (r == rank{0}) throw 1;
        return 0ns;
    };
    all_say(errors_with(how), {"rank 0, 0", ": an exception that isn't a std::exception"});
}

TEST_CASE_FIXTURE(fixture, "memory that isn't there") {
    threads::options how{.patience = 20s};
    how.device_memory = optpipe::per_rank<std::size_t>(4, std::size_t{1} << 20U);
    how.device_memory[rank{3}] = programs[rank{3}].device_bytes + programs[rank{3}].message_bytes - 1;
    all_say(errors_with(how), {"rank 3, loading its program: ", "bytes on the device beside", "exceed its limit of"});
    how.device_memory = {};
    how.host_memory = optpipe::per_rank<std::size_t>(4, std::size_t{0});
    REQUIRE(programs[rank{0}].host_bytes > 0);
    const auto errors = errors_with(how);
    all_say(errors, {"loading its program: ", " bytes on the host beside 0 exceed its limit of 0"});
}

TEST_CASE("options of another number of ranks are refused") {
    const auto error_with = [](const threads::options& how) -> std::string {
        try {
            const threads::cluster cluster{3, how};
            return "";
        } catch (const optpipe::error& e) {
            return e.what();
        }
    };
    CHECK(error_with({}) == "");
    CHECK(error_with({.device_memory = optpipe::per_rank<std::size_t>(2, std::size_t{1})}) ==
          "threads: device memory of 2 ranks, of 3");
    CHECK(error_with({.host_memory = optpipe::per_rank<std::size_t>(4, std::size_t{1})}) ==
          "threads: host memory of 4 ranks, of 3");
    CHECK(error_with({.transfer = optpipe::transfer_rules<>{2}}) == "threads: links to the host of 2 ranks, of 3");
    CHECK(error_with({.transfer = optpipe::transfer_rules<>{3}}) == "");
}

TEST_CASE("memory that the machine hasn't isn't counted as taken") {
    threads::cluster cluster{1, {.device_memory = optpipe::per_rank<std::size_t>(1, ~std::size_t{0})}};
    auto& memory = cluster[rank{0}].memory();
    CHECK_THROWS_AS(static_cast<void>(memory.device(~std::size_t{0} - 100)), optpipe::error);
    CHECK(memory.device(200).memory().size() == 200);
}

TEST_CASE_FIXTURE(fixture, "a rank whose body throws no std::exception ends the run for all") {
    threads::cluster cluster{programs.size(), {.patience = 20s}};
    const auto body = [&](threads::executor& here) {
        if (here.self() == rank{3}) throw 1;
        tracing_model model{programs[rank{0}].stages};
        run(programs[here.self()], here, model);
    };
    const std::string error = "rank 3, outside of operations: an exception that isn't a std::exception";
    CHECK_THROWS_WITH_AS(threads::on_all_ranks(cluster, body), error.c_str(), optpipe::execution_error);
}

TEST_CASE_FIXTURE(fixture, "a model that isn't ready for updates, and a program of another rank") {
    threads::cluster cluster{4};
    tracing_model model{4};
    CHECK_THROWS_AS(run(programs[rank{1}], cluster[rank{0}], model), optpipe::error);
    CHECK_THROWS_AS(cluster[rank{2}].finish(), optpipe::execution_error);
}

} // namespace
