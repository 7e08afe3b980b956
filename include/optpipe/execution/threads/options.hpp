#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/execution/clock_time.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/ir.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>

namespace optpipe::threads {

using nanoseconds = std::chrono::nanoseconds;

/// How long a transfer between a rank's device and its host holds the link.
using copy_time = std::function<nanoseconds(rank, const task_label&, std::size_t bytes)>;
/// From when both ends of a message are there until its data is.
using message_time = std::function<nanoseconds(rank from, rank to, std::size_t bytes)>;

/// What goes wrong on purpose, for tests of what happens then. Storage options of the operations don't matter.
struct fault_injection {
    /// Messages of this operation are lost: their sender believes that they arrived.
    std::optional<operation> lost_message{};
    /// The rank falls silent when its turn comes to do this.
    std::optional<operation> silent_at{};
};

/// What threads pretend to be. Without times for copies and messages they are as fast as they can.
struct options {
    /// How long one rank waits for another at a message, and rank 0 for the others at a minimum of the control channel,
    /// where they wait for it twice as long.
    nanoseconds patience = std::chrono::seconds{60};
    /// Bytes of each rank: of its device, all slabs together, and of its host. Empty: as much as there is.
    per_rank<std::size_t> device_memory{};
    per_rank<std::size_t> host_memory{};
    copy_time copies{};
    message_time messages{};
    /// Ranks that share a link to the host (`transfer_rules`); empty: each has one of its own.
    transfer_rules<> transfer{};
    bool record_times = false;
    fault_injection faults{};
};

/// Links on which everything takes what it takes in the problem, with a unit of its time this long.
[[nodiscard]] copy_time planned_copies(const problem& p, clock_time unit);
[[nodiscard]] message_time planned_messages(const problem& p, clock_time unit);

/// Links that carry so many bytes per second to the host, and from it.
[[nodiscard]] copy_time limited_copies(double out_per_second, double in_per_second);

} // namespace optpipe::threads

#if OPTPIPE_DEFINES(execution)

#include <cstdint>
#include <limits>

namespace optpipe::threads {

OPTPIPE_INLINE copy_time planned_copies(const problem& p, clock_time unit) {
    return [p, unit](rank, const task_label& what, std::size_t) { return on_clock(duration_of(p, what.op), unit); };
}

OPTPIPE_INLINE message_time planned_messages(const problem& p, clock_time unit) {
    return [p2p = p.p2p, unit](rank from, rank to, std::size_t) { return on_clock(p2p(from, to), unit); };
}

OPTPIPE_INLINE copy_time limited_copies(double out_per_second, double in_per_second) {
    return [=](rank, const task_label& what, std::size_t bytes) {
        const auto rate = what.op.kind == operation_kind::offload ? out_per_second : in_per_second;
        return nanoseconds{static_cast<std::int64_t>(1e9 * static_cast<double>(bytes) / rate)};
    };
}

} // namespace optpipe::threads
#endif
