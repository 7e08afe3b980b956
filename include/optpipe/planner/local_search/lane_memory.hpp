#pragma once

#include "optpipe/planner/local_search/lane_state.hpp"

#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// Checks whether each lane is executable on its rank alone. A lane is executable if its rank's precedences hold and
/// memory stays within the limits. Stores the memory in use after each position, so that only edited ranges are
/// visited.
class lane_memory {
public:
    using id = flat_problem::id;
    using range = lane_state::range;
    static constexpr id none = flat_problem::none;

    enum class fault_kind { none, order, device_memory, host_memory };
    struct fault {
        fault_kind what = fault_kind::none;
        id position = none;
    };

    explicit lane_memory(const lane_state& lanes)
        : p_{&lanes.flat()}, lanes_{&lanes}, after_(at(lanes.end(p_->ranks() - 1))) {}

    /// The first fault within the range.
    [[nodiscard]] fault find_fault(const range& t) const {
        auto now = before(t);
        for (id here = t.first; here <= t.last; ++here) {
            const id i = (*lanes_)[here];
            if (!lanes_->active(i)) continue;
            if (!in_place(i, here)) return {fault_kind::order, here};
            const auto& f = lanes_->facts(i);
            now.device += f.acquired;
            now.host += f.host_acquired;
            if (f.acquired > 0.0 && now.device > p_->limit(t.lane)) return {fault_kind::device_memory, here};
            if (f.host_acquired > 0.0 && now.host > p_->host_limit(t.lane)) return {fault_kind::host_memory, here};
            now.device -= f.released;
            now.host -= f.host_released;
        }
        return {};
    }
    /// Stores the memory after each position of the range. Call `update` for each range with committed edits.
    void update(const range& t) {
        auto now = before(t);
        for (id here = t.first; here <= t.last; ++here) {
            const id i = (*lanes_)[here];
            if (lanes_->active(i)) {
                const auto& f = lanes_->facts(i);
                now.device += f.acquired - f.released;
                now.host += f.host_acquired - f.host_released;
            }
            after_[at(here)] = now;
        }
    }

private:
    struct levels {
        double device = 0.0;
        double host = 0.0;
    };
    static std::size_t at(id i) { return static_cast<std::size_t>(i); }

    [[nodiscard]] levels before(const range& t) const {
        return t.first == lanes_->begin(t.lane) ? levels{} : after_[at(t.first - 1)];
    }
    [[nodiscard]] bool in_place(id i, id here) const {
        const auto& f = lanes_->facts(i);
        if (f.own_input != 0 && lanes_->position(i + f.own_input) > here) return false;
        return f.same_rank_before == 0 || lanes_->position(i + f.same_rank_before) < here;
    }

    const flat_problem* p_;
    const lane_state* lanes_;
    std::vector<levels> after_;
};

} // namespace optpipe::detail
