#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/propagation/literal.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// A clause over bounds of integral columns: at least one of its literals holds.
struct disjunction {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    /// Decision levels among the literals when the clause was learned; fewer levels are better.
    std::uint32_t levels = 0;
    float activity = 0.0F;
    bool learned = false;
    bool dead = false;
};

/// Disjunctions with two watched literals each. A literal is watched at the bound whose rise can make the literal
/// false.
class disjunctions {
public:
    struct watcher {
        std::uint32_t which;
        double value;    ///< the watched literal is false once the opposite bound has reached this value
        literal blocker; ///< as long as this literal holds, the clause needs no action
    };

    explicit disjunctions(std::size_t columns) : watchers_(2 * columns) {}

    [[nodiscard]] std::size_t size() const { return items_.size(); }
    [[nodiscard]] std::size_t learned() const { return learned_; }
    /// The number of bytes. Counts the arena twice, because a second arena exists during compaction.
    [[nodiscard]] std::size_t bytes() const { return bytes_of(arena_, arena_, items_) + bytes_of_lists(watchers_); }
    [[nodiscard]] std::span<literal> literals(std::size_t i) {
        return std::span{arena_}.subspan(items_[i].first, items_[i].count);
    }
    [[nodiscard]] std::vector<watcher>& watchers(bound_index b) { return watchers_[b]; }

    /// `literals` has at least two entries; the first two are watched.
    std::uint32_t add(std::span<const literal> literals, bool learned, std::uint32_t levels) {
        const auto id = static_cast<std::uint32_t>(items_.size());
        items_.push_back({static_cast<std::uint32_t>(arena_.size()), static_cast<std::uint32_t>(literals.size()),
                          levels, increment_, learned, false});
        if (arena_.size() + literals.size() > arena_.capacity())
            arena_.reserve(arena_.size() + arena_.size() / 4 + least_growth * literals.size());
        arena_.insert(arena_.end(), literals.begin(), literals.end());
        watch(id, literals[0], literals[1]);
        watch(id, literals[1], literals[0]);
        learned_ += learned ? 1 : 0;
        return id;
    }
    void watch(std::uint32_t which, literal watched, literal blocker) {
        watchers_[opposite(watched.bound)].push_back({which, watched.value, blocker});
    }

    void bump(std::size_t i) {
        constexpr float largest = 1e20F;
        auto& d = items_[i];
        if (!d.learned) return;
        d.activity += increment_;
        if (d.activity > largest) {
            for (auto& item : items_)
                item.activity /= largest;
            increment_ /= largest;
        }
    }
    void decay() {
        constexpr float factor = 0.999F;
        increment_ /= factor;
    }

    /// Deletes the less active half of the learned clauses, except clauses of at most two levels. Ids change. May only
    /// be called at the root, where no reason refers to a clause.
    void forget_half() {
        std::vector<std::uint32_t> candidates;
        for (std::uint32_t i = 0; i < items_.size(); ++i)
            if (items_[i].learned && items_[i].levels > keep_always) candidates.push_back(i);
        std::sort(candidates.begin(), candidates.end(), [&](auto a, auto b) {
            return items_[a].activity != items_[b].activity ? items_[a].activity < items_[b].activity : a < b;
        });
        candidates.resize(candidates.size() / 2);
        for (const auto i : candidates)
            items_[i].dead = true;
        compact();
    }

private:
    static constexpr std::size_t least_growth = 16;

    static constexpr std::uint32_t keep_always = 2;

    void compact() {
        std::vector<disjunction> items;
        std::vector<literal> arena;
        learned_ = 0;
        for (auto& w : watchers_)
            w.clear();
        items.swap(items_);
        arena.swap(arena_);
        for (const auto& d : items) {
            if (d.dead) continue;
            const auto id = add(std::span{arena}.subspan(d.first, d.count), d.learned, d.levels);
            items_[id].activity = d.activity;
        }
    }

    std::vector<disjunction> items_;
    std::vector<literal> arena_;
    std::vector<std::vector<watcher>> watchers_;
    std::size_t learned_ = 0;
    float increment_ = 1.0F;
};

} // namespace optpipe::milp::search
