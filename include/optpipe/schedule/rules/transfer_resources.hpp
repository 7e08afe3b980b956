#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"

#include <cstddef>

namespace optpipe {

/// Rule 6 of a valid schedule (io/README.md): which copy engine and which channel of a host link a transfer occupies.
/// `inward`: towards the device.
[[nodiscard]] constexpr bool is_inward(operation_kind transfer) { return transfer == operation_kind::reload; }

/// Of its rank's copy engines: 0, or 1 for inward transfers where there is one engine per direction.
template <auto Ranks>
[[nodiscard]] constexpr std::size_t copy_engine_of(const basic_transfer_rules<Ranks>& rules, bool inward) {
    return rules.engines == 2 && inward ? 1 : 0;
}
/// The same among the engines of all ranks: below `2 * ranks`.
template <auto Ranks>
[[nodiscard]] constexpr std::size_t copy_engine_of(const basic_transfer_rules<Ranks>& rules, rank r, bool inward) {
    return 2 * r.position() + copy_engine_of(rules, inward);
}

/// Of a link's channels: 0, or 1 for inward transfers on a full-duplex link.
template <auto Ranks>
[[nodiscard]] constexpr std::size_t host_channel_of(const basic_transfer_rules<Ranks>& rules, bool inward) {
    return rules.duplex == duplex_kind::full && inward ? 1 : 0;
}
/// The same among the channels of all links: below `2 * ranks`.
template <auto Ranks>
[[nodiscard]] constexpr std::size_t host_channel_of(const basic_transfer_rules<Ranks>& rules, rank r, bool inward) {
    return 2 * std::size_t{rules.link[r]} + host_channel_of(rules, inward);
}

} // namespace optpipe
