#include "optpipe/program/lower/pack_buffers.hpp"

#include "optpipe/core/random.hpp"
#include "optpipe/io/json.hpp"
#include "optpipe/program/check.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "oracle/random_cases.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace {

using optpipe::detail::buffer_lifetime;
using optpipe::detail::buffer_packer;
using optpipe::detail::buffer_packing;
using optpipe::detail::packing_effort;

constexpr std::size_t no_parts = std::numeric_limits<std::size_t>::max();

std::vector<buffer_lifetime> random_buffers(optpipe::random_numbers& random) {
    std::vector<buffer_lifetime> buffers(random.between(1, 40));
    for (auto& each : buffers) {
        each.bytes = random.between(1, 16);
        each.begin = random.below(50);
        each.end = random.chance(10) ? no_parts : each.begin + random.between(1, 20);
    }
    return buffers;
}
/// The greatest sum of sizes that are alive at once.
std::size_t peak_of(const std::vector<buffer_lifetime>& buffers) {
    std::size_t peak = 0;
    for (const auto& at : buffers) {
        std::size_t level = 0;
        for (const auto& each : buffers)
            if (each.begin <= at.begin && at.begin < each.end) level += each.bytes;
        peak = std::max(peak, level);
    }
    return peak;
}
void check(const std::vector<buffer_lifetime>& buffers, const buffer_packing& packed, std::size_t part) {
    REQUIRE(packed.offsets.size() == buffers.size());
    std::size_t end = 0;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        const auto first = packed.offsets[i];
        const auto last = first + buffers[i].bytes;
        end = std::max(end, last);
        CHECK(first / part == (last - 1) / part);
        for (std::size_t j = 0; j < i; ++j)
            if (buffers[i].overlaps(buffers[j]))
                CHECK((last <= packed.offsets[j] || packed.offsets[j] + buffers[j].bytes <= first));
    }
    CHECK(packed.size == end);
}

} // namespace

TEST_CASE("buffers that live at once don't overlap, nor reach over parts") {
    optpipe::random_numbers random{1};
    std::size_t tight = 0;
    const auto count = oracle::random_cases(400);
    // Most problems whose parts are small don't fit: their search goes on until its effort is spent.
    const packing_effort effort{.comparisons = 1e5};
    for (std::size_t i = 0; i < count; ++i) {
        CAPTURE(i);
        const auto buffers = random_buffers(random);
        const auto peak = peak_of(buffers);
        const auto packed = buffer_packer{buffers, no_parts, peak, effort}.run();
        check(buffers, packed, no_parts);
        CHECK(packed.size >= peak);
        tight += packed.size == peak ? 1 : 0;
        check(buffers, buffer_packer{buffers, 16, peak, effort}.run(), 16);
    }
    CHECK(tight > count / 2);
}

TEST_CASE("the search ends once the limit is kept") {
    // In the order of their sizes the third doesn't fit between the others.
    const std::vector<buffer_lifetime> buffers{{4, 0, 2}, {3, 1, 4}, {3, 3, 6}, {4, 5, 8}, {2, 2, 5}};
    const auto peak = peak_of(buffers);
    CHECK(buffer_packer{buffers, no_parts, peak}.run().size == peak);
    CHECK(buffer_packer{buffers, no_parts, 100}.run().size <= 100);
}

#if defined(OPTPIPE_HAS_JSON)

TEST_CASE("stashes of one piece are packed where, one after the other, they would leave gaps beyond the limit") {
    using namespace optpipe;
    auto p = read_problem(OPTPIPE_SOURCE_DIR "/tests/data/problems/zb-1.5b-p8-m24-mem200.json");
    const auto s = build_schedule(p, adaptive);
    REQUIRE(s);
    const auto peaks = measure(p, *s).peak_memory;
    for (const rank r : p.graph.all_ranks())
        p.memory_limit[r] = peaks[r];
    REQUIRE(is_valid(p, *s));
    const lowering_options contiguous{.bytes_per_unit = 1e9, .placement = part_placement::contiguous};
    const auto packed = lower(p, *s, contiguous);
    REQUIRE_MESSAGE(packed, describe(packed.why()));
    CHECK(check_programs(*packed).empty());
    const auto slack = p.graph.stages() * p.graph.microbatches() * contiguous.alignment * buffer_roles;
    for (const auto& each : *packed) {
        CHECK(static_cast<double>(each.device_bytes) <=
              peaks[each.self].value() * contiguous.bytes_per_unit + static_cast<double>(slack));
        for (const auto& buffer : each.buffers)
            CHECK(buffer.segments <= 1);
    }
}

#endif
