#include "optpipe/planner/cache/files.hpp"
#include "optpipe/planner/cache/plan_cache.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "planner/cache/folder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

using namespace optpipe;

namespace {

problem unit_problem(std::size_t ranks, std::size_t microbatches) {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = memory_size{1.0};
    return problem{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, unit)};
}

cache_entry entry_of(const problem& p, double budget = 1.0) {
    const auto timed = simulate(p, one_at_a_time(p));
    REQUIRE(timed);
    const auto objective = objective_of(p, *timed);
    return make_cache_entry(p, *timed, objective, 0.5 * objective, budget, "test");
}

} // namespace

TEST_CASE("stored plans are found: the same problem as exact, similar ones as near") {
    const temporary_folder folder;
    std::vector<std::string> warnings;
    const plan_cache cache{folder.path() / "new", [&](std::string_view w) { warnings.emplace_back(w); }};
    const auto p = unit_problem(3, 4);
    CHECK_FALSE(cache.find(canonical_form(p)).exact);
    cache.store(entry_of(p));
    cache.store(entry_of(unit_problem(3, 8)));
    cache.store(entry_of(unit_problem(3, 5)));
    cache.store(entry_of(unit_problem(2, 4)));

    const auto hits = cache.find(canonical_form(p));
    REQUIRE(hits.exact);
    CHECK(*hits.exact == entry_of(p));
    CHECK(hits.bound == doctest::Approx(hits.exact->bound));
    REQUIRE(hits.near.size() == 2);
    CHECK(hits.near[0].of.microbatches == 5);
    CHECK(hits.near[1].of.microbatches == 8);

    auto longer = p;
    longer.costs[stage{0}].forward = duration{1.2};
    const auto like = cache.find(canonical_form(longer));
    CHECK_FALSE(like.exact);
    REQUIRE(like.near.size() == 3);
    CHECK(like.near[0].of.microbatches == 4);
    CHECK(like.bound > 0.0);
    CHECK(warnings.empty());
}

TEST_CASE("plans with storage options are found by their lists, whatever their order, and near ones by other lists") {
    const temporary_folder folder;
    std::vector<std::string> warnings;
    const plan_cache cache{folder.path(), [&](std::string_view w) { warnings.emplace_back(w); }};
    auto p = unit_problem(2, 4);
    const storage_option ahead{"ahead", memory_size{0.5}, duration{0.5}, {}, {}, {}};
    for (auto& list : p.storage) {
        list.push_back(ahead);
    }
    const auto with_first = [&](duration recompute) {
        auto other = p;
        for (auto& list : other.storage) {
            std::reverse(list.begin(), list.end());
            list.front().recompute = recompute;
        }
        return other;
    };
    auto more = p;
    for (auto& list : more.storage)
        list.push_back({"full", memory_size{0.1}, {}, duration{1.0}, {}, {}});
    cache.store(entry_of(p));
    cache.store(entry_of(with_first(duration{0.8})));
    cache.store(entry_of(more));
    cache.store(entry_of(unit_problem(2, 4)));
    CHECK(folder.files().size() == 4);

    const auto hits = cache.find(canonical_form(with_first(duration{0.5})));
    REQUIRE(hits.exact);
    CHECK(*hits.exact == entry_of(p));
    CHECK(hits.near.size() == 3);
    const auto like = cache.find(canonical_form(with_first(duration{0.75})));
    CHECK_FALSE(like.exact);
    REQUIRE(like.near.size() == 4);
    CHECK(like.near[0] == entry_of(with_first(duration{0.8})));
    CHECK(like.bound > 0.0);
    // Results for fewer options imply nothing for more.
    const auto longest = cache.find(canonical_form(more));
    REQUIRE(longest.exact);
    CHECK(longest.bound == doctest::Approx(longest.exact->bound));
    auto cheaper = more;
    for (auto& list : cheaper.storage)
        list[2].held = memory_size{};
    CHECK(cache.find(canonical_form(cheaper)).bound == 0.0);
    CHECK(warnings.empty());
}

TEST_CASE("the better entry stays") {
    const temporary_folder folder;
    const plan_cache cache{folder.path()};
    const auto p = unit_problem(2, 3);
    auto entry = entry_of(p, 5.0);
    cache.store(entry);
    auto worse = entry;
    worse.bound = 0.0;
    worse.budget = 1.0;
    cache.store(worse);
    CHECK(*cache.find(entry.of).exact == entry);
    auto better = entry;
    better.bound = entry.objective;
    cache.store(better);
    CHECK(*cache.find(entry.of).exact == better);
    CHECK(folder.files().size() == 1);
}

TEST_CASE("damaged entries are left out with a warning, those of other versions without one") {
    const temporary_folder folder;
    std::vector<std::string> warnings;
    const plan_cache cache{folder.path(), [&](std::string_view w) { warnings.emplace_back(w); }};
    const auto p = unit_problem(2, 3);
    cache.store(entry_of(p));
    REQUIRE(folder.files().size() == 1);
    const auto file = folder.files().front();
    const auto text = temporary_folder::read(file);
    const auto after = [&](const std::string& content) {
        warnings.clear();
        temporary_folder::write(file, content);
        const auto hits = cache.find(canonical_form(p));
        CHECK(hits.near.empty());
        return hits.exact.has_value();
    };
    CHECK(after(text));
    CHECK(warnings.empty());
    for (const auto& content : {std::string{}, std::string{"x"}, text.substr(0, text.size() / 2),
                                text.substr(0, text.size() - 1), text + "x", std::string(1 << 21, '\n')}) {
        CHECK_FALSE(after(content));
        REQUIRE(warnings.size() == 1);
        CHECK(warnings.front().find(file.string() + " is damaged") != std::string::npos);
    }
    CHECK_FALSE(after("optpipe.plan/4\nanything"));
    CHECK(warnings.empty());
    // An entry with damaged operations isn't used, although its head is intact.
    auto flipped = text;
    flipped[text.size() - 30] = 'x';
    CHECK_FALSE(after(flipped));
    CHECK(warnings.size() == 1);
    // It is replaced by the next plan.
    cache.store(entry_of(p));
    CHECK(cache.find(canonical_form(p)).exact);
}

TEST_CASE("a folder that can't be used is reported once, and does no harm") {
    const temporary_folder folder;
    temporary_folder::write(folder.path() / "file", "");
    std::vector<std::string> warnings;
    const plan_cache cache{folder.path() / "file", [&](std::string_view w) { warnings.emplace_back(w); }};
    const auto p = unit_problem(2, 3);
    CHECK_FALSE(cache.find(canonical_form(p)).exact);
    CHECK(warnings.empty());
    cache.store(entry_of(p));
    REQUIRE(warnings.size() == 1);
    CHECK(warnings.front().find("can't be created") != std::string::npos);
    plan_cache{folder.path() / "file"}.store(entry_of(p));
}

TEST_CASE("many writers and readers at once: every entry that is seen is whole") {
    const temporary_folder folder;
    std::atomic<std::size_t> warnings{0};
    std::atomic<std::size_t> seen{0};
    const auto p = unit_problem(2, 6);
    const auto form = canonical_form(p);
    const auto entry = entry_of(p);
    const auto work = [&](int number) {
        const plan_cache cache{folder.path(), [&](std::string_view) { ++warnings; }};
        for (int i = 0; i < 60; ++i) {
            auto mine = entry;
            mine.budget = number * 1000 + i;
            cache.store(mine);
            if (cache.find(form).exact) ++seen;
        }
    };
    std::vector<std::thread> threads;
    for (int number = 1; number <= 4; ++number)
        threads.emplace_back(work, number);
    for (auto& thread : threads)
        thread.join();
    CHECK(warnings == 0);
    CHECK(seen == 240);
    CHECK(folder.files().size() == 1);
}

TEST_CASE("a folder doesn't grow for ever") {
    const temporary_folder folder;
    for (int i = 0; i < 20; ++i)
        detail::write_cache_file(folder.path() / (std::to_string(i) + ".plan"), "x");
    detail::prune_cache_folder(folder.path(), 5);
    CHECK(folder.files().size() == 5);
}

TEST_CASE("what a writer that was killed has left goes with the next plan") {
    const temporary_folder folder;
    // No process has this number: it exceeds every system's range.
    const auto left = folder.path() / ".optpipe-2147483647-0.tmp";
    temporary_folder::write(left, "half");
    detail::prune_cache_folder(folder.path(), 5);
    CHECK_FALSE(std::filesystem::exists(left));
}
