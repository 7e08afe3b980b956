#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/core/extent.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace optpipe {

/// Groups of stages that hold shards of one layer, such as an output layer with a split vocabulary. The gradient of
/// each stage waits for the forwards of all stages in its group. A stage is in at most one group. If there are no
/// groups, nothing is stored.
template <auto Stages> class basic_stage_groups {
public:
    constexpr basic_stage_groups() = default;

    [[nodiscard]] constexpr bool empty() const { return count_ == 0; }
    /// Number of groups.
    [[nodiscard]] constexpr std::size_t size() const { return count_; }
    /// Makes the stages in `list` a group. The pipeline has `stages` stages. The gradients of a microbatch start no
    /// earlier than `delay` after its last F in the group. Contract: none of these stages is in a group yet, and
    /// `stages` is the same for all groups.
    template <class List> constexpr void add(const List& list, duration delay, std::size_t stages) {
        OPTPIPE_EXPECT(fits(stages), "stage_groups: earlier groups are of another number of stages");
        auto changed = of_stage_;
        changed.resize(stages);
        for (const stage s : list) {
            OPTPIPE_EXPECT(s.position() < stages, "stage_groups: no such stage");
            OPTPIPE_EXPECT(changed[s.position()].group == 0, "stage_groups: the stage is in a group already");
            changed[s.position()] = {count_ + 1, delay};
        }
        of_stage_ = changed;
        ++count_;
    }
    /// Whether the groups are of a pipeline of `stages` stages, or there are none.
    [[nodiscard]] constexpr bool fits(std::size_t stages) const {
        return of_stage_.empty() || of_stage_.size() == stages;
    }
    [[nodiscard]] constexpr bool has(stage s) const {
        return s.position() < of_stage_.size() && of_stage_[s.position()].group != 0;
    }
    /// Whether both stages are in the same group.
    [[nodiscard]] constexpr bool together(stage a, stage b) const {
        return has(a) && has(b) && of_stage_[a.position()].group == of_stage_[b.position()].group;
    }
    /// Calls `visit(member, delay)` for all stages of the group of `s`, `s` included.
    template <class Visit> constexpr void for_each_member(stage s, const Visit& visit) const {
        if (!has(s)) return;
        for (std::size_t i = 0; i < of_stage_.size(); ++i)
            if (together(s, stage{i})) visit(stage{i}, of_stage_[i].delay);
    }
    /// Calls `visit(members, delay)` for every group, in the order of the groups' first stages. `members` lists the
    /// group's stages in order.
    template <class Visit> void for_each_group(const Visit& visit) const {
        for (std::size_t i = 0; i < of_stage_.size(); ++i) {
            std::vector<stage> members;
            for_each_member(stage{i}, [&](stage member, duration) { members.push_back(member); });
            if (!members.empty() && members.front() == stage{i}) visit(members, of_stage_[i].delay);
        }
    }
    friend bool operator==(const basic_stage_groups&, const basic_stage_groups&) = default;

private:
    struct place {
        std::uint32_t group = 0; // counted from 1; 0 if the stage is in no group
        duration delay{};
        friend constexpr bool operator==(const place&, const place&) = default;
    };
    std::uint32_t count_ = 0;
    bounded_vector<place, std::size_t{Stages}> of_stage_{};
};
template <std::size_t Stages = dynamic> using stage_groups = basic_stage_groups<named_extent<Stages>()>;

} // namespace optpipe
