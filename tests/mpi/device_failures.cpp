// Processes that have one device each tell each other of failures by a channel over MPI, since their devices can't.
#include "fakes/cuda.hpp"
#include "mpi/support/world.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/mpi/control.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using optpipe::rank;
namespace cuda = optpipe::cuda;

/// No test may wait for as long as this.
constexpr auto patience = 60s;

/// Notes that the channel reported a failure.
class noting_channel final : public optpipe::execution::failure_channel {
public:
    explicit noting_channel(optpipe::mpi::control& by) : by_{by} {}
    void tell(const optpipe::execution_error& what) override { by_.tell(what); }
    [[nodiscard]] std::optional<optpipe::execution_error> failure() const override {
        auto what = by_.failure();
        if (what) was_heard_.store(true);
        return what;
    }
    [[nodiscard]] bool was_heard() const { return was_heard_.load(); }

private:
    optpipe::mpi::control& by_;
    mutable std::atomic<bool> was_heard_{false};
};

/// Work that ends once the executor has heard of a failure; otherwise it never ends.
void wait_for_failure(void* channel) {
    const auto deadline = std::chrono::steady_clock::now() + patience / 3;
    while (!static_cast<const noting_channel*>(channel)->was_heard() && std::chrono::steady_clock::now() < deadline)
        std::this_thread::yield();
}

TEST_CASE("a rank that waits for its device hears of what fails in another process") {
    for (std::size_t bad = 0; bad < world::ranks(); ++bad) {
        fake_cuda::reset({.hang_after = patience});
        std::string mine;
        try {
            optpipe::mpi::control control{MPI_COMM_WORLD, {.patience = patience}};
            noting_channel channel{control};
            cuda::cluster one{1, {.patience = patience, .failures = &channel}};
            auto& on = one[rank{0}];
            auto lane = on.open_lane(optpipe::lane_kind::compute, 1);
            if (world::self() == rank{bad})
                control.tell({rank{bad}, "0F0", "of my own"});
            else
                lane.launch({}, [&channel](cuda::lane& to) {
                    cuda::check(cudaLaunchHostFunc(to.stream().native(), wait_for_failure, &channel),
                                "cudaLaunchHostFunc");
                });
            on.finish();
        } catch (const optpipe::execution_error& e) {
            mine = e.what();
        }
        const auto said = world::collect(mine);
        for (std::size_t r = 0; r < said.size(); ++r)
            if (r != bad) CHECK(said[r] == "rank " + std::to_string(bad) + ", 0F0: of my own");
        CHECK(fake_cuda::complaints() == std::vector<std::string>{});
        CHECK(fake_cuda::alive() == fake_cuda::census{});
    }
}

} // namespace
