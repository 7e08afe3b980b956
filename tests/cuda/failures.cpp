// A fault on one virtual rank ends the run on all ranks, with one error that names rank and operation.
#include "cuda/streamed.hpp"
#include "fakes/cuda.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/run.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using optpipe::per_rank;
using optpipe::rank;
using optpipe::rank_program;
namespace cuda = optpipe::cuda;

namespace {

struct outcome {
    /// The reason if no rank could be made.
    std::string nothing_began;
    /// The error of each rank, in the step or, if it had finished by then, at its next query.
    std::vector<std::string> errors;
};

/// Loads a program and runs its step.
std::string load_and_run(const rank_program& p, cuda::executor& on, std::barrier<>& everybody_is_through) {
    streamed::model model{p.stages};
    std::string text;
    try {
        optpipe::runner<cuda::executor, streamed::model> runs{p, on, model};
        try {
            runs.step();
        } catch (const optpipe::execution_error& e) {
            text = e.what();
        }
        everybody_is_through.arrive_and_wait();
    } catch (const optpipe::execution_error& e) {
        text = e.what();
        everybody_is_through.arrive_and_wait();
    }
    if (!text.empty()) return text;
    try {
        on.finish();
    } catch (const optpipe::execution_error& e) {
        text = e.what();
    }
    return text;
}

outcome run(const per_rank<rank_program>& programs, std::chrono::milliseconds patience, bool record_times = false) {
    outcome result{"", std::vector<std::string>(programs.size())};
    try {
        cuda::cluster cluster{programs.size(), {.patience = patience, .record_times = record_times}};
        std::barrier everybody_is_through{static_cast<std::ptrdiff_t>(programs.size())};
        std::vector<std::jthread> ranks;
        for (const auto& p : programs)
            ranks.emplace_back(
                [&] { result.errors[p.self.position()] = load_and_run(p, cluster[p.self], everybody_is_through); });
    } catch (const cuda::error& e) {
        result.nothing_began = e.what();
    }
    return result;
}

/// Checks that all ranks got the same error, which begins with a rank and an operation and ends with the reason.
void check_all_say(const std::vector<std::string>& errors, const std::string& reason) {
    for (const auto& error : errors) {
        INFO(error);
        CHECK(error == errors.front());
        CHECK(error.starts_with("rank "));
        const auto operation = error.find(", ");
        const auto colon = error.find(": ");
        REQUIRE(colon != std::string::npos);
        CHECK(operation + 3 < colon);
        CHECK(error.substr(colon + 2) == reason);
    }
}

/// Checks that nothing is left at the end.
void check_nothing_is_left() {
    CHECK(fake_cuda::complaints() == std::vector<std::string>{});
    CHECK(fake_cuda::alive() == fake_cuda::census{});
}

/// The first numbers, the last, and some in between.
std::set<std::size_t> sample(std::size_t count) {
    std::set<std::size_t> numbers{1, 2, count};
    for (std::size_t n = 1; n < count; n += std::max<std::size_t>(1, count / 5))
        numbers.insert(n);
    numbers.erase(numbers.upper_bound(count), numbers.end());
    return numbers;
}

/// The functions that a run calls, and their numbers of calls. A failed release can't keep a run from its end.
struct call_counts {
    std::string name;
    std::size_t count = 0;
    [[nodiscard]] bool gives_back() const {
        return name == "cudaStreamDestroy" || name == "cudaEventDestroy" || name == "cudaFree" ||
               name == "cudaHostUnregister" || name == "cudaSetDevice";
    }
};
std::vector<call_counts> calls_of(const per_rank<rank_program>& programs) {
    fake_cuda::reset();
    const auto clean = run(programs, 20s);
    REQUIRE(clean.nothing_began == "");
    REQUIRE(clean.errors == std::vector<std::string>(programs.size()));
    const auto log = fake_cuda::calls();
    std::vector<call_counts> result;
    for (const auto& name : std::set<std::string>{log.begin(), log.end()})
        result.push_back({name, fake_cuda::count(name)});
    return result;
}

TEST_CASE("every function of CUDA may fail at any time: all ranks say where, none hangs, nothing is left") {
    const auto programs = streamed::offloading_programs();
    const auto all = calls_of(programs);
    CHECK(all.size() >= 16);
    std::size_t failures = 0;
    for (const auto& call : all)
        for (const auto number : sample(call.count)) {
            CAPTURE(call.name);
            CAPTURE(number);
            fake_cuda::reset({.failing_call = call.name, .failing_number = number});
            const auto result = run(programs, 20s);
            const std::string reason = call.name + ": failed as the test wants it";
            if (!result.nothing_began.empty()) {
                CHECK(result.nothing_began == reason);
                ++failures;
            } else if (call.gives_back() || fake_cuda::count(call.name) < number) {
                CHECK(result.errors == std::vector<std::string>(programs.size()));
            } else {
                check_all_say(result.errors, reason);
                ++failures;
            }
            check_nothing_is_left();
        }
    MESSAGE(all.size() << " functions, " << failures << " failures");
    CHECK(failures > 60);
}

TEST_CASE("times that can't be read end the step on all ranks") {
    const auto programs = streamed::small_programs();
    for (const std::size_t number : {1U, 5U, 20U}) {
        CAPTURE(number);
        fake_cuda::reset({.failing_call = "cudaEventElapsedTime", .failing_number = number});
        const auto result = run(programs, 20s, true);
        CHECK(result.nothing_began == "");
        check_all_say(result.errors, "cudaEventElapsedTime: failed as the test wants it");
        check_nothing_is_left();
    }
}

TEST_CASE("a rank that is captured without its partners ends the run, and all say so") {
    const auto programs = streamed::small_programs();
    fake_cuda::reset();
    std::vector<std::string> errors(programs.size());
    {
        cuda::cluster cluster{programs.size(), {.patience = 20s}};
        std::deque<streamed::model> models;
        std::deque<optpipe::runner<cuda::executor, streamed::model>> runners;
        for (const auto& p : programs)
            runners.emplace_back(p, cluster[p.self], models.emplace_back(p.stages));
        CHECK_THROWS_AS(cluster[rank{0}].capture([&] { runners[0].issue(); }), optpipe::execution_error);
        std::vector<std::jthread> ranks;
        for (std::size_t r = 0; r < errors.size(); ++r)
            ranks.emplace_back([&, r] {
                try {
                    runners[r].step();
                } catch (const optpipe::execution_error& e) {
                    errors[r] = e.what();
                }
            });
    }
    check_all_say(errors, "its partner wasn't captured with it");
    check_nothing_is_left();
}

TEST_CASE("memory that isn't there") {
    const auto programs = streamed::offloading_programs();
    fake_cuda::reset({.memory = 40});
    const auto result = run(programs, 20s);
    check_all_say(result.errors, "cudaMalloc: out of memory");
    CHECK(result.errors.front().find(", loading its program: ") != std::string::npos);
    check_nothing_is_left();
}

TEST_CASE("a rank that goes after its first step is missed in the second, and all say so") {
    const auto programs = streamed::small_programs();
    fake_cuda::reset();
    std::vector<std::string> errors(3);
    {
        cuda::cluster cluster{3, {.patience = 50ms}};
        std::vector<std::jthread> ranks;
        for (const auto& p : programs)
            ranks.emplace_back([&] {
                streamed::model model{p.stages};
                try {
                    optpipe::runner<cuda::executor, streamed::model> runs{p, cluster[p.self], model};
                    runs.step();
                    if (p.self != rank{1}) runs.step();
                } catch (const optpipe::execution_error& e) {
                    errors[p.self.position()] = e.what();
                }
            });
        ranks.clear();
        CHECK(errors[1] == "");
        CHECK_THROWS_WITH(cluster[rank{1}].finish(), errors[0].c_str());
    }
    errors.erase(errors.begin() + 1);
    check_all_say(errors, "its partner didn't come within 50 ms");
    CHECK(errors.front().find("rank 1") != std::string::npos);
    check_nothing_is_left();
}

TEST_CASE("a copy that takes too long, between two ranks or to the host") {
    const auto programs = streamed::offloading_programs();
    for (const auto kind : {cudaMemcpyDeviceToDevice, cudaMemcpyDeviceToHost, cudaMemcpyHostToDevice}) {
        CAPTURE(static_cast<int>(kind));
        fake_cuda::reset({.slow_kind = kind, .slow_number = 2, .slow_for = 1s});
        const auto result = run(programs, 100ms);
        CHECK(result.nothing_began == "");
        check_all_say(result.errors, "not over after 100 ms");
        check_nothing_is_left();
    }
}

} // namespace
