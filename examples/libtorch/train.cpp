// A transformer of LibTorch on CPUs, trained by a plan that keeps, offloads and recomputes stashes, and splits
// backwards (train.hpp). Ranks are threads.
#include "train.hpp"

int main() {
    at::set_num_threads(1);
    return transformer::train<optpipe::libtorch::pipeline>({});
}
