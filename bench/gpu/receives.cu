// Loss of computations to receives that wait on the multiprocessors at the same time, and the remaining loss if a
// receive is issued after the computation that precedes its message (`receive_issue::when_due`).
//
// Rank 0 computes while it waits for messages. Rank 1, another process on the same GPU, does nothing until it sends, so
// it doesn't share the device before that.
//
//     gpu_receives [--bytes N] [--repetitions N] [--out PREFIX]
#include "arguments.hpp"
#include "report.hpp"
#include "two_processes.hpp"
#include <optpipe/execution/cuda/device.hpp>
#include <optpipe/execution/cuda/slab.hpp>
#include <optpipe/execution/cuda/stream.hpp>
#include <optpipe/execution/nccl/communicator.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;

/// Longer than rank 0 takes to start its receives and to compute at the same time.
constexpr std::chrono::milliseconds before_send{400};
/// Time until receives are on the device.
constexpr std::chrono::milliseconds before_computing{50};
/// Time of a computation alone; a small part of `before_send`.
constexpr double least_milliseconds = 20.0;
constexpr std::size_t most_receives = 2; // activations and gradients

__global__ void multiply_and_add(float* out, int rounds) {
    float x = static_cast<float>(threadIdx.x);
    for (int i = 0; i < rounds; ++i)
        x = fmaf(x, 0.999F, 0.5F);
    if (x < 0.0F) *out = x; // never true; keeps the compiler from removing x
}

/// The same work in many blocks, which takes longer on fewer multiprocessors.
class computation {
public:
    computation() {
        while (milliseconds() < least_milliseconds)
            rounds_ *= 2;
    }
    void issue() {
        where_.record(begin_);
        multiply_and_add<<<blocks_, 256, 0, where_.native()>>>(reinterpret_cast<float*>(room_.memory().data()),
                                                               rounds_);
        cuda::check(cudaGetLastError(), "multiply_and_add");
        where_.record(end_);
    }
    [[nodiscard]] double finish() {
        where_.synchronize();
        return end_.milliseconds_since(begin_);
    }
    [[nodiscard]] double milliseconds() {
        issue();
        return finish();
    }
    [[nodiscard]] const cuda::event& end() const { return end_; }

private:
    int blocks_ = 64 * cuda::attribute(0, cudaDevAttrMultiProcessorCount);
    int rounds_ = 1024;
    cuda::device_slab room_{sizeof(float)};
    cuda::stream where_;
    cuda::timed_event begin_, end_;
};

enum class issued { none, early, when_due };
struct measurement {
    issued how = issued::none;
    std::size_t receives = 0;
};
constexpr std::array measurements{measurement{issued::none, 0}, measurement{issued::early, 1},
                                  measurement{issued::early, 2}, measurement{issued::when_due, 2}};

/// Communicators, each with a stream and room for a message.
class links {
public:
    links(const gpu_bench::two_processes& both, std::size_t bytes, const nccl::communicator_limits& limits)
        : self_{both.self()}, bytes_{bytes}, room_{most_receives * bytes} {
        for (std::size_t i = 0; i < most_receives; ++i) {
            const auto id = both.share([] { return nccl::communicator::make_id(); });
            all_.emplace_back(id, self_, 2, std::chrono::seconds{20}, "receives", limits);
            streams_.emplace_back(cuda::stream::priority::highest);
        }
        exchange(most_receives); // the first ones make connections
        finish();
    }
    /// Rank 0 receives from rank 1.
    void exchange(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            nccl::batch open;
            const auto room = room_.memory().subspan(i * bytes_, bytes_);
            if (self_ == 0)
                open.receive(all_[i], room, 1, streams_[i].native());
            else
                open.send(all_[i], room, 0, streams_[i].native());
            open.close("a message");
        }
    }
    void wait_for(const cuda::event& e) {
        for (auto& each : streams_)
            each.wait(e);
    }
    void finish() {
        for (auto& each : streams_)
            each.synchronize();
    }

private:
    int self_;
    std::size_t bytes_;
    cuda::device_slab room_;
    std::vector<nccl::communicator> all_;
    std::vector<cuda::stream> streams_;
};

/// Time of rank 0's computation, in milliseconds.
double measure(links& by, computation& work, const measurement& m) {
    if (m.how == issued::early) {
        by.exchange(m.receives);
        std::this_thread::sleep_for(before_computing);
    }
    work.issue();
    if (m.how == issued::when_due) {
        by.wait_for(work.end());
        by.exchange(m.receives);
    }
    const auto taken = work.finish();
    by.finish();
    return taken;
}
void send_late(links& by, const measurement& m) {
    if (m.receives == 0) return;
    std::this_thread::sleep_for(before_send);
    by.exchange(m.receives);
    by.finish();
}

std::string name_of(issued how) {
    switch (how) {
    case issued::none: return "no receive";
    case issued::early: return "early";
    case issued::when_due: return "when due";
    }
    return "?";
}
/// Runs each measurement `repetitions` times and reports the median. `out` is null except on rank 0.
void measure_all(links& by, const std::string& blocks, std::size_t repetitions, gpu_bench::report* out) {
    std::optional<computation> work;
    if (out) work.emplace();
    double alone = 0.0;
    for (const auto& m : measurements) {
        std::vector<double> taken;
        for (std::size_t i = 0; i < repetitions; ++i)
            out ? taken.push_back(measure(by, *work, m)) : send_late(by, m);
        if (!out) continue;
        std::ranges::sort(taken);
        const auto middle = taken[taken.size() / 2];
        if (m.how == issued::none) alone = middle;
        out->row({blocks, name_of(m.how), static_cast<double>(m.receives), middle, 100.0 * (1.0 - alone / middle)});
    }
}

int run(gpu_bench::two_processes& both, const gpu_bench::arguments& options) {
    if (cuda::device_count() == 0) throw error{"no GPU"};
    std::optional<gpu_bench::report> out;
    if (both.self() == 0) {
        out.emplace(options["--out"]);
        out->table("Computing beside receives that wait",
                   {"blocks at most", "issued", "receives", "the computation [ms]", "multiprocessors lost [%]"});
    }
    for (const auto& blocks : {std::optional<int>{}, std::optional{1}}) {
        links by{both, options.number("--bytes"), {.max_ctas = blocks}};
        measure_all(by, blocks ? std::to_string(*blocks) : "NCCL's choice", options.number("--repetitions"),
                    out ? &*out : nullptr);
    }
    return 0;
}

} // namespace

int main(int count, char** given) try {
    const gpu_bench::arguments options{
        count, given, {{"--bytes", "16777216"}, {"--repetitions", "5"}, {"--out", "gpu_receives"}}};
    gpu_bench::two_processes both;
    const int status = run(both, options);
    return both.self() == 1 || both.other_ends_well() ? status : 1;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
