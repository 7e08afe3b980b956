#pragma once

#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

/// Replaces NCCL in tests, on top of fake_cuda. Sends are rendezvous, groups progress together, messages match by order
/// per communicator, peer and direction; a sum is messages between all ranks, added in their order. Ranks are threads
/// of this process.
///
/// As strict as NCCL 2.28. Work on one communicator runs in the order of issue, whatever the streams, and the streams
/// of a group wait for each other. A group enters its streams some time after it was closed; the first one between two
/// ranks only when both have arrived. Aborting or destroying a communicator waits for all its work and for graphs that
/// contain some of it; within a group, for all of the group's communicators at once.
namespace fake_nccl {

struct settings {
    /// The n-th call with this name (n = `failing_number`, from 1) returns `failure`. Functions that release a
    /// communicator still release it.
    std::string failing_call{};
    std::size_t failing_number = 1;
    ncclResult_t failure = ncclSystemError;
    /// The n-th send (from 1; 0 for none) never reaches its receiver.
    std::size_t lost_message = 0;
    /// From this many completed groups on, `ncclCommGetAsyncError` reports that a peer is gone.
    std::size_t lost_after_groups = static_cast<std::size_t>(-1);
    /// Time for which the device works between two aborts of a group.
    std::chrono::milliseconds abort_pause{};
    /// Whether blocking communicators may be made, which the library itself never does.
    bool allow_blocking = false;
};

/// Forgets all communicators.
void reset(const settings& s = {});
/// Communicators that weren't destroyed or aborted.
std::size_t alive();
/// Groups that were begun but not ended.
std::size_t open_groups();
std::size_t count(const std::string& call);
/// The names of all functions that were called.
std::vector<std::string> called();
/// The configurations of all communicators that were made.
std::vector<ncclConfig_t> configurations();
/// Errors of a program that NCCL doesn't always notice: use of communicators that are gone, that haven't settled, or
/// that two threads use at once; messages outside of groups, or in memory that isn't the device's; an abort that never
/// ends. Includes the complaints of CUDA.
std::vector<std::string> complaints();

} // namespace fake_nccl
