#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/extent.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/costs.hpp"

#include <cstddef>
#include <cstdint>

namespace optpipe {

/// The kind of backward in a pair.
enum class overlap_kind : std::uint8_t {
    backward,       ///< B
    backward_input, ///< I
};

/// The duration of the backward of this kind.
[[nodiscard]] constexpr duration length_of(const stage_costs& c, overlap_kind kind) {
    return kind == overlap_kind::backward ? c.backward() : c.backward_input;
}

/// A forward and a backward of one rank that can run as one operation.
struct overlap {
    stage forward{};
    stage backward{};
    overlap_kind kind = overlap_kind::backward;
    /// Duration of the pair if its microbatches have no factors. At least the duration of the longer operation.
    optpipe::duration duration{};
    /// Device memory of the running pair, in addition to the memory of its two operations.
    memory_size memory{};
    friend constexpr bool operator==(const overlap&, const overlap&) = default;
};

/// The pairs of a problem, in the order given. Problems with static extents have no pairs.
template <bool IsStatic> class overlap_list {
public:
    [[nodiscard]] constexpr bool empty() const { return list_.empty(); }
    [[nodiscard]] constexpr std::size_t size() const { return list_.size(); }
    [[nodiscard]] constexpr auto begin() const { return list_.begin(); }
    [[nodiscard]] constexpr auto end() const { return list_.end(); }
    /// Contract: the list has no pair of these stages and this kind yet.
    constexpr void add(const overlap& each) {
        OPTPIPE_EXPECT(find(each.forward, each.backward, each.kind) == nullptr, "overlaps: the pair is there already");
        list_.push_back(each);
    }
    /// The pair of the forward on stage `forward` and the backward of this kind on stage `backward`. Null if the list
    /// lacks this pair. Calling `add` invalidates the pointer.
    [[nodiscard]] constexpr const overlap* find(stage forward, stage backward, overlap_kind kind) const {
        for (const overlap& each : list_)
            if (each.forward == forward && each.backward == backward && each.kind == kind) return &each;
        return nullptr;
    }
    /// The position of an element of the list.
    [[nodiscard]] constexpr std::size_t position(const overlap& each) const {
        return static_cast<std::size_t>(&each - &*list_.begin());
    }
    friend bool operator==(const overlap_list&, const overlap_list&) = default;

private:
    bounded_vector<overlap, IsStatic ? std::size_t{0} : extents::dynamic> list_{};
};

namespace detail {

/// The largest number of pairs that a file or a division of layers may have.
inline constexpr std::size_t most_overlaps = std::size_t{1} << 16U;

} // namespace detail
} // namespace optpipe
