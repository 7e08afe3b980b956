#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/transfer_pair.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace optpipe::detail {

/// Places transfers without slots. Used if transfers of stages differ in time, or if links aren't busy.
///
/// The first pass goes backwards in time. Every reload gets the latest start for which all reloads are in time on
/// engines and link. The second pass goes forwards in time. An offload starts as soon as it can end before the next
/// reload on its engine (and, with half duplex, its link). If an offload can't end in time, the next reload goes first.
/// The next offload is the one whose stash is needed last. Stashes that can't be reloaded in time stay on the device.
/// O(n · (log n + members)) for n stashes.
template <pipeline_graph Graph> class transfers_on_demand {
public:
    /// `members` are the ranks on the link.
    constexpr transfers_on_demand(const basic_problem<Graph>& p, const std::vector<rank>& members,
                                  std::vector<transfer_pair>& transfer_pairs, duration slack)
        : p_{p}, members_{members}, transfer_pairs_{transfer_pairs}, slack_{slack}, memory_slack_{tolerance{}.at(
                                                                                        p.memory_scale())},
          shares_link_{shares_channel(p.transfer)}, shares_engine_{shares_engine(p.transfer)}, own_(members.size()) {}

    constexpr void run() {
        set_latest_reloads();
        std::sort(transfer_pairs_.begin(), transfer_pairs_.end(),
                  [](const transfer_pair& a, const transfer_pair& b) { return a.leaves < b.leaves; });
        for (std::size_t released = 0; released < transfer_pairs_.size() || !events_.empty();) {
            now_ = released < transfer_pairs_.size() ? transfer_pairs_[released].leaves : duration::unlimited();
            if (!events_.empty()) now_ = std::min(now_, events_.front().time);
            for (; released < transfer_pairs_.size() && transfer_pairs_[released].leaves <= now_ + slack_; ++released)
                push(own_[transfer_pairs_[released].member].pending, released, needed_later());
            while (!events_.empty() && events_.front().time <= now_ + slack_)
                apply(pop_event());
            while (start_reload() || start_offload()) {
            }
        }
    }

private:
    enum class direction : std::uint8_t { out, in };
    enum class moment : std::uint8_t { offloaded, wanted, reloaded };
    struct event {
        duration time{};
        moment what{};
        std::size_t which = 0;
    };
    struct member_state {
        std::vector<std::size_t> pending{};   ///< a heap; the stash that is needed last is on top
        std::vector<std::size_t> offloaded{}; ///< a heap; the stash that is needed first is on top
        duration engine_free[2]{};
        memory_size host{};
    };

    constexpr std::size_t lane(direction d, bool shared) const { return !shared && d == direction::in ? 1 : 0; }
    constexpr duration& link_free(direction d) { return link_free_[lane(d, shares_link_)]; }
    constexpr duration& engine_free(std::size_t member, direction d) {
        return own_[member].engine_free[lane(d, shares_engine_)];
    }
    constexpr bool is_free(std::size_t member, direction d) {
        return engine_free(member, d) <= now_ + slack_ && link_free(d) <= now_ + slack_;
    }

    constexpr void set_latest_reloads() {
        std::sort(transfer_pairs_.begin(), transfer_pairs_.end(),
                  [](const transfer_pair& a, const transfer_pair& b) { return a.due > b.due; });
        std::vector<duration> engine(members_.size(), duration::unlimited());
        auto link = duration::unlimited();
        for (auto& t : transfer_pairs_) {
            t.reload_start = std::min({t.due, link, engine[t.member]}) - t.reload;
            link = engine[t.member] = t.reload_start;
        }
    }

    constexpr auto needed_later() const {
        return [this](std::size_t a, std::size_t b) { return transfer_pairs_[a].due < transfer_pairs_[b].due; };
    }
    constexpr auto wanted_later() const {
        return [this](std::size_t a, std::size_t b) {
            return transfer_pairs_[a].reload_start > transfer_pairs_[b].reload_start;
        };
    }
    static constexpr bool comes_later(const event& a, const event& b) { return a.time > b.time; }
    template <class Order> static constexpr void push(std::vector<std::size_t>& heap, std::size_t which, Order order) {
        heap.push_back(which);
        std::push_heap(heap.begin(), heap.end(), order);
    }
    template <class Order> static constexpr std::size_t pop(std::vector<std::size_t>& heap, Order order) {
        std::pop_heap(heap.begin(), heap.end(), order);
        const auto which = heap.back();
        heap.pop_back();
        return which;
    }
    constexpr void push_event(const event& e) {
        events_.push_back(e);
        std::push_heap(events_.begin(), events_.end(), comes_later);
    }
    constexpr event pop_event() {
        std::pop_heap(events_.begin(), events_.end(), comes_later);
        const auto e = events_.back();
        events_.pop_back();
        return e;
    }

    constexpr void apply(const event& e) {
        const auto& t = transfer_pairs_[e.which];
        switch (e.what) {
        case moment::offloaded:
            push(own_[t.member].offloaded, e.which, wanted_later());
            push_event({t.reload_start, moment::wanted, e.which});
            break;
        case moment::wanted: break;
        case moment::reloaded: own_[t.member].host -= p_.costs[t.stage].activation; break;
        }
    }

    constexpr const transfer_pair* next_to_leave(std::size_t member) {
        auto& own = own_[member];
        while (!own.pending.empty()) {
            const auto& t = transfer_pairs_[own.pending.front()];
            const auto room = p_.host_memory_limit[members_[member]] + memory_slack_ - own.host;
            if (now_ + t.offload + t.reload <= t.due + slack_)
                return p_.costs[t.stage].activation <= room ? &t : nullptr;
            pop(own.pending, needed_later());
        }
        return nullptr;
    }
    constexpr const transfer_pair* next_to_return(std::size_t member) const {
        const auto& offloaded = own_[member].offloaded;
        return offloaded.empty() ? nullptr : &transfer_pairs_[offloaded.front()];
    }
    /// Whether transfers of the two ranks exclude each other even in opposite directions.
    constexpr bool interfere(std::size_t a, std::size_t b) const { return shares_link_ || (shares_engine_ && a == b); }
    constexpr duration next_reload_in_the_way(std::size_t member) const {
        auto first = duration::unlimited();
        for (std::size_t i = 0; i < members_.size(); ++i)
            if (interfere(member, i))
                if (const auto* t = next_to_return(i)) first = std::min(first, t->reload_start);
        return first;
    }
    /// Whether a waiting offload can't end before `reload` is planned to start.
    constexpr bool holds_up_offload(const transfer_pair& reload) {
        for (std::size_t i = 0; i < members_.size(); ++i) {
            if (!interfere(reload.member, i)) continue;
            const auto* t = next_to_leave(i);
            if (!t) continue;
            const auto start = std::max({now_, link_free(direction::out), engine_free(i, direction::out)});
            if (start + t->offload > reload.reload_start + slack_) return true;
        }
        return false;
    }

    constexpr bool start_reload() {
        const transfer_pair* first = nullptr;
        for (std::size_t i = 0; i < members_.size(); ++i) {
            const auto* t = next_to_return(i);
            if (!t || !is_free(i, direction::in) || (first && first->reload_start <= t->reload_start)) continue;
            if (t->reload_start <= now_ + slack_ || holds_up_offload(*t)) first = t;
        }
        if (!first) return false;
        const auto which = pop(own_[first->member].offloaded, wanted_later());
        auto& t = transfer_pairs_[which];
        t.reload_start = now_;
        engine_free(t.member, direction::in) = link_free(direction::in) = now_ + t.reload;
        push_event({now_ + t.reload, moment::reloaded, which});
        return true;
    }
    constexpr bool start_offload() {
        const transfer_pair* best = nullptr;
        for (std::size_t i = 0; i < members_.size(); ++i) {
            if (!is_free(i, direction::out)) continue;
            const auto* t = next_to_leave(i);
            if (!t || now_ + t->offload > next_reload_in_the_way(i) + slack_) continue;
            if (!best || own_[i].pending.size() > own_[best->member].pending.size()) best = t;
        }
        if (!best) return false;
        const auto which = pop(own_[best->member].pending, needed_later());
        auto& t = transfer_pairs_[which];
        t.offload_start = now_;
        engine_free(t.member, direction::out) = link_free(direction::out) = now_ + t.offload;
        own_[t.member].host += p_.costs[t.stage].activation;
        push_event({now_ + t.offload, moment::offloaded, which});
        return true;
    }

    const basic_problem<Graph>& p_;
    const std::vector<rank>& members_;
    std::vector<transfer_pair>& transfer_pairs_;
    duration slack_;
    memory_size memory_slack_;
    bool shares_link_;
    bool shares_engine_;
    duration now_{};
    duration link_free_[2]{};
    std::vector<member_state> own_;
    std::vector<event> events_{};
};

} // namespace optpipe::detail
