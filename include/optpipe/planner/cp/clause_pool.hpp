#pragma once

#include "optpipe/planner/cp/literal.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// How searches of one model share learned clauses.
struct clause_pool_parameters {
    /// The largest number of decision levels of a shared clause. Clauses with more levels prune less, and take as long
    /// to propagate. Proofs of store-p3-m6-k150 and store-v-p2-m4-k100 (three seeds) took 8.5 s with one search, and
    /// 7.0 s with two searches that share nothing. Two searches that share clauses with up to 3, 5 and 8 levels took
    /// 4.8, 4.3 and 4.7 s.
    std::uint32_t most_levels = 5;
    /// Number of clauses that are kept. Older clauses are dropped. A search learns this number of clauses before it
    /// drops some (`solver_parameters`).
    std::size_t most_clauses = 4000;
};

/// Learned clauses of several searches of one model. The searches may have different limits on the objective. Each
/// clause holds for objectives up to the limit under which it was learned. Searches share short clauses, as in the
/// parallel SAT solver ManySAT (Hamadi, Jabbour and Sais 2009). A clause counts as short if its literals have few
/// decision levels (Audemard and Simon 2009).
///
/// Searches on several threads may use the pool at the same time, each through its own `member`.
class clause_pool {
public:
    struct clause {
        std::vector<literal> literals{};
        std::uint32_t distinct_levels = 0;
        /// The largest objective, in ticks, for which the clause holds.
        ticks limit = std::numeric_limits<ticks>::max();
    };
    /// A search that uses the pool.
    class member {
    public:
        member() = default;
        explicit member(clause_pool& pool) : pool_{&pool}, number_{pool.next_number()} {}

        [[nodiscard]] bool shares(std::uint32_t distinct_levels) const {
            return pool_ && distinct_levels <= pool_->with_.most_levels;
        }
        void add(clause c) { pool_->add(std::move(c), number_); }
        /// Clauses that other members have added since the last call, for objectives up to `limit`.
        [[nodiscard]] std::vector<clause> take(ticks limit) {
            return pool_ ? pool_->since(seen_, number_, limit) : std::vector<clause>{};
        }

    private:
        clause_pool* pool_ = nullptr;
        std::uint32_t number_ = 0;
        std::size_t seen_ = 0;
    };

    clause_pool() = default;
    explicit clause_pool(const clause_pool_parameters& with) : with_{with} {}
    clause_pool(const clause_pool&) = delete;
    clause_pool& operator=(const clause_pool&) = delete;

private:
    struct entry {
        clause content{};
        std::uint32_t from = 0;
    };

    std::uint32_t next_number() {
        const std::scoped_lock lock{mutex_};
        return members_++;
    }
    void add(clause c, std::uint32_t from) {
        const std::scoped_lock lock{mutex_};
        if (clauses_.size() < with_.most_clauses)
            clauses_.push_back({std::move(c), from});
        else
            clauses_[added_ % with_.most_clauses] = {std::move(c), from};
        ++added_;
    }
    std::vector<clause> since(std::size_t& seen, std::uint32_t but, ticks limit) {
        const std::scoped_lock lock{mutex_};
        std::vector<clause> result;
        const auto oldest = added_ - clauses_.size();
        for (auto i = std::max(seen, oldest); i < added_; ++i)
            if (const auto& e = clauses_[i % with_.most_clauses]; e.from != but && e.content.limit >= limit)
                result.push_back(e.content);
        seen = added_;
        return result;
    }

    clause_pool_parameters with_{};
    std::mutex mutex_{};
    /// The latest clauses, as a ring buffer. The n-th clause has index n modulo the capacity.
    std::vector<entry> clauses_{};
    std::size_t added_ = 0;
    std::uint32_t members_ = 0;
};

} // namespace optpipe::cp
