#include "optpipe/schedule/bounds/storage_relaxation.hpp"

#include "oracle/four_options.hpp"

#include <doctest/doctest.h>

namespace {

using optpipe::rank;
using optpipe::stage;
using optpipe::storage_relaxation;
using optpipe::transfer_times;
using namespace optpipe::literals;

} // namespace

TEST_CASE("a problem without storage options that every schedule maps to") {
    auto p = oracle::four_options(2, 4, 1.2_gb);
    p.host_memory_limit[rank{0}] = 3_gb;
    const auto rest = without_storage(p, storage_relaxation::smallest_rest);
    CHECK(is_described_by_costs(rest));
    CHECK(rest.costs[stage{0}].activation == 0_gb);
    CHECK(rest.storage_options(stage{0}) == 1);
    CHECK(rest.costs[stage{0}].backward_input == 11_ms);
    const auto fastest = without_storage(p, storage_relaxation::fastest_transfer);
    CHECK(fastest.costs[stage{0}].activation == 0.1_gb);
    CHECK(fastest.storage_of(stage{0}, 1).transfer == transfer_times{13.5_ms, 13.5_ms});
    CHECK(fastest.host_memory_limit[rank{0}] == 3_gb);
    CHECK(offloads_anything(p));
    // Two options inside the backward: the lesser time is certain.
    for (auto& list : p.storage)
        list = {{"a", 0.5_gb, {}, 4_ms, {}, {}}, {"b", 0.3_gb, {}, 5_ms, {}, {}}};
    CHECK(without_storage(p, storage_relaxation::smallest_rest).costs[stage{1}].backward_input == 15_ms);
    CHECK_FALSE(offloads_anything(p));
    // A transfer that moves less than the stash takes less host memory than in the relaxation.
    for (auto& list : p.storage)
        list = {{"half", 1_gb, {}, {}, 0.5_gb, transfer_times{1_ms, 2_ms}}};
    CHECK(without_storage(p, storage_relaxation::fastest_transfer).host_memory_limit[rank{0}].is_unlimited());
}
