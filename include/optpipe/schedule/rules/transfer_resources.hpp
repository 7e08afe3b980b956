#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"

#include <cstddef>
#include <vector>

namespace optpipe {

/// Whether a transfer goes inward, that is, to the device. The functions below implement rule 7 of a valid schedule
/// (io/README.md).
[[nodiscard]] constexpr bool is_inward(operation_kind transfer) { return transfer == operation_kind::reload; }

/// Index of a transfer's copy engine among the engines of its rank. The index is 1 for inward transfers if each
/// direction has its own engine, and 0 otherwise.
template <auto Ranks>
[[nodiscard]] constexpr std::size_t copy_engine_of(const basic_transfer_rules<Ranks>& rules, bool inward) {
    return rules.engines == 2 && inward ? 1 : 0;
}
/// Index of a transfer's copy engine among the engines of all ranks, below `2 * ranks`.
template <auto Ranks>
[[nodiscard]] constexpr std::size_t copy_engine_of(const basic_transfer_rules<Ranks>& rules, rank r, bool inward) {
    return 2 * r.position() + copy_engine_of(rules, inward);
}

/// Index of a transfer's channel among the channels of its link. The index is 1 for inward transfers on a full-duplex
/// link, and 0 otherwise.
template <auto Ranks>
[[nodiscard]] constexpr std::size_t host_channel_of(const basic_transfer_rules<Ranks>& rules, bool inward) {
    return rules.duplex == duplex_kind::full && inward ? 1 : 0;
}
/// Index of a transfer's channel among the channels of all links, below `2 * ranks`.
template <auto Ranks>
[[nodiscard]] constexpr std::size_t host_channel_of(const basic_transfer_rules<Ranks>& rules, rank r, bool inward) {
    return 2 * std::size_t{rules.link[r]} + host_channel_of(rules, inward);
}

/// Whether a rank runs only one transfer at a time, in either direction.
template <auto Ranks> [[nodiscard]] constexpr bool shares_engine(const basic_transfer_rules<Ranks>& rules) {
    return copy_engine_of(rules, false) == copy_engine_of(rules, true);
}
/// Whether a link carries only one transfer at a time, in either direction.
template <auto Ranks> [[nodiscard]] constexpr bool shares_channel(const basic_transfer_rules<Ranks>& rules) {
    return host_channel_of(rules, false) == host_channel_of(rules, true);
}
/// Whether two transfers, of the same rank or of different ranks, must not overlap.
template <auto Ranks>
[[nodiscard]] constexpr bool exclude_each_other(const basic_transfer_rules<Ranks>& rules, rank a, bool a_inward, rank b,
                                                bool b_inward) {
    return copy_engine_of(rules, a, a_inward) == copy_engine_of(rules, b, b_inward) ||
           host_channel_of(rules, a, a_inward) == host_channel_of(rules, b, b_inward);
}

/// For each link, the ranks on it.
template <auto Ranks>
[[nodiscard]] constexpr std::vector<std::vector<rank>> ranks_by_link(const basic_transfer_rules<Ranks>& rules) {
    std::vector<std::vector<rank>> links(rules.link.size());
    for (const rank r : rules.link.indices())
        links[rules.link[r]].push_back(r);
    return links;
}

} // namespace optpipe
