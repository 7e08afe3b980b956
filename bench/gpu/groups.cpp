// Cost of a group of NCCL: one rank sends to itself, for which NCCL uses a kernel, as between ranks.
//
//     gpu_groups [--repetitions N] [--out PREFIX]
#include "arguments.hpp"
#include "report.hpp"
#include <optpipe/execution/cuda/device.hpp>
#include <optpipe/execution/cuda/slab.hpp>
#include <optpipe/execution/cuda/stream.hpp>
#include <optpipe/execution/nccl/communicator.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <iostream>
#include <optional>
#include <span>

namespace {

using namespace optpipe;

struct group_times {
    /// Time on the host, from the start of a group until its work is in the stream.
    double issue_microseconds = 0.0;
    /// Time per group, for many groups in a stream one after the other.
    double device_microseconds = 0.0;
};

class group_meter {
public:
    explicit group_meter(const nccl::communicator_limits& limits)
        : by_{nccl::communicator::make_id(), 0, 1, std::chrono::seconds{20}, "groups", limits} {}

    group_times measure(std::size_t bytes, std::size_t repetitions) {
        const cuda::device_slab room{2 * bytes};
        const auto from = room.memory().first(bytes);
        const auto to = room.memory().subspan(bytes);
        exchange(from, to); // the first one makes connections
        where_.synchronize();
        const cuda::timed_event begin, end;
        where_.record(begin);
        const auto begun = std::chrono::steady_clock::now();
        for (std::size_t i = 0; i < repetitions; ++i)
            exchange(from, to);
        const std::chrono::duration<double, std::micro> issued = std::chrono::steady_clock::now() - begun;
        where_.record(end);
        where_.synchronize();
        const auto count = static_cast<double>(repetitions);
        return {issued.count() / count, end.milliseconds_since(begin) * 1e3 / count};
    }

private:
    void exchange(std::span<std::byte> from, std::span<std::byte> to) {
        nccl::batch open;
        open.send(by_, from, 0, where_.native());
        open.receive(by_, to, 0, where_.native());
        open.close("a group");
    }

    nccl::communicator by_;
    cuda::stream where_{cuda::stream::priority::highest};
};

} // namespace

int main(int count, char** given) try {
    const gpu_bench::arguments options{count, given, {{"--repetitions", "200"}, {"--out", "gpu_groups"}}};
    if (cuda::device_count() == 0) throw error{"no GPU"};
    gpu_bench::report out{options["--out"]};
    out.table("A group of a send and a receive, of one rank with itself",
              {"blocks at most", "bytes", "to issue [µs]", "on the device [µs]"});
    for (const auto& blocks : {std::optional<int>{}, std::optional{1}}) {
        group_meter meter{{.max_ctas = blocks}};
        for (const std::size_t bytes : {8U, 1U << 16U, 1U << 20U, 1U << 26U}) {
            const auto taken = meter.measure(bytes, options.number("--repetitions"));
            out.row({blocks ? std::to_string(*blocks) : "NCCL's choice", static_cast<double>(bytes),
                     taken.issue_microseconds, taken.device_microseconds});
        }
    }
    return 0;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
