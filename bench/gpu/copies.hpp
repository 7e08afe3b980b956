#pragma once

#include <optpipe/execution/cuda/slab.hpp>
#include <optpipe/execution/cuda/stream.hpp>

#include <cstddef>
#include <span>

namespace gpu_bench {

/// GB/s of copies between a GPU and pinned memory, in one direction at a time and in both at once.
struct copy_rates {
    double out = 0.0;
    double in = 0.0;
    double out_beside_in = 0.0;
    double in_beside_out = 0.0;
};

/// Measures copies of this many bytes, one after the other in one stream per direction.
class copy_meter {
public:
    explicit copy_meter(std::size_t bytes) : bytes_{bytes}, device_{2 * bytes}, host_{2 * bytes} {}

    /// `repetitions` copies in each direction, after one that isn't counted.
    [[nodiscard]] copy_rates rates(std::size_t repetitions) {
        copy_rates r;
        static_cast<void>(milliseconds(true, true, 1));
        r.out = rate(milliseconds(true, false, repetitions).out, repetitions);
        r.in = rate(milliseconds(false, true, repetitions).in, repetitions);
        const auto both = milliseconds(true, true, repetitions);
        r.out_beside_in = rate(both.out, repetitions);
        r.in_beside_out = rate(both.in, repetitions);
        return r;
    }
    /// Time of one copy from device memory to device memory, after one that isn't counted.
    [[nodiscard]] double milliseconds_within(std::size_t repetitions) {
        optpipe::cuda::timed_event begin, end;
        const auto [from, to] = halves(device_.memory());
        for (std::size_t i = 0; i <= repetitions; ++i) {
            if (i == 1) out_.record(begin);
            out_.copy(to.data(), from.data(), bytes_, cudaMemcpyDeviceToDevice);
        }
        out_.record(end);
        out_.synchronize();
        return end.milliseconds_since(begin) / static_cast<double>(repetitions);
    }

private:
    struct ways {
        double out = 0.0;
        double in = 0.0;
    };
    struct two_halves {
        std::span<std::byte> first, second;
    };
    [[nodiscard]] two_halves halves(std::span<std::byte> all) const {
        return {all.first(bytes_), all.subspan(bytes_, bytes_)};
    }
    [[nodiscard]] double rate(double milliseconds, std::size_t copies) const {
        return static_cast<double>(bytes_ * copies) / (milliseconds * 1e6);
    }
    /// Time from a common start to the last copy of each direction.
    ways milliseconds(bool outwards, bool inwards, std::size_t copies) {
        optpipe::cuda::timed_event begin, out_end, in_end;
        const auto here = halves(device_.memory());
        const auto there = halves(host_.memory());
        out_.record(begin);
        in_.wait(begin);
        for (std::size_t i = 0; i < copies; ++i) {
            if (outwards) out_.copy(there.first.data(), here.first.data(), bytes_, cudaMemcpyDeviceToHost);
            if (inwards) in_.copy(here.second.data(), there.second.data(), bytes_, cudaMemcpyHostToDevice);
        }
        out_.record(out_end);
        in_.record(in_end);
        out_.synchronize();
        in_.synchronize();
        return {out_end.milliseconds_since(begin), in_end.milliseconds_since(begin)};
    }

    std::size_t bytes_;
    optpipe::cuda::device_slab device_;
    optpipe::cuda::pinned_slab host_;
    optpipe::cuda::stream out_{}, in_{};
};

} // namespace gpu_bench
