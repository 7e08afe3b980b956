#pragma once

#include "optpipe/planner/cp/literal.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// The position of a clause in its store.
using clause_index = std::uint32_t;

/// Clauses of at least two literals. The first two literals of each clause are watched.
class clause_store {
public:
    class watcher {
    public:
        watcher(clause_index c, bool is_binary, literal blocker)
            : clause_{2 * c + (is_binary ? 1U : 0U)}, blocker_{blocker} {}

        [[nodiscard]] clause_index clause() const { return clause_ / 2; }
        /// Whether the clause has two literals. The blocker of a binary clause is the clause's other literal.
        [[nodiscard]] bool is_binary() const { return clause_ % 2 != 0; }
        /// A literal of the clause. While this literal is true, the clause is satisfied.
        [[nodiscard]] literal blocker() const { return blocker_; }

    private:
        std::uint32_t clause_;
        literal blocker_;
    };

    explicit clause_store(std::size_t variables) : watchers_(2 * variables) {}

    clause_index add(std::span<const literal> literals, bool learned, std::uint32_t distinct_levels) {
        const auto index = static_cast<clause_index>(data_.size());
        data_.push_back(static_cast<std::uint32_t>(literals.size()));
        data_.push_back(2 * distinct_levels + (learned ? 1U : 0U));
        for (const auto l : literals)
            data_.push_back(l.code());
        if (learned) learned_.push_back(index);
        watch(index);
        return index;
    }
    [[nodiscard]] std::size_t size_of(clause_index c) const { return data_[c]; }
    [[nodiscard]] std::uint32_t levels_of(clause_index c) const { return data_[c + 1] / 2; }
    [[nodiscard]] literal at(clause_index c, std::size_t i) const { return literal::from_code(data_[c + header + i]); }
    void exchange(clause_index c, std::size_t i, std::size_t j) {
        std::swap(data_[c + header + i], data_[c + header + j]);
    }

    /// The clauses that watch the opposite of `l`.
    [[nodiscard]] std::vector<watcher>& watching(literal l) { return watchers_[l.code()]; }
    [[nodiscard]] const std::vector<clause_index>& learned() const { return learned_; }

    /// Erases the learned clauses for which `is_forgotten(clause)` is true. All indices change, so no reason may refer
    /// to a clause during the call.
    template <class Forget> void erase_learned_if(Forget is_forgotten) {
        std::vector<std::uint32_t> kept;
        std::vector<clause_index> learned;
        for (clause_index c = 0; c < data_.size(); c += static_cast<clause_index>(header + data_[c])) {
            const bool is_learned = (data_[c + 1] & 1U) != 0;
            if (is_learned && is_forgotten(c)) continue;
            if (is_learned) learned.push_back(static_cast<clause_index>(kept.size()));
            kept.insert(kept.end(), data_.begin() + c,
                        data_.begin() + c + static_cast<std::ptrdiff_t>(header + data_[c]));
        }
        data_.swap(kept);
        learned_.swap(learned);
        for (auto& w : watchers_)
            w.clear();
        for (clause_index c = 0; c < data_.size(); c += static_cast<clause_index>(header + data_[c]))
            watch(c);
    }

private:
    static constexpr std::size_t header = 2;

    void watch(clause_index c) {
        const bool is_binary = size_of(c) == 2;
        watchers_[(!at(c, 0)).code()].emplace_back(c, is_binary, at(c, 1));
        watchers_[(!at(c, 1)).code()].emplace_back(c, is_binary, at(c, 0));
    }

    std::vector<std::uint32_t> data_;
    std::vector<clause_index> learned_;
    std::vector<std::vector<watcher>> watchers_;
};

} // namespace optpipe::cp
