#include "optpipe/execution/threads/run.hpp"
#include "optpipe/execution/transport.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

using namespace optpipe;
using namespace std::chrono_literals;

TEST_CASE("what is behind a long message on its lane is over no sooner than that") {
    threads::options how{.record_times = true};
    how.messages = [](rank from, const optpipe::task_label&, std::size_t) {
        return threads::nanoseconds{from == rank{1} ? 20ms : 0ms};
    };
    threads::cluster ranks{3, how};
    std::vector<execution::task_times> times;
    threads::on_all_ranks(ranks, [&](threads::executor& here) {
        const auto label = [](task_label::task_kind kind, rank peer, stage of) {
            return task_label{kind, forward(of, microbatch{0}), peer};
        };
        auto lane = here.open_lane(lane_kind::receive_forward, 4);
        std::array<std::byte, 4> bytes{};
        if (here.self() != rank{0}) {
            const std::vector<execution::message_end> out{
                execution::send_of(label(task_label::task_kind::send, rank{0}, stage{here.self().position()}), bytes)};
            here.transport().exchange(lane, out);
            return here.finish();
        }
        std::array<std::byte, 4> more{};
        const std::vector<execution::message_end> slow{
            execution::receive_of(label(task_label::task_kind::receive, rank{1}, stage{1}), bytes)};
        const std::vector<execution::message_end> quick{
            execution::receive_of(label(task_label::task_kind::receive, rank{2}, stage{2}), more)};
        here.transport().exchange(lane, slow);
        here.transport().exchange(lane, quick);
        here.finish();
        times.assign(lane.times().begin(), lane.times().end());
    });
    REQUIRE(times.size() == 2);
    CHECK(times[1].end >= times[0].end);
}
