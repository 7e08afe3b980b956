#include "optpipe/planner/cache/text.hpp"

#include "optpipe/core/random.hpp"
#include "optpipe/planner/cache/plan_cache.hpp"
#include "optpipe/schedule/construct/within_memory.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

using namespace optpipe;

namespace {

cache_entry random_entry(std::uint64_t seed) {
    random_numbers random{seed};
    const auto given = oracle::make_random_problem(random, {.storage_percent = 50, .graph_percent = 50});
    const auto& p = given.problem;
    const auto timed = oracle::random_schedule(random, given);
    const auto objective = objective_of(p, timed);
    const double budget = random.chance(30) ? std::numeric_limits<double>::infinity() : 0.1;
    return make_cache_entry(p, timed, objective, 0.3 * objective, budget, "random");
}

/// The text with corrected checksums, as from a forger.
std::string with_right_checksums(const std::string& text) {
    std::string result;
    std::string block;
    for (std::size_t at = 0; at < text.size();) {
        const auto end = std::min(text.find('\n', at), text.size() - 1) + 1;
        const auto line = text.substr(at, end - at);
        at = end;
        if (line.starts_with("checksum")) {
            result += detail::with_checksum(block);
            block.clear();
        } else {
            block += line;
        }
    }
    return result + block;
}

} // namespace

TEST_CASE("what is written reads back as it was") {
    std::size_t with_options = 0;
    std::size_t recomputed = 0;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        const auto entry = random_entry(seed);
        const auto text = to_text(entry);
        for (const auto& op : entry.operations) {
            with_options += op.storage > 0 ? 1 : 0;
            recomputed += op.kind == operation_kind::recompute ? 1 : 0;
        }
        const auto read = parse_cache_entry(text);
        REQUIRE(read);
        CHECK(*read == entry);
        const auto head = parse_cache_head(text);
        REQUIRE(head);
        CHECK(head->entry.of == entry.of);
        CHECK(head->entry.operations.empty());
        CHECK(with_right_checksums(text) == text);
    }
    CHECK(with_options > 500);
    CHECK(recomputed > 50);
}

TEST_CASE("an entry as text") {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = memory_size{1.0};
    const problem p{to_any_graph(graph<dynamic, dynamic>{1, 1}), per_stage<stage_costs>(1, unit)};
    const auto timed = simulate(p, one_at_a_time(p));
    REQUIRE(timed);
    const auto entry = make_cache_entry(p, *timed, duration{3.0}, duration{3.0}, 1.0, "test");
    const auto* const text = "optpipe.plan/3\n"
                             "shape 1 on 0, split, makespan\n"
                             "stages 1\n"
                             "microbatches 1\n"
                             "times 0.3333333333333333 0.3333333333333333 0.3333333333333333\n"
                             "stashes 1 0\n"
                             "limits inf\n"
                             "host_limits inf\n"
                             "storage 1 1 0 0 0 inf inf\n"
                             "slices\n"
                             "factor_rows\n"
                             "factors\n"
                             "memory_scale 1\n"
                             "objective 1\n"
                             "bound 1\n"
                             "budget 1\n"
                             "method test\n"
                             "checksum \n"
                             "operations 0F0 0I0 0W0\n"
                             "checksum \n";
    CHECK(to_text(entry) == with_right_checksums(text));
    CHECK(parse_cache_entry(to_text(entry)) == entry);
}

TEST_CASE("storage options that no problem has are refused") {
    const std::string text = "optpipe.plan/3\n"
                             "shape 1 on 0, split, makespan\n"
                             "stages 1\n"
                             "microbatches 1\n"
                             "times 1 1 1\n"
                             "stashes 1 0\n"
                             "limits inf\n"
                             "host_limits inf\n"
                             "storage 2 0.5 0 0.25 0 inf inf 1 1 0 0 2 2\n"
                             "slices\n"
                             "factor_rows\n"
                             "factors\n"
                             "memory_scale 1\n"
                             "objective 1\n"
                             "bound 1\n"
                             "budget 1\n"
                             "method test\n"
                             "checksum \n"
                             "operations 0F0:1 0OFFLOAD0:1 0RELOAD0:1 0B0:1\n"
                             "checksum \n";
    const auto changed = [&](std::string_view from, std::string_view to) {
        auto other = text;
        const auto at = other.find(from);
        REQUIRE(at != std::string::npos);
        return parse_cache_entry(with_right_checksums(other.replace(at, from.size(), to)));
    };
    const auto entry = changed("", "");
    REQUIRE(entry);
    REQUIRE(entry->of.storage.size() == 1);
    REQUIRE(entry->of.storage[0].size() == 2);
    CHECK(entry->of.storage[0][0] == canonical_option{.held = 0.5, .recompute = 0.25});
    CHECK(entry->of.storage[0][1] ==
          canonical_option{.held = 1.0, .transfer_size = 1.0, .offload = 2.0, .reload = 2.0});
    CHECK(entry->operations.front().storage == 1);
    for (const auto* option : {"0F0:2", "0F0:0", "0F0:", "0F0:-1", "0F0:x", "0F0:1:1", "0F0:256", "0F0:257"})
        CHECK_FALSE(changed("0F0:1", option));
    for (const auto* list : {"3 0.5", "1 0.5", "33 0.5", "2.5 0.5", "inf 0.5", "2 inf", "2", "0 2 0.5"})
        CHECK_FALSE(changed("2 0.5", list));
    CHECK_FALSE(changed("0.25 0 inf inf", "0.25 0 inf 1"));
    CHECK_FALSE(changed("0.25 0 inf inf", "0.25 inf inf inf"));
    CHECK_FALSE(changed("1 1 0 0 2 2", "1 1 0 0 2 2 0"));
    CHECK_FALSE(changed("optpipe.plan/3", "optpipe.plan/2"));
    CHECK_FALSE(changed("optpipe.plan/3", "optpipe.plan/4"));
}

TEST_CASE("draws that no problem has are refused") {
    const stage_costs unit{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{1.0}, memory_size{0.5}};
    problem p{to_any_graph(graph<dynamic, dynamic>{2, 3}), per_stage<stage_costs>(2, unit)};
    p.microbatches.set_sequences(std::vector{0, 0, 1});
    std::vector<cost_factors> factors(6);
    factors[1].forward = 2.0;
    p.microbatches.set_factors_by_stage(factors, 3);
    const auto timed = simulate(p, one_at_a_time(p));
    REQUIRE(timed);
    const auto text = to_text(make_cache_entry(p, *timed, duration{30.0}, duration{}, 1.0, "test"));
    const auto changed = [&](std::string_view from, std::string_view to) {
        auto other = text;
        const auto at = other.find(from);
        REQUIRE(at != std::string::npos);
        return parse_cache_entry(with_right_checksums(other.replace(at, from.size(), to)));
    };
    REQUIRE(changed("", ""));
    for (const auto* slices :
         {"slices 2 2\n", "slices 3 0\n", "slices 2\n", "slices 2 -1\n", "slices 99999999999999 4\n"})
        CHECK_FALSE(changed("slices 2 1\n", slices));
    for (const auto* rows :
         {"factor_rows 0\n", "factor_rows 0 2\n", "factor_rows 0 0\n", "factor_rows\n", "factor_rows 0 x\n"})
        CHECK_FALSE(changed("factor_rows 0 1\n", rows));
    for (const auto* numbers : {"factors 1 0", "factors 1 inf", "factors 1", "factors 1 2 1"})
        CHECK_FALSE(changed("factors 1 2", numbers));
}

TEST_CASE("every truncation is noticed") {
    const auto text = to_text(random_entry(3));
    for (std::size_t size = 0; size < text.size(); ++size)
        CHECK_FALSE(parse_cache_entry(text.substr(0, size)));
    CHECK_FALSE(parse_cache_entry(text + "\n"));
    CHECK_FALSE(parse_cache_entry(text + text));
}

TEST_CASE("every flipped bit is noticed") {
    const auto text = to_text(random_entry(5));
    for (std::size_t at = 0; at < text.size(); ++at)
        for (unsigned bit = 0; bit < 8; ++bit) {
            auto flipped = text;
            flipped[at] = static_cast<char>(static_cast<unsigned char>(flipped[at]) ^ (1U << bit));
            CHECK_FALSE(parse_cache_entry(flipped));
        }
}

TEST_CASE("forged entries are refused or make sense, and nothing crashes") {
    std::size_t accepted = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(4000); ++seed) {
        random_numbers random{seed};
        auto text = to_text(random_entry(1 + seed % 20));
        const auto changes = random.between(1, 3);
        for (std::size_t i = 0; i < changes; ++i) {
            const auto at = random.below(text.size());
            constexpr const char* pieces[] = {"-1", "nan", "inf", "1e999", "99999999999999999999", "0", " ",
                                              "\n", "7F7", "x",   ":3"};
            switch (random.below(4)) {
            case 0: text[at] = static_cast<char>(random.below(256)); break;
            case 1: text.erase(at, random.between(1, 20)); break;
            case 2: text.insert(at, pieces[random.below(std::size(pieces))]); break;
            default: text.insert(at, text.substr(random.below(text.size()), random.between(1, 30))); break;
            }
        }
        const auto read = parse_cache_entry(with_right_checksums(text));
        if (!read) continue;
        ++accepted;
        CHECK(read->bound <= read->objective);
        CHECK(std::isfinite(read->objective));
        CHECK(read->of.stashes.size() >= 2 * read->of.stages);
        CHECK((read->of.factors.empty() || read->of.factor_rows.size() == read->of.stages));
        CHECK(read->of.storage.size() == read->of.stages);
        for (const auto& op : read->operations) {
            CHECK((op.stage.position() < read->of.stages && op.microbatch.position() < read->of.microbatches));
            CHECK(op.storage < read->of.storage[op.stage.position()].size());
        }
        for (const double t : read->of.times)
            CHECK((std::isfinite(t) && t >= 0.0));
        CHECK(parse_cache_entry(to_text(*read)) == read);
    }
    CHECK(accepted >= oracle::random_cases(50));
}
