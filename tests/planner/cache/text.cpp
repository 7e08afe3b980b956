#include "optpipe/planner/cache/text.hpp"

#include "optpipe/core/random.hpp"
#include "optpipe/planner/cache/plan_cache.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/testing/random_problem.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <limits>
#include <string>

using namespace optpipe;

namespace {

cache_entry random_entry(std::uint64_t seed) {
    random_numbers random{seed};
    const auto p = testing::make_random_problem(random).problem;
    const auto timed = simulate(p, one_at_a_time(p));
    REQUIRE(timed);
    const auto objective = objective_of(p, *timed);
    const double budget = random.chance(30) ? std::numeric_limits<double>::infinity() : 0.1;
    return make_cache_entry(p, *timed, objective, 0.3 * objective, budget, "one at a time");
}

/// The text with its checksums made right again, as a forger would.
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
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        const auto entry = random_entry(seed);
        const auto text = to_text(entry);
        const auto read = parse_cache_entry(text);
        REQUIRE(read);
        CHECK(*read == entry);
        const auto head = parse_cache_head(text);
        REQUIRE(head);
        CHECK(head->entry.of == entry.of);
        CHECK(head->entry.operations.empty());
        CHECK(with_right_checksums(text) == text);
    }
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
    for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
        random_numbers random{seed};
        auto text = to_text(random_entry(1 + seed % 20));
        const auto changes = random.between(1, 3);
        for (std::size_t i = 0; i < changes; ++i) {
            const auto at = random.below(text.size());
            constexpr const char* pieces[] = {"-1", "nan", "inf", "1e999", "99999999999999999999",
                                              "0",  " ",   "\n",  "7F7",   "x"};
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
        CHECK(read->of.stashes.size() == 2 * read->of.stages);
        for (const auto& op : read->operations)
            CHECK((op.stage.position() < read->of.stages && op.microbatch.position() < read->of.microbatches));
        for (const double t : read->of.times)
            CHECK((std::isfinite(t) && t >= 0.0));
        CHECK(parse_cache_entry(to_text(*read)) == read);
    }
    CHECK(accepted > 50);
}
