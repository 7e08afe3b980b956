#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe {

/// A transfer that isn't in the plan, but is measured.
struct planned_probe {
    operation offload{};
    /// Size of the transferred memory.
    memory_size size{};
};

/// Decides which transfer a rank probes before each step. A rank probes transfers outside its program to notice faster
/// links.
///
/// All ranks probe before the same steps, because one late rank delays the whole pipeline. Ranks that share a link
/// probe one at a time. A transfer whose time has changed is probed again soon. A rank whose transfers take longer than
/// planned probes less often.
///
/// In the first steps, each rank probes the largest transfer of each of its stages.
class probe_rounds {
public:
    /// `share` is the share of the step time (of the schedule `first`) spent on probes. If `share` is 0 or less,
    /// nothing is probed. `least_change` is relative to the transfer's last time.
    probe_rounds(const problem& p, const schedule& first, rank self, double share, double least_change);

    /// Returns the transfer to probe before this step, if any.
    [[nodiscard]] std::optional<planned_probe> next(std::uint64_t step, const rank_program& in_use);
    /// Reports the times of the probe that `next` returned for this step.
    void took(std::uint64_t step, const operation& what, const transfer_times& now);
    /// Number of steps between two probes, or 0 if there are no probes.
    [[nodiscard]] std::size_t steps_between() const { return every_; }
    /// Number of steps at the start in which ranks probe all their stages. All ranks have the same number.
    [[nodiscard]] std::uint64_t first_steps() const { return first_steps_; }

private:
    /// Number of steps for each first probe: one for the probe, and one to repeat it.
    static constexpr std::uint64_t steps_of_first_probe = 2;

    [[nodiscard]] std::optional<planned_probe> first_probe(std::uint64_t step) const;
    [[nodiscard]] bool is_turn(std::uint64_t step) const;
    [[nodiscard]] bool differ(duration before, duration now) const;
    [[nodiscard]] std::vector<planned_probe> unused_transfers(const rank_program& in_use) const;

    problem problem_;
    rank self_;
    double least_change_;
    std::size_t every_;
    /// Position of this rank on its link, number of ranks on the link, and largest number of ranks on any link.
    std::size_t place_ = 0;
    std::size_t ranks_ = 1;
    std::size_t most_ranks_ = 1;
    /// The largest transfer of each stage of this rank.
    std::vector<planned_probe> largest_{};
    std::uint64_t first_steps_ = 0;
    std::uint64_t round_ = 0;
    std::uint64_t pause_until_ = 0;
    /// Times of each transfer in its last probe. The last probe is repeated before step `again_at_`.
    std::map<std::pair<stage, storage_index>, transfer_times> last_{};
    std::optional<std::uint64_t> again_at_{};
    /// The last or current probe.
    std::optional<planned_probe> latest_{};
};

} // namespace optpipe

#if OPTPIPE_DEFINES(online)
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <cmath>

namespace optpipe {
namespace detail {

inline transfer_times planned_times(const problem& p, const operation& offload) {
    auto reload = offload;
    reload.kind = operation_kind::reload;
    return {duration_of(p, offload), duration_of(p, reload)};
}

template <class Visit> void for_each_transfer(const problem& p, const Visit& visit) {
    for (const stage s : p.graph.all_stages())
        for (std::size_t o = 0; o < p.storage_options(s); ++o)
            if (const auto& option = p.storage_of(s, o); option.offloads())
                visit(planned_probe{{s, operation_kind::offload, microbatch{0}, static_cast<storage_index>(o)},
                                    option.transfer_size});
}

inline std::size_t steps_between_probes(const problem& p, const schedule& first, double share) {
    duration longest{};
    for_each_transfer(p, [&](const planned_probe& each) {
        const auto planned = planned_times(p, each.offload);
        longest = std::max(longest, planned.offload + planned.reload);
    });
    const auto step = objective_of(p, first);
    if (!(share > 0.0) || !(longest > duration{}) || !(step > duration{})) return 0;
    return std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(longest / (share * step))));
}

} // namespace detail

OPTPIPE_INLINE probe_rounds::probe_rounds(const problem& p, const schedule& first, rank self, double share,
                                          double least_change)
    : problem_{p}, self_{self}, least_change_{least_change}, every_{detail::steps_between_probes(p, first, share)} {
    if (every_ == 0) return;
    if (p.transfer.link.size() == p.graph.ranks()) {
        const auto sharing = [&](rank with) {
            return static_cast<std::size_t>(
                std::count(p.transfer.link.begin(), p.transfer.link.end(), p.transfer.link[with]));
        };
        for (const rank r : p.graph.all_ranks()) {
            if (r < self && p.transfer.link[r] == p.transfer.link[self]) ++place_;
            most_ranks_ = std::max(most_ranks_, sharing(r));
        }
        ranks_ = sharing(self);
    }
    std::map<stage, planned_probe> largest;
    detail::for_each_transfer(p, [&](const planned_probe& each) {
        const auto [at, is_new] = largest.try_emplace(each.offload.stage, each);
        if (!is_new && at->second.size < each.size) at->second = each;
    });
    per_rank<std::size_t> stages(p.graph.ranks(), 0);
    for (const auto& [s, each] : largest) {
        ++stages[p.rank_of(s)];
        if (p.rank_of(s) == self) largest_.push_back(each);
    }
    first_steps_ = steps_of_first_probe * most_ranks_ * *std::max_element(stages.begin(), stages.end());
}

OPTPIPE_INLINE std::optional<planned_probe> probe_rounds::next(std::uint64_t step, const rank_program& in_use) {
    if (every_ == 0) return std::nullopt;
    const bool confirms = again_at_ == step;
    const bool is_first = step < first_steps_;
    if (!confirms && !is_first && !is_turn(step)) return std::nullopt;
    const auto unused = unused_transfers(in_use);
    if (confirms || is_first) {
        const auto wanted = confirms ? latest_ : first_probe(step);
        const auto is_it = [&](const planned_probe& each) { return each.offload == wanted->offload; };
        return latest_ = wanted && std::any_of(unused.begin(), unused.end(), is_it) ? wanted : std::nullopt;
    }
    if (unused.empty()) return std::nullopt;
    return latest_ = unused[++round_ % unused.size()];
}

OPTPIPE_INLINE std::optional<planned_probe> probe_rounds::first_probe(std::uint64_t step) const {
    const auto slot = step / steps_of_first_probe;
    const auto nth = slot / most_ranks_;
    if (step % steps_of_first_probe != 0 || slot % most_ranks_ != place_ || nth >= largest_.size()) return std::nullopt;
    return largest_[nth];
}

OPTPIPE_INLINE void probe_rounds::took(std::uint64_t step, const operation& what, const transfer_times& now) {
    constexpr double most_rounds = 100.0; // a link is probed again even if it seems to be gone
    const auto planned = detail::planned_times(problem_, what);
    const auto both = planned.offload + planned.reload;
    const double times = both > duration{} ? std::round((now.offload + now.reload) / both) : 1.0;
    const bool confirms = again_at_ == step;
    const bool is_first = step < first_steps_;
    if (!confirms && !is_first)
        pause_until_ = step / every_ + static_cast<std::uint64_t>(std::clamp(times, 1.0, most_rounds));
    auto& last = last_.try_emplace({what.stage, what.storage}, planned).first->second;
    const bool changed = differ(last.offload, now.offload) || differ(last.reload, now.reload);
    if (changed && !confirms) again_at_ = step + 1 + (is_first ? 0 : place_);
    last = now;
}

OPTPIPE_INLINE bool probe_rounds::is_turn(std::uint64_t step) const {
    const auto round = step / every_;
    return step % every_ == every_ - 1 && round % ranks_ == place_ && round >= pause_until_;
}

OPTPIPE_INLINE bool probe_rounds::differ(duration before, duration now) const {
    return std::abs(now / before - 1.0) > least_change_;
}

OPTPIPE_INLINE std::vector<planned_probe> probe_rounds::unused_transfers(const rank_program& in_use) const {
    std::vector<planned_probe> unused;
    detail::for_each_transfer(problem_, [&](const planned_probe& each) {
        const auto& op = each.offload;
        const auto is_used = [&](const instruction& i) {
            return i.kind == instruction_kind::copy && i.op.stage == op.stage && i.op.storage == op.storage;
        };
        if (problem_.rank_of(op.stage) == self_ &&
            std::none_of(in_use.instructions.begin(), in_use.instructions.end(), is_used))
            unused.push_back(each);
    });
    return unused;
}

} // namespace optpipe
#endif
