#pragma once

#include "optpipe/schedule/bounds/chains.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace optpipe::detail {

/// The known order of the operations on one device. Stores how many operations of each chain must come before each
/// operation. Side 1 is reversed: its operation k is operation n − 1 − k of side 0, for n operations. Side 0 counts the
/// predecessors of an operation, and side 1 counts its successors. `mirror` derives the counts of side 1 from side 0.
class order_counts {
public:
    order_counts() = default;
    order_counts(const chain_system& c, const chain_system::device& on) : chains_{on.chains.size()} {
        for (const std::size_t chain : on.chains)
            count_.push_back(c.count[chain]);
        for (const std::size_t each : count_)
            most_ = std::max(most_, each);
        for (auto& side : counts_)
            side.assign(chains_ * chains_ * most_, 0);
        for (std::size_t x = 0; x < chains_; ++x)
            for (std::size_t k = 0; k < count_[x]; ++k)
                at(0, x, x, k) = static_cast<std::uint32_t>(k);
        for (const auto& [later, earlier] : on.orders)
            follow_step_by_step(later, earlier);
        close();
    }

    /// Number of operations of chain y that must come before operation k of chain x. Side 0 is in forward order, and
    /// side 1 is in reverse. The counts of side 1 are those of the last call of `mirror`.
    [[nodiscard]] std::size_t first(std::size_t side, std::size_t x, std::size_t y, std::size_t k) const {
        return counts_[side][(x * chains_ + y) * most_ + k];
    }
    /// Number of operations of chain y that may come before operation k of chain x, as of the last `mirror`.
    [[nodiscard]] std::size_t most(std::size_t x, std::size_t y, std::size_t k) const {
        return count_[y] - first(1, x, y, count_[x] - 1 - k);
    }
    /// Puts operation k of chain x, and all later ones, after the first `least` operations of chain y. Returns whether
    /// the call adds a new order.
    bool raise(std::size_t x, std::size_t y, std::size_t k, std::size_t least) {
        if (least <= at(0, x, y, k)) return false;
        for (; k < count_[x] && at(0, x, y, k) < least; ++k)
            at(0, x, y, k) = static_cast<std::uint32_t>(least);
        return true;
    }
    /// Closes the order transitively: if x follows y and y follows z, x follows z.
    void close() {
        for (std::size_t y = 0; y < chains_; ++y)
            for (std::size_t x = 0; x < chains_; ++x)
                for (std::size_t z = 0; z < chains_; ++z) {
                    if (x == y || y == z || x == z) continue;
                    for (std::size_t k = 0; k < count_[x]; ++k)
                        if (const auto b = at(0, x, y, k); b > 0)
                            at(0, x, z, k) = std::max(at(0, x, z, k), at(0, y, z, b - 1));
                }
    }
    /// Derives the counts of side 1 from the counts of side 0. Returns false if an operation would both precede and
    /// follow another operation.
    bool mirror() {
        for (std::size_t x = 0; x < chains_; ++x)
            for (std::size_t y = 0; y < chains_; ++y) {
                std::size_t j = 0;
                for (std::size_t k = 0; k < count_[x]; ++k) {
                    while (j < count_[y] && at(0, y, x, j) < k + 1)
                        ++j;
                    at(1, x, y, count_[x] - 1 - k) = static_cast<std::uint32_t>(count_[y] - j);
                    // The operations of y from index j on come after operation k of x.
                    if (x != y && at(0, x, y, k) > j) return false;
                }
            }
        return true;
    }

private:
    std::uint32_t& at(std::size_t side, std::size_t x, std::size_t y, std::size_t k) {
        return counts_[side][(x * chains_ + y) * most_ + k];
    }
    void follow_step_by_step(std::size_t later, std::size_t earlier) {
        for (std::size_t k = 0; k < count_[later]; ++k)
            raise(later, earlier, k, k + 1);
    }

    std::size_t chains_ = 0;
    std::vector<std::size_t> count_{};
    /// The largest number of operations in a chain.
    std::size_t most_ = 0;
    std::array<std::vector<std::uint32_t>, 2> counts_{};
};

} // namespace optpipe::detail
