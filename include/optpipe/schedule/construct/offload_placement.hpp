#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/offload_on_demand.hpp"
#include "optpipe/schedule/construct/offload_slots.hpp"
#include "optpipe/schedule/construct/transfer_pair.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe {

/// One byte per stage and microbatch, numbered by `cell_numbering`.
using cell_flags = std::vector<unsigned char>;

/// How transfers are placed around the computations of a schedule.
struct offload_placement {
    bool in_slots = true;
    /// A stash stays on the device if it is needed within this number of round trips to the host.
    double round_trips = 1.0;
    /// Among the microbatches that may be offloaded, every n-th is offloaded.
    std::size_t every = 1;
};

/// Finds transfers that leave the times of given computations unchanged. Only stashes in `may_offload` that can be
/// reloaded in time get transfers. The transfers obey the rules for engines and links. Transfers without slots also
/// obey the limits of host memory. The limits of device memory are ignored.
template <pipeline_graph Graph> class offload_placer {
public:
    constexpr offload_placer(const basic_problem<Graph>& p, const cell_flags& may_offload,
                             const basic_schedule<Graph>& computations)
        : p_{p}, may_offload_{may_offload}, leaves_(may_offload.size()),
          due_(may_offload.size()), slack_{time_slack(p, computations, tolerance{rounding})} {
        for (const auto& timed : computations.operations) {
            const auto cell = cell_numbering{p.graph}(timed.op);
            if (timed.op.kind == operation_kind::forward) leaves_[cell] = timed.end;
            if (is_gradient(timed.op.kind)) due_[cell] = timed.start;
        }
    }

    /// The transfers, sorted by start. Once `abandon` returns true, the remaining links get no transfers.
    [[nodiscard]] constexpr std::vector<timed_operation> run(const offload_placement& how,
                                                             stop_check abandon = {}) const {
        std::vector<timed_operation> transfers;
        for (const auto& members : ranks_by_link(p_.transfer)) {
            if (abandon()) break;
            auto transfer_pairs = transfer_pairs_of(members, how);
            if (!transfer_pairs.empty()) place(how, members, transfer_pairs);
            for (const auto& t : transfer_pairs) {
                const auto offload_end = t.offload_start + t.offload;
                transfers.push_back({offload_of(t.stage, t.microbatch), t.offload_start, offload_end});
                transfers.push_back({reload_of(t.stage, t.microbatch), t.reload_start, t.reload_start + t.reload});
            }
        }
        std::sort(transfers.begin(), transfers.end(), starts_before);
        return transfers;
    }

private:
    constexpr std::vector<transfer_pair> transfer_pairs_of(const std::vector<rank>& members,
                                                           const offload_placement& how) const {
        std::vector<transfer_pair> transfer_pairs;
        for (std::size_t i = 0; i < members.size(); ++i)
            for (const stage s : p_.graph.all_stages()) {
                const auto transfer = stash_transfer(p_, s);
                if (p_.rank_of(s) != members[i] || !transfer) continue;
                const auto& [offload, reload] = *transfer;
                std::size_t seen = 0;
                for (const microbatch m : p_.graph.all_microbatches()) {
                    const auto cell = cell_numbering{p_.graph}(s, m);
                    if (!may_offload_[cell] || seen++ % how.every != 0) continue;
                    if (due_[cell] - leaves_[cell] + slack_ >= how.round_trips * (offload + reload))
                        transfer_pairs.push_back({s, m, i, leaves_[cell], due_[cell], offload, reload});
                }
            }
        return transfer_pairs;
    }
    /// Drops late transfer pairs and places all other pairs again, until none is late.
    constexpr void place(const offload_placement& how, const std::vector<rank>& members,
                         std::vector<transfer_pair>& transfer_pairs) const {
        constexpr int most_rounds = 8; // seldom reached; afterwards, computations wait for pairs that aren't in time
        for (int round = 0; round < most_rounds; ++round) {
            place_all(how, members, transfer_pairs);
            if (std::erase_if(transfer_pairs, [&](const transfer_pair& t) { return !t.is_in_time(slack_); }) == 0)
                return;
        }
    }
    constexpr void place_all(const offload_placement& how, const std::vector<rank>& members,
                             std::vector<transfer_pair>& transfer_pairs) const {
        detail::slot_pattern pattern{{}, members.size(), shares_engine(p_.transfer), shares_channel(p_.transfer)};
        for (auto& t : transfer_pairs) {
            t.offload_start = t.reload_start = duration::unlimited();
            pattern.length = std::max({pattern.length, t.offload, t.reload});
        }
        if (how.in_slots && pattern.length > slack_)
            detail::place_in_slots(pattern, transfer_pairs, slack_);
        else
            detail::transfers_on_demand<Graph>{p_, members, transfer_pairs, slack_}.run();
    }

    /// The relative rounding error of sums of durations.
    static constexpr double rounding = 1e-9;

    const basic_problem<Graph>& p_;
    const cell_flags& may_offload_;
    std::vector<duration> leaves_;
    std::vector<duration> due_;
    duration slack_;
};

} // namespace optpipe
