// expect: layer split: needs `std::size_t layers_of\(stage, std::size_t stages\) const`
#include "optpipe/pipeline/transformer.hpp"

struct my_layers {
#ifdef OPTPIPE_CONTROL
    [[nodiscard]] static constexpr std::size_t layers_of(optpipe::stage, std::size_t) { return 8; }
#endif
};
constexpr auto hidden = optpipe::transformer<my_layers>{}.hidden;
