#include "optpipe/schedule/dispatch/memory_ledger.hpp"

#include "optpipe/core/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace optpipe;

namespace {

struct known_release {
    duration when{};
    memory_size amount{};
};

/// The first of `t` and the later releases at which `amount` fits, by trying all of them.
duration first_fit(const std::vector<known_release>& releases, memory_size held, memory_size limit, memory_size amount,
                   duration t) {
    auto first = duration::unlimited();
    const auto try_at = [&](duration now) {
        auto level = held + amount;
        for (const auto& each : releases)
            if (each.when <= now) level -= each.amount;
        if (now >= t && level <= limit) first = std::min(first, now);
    };
    try_at(t);
    for (const auto& each : releases)
        try_at(each.when);
    return first;
}

} // namespace

TEST_CASE("an amount fits at the first release that makes enough room, in whatever order releases become known") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto size = [&] { return memory_size{static_cast<double>(random.between(1, 4))}; };
        const auto time = [&](double from) { return duration{from + static_cast<double>(random.below(8))}; };
        constexpr memory_size limit{10.0};
        detail::memory_ledger ledger{limit};
        std::vector<known_release> releases;
        memory_size held{};
        for (std::size_t step = 0; step < 20; ++step) {
            const double now = static_cast<double>(step / 2);
            const auto amount = size();
            const auto start = ledger.first_fit(amount, duration{now});
            REQUIRE(start == first_fit(releases, held, limit, amount, duration{now}));
            if (start.is_unlimited()) break;
            ledger.advance(duration{now});
            CHECK(ledger.fits(amount) == (start == duration{now}));
            if (start > duration{now}) continue;
            ledger.acquire(amount, start);
            held += amount;
            releases.push_back({time(now + 1.0), amount});
            ledger.release(amount, releases.back().when);
        }
    }
}

TEST_CASE("nothing fits before the last acquisition of an order, and nothing fits that is never released") {
    detail::memory_ledger ledger{memory_size{2.0}};
    ledger.acquire(memory_size{1.0}, duration{5.0});
    CHECK(ledger.first_fit(memory_size{1.0}, duration{3.0}) == duration{5.0});
    CHECK(ledger.first_fit(memory_size{2.0}, duration{3.0}).is_unlimited());
    ledger.release(memory_size{1.0}, duration{7.0});
    CHECK(ledger.first_fit(memory_size{2.0}, duration{3.0}) == duration{7.0});
    ledger.clear();
    CHECK(ledger.first_fit(memory_size{2.0}, duration{3.0}) == duration{3.0});
}
