#pragma once

#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

/// Stands in for NCCL in tests, on top of fake_cuda: sends are rendezvous, groups progress together, messages match by
/// order per communicator, peer and direction; a sum is messages between all ranks, added up in their order. Ranks are
/// threads of this process.
///
/// As strict as NCCL 2.28: what is on one communicator runs in the order of its issue, whatever the streams, and the
/// streams of a group wait for each other; a group gets into its streams some time after it was closed, the first one
/// between two ranks only when both have come; to abort or destroy a communicator waits for all that is on it and for
/// graphs that hold some of it, within a group for all of the group's communicators at once.
namespace fake_nccl {

struct settings {
    /// The call of this name that comes as this one (counted from 1) returns this. What gives a communicator back does
    /// so all the same.
    std::string failing_call{};
    std::size_t failing_number = 1;
    ncclResult_t failure = ncclSystemError;
    /// The send that comes as this one (counted from 1; 0: none) never gets to its receiver.
    std::size_t lost_message = 0;
    /// From this many completed groups on, `ncclCommGetAsyncError` reports that a peer is gone.
    std::size_t lost_after_groups = static_cast<std::size_t>(-1);
    /// How long the device works between two aborts of a group.
    std::chrono::milliseconds abort_pause{};
    /// Blocking communicators may be made, which the library itself never does.
    bool allow_blocking = false;
};

/// Forgets all communicators.
void reset(const settings& s = {});
/// Communicators that weren't destroyed or aborted.
std::size_t alive();
/// Groups that were begun and not ended.
std::size_t open_groups();
std::size_t count(const std::string& call);
/// The names of all functions that were called.
std::vector<std::string> called();
/// What communicators were made with.
std::vector<ncclConfig_t> configurations();
/// What no program may do, but NCCL doesn't always notice: communicators that are gone, that haven't settled, or that
/// two threads use at once; messages outside of groups, or in memory that isn't the device's; an abort that never ends.
/// Those of CUDA are among them.
std::vector<std::string> complaints();

} // namespace fake_nccl
