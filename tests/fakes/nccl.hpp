#pragma once

#include <nccl.h>

#include <cstddef>
#include <string>

/// Stands in for NCCL in tests, on top of fake_cuda: sends are rendezvous, groups progress together, messages match by
/// order per communicator, peer and direction. Ranks are threads of this process.
namespace fake_nccl {

struct settings {
    /// The call of this name that comes as this one (counted from 1) returns this.
    std::string failing_call{};
    std::size_t failing_number = 1;
    ncclResult_t failure = ncclSystemError;
    /// From this many completed groups on, `ncclCommGetAsyncError` reports that a peer is gone.
    std::size_t lost_after_groups = static_cast<std::size_t>(-1);
};

/// Forgets all communicators.
void reset(const settings& s = {});
/// Communicators that weren't destroyed or aborted.
std::size_t alive();
std::size_t count(const std::string& call);

} // namespace fake_nccl
