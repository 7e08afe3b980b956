#pragma once

#include "cuda/streamed.hpp"
#include "optpipe/execution/nccl/executor.hpp"
#include "optpipe/execution/run.hpp"

#include <barrier>
#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

/// Runs programs on ranks whose messages go by NCCL, each on a thread with communicators of its own.
namespace joined {

struct outcome {
    /// The error of each rank, and the complaints of its model.
    std::vector<std::string> errors;
    std::vector<std::string> complaints;
    std::size_t weights = 0;
};
struct plan {
    std::chrono::milliseconds patience{20'000};
    std::size_t steps = 2;
    /// This rank leaves after `leaves_after` steps, and tells no other.
    std::size_t leaver = static_cast<std::size_t>(-1);
    std::size_t leaves_after = 0;
};

/// `join(rank)` gives a pointer to a member.
template <class Join> outcome run(std::span<const optpipe::rank_program> programs, const plan& how, const Join& join) {
    outcome all{std::vector<std::string>(programs.size()), std::vector<std::string>(programs.size()), 0};
    std::mutex mutex;
    std::vector<std::jthread> ranks;
    for (std::size_t r = 0; r < programs.size(); ++r)
        ranks.emplace_back([&, r] {
            streamed::model model{programs[r].stages};
            try {
                const auto here = join(programs[r].self);
                const auto steps = r == how.leaver ? how.leaves_after : how.steps;
                if (steps == 0) return;
                optpipe::runner<optpipe::cuda::executor, streamed::model> mine{programs[r], here->executor(), model};
                for (std::size_t k = 0; k < steps; ++k)
                    mine.step();
            } catch (const optpipe::error& e) {
                all.errors[r] = e.what();
            }
            const std::scoped_lock lock{mutex};
            all.weights += model.weights();
            all.complaints[r] = model.complaint();
        });
    ranks.clear();
    return all;
}
/// Options with a device for each rank.
inline optpipe::cuda::options options_of(optpipe::rank r, std::chrono::milliseconds patience) {
    return {.device = static_cast<int>(r.value()), .patience = patience};
}
/// The layout with as many communicators as the lanes of the programs need.
inline optpipe::nccl::communicator_layout layout_for(std::span<const optpipe::rank_program> programs) {
    using enum optpipe::lane_kind;
    using optpipe::nccl::communicator_layout;
    for (const auto& p : programs)
        for (const auto kind : p.lanes)
            if (kind == send_forward || kind == receive_forward || kind == send_backward || kind == receive_backward)
                return communicator_layout::per_sender;
    return communicator_layout::per_direction;
}
inline outcome run(std::span<const optpipe::rank_program> programs, const plan& how) {
    const auto id = optpipe::nccl::world_id::make(layout_for(programs));
    return run(programs, how, [&](optpipe::rank r) {
        return std::make_unique<optpipe::nccl::member>(id, r, programs.size(), options_of(r, how.patience));
    });
}

} // namespace joined
