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
/// - Microbatches cost the same, so F(0,0), F(0,1), … may start in this order. On one rank, W(s,a) and W(s,b) may
///   exchange places if both could run, so they follow the order of I(s,a) and I(s,b). Neither changes the sum of
///   starts.
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
/// of g / k with k ≤ ranks. With the first starts given, all other operations are placed early as above.
class exhaustive_search {
public:
    using ticks = std::int32_t;

    exhaustive_search(const optpipe::problem& p, double tick, std::size_t node_limit)
        : p_{p}, tick_{tick}, limit_{node_limit}, span_{p.objective == optpipe::objective_kind::span},
          stages_{p.graph.stages()}, count_{p.graph.microbatches()}, ranks_{p.graph.ranks()} {
        if (kinds * stages_ * count_ > most_operations) std::abort();
        for (std::size_t s = 0; s < stages_; ++s)
            rank_.push_back(p.rank_of(optpipe::stage{s}).position());
        for (const optpipe::stage s : p.graph.all_stages()) {
            options_.emplace_back();
            for (std::size_t o = 0; o < (decides_later(s) ? 1 : p.storage[s].size()); ++o)
                options_.back().push_back(stored_as(s, o));
        }
        for (const auto& c : p.costs)
            memory_eps_ = std::max({memory_eps_, 1e-9 * c.activation.value(), 1e-9 * c.weight_stash.value()});
        hops_.resize(ranks_ * ranks_);
        for (std::size_t a = 0; a < ranks_; ++a)
            for (std::size_t b = 0; b < ranks_; ++b)
                if (a != b) hops_[a * ranks_ + b] = in_ticks(p.p2p(optpipe::rank{a}, optpipe::rank{b}));
        for (const optpipe::rank r : p.graph.all_ranks())
            full_stash_.push_back(everything_stashed(r));
    }

    optimum run(std::optional<double> known) {
        best_ = known ? static_cast<ticks>(std::llround(*known / tick_)) : one_after_the_other() + 1;
        state root;
        root.start.fill(unplaced);
        root.first.fill(unplaced);
        root.option.fill(undecided);
        for (std::size_t s = 0; s < stages_; ++s)
            root.work_left[rank_[s]] += static_cast<ticks>(count_) * least_work(s);
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
    /// The sum of all lengths and hops, each cell with its longest option. If any schedule is valid, there is a valid
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
        for (std::size_t s = 1; s < stages_; ++s)
            total += hop(s - 1, s) + hop(s, s - 1);
        return static_cast<ticks>(count_) * total;
    }
    [[nodiscard]] stored stored_as(optpipe::stage s, std::size_t option) const {
        const auto& c = p_.costs[s];
        const auto& listed = decides_later(s) ? p_.storage[s].back() : p_.storage[s][option];
        const auto extra = listed.backward_extra;
        const auto& times = listed.transfer;
        stored o;
        o.lengths[forward] = in_ticks(c.forward);
        o.lengths[input] = in_ticks(c.backward_input + extra);
        o.lengths[weight] = in_ticks(c.backward_weight);
        o.lengths[full] = o.lengths[input] + o.lengths[weight];
        if (times) o.lengths[offload] = in_ticks(times->offload);
        if (times) o.lengths[reload] = in_ticks(times->reload);
        o.may_leave = times.has_value();
        o.must_leave = !decides_later(s) && times;
        o.lengths[recompute] = in_ticks(listed.recompute);
        o.held = listed.held.value();
        o.restored = o.lengths[recompute] == 0 ? o.held : c.activation.value();
        o.moved = listed.transfer_size.value();
        return o;
    }
    /// Whether the two options differ by the transfers alone, so that one node can stand for both until the OFFLOAD.
    [[nodiscard]] bool decides_later(optpipe::stage s) const {
        return optpipe::is_described_by_costs(p_.costs[s], p_.storage[s]);
    }
    [[nodiscard]] static ticks work(const stored& o) {
        return o.lengths[forward] + o.lengths[full] + o.lengths[recompute];
    }
    [[nodiscard]] ticks least_work(std::size_t s) const {
        ticks least = never;
        for (const auto& o : options_[s])
            least = std::min(least, work(o));
        return least;
    }
    [[nodiscard]] double everything_stashed(optpipe::rank r) const {
        double total = 0.0;
        for (const optpipe::stage s : p_.graph.all_stages())
            if (p_.rank_of(s) == r) total += std::max(p_.costs[s].activation.value(), p_.costs[s].weight_stash.value());
        return total * static_cast<double>(count_);
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
        return options_[s][n.option[s * count_ + m]];
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
    [[nodiscard]] ticks hop(std::size_t from, std::size_t to) const { return hops_[rank_[from] * ranks_ + rank_[to]]; }
    [[nodiscard]] static bool is_transfer(kind k) { return k == offload || k == reload; }

    // Which operations may be chosen, and when their inputs are there. `never`: not now, or not at all.

    [[nodiscard]] ticks ready(const state& n, kind k, std::size_t s, std::size_t m) const {
        if (has(n, k, s, m)) return never;
        switch (k) {
        case forward: return ready_forward(n, s, m);
        case input: return p_.split_backward ? ready_gradient(n, s, m) : never;
        case full:
            if (!has(n, forward, s, m) || !p_.full_backward) return never;
            return !p_.split_backward || more_weight_than_stash(n, s, m) ? ready_gradient(n, s, m) : never;
        case weight: return has(n, input, s, m) && next_weight(n, s, m) ? end(n, input, s, m) : never;
        case offload:
            if (!has(n, forward, s, m) || has_gradient(n, s, m)) return never;
            return may_leave(n, s, m) ? end(n, forward, s, m) : never;
        case reload: return has(n, offload, s, m) ? end(n, offload, s, m) : never;
        case recompute: return ready_recompute(n, s, m);
        case kinds: break;
        }
        return never;
    }
    [[nodiscard]] ticks ready_forward(const state& n, std::size_t s, std::size_t m) const {
        if (s == 0) return m == 0 || has(n, forward, 0, m - 1) ? 0 : never;
        return has(n, forward, s - 1, m) ? end(n, forward, s - 1, m) + hop(s - 1, s) : never;
    }
    [[nodiscard]] ticks ready_gradient(const state& n, std::size_t s, std::size_t m) const {
        if (has_gradient(n, s, m) || !has(n, forward, s, m)) return never;
        ticks t = end(n, forward, s, m);
        if (s + 1 < stages_) {
            if (!has_gradient(n, s + 1, m)) return never;
            t = std::max(t, gradient_end(n, s + 1, m) + hop(s + 1, s));
        }
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
        return p_.costs[optpipe::stage{s}].weight_stash.value() > storage(n, s, m).restored;
    }
    [[nodiscard]] bool next_weight(const state& n, std::size_t s, std::size_t m) const {
        for (std::size_t other = 0; other < count_; ++other)
            if (has(n, input, s, other) && !has(n, weight, s, other) &&
                n.start[id(input, s, other)] < n.start[id(input, s, m)])
                return false;
        return true;
    }
    [[nodiscard]] bool may_leave(const state& n, std::size_t s, std::size_t m) const {
        const auto& o = storage(n, s, m);
        const bool limited = p_.memory_limit[optpipe::rank{rank_[s]}].value() < full_stash_[rank_[s]];
        return o.must_leave || (limited && o.may_leave);
    }

    // Memory.

    [[nodiscard]] amounts device(const state& n, std::size_t op) const {
        const auto& o = storage(n, op);
        const double a = o.restored;
        const double w = p_.costs[optpipe::stage{stage_of(op)}].weight_stash.value();
        switch (kind_of(op)) {
        case forward: return {o.held, 0.0};
        case input: return w > a ? amounts{w - a, 0.0} : amounts{0.0, w - a};
        case weight: return {0.0, -w};
        case full: return {0.0, -a};
        case offload: return {0.0, -o.moved};
        case reload: return {o.moved, 0.0};
        case recompute: return {o.restored - o.held, 0.0};
        case kinds: break;
        }
        return {};
    }
    [[nodiscard]] amounts host(const state& n, std::size_t op) const {
        const double moved = storage(n, op).moved;
        if (kind_of(op) == offload) return {moved, 0.0};
        return kind_of(op) == reload ? amounts{0.0, -moved} : amounts{};
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
                if (other.rank != r) continue;
                const auto& a = other.*of;
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
    /// Whether the operation may start later than it must. All starts count from that of F(0,0).
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
            for (ticks later = t; visit(n, op, option, later); ++later) {
            }
        }
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
            for (std::size_t o = 0; o < options_[stage_of(op)].size(); ++o) {
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
        if (kind_of(op) == forward) n.work_left[r] += work(as) - least_work(stage_of(op));
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
    [[nodiscard]] bool complete(const state& n) const {
        for (std::size_t s = 0; s < stages_; ++s)
            for (std::size_t m = 0; m < count_; ++m)
                if (!has(n, full, s, m) && !has(n, weight, s, m)) return false;
        return true;
    }

    [[nodiscard]] ticks value(const state& n, std::size_t r, ticks t) const {
        if (!span_) return t;
        return n.first[r] == unplaced ? 0 : t - n.first[r];
    }
    /// A lower bound of all completions: the work that each rank has left, and the path that each microbatch has left.
    [[nodiscard]] ticks bound(const state& n) const {
        ticks most = 0;
        for (std::size_t r = 0; r < ranks_; ++r) {
            const bool waits = n.work_left[r] > 0 && n.first[r] != unplaced;
            const ticks busy_until = waits ? std::max(n.compute_free[r], n.last_start) : n.compute_free[r];
            most = std::max({most, n.work_left[r], value(n, r, busy_until + n.work_left[r])});
        }
        for (std::size_t m = 0; m < count_; ++m)
            most = std::max(most, way_left(n, m));
        return most;
    }
    [[nodiscard]] ticks way_left(const state& n, std::size_t m) const {
        ticks t = 0;
        ticks most = 0;
        for (std::size_t s = 0; s < stages_; ++s) {
            if (s > 0) t += hop(s - 1, s);
            t = has(n, forward, s, m) ? end(n, forward, s, m)
                                      : std::max(t, n.last_start) + options_[s].front().lengths[forward];
        }
        for (std::size_t s = stages_; s-- > 0;) {
            if (s + 1 < stages_) t += hop(s + 1, s);
            const ticks weight_time = options_[s].front().lengths[weight];
            ticks after = weight_time;
            if (has_gradient(n, s, m)) {
                t = gradient_end(n, s, m);
                after = has(n, full, s, m) ? 0 : weight_time;
            } else {
                t = std::max(t, n.last_start) + least_gradient(n, s, m);
                after = p_.split_backward ? weight_time : 0;
            }
            most = std::max(most, value(n, rank_[s], t + after));
        }
        return most;
    }

    [[nodiscard]] ticks least_gradient(const state& n, std::size_t s, std::size_t m) const {
        const kind k = p_.split_backward ? input : full;
        if (has(n, forward, s, m)) return storage(n, s, m).lengths[k];
        ticks least = never;
        for (const auto& o : options_[s])
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
    /// The storage options of every stage; one entry without a list.
    std::vector<std::vector<stored>> options_;
    std::vector<ticks> hops_;
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
