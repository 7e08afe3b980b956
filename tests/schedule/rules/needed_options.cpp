#include "optpipe/schedule/rules/needed_options.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

using namespace optpipe;

namespace {

/// One stage with four microbatches, which can be kept, recomputed fast or slowly, or moved fast or slowly.
problem one_stage(double limit) {
    const stage_costs costs{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{1.0}, memory_size{0.5}, {}};
    problem p{to_any_graph(graph<dynamic, dynamic>{1, 4}), per_stage<stage_costs>(1, costs)};
    p.memory_limit[rank{0}] = memory_size{limit};
    const auto recomputed = [](double time) {
        return storage_option{"recomputed", memory_size{0.25}, duration{time}, {}, {}, {}};
    };
    const auto moved = [](double time) {
        const transfer_times transfer{duration{time}, duration{time}};
        return storage_option{"moved", memory_size{1.0}, {}, {}, memory_size{1.0}, transfer};
    };
    for (const auto& option : {recomputed(2.0), recomputed(1.0), moved(3.0), moved(2.0), moved(2.0)})
        p.storage[stage{0}].push_back(option);
    return p;
}

} // namespace

TEST_CASE("an option is needed unless another one is no worse, which then replaces it") {
    const needed_options needed{one_stage(2.0)};
    CHECK(needed.is_limited(rank{0}));
    CHECK(needed.all_memory(rank{0}) == memory_size{4.0});
    CHECK(needed.of(stage{0}) == std::vector<storage_index>{0, 2, 4});
    const std::vector<storage_index> replacements{0, 2, 2, 4, 4, 4};
    for (std::size_t o = 0; o < replacements.size(); ++o)
        CHECK(needed.replacement(stage{0}, static_cast<storage_index>(o)) == replacements[o]);
}

TEST_CASE("all stashes are kept where the memory holds them all") {
    const needed_options needed{one_stage(4.0)};
    CHECK_FALSE(needed.is_limited(rank{0}));
    CHECK(needed.of(stage{0}) == std::vector<storage_index>{0});
    CHECK(needed.replacement(stage{0}, 3) == 0);
}
