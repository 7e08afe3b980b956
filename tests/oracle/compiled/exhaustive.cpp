#include "oracle/exhaustive.hpp"

#include "optpipe/schedule/rules/storage_of_transfers.hpp"

#include <algorithm>
#include <array>
#include <bitset>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace oracle {

namespace {

/// Finds the best schedule of a tiny problem by looking at all candidates for it. Shares only the data types with the
/// library. Times are whole ticks, so nothing is rounded.
///
/// Operations are chosen in nondecreasing order of their starts, each at the earliest instant that the operations
/// before it allow. For makespan this is exact. Let S be an optimal schedule whose starts have the least sum. Choosing
/// its operations in order of their starts places none later than S does: inputs and lanes end no later, and every
/// memory has allocated the same and freed no less. So all of them are placed exactly as in S, in that order, and a
/// child that would start before its parent never needs to be looked at.
///
/// Other nodes that are left out:
/// - If all microbatches are alike, F(0,0), F(0,1), … may start in this order. On one rank, W(s,a) and W(s,b) may
///   exchange places if both could run and cost the same, so they follow the order of I(s,a) and I(s,b). Neither
///   changes the sum of starts.
/// - B if it may be split and `weight_stash` is at most `activation`: I, followed at once by W, ends when B does and
///   never holds more. Transfers of a rank without a memory limit: without them the rest stays valid.
/// - With storage options, each F is tried with each option of its stage. All arguments here hold among schedules of
///   equal options; schedules that differ only in the names of microbatches are represented by one.
/// - A node for which an earlier node has placed the same operations with the same options, each at the same time or
///   earlier. Any completion of this node to S would complete the earlier one to a schedule as good, with starts of a
///   smaller sum, unless both are the same.
///
/// For span a rank may gain by starting later, so the first operation of each rank is tried at every tick. That is
/// exact if ticks are fine enough. With the order of everything in an optimal schedule fixed, the best times solve
/// linear inequalities x_j − x_i ≥ w and x_last − x_first + d ≤ T. So T is the greatest (sum of w) / (number of T) over
/// their cycles, which pass each rank at most once. If all times are multiples of g, T and some optimal x are multiples
/// of g / k with k ≤ ranks. With the first starts given, all other operations are placed early as above. Once all else
/// has ended, and every message arrived, starting later only moves the rest as a whole.
class exhaustive_search {
public:
    using ticks = std::int32_t;

    exhaustive_search(const optpipe::problem& p, double tick, std::size_t node_limit)
        : p_{p}, tick_{tick}, limit_{node_limit}, span_{p.objective == optpipe::objective_kind::span},
          stages_{p.graph.stages()}, count_{p.graph.microbatches()}, ranks_{p.graph.ranks()} {
        if (kinds * stages_ * count_ > most_operations) std::abort();
        for (std::size_t s = 0; s < stages_; ++s)
            rank_.push_back(p.rank_of(optpipe::stage{s}).position());
        for (const optpipe::stage s : p.graph.all_stages())
            for (const optpipe::microbatch m : p.graph.all_microbatches()) {
                options_.emplace_back();
                for (std::size_t o = 0; o < (decides_later(s) ? 1 : p.storage[s].size()); ++o)
                    options_.back().push_back(stored_as(s, m, o));
            }
        describe_inputs();
        describe_memory();
    }

    optimum run(std::optional<double> known) {
        best_ = known ? static_cast<ticks>(std::llround(*known / tick_)) : one_after_the_other() + 1;
        state root;
        root.start.fill(unplaced);
        root.first.fill(unplaced);
        root.option.fill(undecided);
        for (std::size_t s = 0; s < stages_; ++s)
            for (std::size_t m = 0; m < count_; ++m)
                root.work_left[rank_[s]] += least_work(s, m);
        expand(root);
        optimum result;
        result.nodes = nodes_;
        result.proven = nodes_ < limit_;
        if (found_) result.schedule = schedule_of(*found_);
        if (found_) result.objective = tick_ * best_;
        if (!found_) result.objective = known;
        return result;
    }

private:
    enum kind : std::size_t { forward, input, weight, full, offload, reload, recompute, kinds };
    static constexpr std::size_t most_operations = 80;
    static constexpr std::size_t most_cells = most_operations / kinds;
    static constexpr std::uint8_t undecided = 255;
    static constexpr ticks unplaced = -1;
    static constexpr ticks never = std::numeric_limits<ticks>::max() / 4;

    struct amounts {
        double at_start = 0.0, at_end = 0.0;
    };
    struct placed_operation {
        std::uint8_t id;
        std::uint8_t rank;
        ticks start, end;
        amounts device, host;
    };
    /// One time per rank; there are no more ranks than cells.
    using rank_times = std::array<ticks, most_cells>;
    /// One time per engine of a rank, or per link: out and in.
    using transfer_times = std::array<ticks, 2 * most_cells>;
    /// How a stash is stored, which decides all lengths.
    struct stored {
        std::array<ticks, kinds> lengths{};
        double held = 0.0, restored = 0.0, moved = 0.0;
        /// If there is nothing but `keep` and `offload`, the offload is decided later.
        bool may_leave = false, must_leave = false;
    };
    struct state {
        std::array<ticks, most_operations> start;
        std::bitset<most_operations> mask;
        /// The storage option of each cell whose F has been placed.
        std::array<std::uint8_t, most_cells> option;
        ticks last_start = 0;
        rank_times compute_free{}, first{}, work_left{};
        transfer_times engine_free{}, link_free{};
        std::vector<placed_operation> placed;
    };

    [[nodiscard]] ticks in_ticks(optpipe::duration d) const {
        const double exact = d.value() / tick_;
        if (std::abs(exact - std::round(exact)) > 1e-6) std::abort();
        return static_cast<ticks>(std::llround(exact));
    }
    /// The sum of all lengths and delays, each cell with its longest option. If any schedule is valid, there is a valid
    /// one that waits only for running operations and messages in flight, and so isn't longer than this.
    [[nodiscard]] ticks one_after_the_other() const {
        ticks total = 0;
        for (const auto& options : options_) {
            ticks longest = 0;
            for (const auto& o : options) {
                const auto& d = o.lengths;
                longest = std::max(longest, d[forward] + d[full] + d[offload] + d[reload] + d[recompute]);
            }
            total += longest;
        }
        for (const auto& inputs : inputs_)
            for (const auto& [before, delay] : inputs)
                total += delay;
        return total;
    }
    [[nodiscard]] stored stored_as(optpipe::stage s, optpipe::microbatch m, std::size_t option) const {
        const auto& c = p_.costs[s];
        const auto& f = p_.microbatches.factors(s, m);
        const auto& listed = decides_later(s) ? p_.storage[s].back() : p_.storage[s][option];
        const auto& times = listed.transfer;
        stored o;
        o.lengths[forward] = in_ticks(f.forward * c.forward);
        if (has_gradients(s))
            o.lengths[input] = in_ticks(f.backward_input * c.backward_input + f.forward * listed.backward_extra);
        if (has_weights(s)) o.lengths[weight] = in_ticks(f.backward_weight * c.backward_weight);
        o.lengths[full] = o.lengths[input] + o.lengths[weight]; // the gradient's time, if there are no weights
        if (times) o.lengths[offload] = in_ticks(f.memory * times->offload);
        if (times) o.lengths[reload] = in_ticks(f.memory * times->reload);
        o.may_leave = times.has_value();
        o.must_leave = !decides_later(s) && times;
        o.lengths[recompute] = in_ticks(f.forward * listed.recompute);
        o.held = f.memory * listed.held.value();
        o.restored = o.lengths[recompute] == 0 ? o.held : f.memory * c.activation.value();
        o.moved = f.memory * listed.transfer_size.value();
        return o;
    }
    [[nodiscard]] bool has_gradients(optpipe::stage s) const {
        return p_.costs[s].gradients != optpipe::gradient_kind::none;
    }
    [[nodiscard]] bool has_weights(optpipe::stage s) const {
        return p_.costs[s].gradients == optpipe::gradient_kind::full;
    }
    [[nodiscard]] bool has_gradients(std::size_t s) const { return has_gradients(optpipe::stage{s}); }
    [[nodiscard]] bool has_weights(std::size_t s) const { return has_weights(optpipe::stage{s}); }
    [[nodiscard]] double weight_stash(std::size_t s, std::size_t m) const {
        if (!has_weights(s)) return 0.0;
        return memory_factor(s, m) * p_.costs[optpipe::stage{s}].weight_stash.value();
    }
    [[nodiscard]] double memory_factor(std::size_t s, std::size_t m) const {
        return p_.microbatches.factors(optpipe::stage{s}, optpipe::microbatch{m}).memory;
    }
    [[nodiscard]] bool same_sequence(std::size_t m, std::size_t next) const {
        const auto after = p_.microbatches.slice_after(optpipe::microbatch{m});
        return next < count_ && after && after->position() == next;
    }

    /// Rules 2 and 3: what each F and each gradient waits for, but for its own F. The gradient stands for I or B.
    void describe_inputs() {
        inputs_.resize(2 * stages_ * count_);
        for (std::size_t m = 0; m < count_; ++m) {
            for (const optpipe::stage to : p_.graph.all_stages())
                p_.graph.for_each_edge_into(to, [&](const optpipe::edge& e) { describe_edge(e, m); });
            for (std::size_t s = 0; s < stages_; ++s)
                p_.groups.for_each_member(optpipe::stage{s}, [&](optpipe::stage member, optpipe::duration delay) {
                    wait(input, s, m, {id(forward, member.position(), m), in_ticks(delay)});
                });
            for (std::size_t s = 0; s < stages_ && same_sequence(m, m + 1); ++s) {
                wait(forward, s, m + 1, {id(forward, s, m), 0});
                if (has_gradients(s)) wait(input, s, m, {id(input, s, m + 1), 0});
            }
        }
    }
    void describe_edge(const optpipe::edge& e, std::size_t m) {
        const auto from = e.from.position();
        const auto to = e.to.position();
        const double size = e.size * p_.microbatches.factors(e.from, optpipe::microbatch{m}).message;
        const auto delay = [&](std::size_t a, std::size_t b) {
            return in_ticks(size * p_.p2p(optpipe::rank{rank_[a]}, optpipe::rank{rank_[b]}));
        };
        wait(forward, to, m, {id(forward, from, m), delay(from, to)});
        const bool both = has_gradients(from) && has_gradients(to);
        if (both) wait(input, from, m, {id(input, to, m), delay(to, from)});
        const double held = memory_factor(from, m) * e.held.value();
        hold(id(forward, from, m), id(forward, to, m), rank_[from], held);
        if (both) hold(id(input, to, m), id(input, from, m), rank_[to], held);
    }
    struct awaited {
        std::size_t op;
        ticks delay;
    };
    void wait(kind k, std::size_t s, std::size_t m, awaited before) { inputs_[id(k, s, m)].push_back(before); }
    /// Memory of a rank from the start of an F or gradient to the end of another one.
    void hold(std::size_t from, std::size_t to, std::size_t r, double size) {
        taken_.resize(2 * stages_ * count_);
        freed_.resize(2 * stages_ * count_ * ranks_);
        taken_[from] += size;
        freed_[to * ranks_ + r] += size;
        memory_eps_ = std::max(memory_eps_, 1e-9 * size);
    }

    /// Rule 8, but for the stashes: keys and values of slices.
    void describe_memory() {
        for (std::size_t s = 0; s < stages_; ++s)
            for (std::size_t m = 0; m < count_; ++m) {
                const auto& c = p_.costs[optpipe::stage{s}];
                hold(id(forward, s, m), id(forward, s, m), rank_[s], 0.0);
                memory_eps_ = std::max(
                    {memory_eps_, 1e-9 * memory_factor(s, m) * c.activation.value(), 1e-9 * weight_stash(s, m)});
                auto last = m;
                while (same_sequence(last, last + 1))
                    ++last;
                if (last == m && (m == 0 || !same_sequence(m - 1, m))) continue;
                const double kv = memory_factor(s, m) * c.kv.value();
                hold(id(forward, s, m), has_gradients(s) ? id(input, s, m) : id(forward, s, last), rank_[s], kv);
                if (last != m && has_gradients(s)) hold(id(input, s, last), id(input, s, m), rank_[s], kv);
            }
        for (const optpipe::rank r : p_.graph.all_ranks())
            full_stash_.push_back(everything_stashed(r));
    }

    /// Whether the two options differ by the transfers alone, so that one node can stand for both until the OFFLOAD.
    [[nodiscard]] bool decides_later(optpipe::stage s) const {
        return optpipe::is_described_by_costs(p_.costs[s], p_.storage[s]);
    }
    [[nodiscard]] static ticks work(const stored& o) {
        return o.lengths[forward] + o.lengths[full] + o.lengths[recompute];
    }
    [[nodiscard]] ticks least_work(std::size_t s, std::size_t m) const {
        ticks least = never;
        for (const auto& o : options_[s * count_ + m])
            least = std::min(least, work(o));
        return least;
    }
    [[nodiscard]] double everything_stashed(optpipe::rank r) const {
        double total = 0.0;
        for (std::size_t s = 0; s < stages_; ++s)
            for (std::size_t m = 0; m < count_ && rank_[s] == r.position(); ++m) {
                const double activation = memory_factor(s, m) * p_.costs[optpipe::stage{s}].activation.value();
                total += std::max(activation, weight_stash(s, m)) + taken_[id(forward, s, m)] + taken_[id(input, s, m)];
            }
        return total;
    }

    [[nodiscard]] std::size_t id(kind k, std::size_t s, std::size_t m) const { return (k * stages_ + s) * count_ + m; }
    [[nodiscard]] kind kind_of(std::size_t op) const { return static_cast<kind>(op / (stages_ * count_)); }
    [[nodiscard]] std::size_t stage_of(std::size_t op) const { return op / count_ % stages_; }
    [[nodiscard]] std::size_t microbatch_of(std::size_t op) const { return op % count_; }
    static bool has(const state& n, std::size_t op) { return n.mask[op]; }
    [[nodiscard]] bool has(const state& n, kind k, std::size_t s, std::size_t m) const { return has(n, id(k, s, m)); }
    [[nodiscard]] ticks end(const state& n, kind k, std::size_t s, std::size_t m) const {
        return n.start[id(k, s, m)] + storage(n, s, m).lengths[k];
    }
    /// The storage of a cell whose F has been placed.
    [[nodiscard]] const stored& storage(const state& n, std::size_t s, std::size_t m) const {
        return options_[s * count_ + m][n.option[s * count_ + m]];
    }
    [[nodiscard]] const stored& storage(const state& n, std::size_t op) const {
        return storage(n, stage_of(op), microbatch_of(op));
    }
    [[nodiscard]] bool has_gradient(const state& n, std::size_t s, std::size_t m) const {
        return has(n, input, s, m) || has(n, full, s, m);
    }
    [[nodiscard]] ticks gradient_end(const state& n, std::size_t s, std::size_t m) const {
        return end(n, has(n, full, s, m) ? full : input, s, m);
    }
    /// Whether an F or gradient has been placed, and its end.
    [[nodiscard]] bool is_over(const state& n, std::size_t op) const {
        return kind_of(op) == forward ? has(n, op) : has_gradient(n, stage_of(op), microbatch_of(op));
    }
    [[nodiscard]] ticks end_of(const state& n, std::size_t op) const {
        if (kind_of(op) == input) return gradient_end(n, stage_of(op), microbatch_of(op));
        return end(n, forward, stage_of(op), microbatch_of(op));
    }
    [[nodiscard]] bool may_split(std::size_t s) const {
        return p_.split_backward || p_.costs[optpipe::stage{s}].gradients == optpipe::gradient_kind::input;
    }
    [[nodiscard]] static bool is_transfer(kind k) { return k == offload || k == reload; }

    // Which operations may be chosen, and when their inputs are there. `never`: not now, or not at all.

    [[nodiscard]] ticks ready(const state& n, kind k, std::size_t s, std::size_t m) const {
        if (has(n, k, s, m)) return never;
        switch (k) {
        case forward: return ready_forward(n, s, m);
        case input: return has_gradients(s) && may_split(s) ? ready_gradient(n, s, m) : never;
        case full:
            if (!has(n, forward, s, m) || !p_.full_backward || !has_weights(s)) return never;
            return !p_.split_backward || more_weight_than_stash(n, s, m) ? ready_gradient(n, s, m) : never;
        case weight: return has_weights(s) && has(n, input, s, m) && next_weight(n, s, m) ? end(n, input, s, m) : never;
        case offload:
            if (!has(n, forward, s, m) || has_gradient(n, s, m)) return never;
            return may_leave(n, s, m) ? end(n, forward, s, m) : never;
        case reload: return has(n, offload, s, m) ? end(n, offload, s, m) : never;
        case recompute: return ready_recompute(n, s, m);
        case kinds: break;
        }
        return never;
    }
    [[nodiscard]] ticks inputs_ready(const state& n, std::size_t op) const {
        ticks t = 0;
        for (const auto& [before, delay] : inputs_[op]) {
            if (!is_over(n, before)) return never;
            t = std::max(t, end_of(n, before) + delay);
        }
        return t;
    }
    [[nodiscard]] ticks ready_forward(const state& n, std::size_t s, std::size_t m) const {
        if (s == 0 && m > 0 && p_.microbatches.are_equal() && !has(n, forward, 0, m - 1)) return never;
        return inputs_ready(n, id(forward, s, m));
    }
    [[nodiscard]] ticks ready_gradient(const state& n, std::size_t s, std::size_t m) const {
        if (has_gradient(n, s, m) || !has(n, forward, s, m)) return never;
        const ticks received = inputs_ready(n, id(input, s, m));
        if (received == never) return never;
        const ticks t = std::max(received, end(n, forward, s, m));
        if (storage(n, s, m).lengths[recompute] > 0)
            return has(n, recompute, s, m) ? std::max(t, end(n, recompute, s, m)) : never;
        return back_since(n, s, m, t);
    }
    [[nodiscard]] ticks ready_recompute(const state& n, std::size_t s, std::size_t m) const {
        if (!has(n, forward, s, m) || storage(n, s, m).lengths[recompute] == 0) return never;
        return back_since(n, s, m, end(n, forward, s, m));
    }
    /// The time from which the stash is on the device, at least t.
    [[nodiscard]] ticks back_since(const state& n, std::size_t s, std::size_t m, ticks t) const {
        if (!has(n, offload, s, m)) return storage(n, s, m).must_leave ? never : t;
        return has(n, reload, s, m) ? std::max(t, end(n, reload, s, m)) : never;
    }
    [[nodiscard]] bool more_weight_than_stash(const state& n, std::size_t s, std::size_t m) const {
        return weight_stash(s, m) > storage(n, s, m).restored;
    }
    [[nodiscard]] bool next_weight(const state& n, std::size_t s, std::size_t m) const {
        for (std::size_t other = 0; other < count_; ++other)
            if (has(n, input, s, other) && !has(n, weight, s, other) && weighs_the_same(n, s, other, m) &&
                n.start[id(input, s, other)] < n.start[id(input, s, m)])
                return false;
        return true;
    }
    [[nodiscard]] bool weighs_the_same(const state& n, std::size_t s, std::size_t a, std::size_t b) const {
        return storage(n, s, a).lengths[weight] == storage(n, s, b).lengths[weight] &&
               weight_stash(s, a) == weight_stash(s, b);
    }
    [[nodiscard]] bool may_leave(const state& n, std::size_t s, std::size_t m) const {
        const auto& o = storage(n, s, m);
        const bool limited = p_.memory_limit[optpipe::rank{rank_[s]}].value() < full_stash_[rank_[s]];
        return o.must_leave || (limited && o.may_leave);
    }

    // Memory.

    [[nodiscard]] amounts device(const state& n, std::size_t op) const {
        const auto& o = storage(n, op);
        const std::size_t cell = op % (stages_ * count_);
        const std::size_t s = stage_of(op);
        const double a = o.restored;
        const double w = weight_stash(s, microbatch_of(op));
        const double forward_taken = taken_[cell];
        const double gradient_taken = taken_[stages_ * count_ + cell];
        switch (kind_of(op)) {
        case forward: return {o.held + forward_taken, has_gradients(s) ? 0.0 : -o.held};
        case input: return {gradient_taken + std::max(0.0, w - a), std::min(0.0, w - a)};
        case weight: return {0.0, -w};
        case full: return {gradient_taken, -a};
        case offload: return {0.0, -o.moved};
        case reload: return {o.moved, 0.0};
        case recompute: return {o.restored - o.held, 0.0};
        case kinds: break;
        }
        return {};
    }
    /// What the end of an operation frees on a rank, but for stashes.
    [[nodiscard]] double freed(std::size_t op, std::size_t r) const {
        const kind k = kind_of(op);
        if (k != forward && k != input && k != full) return 0.0;
        return freed_[((k == forward ? 0 : stages_ * count_) + op % (stages_ * count_)) * ranks_ + r];
    }
    [[nodiscard]] amounts host(const state& n, std::size_t op) const {
        const double moved = storage(n, op).moved;
        if (kind_of(op) == offload) return {moved, 0.0};
        return kind_of(op) == reload ? amounts{0.0, -moved} : amounts{};
    }
    /// What an operation of any rank does to the device or host memory of rank r.
    [[nodiscard]] amounts effect_on(const placed_operation& other, std::size_t r, amounts placed_operation::*of) const {
        auto a = other.rank == r ? other.*of : amounts{};
        if (of == &placed_operation::device) a.at_end -= freed(other.id, r);
        return a;
    }
    /// The earliest instant from t on at which `op` fits; it isn't before the last addition.
    [[nodiscard]] ticks fit(const state& n, std::size_t r, ticks t, double wanted, double limit,
                            amounts placed_operation::*of) const {
        if (wanted <= 0.0 || limit == std::numeric_limits<double>::infinity()) return t;
        for (const auto& other : n.placed)
            if (other.rank == r && (other.*of).at_start > 0.0) t = std::max(t, other.start);
        for (;;) {
            double level = wanted;
            ticks next = never;
            for (const auto& other : n.placed) {
                const auto a = effect_on(other, r, of);
                level += a.at_start + (other.end <= t ? a.at_end : 0.0);
                if (other.end > t && a.at_end < 0.0) next = std::min(next, other.end);
            }
            if (level <= limit + memory_eps_ || next == never) return level <= limit + memory_eps_ ? t : never;
            t = next;
        }
    }

    [[nodiscard]] std::array<std::size_t, 2> transfer_lanes(std::size_t op) const {
        const std::size_t r = rank_[stage_of(op)];
        const bool in = kind_of(op) == reload;
        const std::size_t link = p_.transfer.link[optpipe::rank{r}];
        return {2 * r + (p_.transfer.engines == 2 && in ? 1 : 0),
                2 * link + (p_.transfer.duplex == optpipe::duplex_kind::full && in ? 1 : 0)};
    }
    /// `never` if the operation can't be chosen, or would start before the last choice.
    [[nodiscard]] ticks earliest(const state& n, std::size_t op) const {
        ticks t = ready(n, kind_of(op), stage_of(op), microbatch_of(op));
        if (t == never) return never;
        const std::size_t r = rank_[stage_of(op)];
        if (is_transfer(kind_of(op))) {
            const auto [engine, link] = transfer_lanes(op);
            t = std::max({t, n.engine_free[engine], n.link_free[link]});
        } else {
            t = std::max(t, n.compute_free[r]);
        }
        if (delayed(n, op)) t = std::max(t, n.last_start);
        const double on_host = p_.host_memory_limit[optpipe::rank{r}].value();
        t = fit(n, r, t, host(n, op).at_start, on_host, &placed_operation::host);
        const double on_device = p_.memory_limit[optpipe::rank{r}].value();
        if (t != never) t = fit(n, r, t, device(n, op).at_start, on_device, &placed_operation::device);
        return t < n.last_start ? never : t;
    }
    /// Whether the operation may start later than it must. All starts count from the first one.
    [[nodiscard]] bool delayed(const state& n, std::size_t op) const {
        return span_ && n.first[rank_[stage_of(op)]] == unplaced && n.mask.any();
    }

    // The search.

    void expand(const state& n) {
        if (nodes_ >= limit_) return;
        ++nodes_;
        if (complete(n)) {
            best_ = bound(n);
            found_ = n;
            return;
        }
        for (const auto& [t, op, option] : children_of(n)) {
            if (!delayed(n, op)) {
                visit(n, op, option, t);
                continue;
            }
            const ticks latest = std::max(t, all_arrived(n));
            for (ticks later = t; later <= latest && visit(n, op, option, later); ++later) {
            }
        }
    }
    /// The time by which all placed operations have ended, and their messages arrived.
    [[nodiscard]] ticks all_arrived(const state& n) const {
        ticks t = 0;
        for (const auto& op : n.placed)
            t = std::max(t, op.end);
        ticks longest = 0;
        for (const auto& inputs : inputs_)
            for (const auto& [before, delay] : inputs)
                longest = std::max(longest, delay);
        return t + longest;
    }
    struct child_choice {
        ticks start;
        std::size_t op;
        std::uint8_t option;
        friend auto operator<=>(const child_choice&, const child_choice&) = default;
    };
    [[nodiscard]] std::vector<child_choice> children_of(const state& n) const {
        std::vector<child_choice> children;
        state tried = n;
        for (std::size_t op = 0; op < kinds * stages_ * count_; ++op) {
            const std::size_t cell = op % (stages_ * count_);
            if (kind_of(op) != forward || has(n, op)) {
                if (const ticks t = earliest(n, op); t != never) children.push_back({t, op, n.option[cell]});
                continue;
            }
            for (std::size_t o = 0; o < options_[cell].size(); ++o) {
                tried.option[cell] = static_cast<std::uint8_t>(o);
                if (const ticks t = earliest(tried, op); t != never) children.push_back({t, op, tried.option[cell]});
            }
            tried.option[cell] = undecided;
        }
        std::sort(children.begin(), children.end());
        return children;
    }
    /// false: this child can't be better than the best.
    bool visit(const state& parent, std::size_t op, std::uint8_t option, ticks t) {
        const state child = with(parent, op, option, t);
        if (bound(child) >= best_ || nodes_ >= limit_) return false;
        if (!dominated(child)) expand(child);
        return true;
    }
    [[nodiscard]] state with(const state& parent, std::size_t op, std::uint8_t option, ticks t) const {
        state n = parent;
        n.option[op % (stages_ * count_)] = option;
        const std::size_t r = rank_[stage_of(op)];
        const auto& as = storage(n, op);
        const ticks done = t + as.lengths[kind_of(op)];
        n.start[op] = t;
        n.mask[op] = true;
        if (kind_of(op) == forward) n.work_left[r] += work(as) - least_work(stage_of(op), microbatch_of(op));
        n.last_start = t;
        const auto id = static_cast<std::uint8_t>(op);
        n.placed.push_back({id, static_cast<std::uint8_t>(r), t, done, device(n, op), host(n, op)});
        if (is_transfer(kind_of(op))) {
            const auto [engine, link] = transfer_lanes(op);
            n.engine_free[engine] = n.link_free[link] = done;
            return n;
        }
        if (n.first[r] == unplaced) n.first[r] = t;
        n.compute_free[r] = done;
        n.work_left[r] -= done - t;
        return n;
    }
    [[nodiscard]] bool is_finished(const state& n, std::size_t s, std::size_t m) const {
        if (!has_gradients(s)) return has(n, forward, s, m);
        return has(n, full, s, m) || has(n, has_weights(s) ? weight : input, s, m);
    }
    [[nodiscard]] bool complete(const state& n) const {
        for (std::size_t s = 0; s < stages_; ++s)
            for (std::size_t m = 0; m < count_; ++m)
                if (!is_finished(n, s, m)) return false;
        return true;
    }

    [[nodiscard]] ticks value(const state& n, std::size_t r, ticks t) const {
        if (!span_) return t;
        return n.first[r] == unplaced ? 0 : t - n.first[r];
    }
    /// A lower bound of all completions: the work that each rank has left, and the paths that are left.
    [[nodiscard]] ticks bound(const state& n) const {
        ticks most = paths_left(n);
        for (std::size_t r = 0; r < ranks_; ++r) {
            const bool waits = n.work_left[r] > 0 && n.first[r] != unplaced;
            const ticks busy_until = waits ? std::max(n.compute_free[r], n.last_start) : n.compute_free[r];
            most = std::max({most, n.work_left[r], value(n, r, busy_until + n.work_left[r])});
        }
        return most;
    }
    /// The earliest ends of all F, then of all gradients, each after what it waits for.
    [[nodiscard]] ticks paths_left(const state& n) const {
        std::array<ticks, 2 * most_cells> ends{};
        ticks most = 0;
        const auto begin = [&](std::size_t op, ticks t) {
            for (const auto& [before, delay] : inputs_[op])
                t = std::max(t, ends[before] + delay);
            return t;
        };
        for (std::size_t op = 0; op < stages_ * count_; ++op) {
            const std::size_t s = stage_of(op);
            ends[op] = has(n, op) ? end_of(n, op) : begin(op, n.last_start) + options_[op].front().lengths[forward];
            if (!has_gradients(s)) most = std::max(most, value(n, rank_[s], ends[op]));
        }
        for (std::size_t op = 2 * stages_ * count_; op-- > stages_ * count_;) {
            const std::size_t cell = op - stages_ * count_;
            const std::size_t s = stage_of(op);
            if (!has_gradients(s)) continue;
            const bool over = is_over(n, op);
            const ticks since = std::max(n.last_start, ends[cell]);
            ends[op] = over ? end_of(n, op) : begin(op, since) + least_gradient(n, s, microbatch_of(op));
            const bool splits = over ? !has(n, full, s, microbatch_of(op)) : p_.split_backward;
            const ticks after = splits ? options_[cell].front().lengths[weight] : 0;
            most = std::max(most, value(n, rank_[s], ends[op] + after));
        }
        return most;
    }

    [[nodiscard]] ticks least_gradient(const state& n, std::size_t s, std::size_t m) const {
        const kind k = may_split(s) ? input : full;
        if (has(n, forward, s, m)) return storage(n, s, m).lengths[k];
        ticks least = never;
        for (const auto& o : options_[s * count_ + m])
            least = std::min(least, o.lengths[k]);
        return least;
    }

    /// The placed operations, and their options.
    struct placed_set {
        std::bitset<most_operations> mask;
        std::array<std::uint8_t, most_cells> option;
        friend bool operator==(const placed_set&, const placed_set&) = default;
    };
    struct hash_of_placed_set {
        std::size_t operator()(const placed_set& of) const {
            const std::string_view options{reinterpret_cast<const char*>(of.option.data()), of.option.size()};
            return std::hash<std::bitset<most_operations>>{}(of.mask) * 31 + std::hash<std::string_view>{}(options);
        }
    };
    struct seen_state {
        std::array<ticks, most_operations> start;
        rank_times first;
    };
    bool dominated(const state& n) {
        auto& seen = seen_[{n.mask, n.option}];
        const auto no_later = [&](const seen_state& a) {
            if (span_ && a.first != n.first) return false;
            for (const auto& op : n.placed)
                if (a.start[op.id] > op.start) return false;
            return true;
        };
        if (std::any_of(seen.begin(), seen.end(), no_later)) return true;
        seen.push_back({n.start, n.first});
        return false;
    }

    [[nodiscard]] optpipe::schedule schedule_of(const state& n) const {
        using optpipe::operation_kind;
        constexpr operation_kind names[] = {operation_kind::forward,         operation_kind::backward_input,
                                            operation_kind::backward_weight, operation_kind::backward,
                                            operation_kind::offload,         operation_kind::reload,
                                            operation_kind::recompute};
        optpipe::schedule s;
        s.graph = p_.graph;
        for (const auto& op : n.placed)
            s.operations.push_back({{optpipe::stage{stage_of(op.id)}, names[kind_of(op.id)],
                                     optpipe::microbatch{microbatch_of(op.id)}, n.option[op.id % (stages_ * count_)]},
                                    optpipe::duration{tick_ * op.start},
                                    optpipe::duration{tick_ * op.end}});
        return with_storage_of_transfers(p_, std::move(s));
    }

    const optpipe::problem& p_;
    double tick_;
    std::size_t limit_;
    bool span_;
    std::size_t stages_, count_, ranks_;
    std::vector<std::size_t> rank_;
    /// The storage options of every cell; one entry without a list.
    std::vector<std::vector<stored>> options_;
    /// By F and gradient: what it waits for, the memory besides the stash that it takes when it starts, and frees on
    /// each rank when it ends.
    std::vector<std::vector<awaited>> inputs_;
    std::vector<double> taken_;
    std::vector<double> freed_;
    std::vector<double> full_stash_;
    double memory_eps_ = 0.0;
    ticks best_ = never;
    std::optional<state> found_;
    std::size_t nodes_ = 0;
    std::unordered_map<placed_set, std::vector<seen_state>, hash_of_placed_set> seen_;
};

} // namespace

optimum exhaustive_optimum(const optpipe::problem& p, double grid, std::size_t node_limit) {
    const std::size_t finest = p.objective == optpipe::objective_kind::span ? p.graph.ranks() : 1;
    optimum best = exhaustive_search{p, grid, node_limit}.run({});
    for (std::size_t k = 2; k <= finest && best.proven && best.objective; ++k) {
        auto finer = exhaustive_search{p, grid / static_cast<double>(k), node_limit}.run(best.objective);
        if (finer.schedule.operations.empty()) finer.schedule = best.schedule;
        finer.nodes += best.nodes;
        best = std::move(finer);
    }
    return best;
}

} // namespace oracle
