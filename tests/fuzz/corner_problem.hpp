#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/testing/random_problem.hpp"

#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

/// Random problems at the limits of the format. Some can't be planned, some are contradictory.
namespace fuzz {

class corner_maker {
public:
    explicit corner_maker(optpipe::random_numbers& random) : random_{random} {}

    optpipe::problem make() {
        auto p = optpipe::testing::make_random_problem(random_, ranges()).problem;
        if (chance(25)) zero_memory(p);
        if (chance(35)) instant_transfers(p);
        if (chance(15)) equal_times(p);
        if (chance(20)) scale_times(p);
        if (chance(10)) scale_memory(p);
        if (chance(10)) p.p2p = optpipe::hop_times<>{chance(50) ? optpipe::duration{} : optpipe::duration{1e6}};
        if (chance(15)) p.objective = optpipe::objective_kind::span;
        if (chance(15)) p.split_backward = false;
        if (chance(60)) limit_memory(p);
        if (chance(30)) limit_host_memory(p);
        if (chance(3)) add_idle_rank(p);
        return p;
    }

private:
    [[nodiscard]] bool chance(std::size_t percent) { return random_.chance(percent); }

    optpipe::testing::problem_ranges ranges() {
        optpipe::testing::problem_ranges r;
        switch (random_.below(5)) {
        case 0: r = {.ranks = 1, .stages = 4, .microbatches = 6, .cells = 12}; break;
        case 1: r = {.ranks = 4, .stages = 8, .microbatches = 1}; break;
        case 2: r = {.ranks = 2, .stages = 2, .microbatches = 20, .cells = 40}; break;
        case 3: r = {.ranks = 6, .stages = 8, .microbatches = 6, .cells = 36}; break;
        default: break;
        }
        r.offloading_percent = 60;
        return r;
    }
    /// A power of ten from 1e-6 to 1e9.
    double some_scale() { return std::pow(10.0, static_cast<double>(random_.below(16)) - 6.0); }

    void zero_memory(optpipe::problem& p) {
        const bool all = chance(30);
        p.change_stages([&](auto& c) {
            if (all || chance(30)) c.activation = optpipe::memory_size{};
            if (all || chance(30)) c.weight_stash = optpipe::memory_size{};
        });
    }
    void instant_transfers(optpipe::problem& p) {
        const bool both = chance(70);
        p.change_stages([&](auto& c) {
            if (chance(20)) return;
            if (!c.transfer) c.transfer = optpipe::transfer_times{optpipe::duration{1.0}, optpipe::duration{1.0}};
            if (both || chance(50)) c.transfer->offload = optpipe::duration{};
            if (both || chance(50)) c.transfer->reload = optpipe::duration{};
        });
    }
    void equal_times(optpipe::problem& p) {
        const optpipe::duration one{some_scale()};
        p.change_stages([&](auto& c) {
            c.forward = c.backward_input = c.backward_weight = one;
            if (c.transfer) *c.transfer = {one, one};
        });
    }
    void scale_times(optpipe::problem& p) {
        const bool by_stage = chance(50);
        const std::vector<double> scales{some_scale(), some_scale() / 3.0, some_scale()};
        p.change_stages([&](auto& c) {
            const auto pick = random_.below(scales.size());
            const auto scale = [&] { return scales[by_stage ? pick : random_.below(scales.size())]; };
            c.forward = scale() * c.forward;
            c.backward_input = scale() * c.backward_input;
            c.backward_weight = scale() * c.backward_weight;
            if (c.transfer) *c.transfer = {scale() * c.transfer->offload, scale() * c.transfer->reload};
        });
    }
    void scale_memory(optpipe::problem& p) {
        p.change_stages([&](auto& c) {
            c.activation = some_scale() * c.activation;
            c.weight_stash = (chance(50) ? 1.0 : some_scale()) * c.weight_stash;
        });
    }
    /// A factor of the need: 1, slightly less or more, or a part.
    double around() {
        constexpr double factors[] = {1.0, 1.0, 1.0, 1.0 + 1e-9, 1.0 - 1e-9, 1.0 + 1e-5, 1.0 - 1e-5, 1.5, 0.5, 0.0};
        return factors[random_.below(std::size(factors))];
    }
    void limit_memory(optpipe::problem& p) {
        const double factor = chance(70) ? 1.0 : around();
        for (const optpipe::rank r : p.graph.all_ranks()) {
            p.memory_limit[r] = optpipe::memory_size::unlimited();
            const auto needed = least_memory(p, r).needed;
            if (chance(85)) p.memory_limit[r] = factor * needed;
        }
    }
    void limit_host_memory(optpipe::problem& p) {
        const double factor = around();
        for (const optpipe::stage s : p.graph.all_stages())
            if (chance(70))
                p.host_memory_limit[p.rank_of(s)] =
                    static_cast<double>(1 + random_.below(2)) * factor * p.costs[s].activation;
    }
    static void add_idle_rank(optpipe::problem& p) {
        auto map = optpipe::per_stage<optpipe::rank>(p.graph.stages());
        for (const optpipe::stage s : p.graph.all_stages())
            map[s] = p.rank_of(s);
        optpipe::problem wider{{p.graph.ranks() + 1, p.graph.microbatches(), optpipe::placement::map<>{std::move(map)}},
                               p.costs};
        wider.split_backward = p.split_backward;
        wider.objective = p.objective;
        p = std::move(wider);
    }

    optpipe::random_numbers& random_;
};

} // namespace fuzz
