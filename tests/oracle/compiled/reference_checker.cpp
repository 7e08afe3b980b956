#include "oracle/reference_checker.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace oracle {

namespace {

class reference_checker {
public:
    reference_checker(const optpipe::problem& p, const optpipe::schedule& s) : p_{p}, ops_{s.operations} {
        for (const auto& c : p.costs) {
            time_slack_ = std::max({time_slack_, c.forward.value(), c.backward().value()});
            memory_slack_ = std::max({memory_slack_, c.activation.value(), c.weight_stash.value(), c.kv.value()});
        }
        for (const optpipe::stage from : p.graph.all_stages())
            p.graph.for_each_edge_out_of(from, [&](const optpipe::edge& e) { edges_.push_back(e); });
        for (const auto& each : p.overlaps)
            memory_slack_ = std::max(memory_slack_, each.memory.value());
        for (const auto& e : edges_)
            memory_slack_ = std::max(memory_slack_, e.held.value());
        for (const auto& options : p.storage)
            for (const auto& o : options)
                if (o.transfer)
                    time_slack_ = std::max({time_slack_, o.transfer->offload.value(), o.transfer->reload.value()});
        read_storage();
        for (const auto limit : p.memory_limit)
            if (!limit.is_unlimited()) memory_slack_ = std::max(memory_slack_, limit.value());
        time_slack_ *= 1e-6;
        memory_slack_ *= 1e-6;
    }

    verdict judge() {
        if (!each_exists()) return result_;
        cells_.resize(p_.graph.cells());
        for (const auto& t : ops_)
            cells_[cell_of(t.op.stage.position(), t.op.microbatch.position())].push_back(&t);
        counts();
        dependencies();
        lanes();
        memory();
        measures();
        return result_;
    }

private:
    using kind = optpipe::operation_kind;
    using timed = optpipe::timed_operation;

    void broken(const std::string& rule, const optpipe::operation& op) {
        result_.broken.push_back(rule + " " + to_string(op));
    }
    [[nodiscard]] std::size_t rank_of(const timed& t) const { return p_.rank_of(t.op.stage).position(); }
    static bool transfers(const timed& t) { return t.op.kind == kind::offload || t.op.kind == kind::reload; }
    static bool is_gradient_of(const timed& t, std::size_t s, std::size_t m) {
        return is(t, kind::backward_input, s, m) || is(t, kind::backward, s, m);
    }
    static bool is(const timed& t, kind k, std::size_t s, std::size_t m) {
        return t.op.kind == k && t.op.stage.position() == s && t.op.microbatch.position() == m;
    }
    [[nodiscard]] std::size_t count(kind k, std::size_t s, std::size_t m) const {
        std::size_t n = 0;
        for (const auto* t : of(s, m))
            n += t->op.kind == k ? 1 : 0;
        return n;
    }
    [[nodiscard]] std::size_t cell_of(std::size_t s, std::size_t m) const { return s * p_.graph.microbatches() + m; }
    /// The operations of a stage and a microbatch.
    [[nodiscard]] const std::vector<const timed*>& of(std::size_t s, std::size_t m) const {
        return cells_[cell_of(s, m)];
    }

    /// The storage that a forward states for its stash.
    struct stored {
        double held = 0.0, recompute = 0.0, extra = 0.0, moved = 0.0, out = -1.0, in = -1.0;
        std::size_t option = 0;
    };
    void read_storage() {
        const auto cells = p_.graph.cells();
        stored_.resize(cells);
        for (std::size_t i = 0; i < cells; ++i) {
            const optpipe::stage s{i / p_.graph.microbatches()};
            const optpipe::microbatch m{i % p_.graph.microbatches()};
            stored_[i].held = p_.costs[s].activation.value() * p_.microbatches.factors(s, m).memory;
        }
        for (const auto& t : ops_) {
            if (t.op.kind != kind::forward || !is_known(t)) continue;
            if (t.op.storage >= p_.storage[t.op.stage].size()) continue;
            const auto& option = p_.storage[t.op.stage][t.op.storage];
            auto& cell = stored_[t.op.stage.position() * p_.graph.microbatches() + t.op.microbatch.position()];
            const auto& f = factors(t.op);
            cell = {option.held.value() * f.memory,
                    option.recompute.value() * f.forward,
                    option.backward_extra.value() * f.forward,
                    option.transfer_size.value() * f.memory,
                    -1.0,
                    -1.0,
                    t.op.storage};
            if (!option.transfer) continue;
            cell.out = option.transfer->offload.value() * f.memory;
            cell.in = option.transfer->reload.value() * f.memory;
        }
    }
    [[nodiscard]] const optpipe::cost_factors& factors(const optpipe::operation& op) const {
        return p_.microbatches.factors(op.stage, op.microbatch);
    }
    [[nodiscard]] optpipe::gradient_kind gradients(std::size_t s) const {
        return p_.costs[optpipe::stage{s}].gradients;
    }
    [[nodiscard]] bool trains(std::size_t s) const { return gradients(s) != optpipe::gradient_kind::none; }
    [[nodiscard]] const stored& stored_as(const optpipe::operation& op) const {
        return stored_[op.stage.position() * p_.graph.microbatches() + op.microbatch.position()];
    }
    [[nodiscard]] bool is_known(const timed& t) const {
        return t.op.stage.position() < p_.graph.stages() && t.op.microbatch.position() < p_.graph.microbatches();
    }

    bool each_exists() {
        for (const auto& t : ops_) {
            if (!is_known(t)) {
                broken("doesn't exist:", t.op);
                continue;
            }
            const auto& as = stored_as(t.op);
            if (t.op.storage != as.option) broken("another storage option:", t.op);
            if (transfers(t) && as.out < 0.0) broken("doesn't exist:", t.op);
            if (t.op.kind == kind::recompute && as.recompute <= 0.0) broken("doesn't exist:", t.op);
        }
        if (!result_.valid()) return false;
        for (const auto& t : ops_) {
            const bool finite = std::isfinite(t.start.value()) && std::isfinite(t.end.value());
            if (t.op.is_paired && !listed(t)) broken("rule 4, not a pair:", t.op);
            if (!finite || std::abs(t.end.value() - t.start.value() - length_of(t)) > time_slack_)
                broken("rule 1, duration:", t.op);
            if (t.start.value() < -time_slack_) broken("rule 1, before 0:", t.op);
        }
        return true;
    }
    [[nodiscard]] double length(const optpipe::operation& op) const {
        const auto& c = p_.costs[op.stage];
        const auto& as = stored_as(op);
        const auto& f = factors(op);
        const double input = c.backward_input.value() * f.backward_input + as.extra;
        const double weight = c.backward_weight.value() * f.backward_weight;
        if (op.kind == kind::forward) return c.forward.value() * f.forward;
        if (op.kind == kind::backward_input) return input;
        if (op.kind == kind::backward_weight) return weight;
        if (op.kind == kind::backward) return input + weight;
        if (op.kind == kind::recompute) return as.recompute;
        return op.kind == kind::offload ? as.out : as.in;
    }

    /// The other part of a pair: a part of another kind at the same time on the same rank.
    [[nodiscard]] const timed* partner(const timed& t) const {
        if (!t.op.is_paired) return nullptr;
        const bool is_forward = t.op.kind == kind::forward;
        for (const auto& other : ops_) {
            const bool fits = is_forward ? other.op.kind == kind::backward || other.op.kind == kind::backward_input
                                         : other.op.kind == kind::forward;
            if (fits && other.op.is_paired && rank_of(other) == rank_of(t) && other.start == t.start &&
                other.end == t.end)
                return &other;
        }
        return nullptr;
    }
    [[nodiscard]] const optpipe::overlap* listed(const timed& t) const {
        const auto* other = partner(t);
        if (!other) return nullptr;
        const auto& f = t.op.kind == kind::forward ? t.op : other->op;
        const auto& b = t.op.kind == kind::forward ? other->op : t.op;
        for (const auto& each : p_.overlaps) {
            const bool is_whole = each.kind == optpipe::overlap_kind::backward;
            if (each.forward == f.stage && each.backward == b.stage && is_whole == (b.kind == kind::backward))
                return &each;
        }
        return nullptr;
    }
    [[nodiscard]] double length_of(const timed& t) const {
        const auto* of = listed(t);
        if (!of) return length(t.op);
        const auto* other = partner(t);
        const auto& f = t.op.kind == kind::forward ? t.op : other->op;
        const auto& b = t.op.kind == kind::forward ? other->op : t.op;
        const double extra = stored_as(b).extra;
        const double ahead = length(f);
        const double back = length(b) - extra;
        const auto& c = p_.costs[b.stage];
        const double usual = (p_.costs[f.stage].forward + c.backward_input).value() +
                             (b.kind == kind::backward ? c.backward_weight.value() : 0.0);
        return std::max({ahead, back, of->duration.value() * (ahead + back) / usual}) + extra;
    }
    /// Whether the operation is counted with its partner.
    [[nodiscard]] bool counts_with_partner(const timed& t) const {
        return t.op.kind != kind::forward && partner(t) != nullptr;
    }

    void counts() {
        for (std::size_t s = 0; s < p_.graph.stages(); ++s)
            for (std::size_t m = 0; m < p_.graph.microbatches(); ++m) {
                const optpipe::operation cell{optpipe::stage{s}, kind::forward, optpipe::microbatch{m}};
                const auto inputs = count(kind::backward_input, s, m);
                const auto weights = count(kind::backward_weight, s, m);
                const auto full = count(kind::backward, s, m);
                const bool split = inputs == 1 && weights == 1 && full == 0 && p_.split_backward;
                const bool whole = inputs == 0 && weights == 0 && full == 1 && p_.full_backward;
                if (count(kind::forward, s, m) != 1) broken("rule 1, one F:", cell);
                const bool input_alone = inputs == 1 && weights == 0 && full == 0;
                const bool nothing = inputs == 0 && weights == 0 && full == 0;
                const bool right = gradients(s) == optpipe::gradient_kind::full    ? split || whole
                                   : gradients(s) == optpipe::gradient_kind::input ? input_alone
                                                                                   : nothing;
                if (!right) broken("rule 1, B or I and W:", cell);
                const auto away = count(kind::offload, s, m);
                if (away > 1 || away != count(kind::reload, s, m)) broken("rule 5, both or neither:", cell);
                if (away != (stored_as(cell).out < 0.0 ? 0U : 1U)) broken("rule 5, as stored:", cell);
                const auto again = count(kind::recompute, s, m);
                if (again != (stored_as(cell).recompute > 0.0 ? 1U : 0U)) broken("rule 6, RECOMPUTE:", cell);
            }
    }

    void starts_after(const timed& later, const timed& earlier, double lag = 0.0) {
        if (later.start.value() < earlier.end.value() + lag - time_slack_)
            broken("rules 2, 3, 5, 6, too early:", later.op);
    }
    void dependencies() {
        for (const auto& a : ops_) {
            const auto s = a.op.stage.position();
            const auto m = a.op.microbatch.position();
            for (const auto* each : of(s, m)) {
                const auto& b = *each;
                if (a.op.kind == kind::forward) {
                    if (is_gradient_of(b, s, m) || is(b, kind::offload, s, m) || is(b, kind::recompute, s, m))
                        starts_after(b, a);
                }
                if (a.op.kind == kind::backward_input && is(b, kind::backward_weight, s, m)) starts_after(b, a);
                if (a.op.kind == kind::offload && is(b, kind::reload, s, m)) starts_after(b, a);
                if (a.op.kind == kind::reload && (is_gradient_of(b, s, m) || is(b, kind::recompute, s, m)))
                    starts_after(b, a);
                if (a.op.kind == kind::recompute && is_gradient_of(b, s, m)) starts_after(b, a);
            }
        }
        for (const auto& e : edges_)
            along(e);
        for (const auto& a : ops_) {
            between_slices(a);
            in_groups(a);
        }
        group_orders();
    }
    /// Rules 2 and 3 along an edge.
    void along(const optpipe::edge& e) {
        const auto from = e.from.position();
        const auto to = e.to.position();
        for (const optpipe::microbatch of_both : p_.graph.all_microbatches()) {
            const auto m = of_both.position();
            const double size = e.size * p_.microbatches.factors(e.from, of_both).message;
            const double ahead = size * p_.p2p(p_.rank_of(e.from), p_.rank_of(e.to)).value();
            const double back = size * p_.p2p(p_.rank_of(e.to), p_.rank_of(e.from)).value();
            for (const auto* a : of(from, m))
                for (const auto* b : of(to, m)) {
                    if (is(*a, kind::forward, from, m) && is(*b, kind::forward, to, m)) starts_after(*b, *a, ahead);
                    if (is_gradient_of(*b, to, m) && is_gradient_of(*a, from, m)) starts_after(*a, *b, back);
                }
        }
    }
    /// Rules 2 and 3 between the slices of a sequence.
    void between_slices(const timed& a) {
        const auto s = a.op.stage.position();
        const auto next = p_.microbatches.slice_after(a.op.microbatch);
        if (!next) return;
        for (const auto* b : of(s, next->position())) {
            if (a.op.kind == kind::forward && b->op.kind == kind::forward) starts_after(*b, a);
            const bool are_gradients =
                is_gradient_of(a, s, a.op.microbatch.position()) && is_gradient_of(*b, s, next->position());
            if (are_gradients) starts_after(a, *b);
        }
    }
    /// Rules 2 and 3 between the stages of a group.
    void in_groups(const timed& a) {
        if (a.op.kind != kind::forward) return;
        const auto m = a.op.microbatch.position();
        p_.groups.for_each_member(a.op.stage, [&](optpipe::stage member, optpipe::duration delay) {
            for (const auto* b : of(member.position(), m))
                if (is_gradient_of(*b, member.position(), m)) starts_after(*b, a, delay.value());
        });
    }
    void group_orders() {
        std::vector<std::vector<optpipe::microbatch>> order(p_.graph.stages());
        auto sorted = ops_;
        std::stable_sort(sorted.begin(), sorted.end(),
                         [](const timed& a, const timed& b) { return a.start < b.start; });
        for (const auto& t : sorted)
            if (t.op.kind == kind::forward) order[t.op.stage.position()].push_back(t.op.microbatch);
        for (const optpipe::stage s : p_.graph.all_stages())
            for (const optpipe::stage t : p_.graph.all_stages())
                if (s < t && p_.groups.together(s, t) && order[s.position()] != order[t.position()])
                    broken("rule 3, order of the group:", forward(t, optpipe::microbatch{0}));
    }

    [[nodiscard]] bool exclude_each_other(const timed& a, const timed& b) const {
        const bool same_rank = rank_of(a) == rank_of(b);
        if (transfers(a) != transfers(b) || partner(a) == &b) return false;
        if (!transfers(a)) return same_rank;
        const bool same_way = a.op.kind == b.op.kind;
        if (same_rank && (p_.transfer.engines == 1 || same_way)) return true;
        const bool same_link = p_.transfer.link[p_.rank_of(a.op.stage)] == p_.transfer.link[p_.rank_of(b.op.stage)];
        return same_link && (p_.transfer.duplex == optpipe::duplex_kind::half || same_way);
    }
    void lanes() {
        for (std::size_t i = 0; i < ops_.size(); ++i)
            for (std::size_t j = 0; j < i; ++j) {
                const auto& a = ops_[i];
                const auto& b = ops_[j];
                const bool disjoint = a.start >= b.end - slack() || b.start >= a.end - slack();
                if (!disjoint && exclude_each_other(a, b))
                    broken("rules 4, 7, at once with " + to_string(b.op) + ":", a.op);
            }
    }
    [[nodiscard]] optpipe::duration slack() const { return optpipe::duration{time_slack_}; }

    struct change {
        double time;
        double amount;
    };
    void device_changes(const timed& t, std::vector<change>& list) const {
        const auto& c = p_.costs[t.op.stage];
        const auto& as = stored_as(t.op);
        const double factor = factors(t.op).memory;
        const double all = as.recompute > 0.0 ? factor * c.activation.value() : as.held; // when the backward starts
        const bool is_frozen = c.gradients != optpipe::gradient_kind::full;
        const double kept = is_frozen ? 0.0 : factor * c.weight_stash.value();
        const double start = t.start.value();
        const double end = t.end.value();
        switch (t.op.kind) {
        case kind::forward:
            list.push_back({start, as.held});
            if (c.gradients == optpipe::gradient_kind::none) list.push_back({end, -as.held});
            break;
        case kind::offload: list.push_back({end, -as.moved}); break;
        case kind::reload: list.push_back({start, as.moved}); break;
        case kind::recompute: list.push_back({start, all - as.held}); break;
        case kind::backward: list.push_back({end, -all}); break;
        case kind::backward_weight: list.push_back({end, -kept}); break;
        case kind::backward_input: list.push_back({kept < all ? end : start, kept - all}); break;
        }
    }
    [[nodiscard]] const timed* find(bool gradient, std::size_t s, std::size_t m) const {
        for (const auto* t : of(s, m))
            if (gradient ? is_gradient_of(*t, s, m) : is(*t, kind::forward, s, m)) return t;
        return nullptr;
    }
    /// Adds what is held from the start of one operation to the end of another.
    static void hold(double amount, const timed* from, const timed* to, std::vector<change>& list) {
        if (!from || !to) return;
        list.push_back({from->start.value(), amount});
        list.push_back({to->end.value(), -amount});
    }
    /// What edges and the slices of sequences hold on a rank.
    void held_besides(std::size_t r, std::vector<change>& list) const {
        for (const optpipe::microbatch m : p_.graph.all_microbatches()) {
            const auto i = m.position();
            for (const auto& e : edges_) {
                const auto from = e.from.position();
                const auto to = e.to.position();
                const double held = e.held.value() * p_.microbatches.factors(e.from, m).memory;
                if (p_.rank_of(e.from).position() == r) hold(held, find(false, from, i), find(false, to, i), list);
                if (p_.rank_of(e.to).position() == r && trains(from) && trains(to))
                    hold(held, find(true, to, i), find(true, from, i), list);
            }
            if (!p_.microbatches.slice_before(m) && !p_.microbatches.slice_after(m)) continue;
            auto last = m;
            while (const auto next = p_.microbatches.slice_after(last))
                last = *next;
            for (const optpipe::stage s : p_.graph.all_stages()) {
                if (p_.rank_of(s).position() != r) continue;
                const auto at = s.position();
                const double kv = p_.costs[s].kv.value() * p_.microbatches.factors(s, m).memory;
                const auto* freed_by = trains(at) ? find(true, at, i) : find(false, at, last.position());
                hold(kv, find(false, at, i), freed_by, list);
                if (trains(at) && m != last) hold(kv, find(true, at, last.position()), find(true, at, i), list);
            }
        }
    }
    void host_changes(const timed& t, std::vector<change>& list) const {
        const double all = stored_as(t.op).moved;
        if (t.op.kind == kind::offload) list.push_back({t.start.value(), all});
        if (t.op.kind == kind::reload) list.push_back({t.end.value(), -all});
    }
    /// The peak after all changes at the instant of each addition.
    [[nodiscard]] double peak(const std::vector<change>& list) const {
        double most = 0.0;
        for (const auto& at : list) {
            double level = 0.0;
            for (const auto& other : list)
                if (other.time <= at.time + time_slack_) level += other.amount;
            if (at.amount > 0.0) most = std::max(most, level);
        }
        return most;
    }
    void memory() {
        for (std::size_t r = 0; r < p_.graph.ranks(); ++r) {
            std::vector<change> device;
            std::vector<change> host;
            for (const auto& t : ops_)
                if (rank_of(t) == r) {
                    device_changes(t, device);
                    host_changes(t, host);
                }
            held_besides(r, device);
            for (const auto& t : ops_)
                if (rank_of(t) == r && t.op.kind == kind::forward && listed(t))
                    hold(listed(t)->memory.value(), &t, &t, device);
            result_.peak_memory.push_back(peak(device));
            result_.peak_host_memory.push_back(peak(host));
            const std::string rank = " on rank " + std::to_string(r);
            if (peak(device) > p_.memory_limit[optpipe::rank{r}].value() + memory_slack_)
                result_.broken.push_back("rule 8, memory" + rank);
            if (peak(host) > p_.host_memory_limit[optpipe::rank{r}].value() + memory_slack_)
                result_.broken.push_back("rule 9, host" + rank);
        }
    }

    void measures() {
        double last_end = 0.0;
        double longest = 0.0;
        double busiest = 0.0;
        for (std::size_t r = 0; r < p_.graph.ranks(); ++r) {
            std::vector<double> starts;
            std::vector<double> ends;
            double busy = 0.0;
            for (const auto& t : ops_) {
                if (rank_of(t) != r || transfers(t)) continue;
                starts.push_back(t.start.value());
                ends.push_back(t.end.value());
                if (!counts_with_partner(t)) busy += t.end.value() - t.start.value();
            }
            if (starts.empty()) continue;
            const double end = *std::max_element(ends.begin(), ends.end());
            last_end = std::max(last_end, end);
            longest = std::max(longest, end - *std::min_element(starts.begin(), starts.end()));
            busiest = std::max(busiest, busy);
        }
        result_.objective = p_.objective == optpipe::objective_kind::span ? longest : last_end;
        result_.bubble_rate = (result_.objective - busiest) / result_.objective;
        for (std::size_t r = 0; r < p_.graph.ranks(); ++r) {
            double busy = 0.0;
            double again = 0.0;
            for (const auto& t : ops_) {
                if (rank_of(t) != r || transfers(t)) continue;
                if (!counts_with_partner(t)) busy += t.end.value() - t.start.value();
                if (t.op.kind == kind::recompute) again += t.end.value() - t.start.value();
                if (is_gradient_of(t, t.op.stage.position(), t.op.microbatch.position()))
                    again += stored_as(t.op).extra;
            }
            if (busy > 0.0) result_.recompute_rate = std::max(result_.recompute_rate, again / busy);
        }
    }

    const optpipe::problem& p_;
    const std::vector<timed>& ops_;
    std::vector<optpipe::edge> edges_;
    std::vector<stored> stored_;
    std::vector<std::vector<const timed*>> cells_;
    double time_slack_ = 0.0;
    double memory_slack_ = 0.0;
    verdict result_;
};

} // namespace

verdict judge(const optpipe::problem& p, const optpipe::schedule& s) { return reference_checker{p, s}.judge(); }

} // namespace oracle
