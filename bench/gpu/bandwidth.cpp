// Rates of the GPU and its link to the host: copies in each direction and in both at once, the cost of pinning, and the
// possible divisions of its multiprocessors.
//
//     gpu_bandwidth [--out PREFIX]
#include "arguments.hpp"
#include "copies.hpp"
#include "partition.hpp"
#include "report.hpp"
#include <optpipe/execution/cuda/device.hpp>

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <iostream>
#include <string>

namespace {

using namespace optpipe;
constexpr std::size_t mebibyte = std::size_t{1} << 20U;

void describe_device(gpu_bench::report& out) {
    out.table("GPU", {"attribute", "value"});
    const auto row = [&](const char* what, cudaDeviceAttr which) {
        out.row({what, static_cast<double>(cuda::attribute(0, which))});
    };
    row("multiprocessors", cudaDevAttrMultiProcessorCount);
    row("copies that it can have under way", cudaDevAttrAsyncEngineCount);
    row("NUMA node of the host", cudaDevAttrHostNumaId);
    row("host memory pools", cudaDevAttrHostMemoryPoolsSupported);
    row("host memory pools by NUMA node", cudaDevAttrHostNumaMemoryPoolsSupported);
}

void measure_copies(gpu_bench::report& out) {
    out.table("Copies [GB/s]",
              {"MiB", "to the host", "from it", "to it beside from it", "from it beside to it", "within the device"});
    for (const std::size_t size :
         {std::size_t{1}, std::size_t{4}, std::size_t{16}, std::size_t{64}, std::size_t{256}, std::size_t{1024}}) {
        const auto bytes = size * mebibyte;
        const auto repetitions = std::max<std::size_t>(4, 2048 / size);
        gpu_bench::copy_meter meter{bytes};
        const auto r = meter.rates(std::min<std::size_t>(repetitions, 128));
        out.row({static_cast<double>(size), r.out, r.in, r.out_beside_in, r.in_beside_out,
                 static_cast<double>(bytes) / (meter.milliseconds_within(repetitions) * 1e6)});
    }
}

template <class Allocate> double seconds_of(const Allocate& allocate) {
    const auto begin = std::chrono::steady_clock::now();
    allocate();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
void measure_pinning(gpu_bench::report& out) {
    constexpr std::size_t gibibytes = 4;
    constexpr std::size_t bytes = gibibytes * 1024 * mebibyte;
    out.table("Pinned memory", {"by", "GiB", "seconds per GiB"});
    const auto row = [&](const char* how, double seconds) {
        out.row({how, static_cast<double>(gibibytes), seconds / gibibytes});
    };
    row("pinned_slab", seconds_of([] { const cuda::pinned_slab taken{bytes}; }));
    row("cudaHostAlloc", seconds_of([] {
            void* begin = nullptr;
            cuda::check(cudaHostAlloc(&begin, bytes, cudaHostAllocDefault), "cudaHostAlloc");
            cuda::check(cudaFreeHost(begin), "cudaFreeHost");
        }));
}

void divide(gpu_bench::report& out) {
    out.table("Green contexts", {"parts", "result"});
    for (const std::size_t parts : {2U, 4U, 8U, 16U}) {
        std::string result;
        try {
            const gpu_bench::partition made{parts, true};
            result = std::to_string(made.multiprocessors()) + " multiprocessors each";
        } catch (const error& e) {
            result = std::string{"failed: "} + e.what();
        }
        out.row({static_cast<double>(parts), result});
    }
}

} // namespace

int main(int count, char** given) try {
    const gpu_bench::arguments options{count, given, {{"--out", "gpu_bandwidth"}}};
    if (cuda::device_count() == 0) throw error{"no GPU"};
    gpu_bench::report out{options["--out"]};
    describe_device(out);
    measure_copies(out);
    divide(out);
    measure_pinning(out);
    return 0;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
