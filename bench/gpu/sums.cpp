// NCCL sums the gradients of two pipelines of one rank each, in two processes on this GPU: whether the sum is right in
// both, and its time over sockets of this host.
//
//     gpu_sums [--repetitions N] [--out PREFIX]
#include "arguments.hpp"
#include "report.hpp"
#include "two_processes.hpp"
#include <optpipe/execution/cuda/device.hpp>
#include <optpipe/execution/cuda/slab.hpp>
#include <optpipe/execution/nccl/executor.hpp>
#include <optpipe/execution/nccl/gradient_sum.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <iostream>
#include <optional>
#include <span>

namespace {

using namespace optpipe;

std::span<float> numbers(std::span<std::byte> slab) {
    return {reinterpret_cast<float*>(slab.data()), slab.size() / sizeof(float)};
}

/// Numbers repeat after this many: few enough that they and their sums are exact in float.
constexpr std::size_t period = 1000;

/// The gradients of replica r: (r + 1) · (i mod period).
class gradients {
public:
    gradients(std::size_t bytes, int replica) : host_{bytes}, device_{bytes} {
        const auto all = numbers(host_.memory());
        for (std::size_t i = 0; i < all.size(); ++i)
            all[i] = static_cast<float>(replica + 1) * static_cast<float>(i % period);
        copy(cudaMemcpyHostToDevice);
    }
    [[nodiscard]] std::span<float> on_device() { return numbers(device_.memory()); }
    [[nodiscard]] bool are_the_sum(int replicas) {
        copy(cudaMemcpyDeviceToHost);
        const auto all = numbers(host_.memory());
        const int factor = replicas * (replicas + 1) / 2;
        for (std::size_t i = 0; i < all.size(); ++i)
            if (all[i] != static_cast<float>(factor) * static_cast<float>(i % period)) return false;
        return true;
    }

private:
    void copy(cudaMemcpyKind way) {
        const bool out = way == cudaMemcpyDeviceToHost;
        by_.copy(out ? host_.memory().data() : device_.memory().data(),
                 out ? device_.memory().data() : host_.memory().data(), device_.memory().size(), way);
        by_.synchronize();
    }
    cuda::pinned_slab host_;
    cuda::device_slab device_;
    cuda::stream by_;
};

int run(gpu_bench::two_processes& both, const gpu_bench::arguments& options) {
    if (cuda::device_count() == 0) throw error{"no GPU"};
    const int self = both.self();
    const auto id = both.share([] { return nccl::communicator::make_id(); });
    nccl::member here{nccl::world_id::make(), rank{0}, 1, {.patience = std::chrono::seconds{20}}};
    nccl::gradient_sum add_up{
        here, id, {0, static_cast<std::size_t>(self), {execution::world_rank{0}, execution::world_rank{1}}}};
    auto lane = here.executor().open_lane(lane_kind::reduce, 1);
    const auto sum = [&](std::span<float> of) {
        lane.launch({.kind = task_label::task_kind::reduce}, [&add_up, of](cuda::lane& on) { add_up(on, of); });
        here.executor().finish();
    };
    std::optional<gpu_bench::report> out;
    if (self == 0) {
        out.emplace(options["--out"]);
        out->table("Sums of gradients of two processes, by sockets", {"bytes", "result", "takes [ms]"});
    }
    const auto repetitions = options.number("--repetitions");
    bool is_well = true;
    for (const std::size_t bytes : {std::size_t{4096}, std::size_t{1} << 20U, std::size_t{1} << 26U}) {
        gradients mine{bytes, self};
        sum(mine.on_device());
        const bool is_right = mine.are_the_sum(add_up.replicas());
        is_well = is_well && is_right;
        const auto begin = std::chrono::steady_clock::now();
        for (std::size_t i = 0; i < repetitions; ++i)
            sum(mine.on_device());
        const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
        if (out)
            out->row({static_cast<double>(bytes), is_right ? "the sum" : "not the sum",
                      taken.count() / static_cast<double>(repetitions)});
    }
    return is_well ? 0 : 1;
}

} // namespace

int main(int count, char** given) try {
    const gpu_bench::arguments options{count, given, {{"--repetitions", "5"}, {"--out", "gpu_sums"}}};
    gpu_bench::two_processes both;
    const int status = run(both, options);
    return both.self() == 1 || both.other_ends_well() ? status : 1;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
