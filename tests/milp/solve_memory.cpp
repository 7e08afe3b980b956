#include <optpipe/core/random.hpp>
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/solve.hpp>

#include <doctest/doctest.h>
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>
#include <utility>
#include <variant>
#include <vector>

namespace {

std::atomic<std::ptrdiff_t> held{0};
std::atomic<std::ptrdiff_t> most_held{0};

void* counted(void* p) {
    if (p == nullptr) throw std::bad_alloc{};
    const auto size = static_cast<std::ptrdiff_t>(malloc_usable_size(p));
    const auto now = held += size;
    auto most = most_held.load();
    while (now > most && !most_held.compare_exchange_weak(most, now)) {
    }
    return p;
}
void release(void* p) noexcept {
    if (p != nullptr) held -= static_cast<std::ptrdiff_t>(malloc_usable_size(p));
    std::free(p);
}

} // namespace

// Counts all memory of this program. Not inline: the compiler would take the two sides for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t n) { return counted(std::malloc(n == 0 ? 1 : n)); }
[[gnu::noinline]] void* operator new[](std::size_t n) { return counted(std::malloc(n == 0 ? 1 : n)); }
[[gnu::noinline]] void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
    void* const p = std::malloc(n == 0 ? 1 : n);
    return p ? counted(p) : nullptr;
}
[[gnu::noinline]] void operator delete(void* p) noexcept { release(p); }
[[gnu::noinline]] void operator delete[](void* p) noexcept { release(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { release(p); }
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept { release(p); }

using namespace optpipe::milp;

namespace {

constexpr std::size_t megabyte = 1'000'000;

/// Peak memory of a search, in excess of the memory held before.
struct measured {
    result found;
    std::size_t peak;
};
measured measure(const model& m, const solve_options& options) {
    const auto before = held.load();
    most_held = before;
    auto found = solve(m, options);
    return {std::move(found), static_cast<std::size_t>(most_held.load() - before)};
}

/// Several knapsacks over the same items: a large tree of small relaxations.
model knapsacks(std::size_t items, std::size_t rows) {
    optpipe::random_numbers random{7};
    model m;
    expression worth;
    std::vector<variable> x;
    for (std::size_t k = 0; k < items; ++k) {
        x.push_back(m.add_binary());
        worth += static_cast<double>(100 + random.below(100)) * x.back();
    }
    for (std::size_t r = 0; r < rows; ++r) {
        expression weight;
        for (const auto v : x)
            weight += static_cast<double>(10 + random.below(90)) * v;
        m.add_row(weight <= 10.0 * static_cast<double>(items) + 7.0);
    }
    m.set_objective(worth, sense::maximize);
    return m;
}

/// Each row needs one of a few columns: a relaxation that takes more memory than the tree.
model covering(std::size_t columns, std::size_t rows) {
    optpipe::random_numbers random{11};
    model m;
    expression cost;
    std::vector<variable> x;
    for (std::size_t k = 0; k < columns; ++k) {
        x.push_back(m.add_binary());
        cost += static_cast<double>(20 + random.below(20)) * x.back();
    }
    for (std::size_t r = 0; r < rows; ++r) {
        expression sum;
        for (std::size_t k = 0; k < 12; ++k)
            sum += 1.0 * x[random.below(columns)];
        m.add_row(sum >= 1.0);
    }
    m.set_objective(cost);
    return m;
}

solve_options options_with(std::size_t memory, std::size_t threads) {
    solve_options o;
    o.memory_limit = memory;
    o.threads = threads;
    o.time_limit = std::chrono::seconds{20};
    return o;
}

} // namespace

TEST_CASE("what a search says it held is what it held") {
    for (const auto& m : {knapsacks(60, 8), covering(400, 250)}) {
        auto options = options_with(std::numeric_limits<std::size_t>::max(), 1);
        options.node_limit = 60;
        const auto run = measure(m, options);
        CAPTURE(run.peak);
        CHECK(run.found.stats.memory > run.peak / 2);
        CHECK(run.found.stats.memory < 2 * run.peak);
    }
}

TEST_CASE("a search stays within the memory that is set, on any number of threads") {
    const auto tree = knapsacks(60, 8);
    const auto relaxation = covering(400, 250);
    for (const std::size_t threads : {1U, 2U, 3U})
        for (const std::size_t limit : {megabyte / 4, megabyte, 3 * megabyte})
            for (const auto* m : {&tree, &relaxation}) {
                CAPTURE(threads);
                CAPTURE(limit);
                auto options = options_with(limit, threads);
                options.node_limit = 150;
                const auto run = measure(*m, options);
                CAPTURE(run.found.stats.memory);
                CHECK(run.peak <= limit);
                if (run.found.incumbent) CHECK(check(*m, *run.found.incumbent).empty());
                const auto* why = std::get_if<stopped>(&run.found.why);
                if (limit == megabyte / 4) CHECK((why != nullptr && why->why == optpipe::milp::limit::memory));
            }
}

TEST_CASE("factors that fill up end the search in time") {
    const auto m = covering(1500, 900);
    for (const std::size_t threads : {1U, 2U})
        for (const bool learns : {false, true}) {
            CAPTURE(threads);
            CAPTURE(learns);
            auto options = options_with(6 * megabyte, threads);
            options.conflict_search = learns;
            const auto run = measure(m, options);
            CHECK(run.peak <= options.memory_limit);
            CHECK(run.peak > options.memory_limit / 4);
            CHECK(run.found.why == termination{stopped{limit::memory}});
        }
}

TEST_CASE("workers and what they learn stay within the memory that is set") {
    const auto m = knapsacks(60, 8);
    for (const std::size_t threads : {2U, 3U})
        for (const bool learns : {false, true}) {
            CAPTURE(threads);
            CAPTURE(learns);
            auto options = options_with(learns ? 6 * megabyte : 3 * megabyte / 4, threads);
            options.conflict_search = learns;
            options.node_limit = 2000;
            const auto run = measure(m, options);
            CHECK(run.peak <= options.memory_limit);
            CHECK(run.peak > options.memory_limit / 4);
            if (!learns) CHECK(run.found.stats.nodes > 0);
        }
}
