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

/// Returns how long a transfer between a rank's device and its host occupies the link.
using copy_time = std::function<nanoseconds(rank, const task_label&, std::size_t bytes)>;
/// Returns a message's duration, from the readiness of both ends to the arrival. `sent` is the label of the send, so
/// `sent.peer` is the receiving rank.
using message_time = std::function<nanoseconds(rank from, const task_label& sent, std::size_t bytes)>;

/// Failures caused on purpose, to test how they are handled. Storage options of the operations are ignored.
struct fault_injection {
    /// Messages of this operation are lost without the sender's knowledge.
    std::optional<operation> lost_message{};
    /// The operation at which the rank stops without any error message.
    std::optional<operation> silent_at{};
};

/// The properties of ranks that are threads. Copies and messages without a given time are as fast as possible.
struct options {
    /// Time limit for a message, and for rank 0 in the control channel. In the control channel, all ranks except rank 0
    /// wait twice as long.
    nanoseconds patience = std::chrono::seconds{60};
    /// Limit in bytes for all device slabs of each rank together. `host_memory` is the limit for all host slabs of each
    /// rank. If a limit is empty, there is no limit.
    per_rank<std::size_t> device_memory{};
    per_rank<std::size_t> host_memory{};
    copy_time copies{};
    message_time messages{};
    /// Describes which ranks share a link to the host (`transfer_rules`). If empty, each rank has its own link.
    transfer_rules<> transfer{};
    bool record_times = false;
    fault_injection faults{};
};

/// Copies and messages that take as long as in the problem. `unit` is the duration of the problem's unit of time.
[[nodiscard]] copy_time planned_copies(const problem& p, clock_time unit);
[[nodiscard]] message_time planned_messages(const problem& p, clock_time unit);

} // namespace optpipe::threads

#if OPTPIPE_DEFINES(execution)
#include "optpipe/program/planned_message.hpp"

namespace optpipe::threads {

OPTPIPE_INLINE copy_time planned_copies(const problem& p, clock_time unit) {
    return [p, unit](rank, const task_label& what, std::size_t) { return on_clock(duration_of(p, what.op), unit); };
}

OPTPIPE_INLINE message_time planned_messages(const problem& p, clock_time unit) {
    return
        [p, unit](rank, const task_label& sent, std::size_t) { return on_clock(planned_message_time(p, sent), unit); };
}

} // namespace optpipe::threads
#endif
