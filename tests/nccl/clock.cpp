// Ranks whose clocks are unrelated agree on an instant, by messages.
#include "optpipe/execution/nccl/clock.hpp"

#include "cuda/streamed.hpp"
#include "fakes/cuda.hpp"
#include "fakes/nccl.hpp"
#include "nccl/joined.hpp"
#include "optpipe/execution/nccl/executor.hpp"
#include "optpipe/execution/run.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
namespace cuda = optpipe::cuda;
namespace nccl = optpipe::nccl;

namespace {

/// A clock with an offset that each thread sets for itself.
struct own_clock {
    using duration = std::chrono::nanoseconds;
    using time_point = std::chrono::time_point<own_clock, duration>;
    static duration& offset() {
        thread_local duration set{};
        return set;
    }
    static time_point now() { return time_point{std::chrono::steady_clock::now().time_since_epoch() + offset()}; }
};

class mailboxes {
public:
    void send(int from, int to, std::int64_t number) {
        const std::scoped_lock lock{mutex_};
        letters_[{from, to}].push_back(number);
        changed_.notify_all();
    }
    std::int64_t receive(int from, int to) {
        std::unique_lock lock{mutex_};
        auto& waiting = letters_[{from, to}];
        changed_.wait(lock, [&] { return !waiting.empty(); });
        const auto first = waiting.front();
        waiting.pop_front();
        return first;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::pair<int, int>, std::deque<std::int64_t>> letters_;
};

TEST_CASE("an instant is the same on all clocks, as far as each rank says") {
    constexpr int ranks = 4;
    mailboxes mail;
    std::vector<nccl::shared_instant<own_clock>> begins(ranks);
    std::vector<std::jthread> threads;
    for (int r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
            own_clock::offset() = r * 1000s;
            auto begin = nccl::share_instant<own_clock>(
                r, ranks, [&](int peer, std::int64_t number) { mail.send(r, peer, number); },
                [&](int peer) { return mail.receive(peer, r); });
            begin.when -= own_clock::offset();
            begins[static_cast<std::size_t>(r)] = begin;
        });
    threads.clear();
    CHECK(begins.front().error == 0s);
    for (const auto& each : begins) {
        const auto apart = each.when - begins.front().when;
        CHECK(apart <= each.error);
        CHECK(apart >= -each.error);
    }
}

TEST_CASE("members that measure times compare their clocks by NCCL") {
    const auto programs = streamed::small_programs(optpipe::message_lanes::per_direction);
    fake_cuda::reset();
    fake_nccl::reset();
    const auto id = nccl::world_id::make();
    std::vector<std::jthread> ranks;
    for (const auto& p : programs)
        ranks.emplace_back([&] {
            streamed::model model{p.stages};
            auto how = joined::options_of(p.self, 20s);
            how.record_times = true;
            nccl::member here{id, p.self, programs.size(), how};
            optpipe::runner<cuda::executor, streamed::model> mine{p, here.executor(), model};
            mine.step();
            const auto times = mine.times();
            CHECK(times.size() == p.instructions.size());
            for (const auto& t : times) {
                CHECK(t.start >= 0s); // since rank 0's first instant of joining
                CHECK(t.end >= t.start);
            }
        });
    ranks.clear();
    // Two ranks ask their predecessor, five times each, with a message there and two back.
    CHECK(fake_nccl::count("ncclSend") == 2U * 2U * 3U + 2U * 5U * 3U + [&] {
        std::size_t sends = 0;
        for (const auto& p : programs)
            for (const auto& part : p.parts)
                sends += part.side == optpipe::exchange_part::side_kind::send ? 1 : 0;
        return sends;
    }());
    CHECK(streamed::lines(fake_nccl::complaints()) == "");
    CHECK(fake_cuda::alive() == fake_cuda::census{});
}

} // namespace
