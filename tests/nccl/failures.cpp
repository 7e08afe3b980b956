// After any failure every rank ends, says where, and leaves nothing behind.
#include "cuda/streamed.hpp"
#include "fakes/cuda.hpp"
#include "fakes/nccl.hpp"
#include "nccl/joined.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

/// A rank that has finished the first step misses the others in the second.
constexpr joined::plan impatient{.patience = 150ms, .steps = 2};

void check_nothing_is_left() {
    CHECK(streamed::lines(fake_nccl::complaints()) == "");
    CHECK(fake_cuda::alive() == fake_cuda::census{});
    CHECK(fake_nccl::alive() == 0);
    CHECK(fake_nccl::open_groups() == 0);
}

/// Each error names its rank and its operation.
void check_places(const joined::outcome& all) {
    for (std::size_t r = 0; r < all.errors.size(); ++r) {
        const auto& error = all.errors[r];
        INFO(error);
        if (error.empty()) continue;
        CHECK(error.starts_with("rank " + std::to_string(r) + ", "));
        CHECK(error.find(": ") > 8);
        CHECK(error.find(": ") != std::string::npos);
    }
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct call_count {
    std::string name;
    std::size_t count = 0;
    [[nodiscard]] bool is_nccl() const { return name.starts_with("nccl"); }
    /// A failed release of a resource can't keep a run from its end.
    [[nodiscard]] bool gives_back() const {
        return contains(name, "Destroy") || contains(name, "Abort") || name == "cudaFree" ||
               name == "cudaHostUnregister" || name == "cudaSetDevice";
    }
    void fail(std::size_t number) const {
        fake_cuda::reset({.failing_call = is_nccl() ? "" : name, .failing_number = number});
        fake_nccl::reset({.failing_call = is_nccl() ? name : "", .failing_number = number});
    }
};
std::vector<call_count> calls_of(const optpipe::per_rank<optpipe::rank_program>& programs) {
    fake_cuda::reset();
    fake_nccl::reset();
    const auto clean = joined::run(programs, {});
    REQUIRE(clean.errors == std::vector<std::string>(programs.size()));
    std::vector<call_count> all;
    const auto log = fake_cuda::calls();
    for (const auto& name : std::set<std::string>{log.begin(), log.end()})
        all.push_back({name, fake_cuda::count(name)});
    for (const auto& name : fake_nccl::called())
        all.push_back({name, fake_nccl::count(name)});
    return all;
}

} // namespace

TEST_CASE("every function of NCCL and CUDA may fail: every rank ends, says where, and leaves nothing") {
    const auto programs = streamed::offloading_programs();
    const auto all = calls_of(programs);
    CHECK(all.size() >= 24);
    std::size_t failures = 0;
    for (const auto& call : all)
        for (const auto number : std::set<std::size_t>{1, call.count / 2 + 1, call.count}) {
            CAPTURE(call.name);
            CAPTURE(number);
            call.fail(number);
            if (call.name == "ncclGetUniqueId") {
                CHECK_THROWS_WITH(joined::run(programs, impatient), "ncclGetUniqueId: failed as the test wants it");
                ++failures;
                continue;
            }
            const auto result = joined::run(programs, impatient);
            std::size_t told = 0;
            for (const auto& error : result.errors)
                told += contains(error, "failed as the test wants it") ? 1 : 0;
            const bool was_called =
                (call.is_nccl() ? fake_nccl::count(call.name) : fake_cuda::count(call.name)) >= number;
            if (was_called && !call.gives_back()) CHECK(told == 1);
            failures += told;
            check_places(result);
            check_nothing_is_left();
        }
    MESSAGE(all.size() << " functions, " << failures << " failures");
    CHECK(failures > 40);
}

TEST_CASE("a rank that goes before its first step, or its second, is missed for a message by all that wait for it") {
    for (const std::size_t steps : {0U, 1U}) {
        CAPTURE(steps);
        fake_cuda::reset();
        fake_nccl::reset();
        const auto all = joined::run(streamed::small_programs(),
                                     {.patience = 300ms, .steps = 2, .leaver = 1, .leaves_after = steps});
        check_places(all);
        CHECK(contains(all.errors[0], "rank 0, send of 0F0 to rank 1: not over after 300 ms"));
        CHECK(contains(all.errors[2], "rank 2, receive of 1F0 from rank 1: not over after 300 ms"));
        CHECK(all.errors[1] == "");
        check_nothing_is_left();
    }
}

TEST_CASE("a message that is lost is missed by its sender, its receiver, and all behind them") {
    // The first messages of a member are greetings: four of each of the three ranks.
    for (const std::size_t number : {13U, 20U, 27U}) {
        CAPTURE(number);
        fake_cuda::reset();
        fake_nccl::reset({.lost_message = number});
        const auto all = joined::run(streamed::small_programs(), impatient);
        check_places(all);
        for (const auto& error : all.errors)
            CHECK(contains(error, "not over after 150 ms"));
        check_nothing_is_left();
    }
}

TEST_CASE("a link to the host that takes too long ends the run on every rank") {
    fake_nccl::reset();
    fake_cuda::reset({.slow_kind = cudaMemcpyDeviceToHost, .slow_number = 1, .slow_for = 1s});
    const auto all = joined::run(streamed::offloading_programs(), impatient);
    check_places(all);
    for (const auto& error : all.errors)
        CHECK(contains(error, "not over after 150 ms"));
    check_nothing_is_left();
}
