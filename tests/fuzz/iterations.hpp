#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace fuzz {

/// The number of inputs to try: `usual`, or OPTPIPE_FUZZ_ITERATIONS if set. OPTPIPE_FUZZ_SEED sets the first seed.
inline std::size_t iterations(std::size_t usual) {
    const char* wanted = std::getenv("OPTPIPE_FUZZ_ITERATIONS");
    return wanted ? std::strtoul(wanted, nullptr, 10) : usual;
}
inline std::uint64_t first_seed() {
    const char* wanted = std::getenv("OPTPIPE_FUZZ_SEED");
    return wanted ? std::strtoull(wanted, nullptr, 10) : 1;
}

} // namespace fuzz
