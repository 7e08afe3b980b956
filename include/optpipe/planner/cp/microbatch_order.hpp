#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/pipeline/equal_sequences.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/rules/needed_options.hpp"
#include "optpipe/schedule/rules/overtaking.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::cp {

/// Tells which operations of a model run in the order of their microbatches.
///
/// In plain problems, all microbatches are interchangeable (`interchangeable_microbatches`). If each stage has one
/// storage option, operations of interchangeable microbatches are sorted on every stage (see `pipeline_model`). Sorting
/// is possible: interchangeable microbatches get inputs from interchangeable microbatches, and memory use doesn't
/// change. If operations aren't sorted, their k-th task belongs to microbatch k.
///
/// If a stage has several options, only the first forwards of interchangeable sequences on stage 0 are sorted. For
/// plain problems, `stage_storage` sorts the operations of every stage.
class microbatch_order {
public:
    microbatch_order(const problem& p, const needed_options& needed, overtaking form)
        : is_sorted_{is_plain(p) || form == overtaking::forbidden || !has_choices(p, needed)},
          has_permutations_{is_plain(p) && form == overtaking::allowed}, lists_{lists_of(p)} {}

    /// Whether forwards and gradients of interchangeable microbatches are sorted on every stage.
    [[nodiscard]] bool is_sorted() const { return is_sorted_; }
    /// Whether the gradient of any microbatch may use the stash of any forward (`stage_storage`).
    [[nodiscard]] bool has_permutations() const { return has_permutations_; }
    /// Lists of interchangeable microbatches, each in ascending order. Every microbatch is in one list.
    [[nodiscard]] const std::vector<std::vector<std::size_t>>& lists() const { return lists_; }
    [[nodiscard]] bool are_interchangeable(std::size_t a, std::size_t b) const {
        return std::any_of(lists_.begin(), lists_.end(), [&](const auto& list) {
            return std::binary_search(list.begin(), list.end(), a) && std::binary_search(list.begin(), list.end(), b);
        });
    }

private:
    [[nodiscard]] static bool has_choices(const problem& p, const needed_options& needed) {
        for (const stage s : p.graph.all_stages())
            if (needed.of(s).size() > 1) return true;
        return false;
    }
    [[nodiscard]] static std::vector<std::vector<std::size_t>> lists_of(const problem& p) {
        std::vector<std::vector<std::size_t>> lists;
        for (const auto& list : interchangeable_microbatches(p)) {
            auto& numbers = lists.emplace_back();
            for (const microbatch m : list)
                numbers.push_back(m.position());
        }
        return lists;
    }

    bool is_sorted_;
    bool has_permutations_;
    std::vector<std::vector<std::size_t>> lists_;
};

} // namespace optpipe::cp
