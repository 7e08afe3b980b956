#include "optpipe/pipeline/least_memory.hpp"

#include "optpipe/pipeline/make_problem.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

namespace {

using optpipe::duration;
using optpipe::memory_size;
using optpipe::per_stage;
using optpipe::rank;
using optpipe::stage;
using optpipe::transfer_times;

optpipe::problem on_one_rank(const std::vector<double>& activations) {
    const optpipe::any_graph g{1, 1, optpipe::placement::map<>{per_stage<rank>(activations.size())}};
    auto p = make_problem(g, optpipe::unit_memory{});
    for (const stage s : g.all_stages()) {
        p.change_stage(s, [&](auto& c) {
            c.activation = memory_size{activations[s.position()]};
            c.weight_stash = memory_size{};
            c.transfer = transfer_times{duration{1}, duration{1}};
        });
    }
    return p;
}

/// The memory that is needed if exactly `offloaded` leave, by walking through the forwards.
memory_size peak_without(const optpipe::problem& p, rank r, const std::vector<stage>& offloaded) {
    memory_size held{};
    memory_size peak{};
    for (const stage s : p.graph.all_stages()) {
        if (p.rank_of(s) != r) continue;
        held += p.costs[s].activation;
        peak = std::max(peak, held);
        if (std::find(offloaded.begin(), offloaded.end(), s) != offloaded.end()) held -= p.costs[s].activation;
    }
    return peak;
}

/// The stages of the rank that use an option with a transfer.
std::vector<stage> offloaded(const optpipe::problem& p, rank r, const optpipe::least_memory_result& found) {
    std::vector<stage> result;
    auto option = found.options.begin();
    for (const stage s : p.graph.all_stages())
        if (p.rank_of(s) == r && p.storage_of(s, *option++).offloads()) result.push_back(s);
    return result;
}
std::vector<stage> offloaded(const optpipe::problem& p, rank r) { return offloaded(p, r, least_memory(p, r)); }

memory_size on_host(const optpipe::problem& p, const std::vector<stage>& offloaded) {
    memory_size sum{};
    for (const stage s : offloaded)
        sum += p.costs[s].activation;
    return sum;
}

struct best_subset {
    memory_size needed = memory_size::unlimited();
    /// The least memory that must leave so that the rest fits into the limit of the rank; unlimited if it never fits.
    memory_size least_on_host = memory_size::unlimited();
};

/// Tries every subset of the stages that can be offloaded.
best_subset best_of_all_subsets(const optpipe::problem& p, rank r) {
    std::vector<stage> candidates;
    for (const stage s : p.graph.all_stages())
        if (p.rank_of(s) == r && p.whole_offload(s).has_value()) candidates.push_back(s);
    best_subset best;
    for (std::uint32_t mask = 0; mask < (1U << candidates.size()); ++mask) {
        std::vector<stage> offloaded;
        for (std::size_t i = 0; i < candidates.size(); ++i)
            if ((mask >> i & 1U) != 0) offloaded.push_back(candidates[i]);
        if (on_host(p, offloaded) > p.host_memory_limit[r]) continue;
        const auto peak = peak_without(p, r, offloaded);
        best.needed = std::min(best.needed, peak);
        if (peak <= p.memory_limit[r]) best.least_on_host = std::min(best.least_on_host, on_host(p, offloaded));
    }
    return best;
}

class random_problems {
public:
    explicit random_problems(unsigned seed) : random_{seed} {}

    /// The next problem. Sizes are whole, so that sums are exact and ties are common.
    optpipe::problem next() {
        const auto ranks = static_cast<std::size_t>(between(1, 3));
        const auto stages = static_cast<std::size_t>(between(1, 12));
        per_stage<rank> where(stages);
        for (auto& r : where)
            r = rank{between(0, static_cast<int>(ranks) - 1)};
        const optpipe::any_graph g{ranks, 1, optpipe::placement::map<>{where}};
        auto p = make_problem(g, optpipe::unit_memory{});
        p.change_stages([&](auto& c) {
            c.activation = memory_size{static_cast<double>(between(0, 20))};
            c.weight_stash = memory_size{static_cast<double>(between(0, 20))};
            if (between(0, 3) > 0) c.transfer = transfer_times{duration{1}, duration{1}};
        });
        for (const rank r : g.all_ranks()) {
            if (between(0, 3) > 0) p.host_memory_limit[r] = memory_size{static_cast<double>(between(0, 60))};
            if (between(0, 3) > 0) p.memory_limit[r] = memory_size{static_cast<double>(between(1, 60))};
        }
        return p;
    }

private:
    int between(int low, int high) { return std::uniform_int_distribution<int>{low, high}(random_); }
    std::mt19937 random_;
};

} // namespace

TEST_CASE("stashes pile up on a rank, unless they leave") {
    auto p = on_one_rank({4, 3, 2});
    CHECK(least_memory(p, rank{0}).needed == memory_size{4});
    p.change_stages([&](auto& c) { c.transfer = {}; });
    CHECK(least_memory(p, rank{0}).needed == memory_size{9});
    CHECK(offloaded(p, rank{0}).empty());
    p.change_stage(stage{0}, [&](auto& c) { c.transfer = transfer_times{}; });
    CHECK(least_memory(p, rank{0}).needed == memory_size{5});
    CHECK(offloaded(p, rank{0}).empty());
    p.memory_limit[rank{0}] = memory_size{5};
    CHECK(offloaded(p, rank{0}) == std::vector<stage>{stage{0}});
}

TEST_CASE("what the last stage of a rank stashes stays, and what W needs doesn't count") {
    auto p = on_one_rank({1, 7});
    p.costs[stage{1}].weight_stash = memory_size{100};
    p.memory_limit[rank{0}] = memory_size{7};
    CHECK(least_memory(p, rank{0}).needed == memory_size{7});
    CHECK(offloaded(p, rank{0}) == std::vector<stage>{stage{0}});
}

TEST_CASE("a rank without a stage needs nothing") {
    const optpipe::any_graph g{2, 1, optpipe::placement::map<>{per_stage<rank>(1)}};
    const auto p = make_problem(g, optpipe::unit_memory{});
    CHECK(least_memory(p, rank{1}).needed == memory_size{0});
    CHECK(offloaded(p, rank{1}).empty());
}

TEST_CASE("the host limits what may leave") {
    auto p = on_one_rank({4, 3, 2, 1});
    p.host_memory_limit[rank{0}] = memory_size{4};
    CHECK(least_memory(p, rank{0}).needed == memory_size{6});
    p.host_memory_limit[rank{0}] = memory_size{5};
    // 4 and then 3 don't fit the host. 3 and 2 do, but then 4 + 3 are on the device at once.
    CHECK(least_memory(p, rank{0}).needed == memory_size{6});
    p.host_memory_limit[rank{0}] = memory_size{0};
    CHECK(least_memory(p, rank{0}).needed == memory_size{10});
}

TEST_CASE("limits hold up to the tolerance") {
    auto p = on_one_rank({4, 3});
    p.memory_limit[rank{0}] = memory_size{4};
    p.host_memory_limit[rank{0}] = memory_size{4.0 - 1e-9};
    CHECK(least_memory(p, rank{0}).needed == memory_size{4});
    p.memory_limit[rank{0}] = memory_size{4.0 - 1e-9};
    CHECK(fits_one_at_a_time(p));
    p.memory_limit[rank{0}] = memory_size{3.99};
    CHECK_FALSE(fits_one_at_a_time(p));
    p.memory_limit[rank{0}] = memory_size{4};
    p.host_memory_limit[rank{0}] = memory_size{3.99};
    CHECK_FALSE(fits_one_at_a_time(p));
}

TEST_CASE("the best of all subsets") {
    constexpr unsigned seed = 71;
    random_problems problems{seed};
    int tight = 0;
    for (int i = 0; i < 2000; ++i) {
        INFO("seed ", seed, ", problem ", i);
        const auto p = problems.next();
        bool all_fit = true;
        for (const rank r : p.graph.all_ranks()) {
            const auto best = best_of_all_subsets(p, r);
            const auto found = least_memory(p, r);
            const auto leaving = offloaded(p, r, found);
            CHECK(found.needed == best.needed);
            CHECK(on_host(p, leaving) <= p.host_memory_limit[r]);
            for (const stage s : leaving)
                CHECK((p.rank_of(s) == r && p.whole_offload(s).has_value()));

            const bool fits = best.needed <= p.memory_limit[r];
            all_fit = all_fit && fits;
            if (fits) {
                CHECK(peak_without(p, r, leaving) <= p.memory_limit[r]);
                CHECK(on_host(p, leaving) == best.least_on_host);
            } else {
                CHECK(peak_without(p, r, leaving) == best.needed);
            }
            tight += fits && !leaving.empty() ? 1 : 0;
        }
        CHECK(fits_one_at_a_time(p) == all_fit);
    }
    CHECK(tight > 100);
}

TEST_CASE("few states are enough where the host has no limit") {
    // After the first stage all subsets have the same peak: the kept ones decide whether the last one fits.
    std::vector<double> activations{100};
    for (int i = 0; i < 12; ++i)
        activations.push_back(1.0 + 0.01 * (1 << i));
    activations.push_back(95);
    const auto p = on_one_rank(activations);
    CHECK(least_memory(p, rank{0}, 8).needed == memory_size{100});
    CHECK(least_memory(p, rank{0}, 1).needed == memory_size{100});
}

TEST_CASE("few states never promise too little") {
    constexpr unsigned seed = 72;
    random_problems problems{seed};
    for (int i = 0; i < 300; ++i) {
        INFO("seed ", seed, ", problem ", i);
        const auto p = problems.next();
        for (const rank r : p.graph.all_ranks()) {
            const auto few = least_memory(p, r, 2);
            CHECK(few.needed >= least_memory(p, r).needed);
            CHECK(on_host(p, offloaded(p, r, few)) <= p.host_memory_limit[r]);
        }
    }
}

namespace {

/// Tries every combination of storage options, by walking through the forwards and back.
void try_options(const optpipe::problem& p, const std::vector<stage>& stages, std::size_t at, memory_size left,
                 memory_size on_host, memory_size peak, memory_size host_limit, memory_size& best) {
    if (on_host > host_limit) return;
    if (at == stages.size()) {
        best = std::min(best, peak);
        return;
    }
    const stage s = stages[at];
    for (std::size_t i = 0; i < p.storage_options(s); ++i) {
        const auto o = p.storage_of(s, i);
        const auto back = o.recompute > duration{} ? p.costs[s].activation : o.held;
        try_options(p, stages, at + 1, left + o.held - o.transfer_size, on_host + o.transfer_size,
                    std::max({peak, left + o.held, left + back}), host_limit, best);
    }
}

/// Adds up to three options per stage, with whole sizes.
void add_options(std::mt19937& random, optpipe::problem& p) {
    const auto between = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    for (const stage s : p.graph.all_stages()) {
        if (between(0, 4) == 0) continue;
        const auto& c = p.costs[s];
        std::vector<optpipe::storage_option> options;
        for (int i = between(1, 3); i > 0; --i) {
            optpipe::storage_option o{optpipe::bounded_text<32>{"option-", i}, c.activation, {}, {}, {}, {}};
            o.held = memory_size{static_cast<double>(between(0, static_cast<int>(c.activation.value())))};
            if (between(0, 1) == 0) (between(0, 1) == 0 ? o.recompute : o.backward_extra) = duration{1};
            if (between(0, 1) == 0) {
                o.transfer = transfer_times{duration{1}, duration{1}};
                o.transfer_size = memory_size{static_cast<double>(between(0, static_cast<int>(o.held.value())))};
            }
            options.push_back(o);
        }
        p.set_storage(s, options);
    }
}

} // namespace

TEST_CASE("an option that the host has no room for doesn't lower the bound") {
    auto p = on_one_rank({4, 3});
    CHECK(least_memory(p, rank{0}).lower_bound == memory_size{4});
    p.host_memory_limit[rank{0}] = memory_size{3};
    CHECK(least_memory(p, rank{0}).lower_bound == memory_size{7});
}

TEST_CASE("the best of all storage options") {
    constexpr unsigned seed = 73;
    random_problems problems{seed};
    std::mt19937 random{seed};
    int limited = 0;
    int infeasible = 0;
    for (int i = 0; i < 2000; ++i) {
        INFO("seed ", seed, ", problem ", i);
        auto p = problems.next();
        add_options(random, p);
        if (p.graph.stages() > 8 || is_described_by_costs(p)) continue;
        for (const rank r : p.graph.all_ranks()) {
            std::vector<stage> stages;
            for (const stage s : p.graph.all_stages())
                if (p.rank_of(s) == r) stages.push_back(s);
            auto best = memory_size::unlimited();
            auto without_host_limit = best;
            try_options(p, stages, 0, {}, {}, {}, p.host_memory_limit[r], best);
            try_options(p, stages, 0, {}, {}, {}, memory_size::unlimited(), without_host_limit);
            const auto found = least_memory(p, r);
            CHECK(found.needed == best);
            CHECK(found.lower_bound <= best);
            limited += best > without_host_limit ? 1 : 0;
            if (best.is_unlimited()) {
                ++infeasible;
                CHECK_FALSE(fits_one_at_a_time(p));
                continue;
            }
            REQUIRE(found.options.size() == stages.size());
            memory_size left{};
            memory_size peak{};
            memory_size on_host{};
            for (std::size_t k = 0; k < stages.size(); ++k) {
                const auto o = p.storage_of(stages[k], found.options[k]);
                peak = std::max({peak, left + o.held, left + o.restored(p.costs[stages[k]])});
                left += o.left_on_device();
                on_host += o.transfer_size;
            }
            CHECK(peak == found.with_options);
            CHECK((best <= p.memory_limit[r] ? peak <= p.memory_limit[r] : peak == best));
            CHECK(on_host <= p.host_memory_limit[r]);
        }
    }
    CHECK(limited > 50);
    CHECK(infeasible > 10);
}
