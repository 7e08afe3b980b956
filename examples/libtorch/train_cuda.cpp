// The same transformer on a GPU (train.hpp). Ranks are streams of the first GPU.
#include "train.hpp"
#include <optpipe/execution/cuda/device.hpp>
#include <optpipe/execution/libtorch/cuda/pipeline.hpp>

int main() {
    if (optpipe::cuda::device_count() == 0) return std::cout << "no GPU here\n", 0;
    transformer::sizes on_gpu;
    on_gpu.device = at::Device{at::kCUDA, 0};
    return transformer::train<optpipe::libtorch::cuda_pipeline>(on_gpu);
}
