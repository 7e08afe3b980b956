#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/storage.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// The storage options of one stage for the slots of a pattern. Options that take equal work and hold equal memory form
/// a level.
class slot_storage {
public:
    /// Options that differ only in their transfers.
    struct family {
        std::optional<storage_index> kept{};
        std::vector<storage_index> offloaded{};
        [[nodiscard]] storage_index first() const { return kept ? *kept : offloaded.front(); }
    };
    /// A choice of one level of storage for each slot.
    struct choice {
        std::vector<std::size_t> levels{};
        /// Sum of the additional work over all slots, and sum of the held memory.
        duration extra_work{};
        memory_size held{};
    };

    slot_storage(const problem& p, stage s, std::size_t count) : options_(p.storage[s].begin(), p.storage[s].end()) {
        add_levels();
        add_choices(count);
    }

    [[nodiscard]] const storage_option& operator[](storage_index i) const { return options_[i]; }
    /// Whether I acquires memory with at least one option.
    [[nodiscard]] bool may_grow(const stage_costs& c) const {
        return std::any_of(options_.begin(), options_.end(),
                           [&](const storage_option& o) { return c.weight_stash > o.restored(c); });
    }
    /// All choices on the Pareto frontier. Each choice takes more work and holds less memory than the previous choice.
    [[nodiscard]] const std::vector<choice>& choices() const { return choices_; }
    /// The families of a level, at most two. One family adds work before the backward, the other family inside the
    /// backward.
    [[nodiscard]] const std::vector<family>& families(std::size_t level) const { return levels_[level]; }

private:
    /// Drops each item that another item equals or beats in both work and memory. Contract: the items are sorted by
    /// work, then by memory.
    template <class Item, class Held> static void keep_frontier(std::vector<Item>& sorted, const Held& held) {
        auto least = memory_size::unlimited();
        std::erase_if(sorted, [&](const Item& item) {
            if (!(held(item) < least)) return true;
            least = held(item);
            return false;
        });
    }
    void add_levels() {
        std::vector<storage_index> order;
        for (std::size_t i = 0; i < options_.size(); ++i)
            order.push_back(static_cast<storage_index>(i));
        const auto work_and_memory = [&](storage_index i) {
            return std::pair{options_[i].extra_work(), options_[i].held};
        };
        std::stable_sort(order.begin(), order.end(),
                         [&](storage_index a, storage_index b) { return work_and_memory(a) < work_and_memory(b); });
        auto distinct = order;
        distinct.erase(
            std::unique(distinct.begin(), distinct.end(),
                        [&](storage_index a, storage_index b) { return work_and_memory(a) == work_and_memory(b); }),
            distinct.end());
        keep_frontier(distinct, [&](storage_index i) { return options_[i].held; });
        for (const auto each : distinct) {
            std::vector<family> level;
            std::vector<bool> ahead;
            for (const auto i : order) {
                if (work_and_memory(i) != work_and_memory(each)) continue;
                const auto known = std::find(ahead.begin(), ahead.end(), options_[i].recomputes()) - ahead.begin();
                if (static_cast<std::size_t>(known) == ahead.size()) {
                    ahead.push_back(options_[i].recomputes());
                    level.emplace_back();
                }
                auto& own = level[static_cast<std::size_t>(known)];
                if (options_[i].offloads())
                    own.offloaded.push_back(i);
                else if (!own.kept)
                    own.kept = i;
            }
            levels_.push_back(std::move(level));
            work_.push_back(options_[each].extra_work());
            held_.push_back(options_[each].held);
        }
    }
    void add_choices(std::size_t count) {
        std::vector<std::size_t> levels(count, 0);
        for (;;) {
            choice c{levels, {}, {}};
            for (const auto level : levels) {
                c.extra_work += work_[level];
                c.held += held_[level];
            }
            choices_.push_back(std::move(c));
            // Moves on to the next nondecreasing sequence of levels.
            auto at = levels.size();
            while (at > 0 && levels[at - 1] + 1 == levels_.size())
                --at;
            if (at == 0) break;
            const auto next = levels[at - 1] + 1;
            std::fill(levels.begin() + static_cast<std::ptrdiff_t>(at) - 1, levels.end(), next);
        }
        std::stable_sort(choices_.begin(), choices_.end(), [](const choice& a, const choice& b) {
            return std::pair{a.extra_work, a.held} < std::pair{b.extra_work, b.held};
        });
        keep_frontier(choices_, [](const choice& c) { return c.held; });
    }

    std::vector<storage_option> options_;
    std::vector<std::vector<family>> levels_{};
    /// Work and memory of each level.
    std::vector<duration> work_{};
    std::vector<memory_size> held_{};
    std::vector<choice> choices_{};
};

} // namespace optpipe::detail
