#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/modulo/modulo_timeline.hpp"
#include "optpipe/planner/modulo/packing.hpp"
#include "optpipe/planner/modulo/pattern.hpp"
#include "optpipe/planner/modulo/slot_storage.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// The reservations of a rank, its copy engines and its link before another stage is placed.
struct rank_occupation {
    modulo_timeline compute;
    /// The timelines, indexed by direction (out, in). If both directions share an engine or link, the first entry is
    /// used.
    std::array<modulo_timeline, 2> engine;
    std::array<modulo_timeline, 2> link;
    std::vector<memory_interval> device{};
    std::vector<memory_interval> host{};
    /// Total duration of recomputation in a period.
    duration extra_work{};
};

/// Finds pattern slots for one stage between its neighbours. Each microbatch of the period gets a forward no later than
/// `latest_forward`, and a gradient no earlier than `earliest_gradient`.
class stage_fitter {
public:
    /// Attempts with numbers below `first_random_attempt` are systematic, and later attempts are random. If no other
    /// stage shares the rank or its link, `systematic_attempts` attempts include every systematic choice.
    static constexpr std::size_t first_random_attempt = 3;
    static constexpr std::size_t systematic_attempts = 6;
    /// Rounding error of sums of durations, in periods.
    static constexpr double rounding = 1e-9;

    struct neighbour_bounds {
        std::vector<double> latest_forward{};
        std::vector<double> earliest_gradient{};
    };

    stage_fitter(const problem& p, duration period, std::size_t periodicity, random_numbers& random)
        : p_{p}, random_{random}, period_{period.value()},
          periodicity_{periodicity}, slack_{tolerance{rounding}.at(period).value()},
          memory_slack_{0.5 * tolerance{}.at(p.memory_scale()).value()}, packing_{p, period_, periodicity, slack_} {
        for (const stage s : p.graph.all_stages())
            storage_.emplace_back(p, s, periodicity);
    }

    [[nodiscard]] bool possible() const { return packing_.possible(); }
    [[nodiscard]] double slack() const { return slack_; }
    [[nodiscard]] std::size_t work() const { return work_; }

    [[nodiscard]] rank_occupation empty_rank() const {
        const modulo_timeline all{period_ * static_cast<double>(periodicity_), slack_};
        return {all, {all, all}, {all, all}, {}, {}, {}};
    }
    /// Reserves time in `own` for the slots of stage `s` that use rank `r` or its link. `own` has the reservations of
    /// rank `r`.
    void occupy(rank_occupation& own, rank r, stage s, const std::vector<pattern_slot>& pattern_slots) const {
        const rank of = p_.rank_of(s);
        const auto& c = p_.costs[s];
        for (const auto& at : pattern_slots) {
            const auto& stored = storage_of(s, at);
            if (of == r) {
                own.compute.take(at.forward.value(), c.forward.value());
                own.compute.take(at.gradient.value(), gradient_length(s, at));
                if (!at.full) own.compute.take(at.weight.value(), c.backward_weight.value());
                if (stored.recomputes()) own.compute.take(at.recompute.value(), stored.recompute.value());
                append_memory_intervals(own.device, c, stored, at, memory_kind::device);
                append_memory_intervals(own.host, c, stored, at, memory_kind::host);
                own.extra_work += stored.extra_work();
            }
            if (!stored.offloads()) continue;
            for (const bool inward : {false, true}) {
                const auto start = (inward ? at.reload : at.offload).value();
                const auto length = (inward ? stored.transfer->reload : stored.transfer->offload).value();
                if (of == r) engine(own, inward).take(start, length);
                link(own, inward).take(start, length);
            }
        }
    }

    /// Attempts to place a stage with as little recomputation as memory allows. All attempts except the first few are
    /// random. Returns false if the attempt fails, and `pattern_slots` is then unspecified.
    bool attempt(stage s, const neighbour_bounds& around, rank_occupation own, std::size_t number, bool eager,
                 std::vector<pattern_slot>& pattern_slots) {
        const auto& c = p_.costs[s];
        const auto& storage = storage_[s.position()];
        const auto reserved = own.compute.mark();
        const bool full = !p_.split_backward || (p_.full_backward && storage.may_grow(c) && number % 4 == 3);
        for (const auto& choice : storage.choices()) {
            const auto extra = (own.extra_work + choice.extra_work).value();
            if (extra > packing_.spare(p_.rank_of(s)) + slack_ && extra > slack_) return false;
            ++work_;
            own.compute.undo(reserved);
            pattern_slots.assign(periodicity_, pattern_slot{});
            const auto families = families_of(storage, choice, number);
            for (std::size_t j = 0; j < periodicity_; ++j) {
                pattern_slots[j].full = full;
                pattern_slots[j].storage = families[j]->first();
            }
            if (place_compute(s, around, own.compute, number, pattern_slots) && packing_.fits(s, own.compute) &&
                place_stashes(s, own, families, eager, pattern_slots))
                return true;
        }
        return false;
    }
    [[nodiscard]] const storage_option& storage_of(stage s, const pattern_slot& at) const {
        return storage_[s.position()][at.storage];
    }
    /// The length of I, or of B.
    [[nodiscard]] double gradient_length(stage s, const pattern_slot& at) const {
        const auto& c = p_.costs[s];
        return ((at.full ? c.backward() : c.backward_input) + storage_of(s, at).backward_extra).value();
    }

private:
    /// Number of orders in which `place_transfers` places the transfers of a period.
    static constexpr unsigned transfer_orders = 7;
    /// The family of each slot's storage option.
    using slot_families = std::vector<const slot_storage::family*>;

    /// One family of a choice per slot, in random order if the attempt is random.
    slot_families families_of(const slot_storage& storage, const slot_storage::choice& choice, std::size_t number) {
        slot_families families;
        for (const auto level : choice.levels) {
            const auto& all = storage.families(level);
            const auto which = all.size() == 1 ? 0 : number < first_random_attempt ? number : random_.below(all.size());
            families.push_back(&all[which % all.size()]);
        }
        if (number >= first_random_attempt && choice.levels.front() != choice.levels.back())
            for (std::size_t i = families.size(); i > 1; --i)
                std::swap(families[i - 1], families[random_.below(i)]);
        return families;
    }

    // Computations.

    /// Places forwards and gradients first, then the weight gradients in the order of their gradients. Each forward or
    /// gradient is placed at the free time nearest to its operation on the neighbour stage.
    bool place_compute(stage s, const neighbour_bounds& around, modulo_timeline& lane, std::size_t number,
                       std::vector<pattern_slot>& pattern_slots) {
        const auto& c = p_.costs[s];
        bool ok = true;
        for (const auto item : items_in_order(number)) {
            auto& at = pattern_slots[item / 2];
            if (item % 2 == 0) {
                const auto latest = around.latest_forward[item / 2];
                ok = place_until(lane, latest, c.forward.value(), number, at.forward);
            } else {
                const auto restore = storage_of(s, at).recompute.value();
                const auto earliest =
                    std::max(around.earliest_gradient[item / 2], at.forward.value() + c.forward.value() + restore);
                ok = place_from(lane, earliest, gradient_length(s, at), number, at.gradient) &&
                     place_recomputation(s, lane, at, number) &&
                     (at.full || number % 3 != 1 || append_weight(s, lane, at));
            }
            if (!ok) return false;
        }
        return place_weights(s, lane, number, pattern_slots);
    }
    /// The order in which operations are placed. 2j stands for the forward of microbatch j, and 2j + 1 for its
    /// gradient. Each gradient comes after its forward.
    std::vector<std::size_t> items_in_order(std::size_t number) {
        std::vector<std::size_t> items;
        if (number < 2)
            for (std::size_t j = 0; j < periodicity_; ++j)
                items.push_back(2 * j);
        for (std::size_t j = 0; j < periodicity_; ++j) {
            if (number >= 2) items.push_back(2 * j);
            items.push_back(2 * j + 1);
        }
        if (number < first_random_attempt) return items;
        for (std::size_t i = items.size(); i > 1; --i)
            std::swap(items[i - 1], items[random_.below(i)]);
        for (std::size_t j = 0; j < periodicity_; ++j) {
            const auto f = std::find(items.begin(), items.end(), 2 * j);
            const auto g = std::find(items.begin(), items.end(), 2 * j + 1);
            if (g < f) std::iter_swap(f, g);
        }
        return items;
    }
    bool place_from(modulo_timeline& lane, double from, double length, std::size_t number, duration& start) {
        auto at = lane.first_free(from, length);
        if (at == modulo_timeline::never) return false;
        if (number >= first_random_attempt) {
            switch (random_.below(8)) {
            case 0:
            case 1: at = lane.push_right(at, length); break;
            case 2: at = lane.first_free(lane.push_right(at, length) + 2.0 * slack_, length); break;
            case 3: at = lane.first_free(at + some_length(), length); break;
            default: break;
            }
        }
        lane.take(at, length);
        start = duration{at};
        return true;
    }
    bool place_until(modulo_timeline& lane, double until, double length, std::size_t number, duration& start) {
        auto at = lane.last_free(until, length);
        if (at == -modulo_timeline::never) return false;
        if (number >= first_random_attempt) {
            switch (random_.below(8)) {
            case 0:
            case 1: at = lane.push_left(at); break;
            case 2: at = lane.last_free(lane.push_left(at) - 2.0 * slack_, length); break;
            case 3: at = lane.last_free(at - some_length(), length); break;
            default: break;
            }
        }
        lane.take(at, length);
        start = duration{at};
        return true;
    }
    /// A random duration of a delay, which may leave a gap for another operation.
    double some_length() {
        const auto& c = p_.costs[stage{random_.below(p_.graph.stages())}];
        switch (random_.below(3)) {
        case 0: return c.forward.value();
        case 1: return c.backward_input.value();
        default: return c.backward_weight.value();
        }
    }
    /// Places the recomputation as late as its gradient allows.
    bool place_recomputation(stage s, modulo_timeline& lane, pattern_slot& at, std::size_t number) {
        const auto& stored = storage_of(s, at);
        if (!stored.recomputes()) return true;
        const auto length = stored.recompute.value();
        return place_until(lane, at.gradient.value() - length, length, number, at.recompute) &&
               at.recompute >= at.forward + p_.costs[s].forward;
    }
    /// If the time right after I is free, places W there. `place_weights` doesn't move a W that directly follows its I.
    bool append_weight(stage s, modulo_timeline& lane, pattern_slot& at) {
        const auto end = at.gradient.value() + gradient_length(s, at);
        const auto length = p_.costs[s].backward_weight.value();
        at.weight = duration{modulo_timeline::never};
        if (!lane.is_free(end, length)) return true;
        lane.take(end, length);
        at.weight = duration{end};
        return true;
    }
    bool place_weights(stage s, modulo_timeline& lane, std::size_t number, std::vector<pattern_slot>& pattern_slots) {
        std::vector<std::size_t> waiting;
        for (std::size_t j = 0; j < periodicity_; ++j) {
            const bool appended =
                pattern_slots[j].weight > duration{} && pattern_slots[j].weight.value() != modulo_timeline::never;
            if (!pattern_slots[j].full && !(appended && pattern_slots[j].weight >= pattern_slots[j].gradient))
                waiting.push_back(j);
        }
        std::sort(waiting.begin(), waiting.end(),
                  [&](std::size_t a, std::size_t b) { return pattern_slots[a].gradient < pattern_slots[b].gradient; });
        for (const auto j : waiting) {
            const auto length = p_.costs[s].backward_weight.value();
            const auto from = pattern_slots[j].gradient.value() + gradient_length(s, pattern_slots[j]);
            if (!place_from(lane, from, length, number, pattern_slots[j].weight)) return false;
        }
        return true;
    }

    // Memory.

    bool holds(const std::vector<memory_interval>& all, memory_size limit, double length) {
        return limit.is_unlimited() || peak_of_intervals(all, length, slack_) <= limit.value() + memory_slack_;
    }
    bool fits_device(stage s, rank_occupation& own, const std::vector<pattern_slot>& pattern_slots) {
        const rank r = p_.rank_of(s);
        const auto device = own.device.size();
        const auto host = own.host.size();
        for (const auto& at : pattern_slots) {
            append_memory_intervals(own.device, p_.costs[s], storage_of(s, at), at, memory_kind::device);
            append_memory_intervals(own.host, p_.costs[s], storage_of(s, at), at, memory_kind::host);
        }
        ++work_;
        const auto length = own.compute.period();
        const bool fits =
            holds(own.device, p_.memory_limit[r], length) && holds(own.host, p_.host_memory_limit[r], length);
        own.device.resize(device);
        own.host.resize(host);
        return fits;
    }
    bool place_stashes(stage s, rank_occupation& own, const slot_families& families, bool eager,
                       std::vector<pattern_slot>& pattern_slots) {
        std::uint32_t must = 0;
        std::uint32_t may = 0;
        std::size_t variants = 0;
        for (std::size_t j = 0; j < periodicity_; ++j) {
            if (!families[j]->kept) must |= 1U << j;
            if (!families[j]->offloaded.empty()) may |= 1U << j;
            variants = std::max(variants, families[j]->offloaded.size());
        }
        const bool may_keep = must == 0;
        if (may_keep && (may == 0 || !eager) && fits_device(s, own, pattern_slots)) return true;
        if (may == 0) return false;
        for (const auto set : offloaded_sets(eager)) {
            if ((set & must) != must || (set & may) != set) continue;
            for (std::size_t variant = 0; variant < variants; ++variant)
                for (unsigned way = 0; way < transfer_orders; ++way)
                    if (offload(s, own, families, set, variant, way, pattern_slots)) return true;
        }
        return may_keep && eager && fits_device(s, own, pattern_slots);
    }
    /// Offloads the stashes of a set of slots. Each slot gets one of its offloading storage options. Returns false,
    /// without changes, if the transfers or the stashes don't fit.
    bool offload(stage s, rank_occupation& own, const slot_families& families, std::uint32_t set, std::size_t variant,
                 unsigned way, std::vector<pattern_slot>& pattern_slots) {
        const std::array marks{own.engine[0].mark(), own.engine[1].mark(), own.link[0].mark(), own.link[1].mark()};
        for (std::size_t j = 0; j < periodicity_; ++j)
            if ((set >> j & 1U) != 0) {
                const auto& options = families[j]->offloaded;
                pattern_slots[j].storage = options[std::min(variant, options.size() - 1)];
            }
        if (place_transfers(s, own, set, way, pattern_slots) && fits_device(s, own, pattern_slots)) return true;
        for (std::size_t i = 0; i < 2; ++i) {
            own.engine[i].undo(marks[i]);
            own.link[i].undo(marks[2 + i]);
        }
        for (std::size_t j = 0; j < periodicity_; ++j)
            pattern_slots[j].storage = families[j]->first();
        return false;
    }
    [[nodiscard]] std::vector<std::uint32_t> offloaded_sets(bool eager) const {
        std::vector<std::uint32_t> sets;
        for (std::uint32_t set = 1; set < (1U << periodicity_); ++set)
            sets.push_back(set);
        std::stable_sort(sets.begin(), sets.end(), [&](std::uint32_t a, std::uint32_t b) {
            return eager ? std::popcount(a) > std::popcount(b) : std::popcount(a) < std::popcount(b);
        });
        return sets;
    }
    modulo_timeline& engine(rank_occupation& own, bool inward) const {
        return own.engine[copy_engine_of(p_.transfer, inward)];
    }
    modulo_timeline& link(rank_occupation& own, bool inward) const {
        return own.link[host_channel_of(p_.transfer, inward)];
    }
    /// Places offloads as early and reloads as late as the engine and the link allow. `way` determines whether
    /// transfers are placed kind by kind, pair by pair, or in random order.
    bool place_transfers(stage s, rank_occupation& own, std::uint32_t set, unsigned way,
                         std::vector<pattern_slot>& pattern_slots) {
        std::vector<std::size_t> offloaded;
        for (std::size_t j = 0; j < periodicity_; ++j)
            if ((set >> j & 1U) != 0) {
                offloaded.push_back(j);
                pattern_slots[j].offload = duration{-modulo_timeline::never};
                pattern_slots[j].reload = duration{modulo_timeline::never};
            }
        if (way == 3) std::reverse(offloaded.begin(), offloaded.end());
        work_ += offloaded.size();
        const auto all = [&](bool inward) {
            return std::all_of(offloaded.begin(), offloaded.end(),
                               [&](std::size_t j) { return put_transfer(s, own, inward, pattern_slots[j]); });
        };
        if (way > 3) return put_at_random(s, own, offloaded, pattern_slots);
        if (way == 0 || way == 3) return all(false) && all(true);
        if (way == 1) return all(true) && all(false);
        return std::all_of(offloaded.begin(), offloaded.end(), [&](std::size_t j) {
            return put_transfer(s, own, false, pattern_slots[j]) && put_transfer(s, own, true, pattern_slots[j]);
        });
    }
    bool put_at_random(stage s, rank_occupation& own, const std::vector<std::size_t>& offloaded,
                       std::vector<pattern_slot>& pattern_slots) {
        std::vector<std::size_t> items;
        for (const auto j : offloaded) {
            items.push_back(2 * j);
            items.push_back(2 * j + 1);
        }
        for (std::size_t i = items.size(); i > 1; --i)
            std::swap(items[i - 1], items[random_.below(i)]);
        return std::all_of(items.begin(), items.end(),
                           [&](std::size_t i) { return put_transfer(s, own, i % 2 == 1, pattern_slots[i / 2]); });
    }
    bool put_transfer(stage s, rank_occupation& own, bool inward, pattern_slot& at) {
        const auto& c = p_.costs[s];
        const auto& stored = storage_of(s, at);
        const auto length = (inward ? stored.transfer->reload : stored.transfer->offload).value();
        auto early = (at.forward + c.forward).value();
        auto late = (stored.recomputes() ? at.recompute : at.gradient).value() - length;
        if (inward)
            early = std::max(early, (at.offload + stored.transfer->offload).value());
        else
            late = std::min(late, at.reload.value() - length);
        auto& first = engine(own, inward);
        auto& second = link(own, inward);
        auto start = inward ? late : early;
        for (auto moves = 2 + first.mark() + second.mark(); moves > 0; --moves) {
            if (start < early - slack_ || start > late + slack_) return false;
            const auto next = inward ? second.last_free(first.last_free(start, length), length)
                                     : second.first_free(first.first_free(start, length), length);
            if (!std::isfinite(next)) return false;
            if (next != start) {
                start = next;
                continue;
            }
            first.take(start, length);
            second.take(start, length);
            (inward ? at.reload : at.offload) = duration{start};
            return true;
        }
        return false;
    }

    const problem& p_;
    random_numbers& random_;
    double period_;
    std::size_t periodicity_;
    double slack_;
    double memory_slack_;
    modulo_packing packing_;
    /// Storage of each stage.
    std::vector<slot_storage> storage_{};
    std::size_t work_ = 0;
};

} // namespace optpipe::detail
