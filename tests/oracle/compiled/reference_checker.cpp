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
            memory_slack_ = std::max({memory_slack_, c.activation.value(), c.weight_stash.value()});
        }
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
        for (const auto& t : ops_)
            n += is(t, k, s, m) ? 1 : 0;
        return n;
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
            stored_[i].held = p_.costs[s].activation.value();
        }
        for (const auto& t : ops_) {
            if (t.op.kind != kind::forward || !is_known(t)) continue;
            if (t.op.storage >= p_.storage[t.op.stage].size()) continue;
            const auto& option = p_.storage[t.op.stage][t.op.storage];
            auto& cell = stored_[t.op.stage.position() * p_.graph.microbatches() + t.op.microbatch.position()];
            cell = {option.held.value(),
                    option.recompute.value(),
                    option.backward_extra.value(),
                    option.transfer_size.value(),
                    -1.0,
                    -1.0,
                    t.op.storage};
            if (!option.transfer) continue;
            cell.out = option.transfer->offload.value();
            cell.in = option.transfer->reload.value();
        }
    }
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
            if (!finite || std::abs(t.end.value() - t.start.value() - length(t.op)) > time_slack_)
                broken("rule 1, duration:", t.op);
            if (t.start.value() < -time_slack_) broken("rule 1, before 0:", t.op);
        }
        return true;
    }
    [[nodiscard]] double length(const optpipe::operation& op) const {
        const auto& c = p_.costs[op.stage];
        const auto& as = stored_as(op);
        if (op.kind == kind::forward) return c.forward.value();
        if (op.kind == kind::backward_input) return c.backward_input.value() + as.extra;
        if (op.kind == kind::backward_weight) return c.backward_weight.value();
        if (op.kind == kind::backward) return c.backward_input.value() + as.extra + c.backward_weight.value();
        if (op.kind == kind::recompute) return as.recompute;
        return op.kind == kind::offload ? as.out : as.in;
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
                if (!split && !whole) broken("rule 1, B or I and W:", cell);
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
        for (const auto& a : ops_)
            for (const auto& b : ops_) {
                const auto s = a.op.stage.position();
                const auto m = a.op.microbatch.position();
                const double hop = p_.p2p(p_.rank_of(a.op.stage), p_.rank_of(b.op.stage)).value();
                if (a.op.kind == kind::forward) {
                    if (is(b, kind::forward, s + 1, m)) starts_after(b, a, hop);
                    if (is_gradient_of(b, s, m) || is(b, kind::offload, s, m) || is(b, kind::recompute, s, m))
                        starts_after(b, a);
                }
                if (is_gradient_of(a, s, m) && s > 0 && is_gradient_of(b, s - 1, m)) starts_after(b, a, hop);
                if (a.op.kind == kind::backward_input && is(b, kind::backward_weight, s, m)) starts_after(b, a);
                if (a.op.kind == kind::offload && is(b, kind::reload, s, m)) starts_after(b, a);
                if (a.op.kind == kind::reload && (is_gradient_of(b, s, m) || is(b, kind::recompute, s, m)))
                    starts_after(b, a);
                if (a.op.kind == kind::recompute && is_gradient_of(b, s, m)) starts_after(b, a);
            }
    }

    [[nodiscard]] bool exclude_each_other(const timed& a, const timed& b) const {
        const bool same_rank = rank_of(a) == rank_of(b);
        if (transfers(a) != transfers(b)) return false;
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
        const double all = as.recompute > 0.0 ? c.activation.value() : as.held; // when the backward starts
        const double kept = c.weight_stash.value();
        const double start = t.start.value();
        const double end = t.end.value();
        switch (t.op.kind) {
        case kind::forward: list.push_back({start, as.held}); break;
        case kind::offload: list.push_back({end, -as.moved}); break;
        case kind::reload: list.push_back({start, as.moved}); break;
        case kind::recompute: list.push_back({start, all - as.held}); break;
        case kind::backward: list.push_back({end, -all}); break;
        case kind::backward_weight: list.push_back({end, -kept}); break;
        case kind::backward_input: list.push_back({kept < all ? end : start, kept - all}); break;
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
                busy += t.end.value() - t.start.value();
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
                busy += t.end.value() - t.start.value();
                if (t.op.kind == kind::recompute) again += t.end.value() - t.start.value();
                if (is_gradient_of(t, t.op.stage.position(), t.op.microbatch.position()))
                    again += stored_as(t.op).extra;
            }
            if (busy > 0.0) result_.recompute_rate = std::max(result_.recompute_rate, again / busy);
        }
    }

    const optpipe::problem& p_;
    const std::vector<timed>& ops_;
    std::vector<stored> stored_;
    double time_slack_ = 0.0;
    double memory_slack_ = 0.0;
    verdict result_;
};

} // namespace

verdict judge(const optpipe::problem& p, const optpipe::schedule& s) { return reference_checker{p, s}.judge(); }

} // namespace oracle
