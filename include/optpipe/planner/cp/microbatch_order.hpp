#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/pipeline/microbatches.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/stash_options.hpp"
#include "optpipe/schedule/rules/overtaking.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

namespace optpipe::cp {

/// Which operations run in the order of their microbatches in a model.
///
/// Microbatches are interchangeable if they have the same factors and the same place in sequences whose slices have the
/// same factors, one by one. In plain problems all are. If the stages have one storage option each, the argument of
/// `pipeline_model` sorts the operations of interchangeable microbatches on every stage: inputs are of interchangeable
/// microbatches again, and every memory sees the same amounts at the same times. All other microbatches keep their
/// operations: the k-th tasks of a model are those of microbatch k.
///
/// With a choice between options, only names can be exchanged: of interchangeable sequences, the first forwards on
/// stage 0 are sorted. (For plain problems, `stage_storage` sorts more, with permutations.)
class microbatch_order {
public:
    microbatch_order(const problem& p, overtaking form)
        : is_sorted_{is_plain(p) || form == overtaking::forbidden || !has_choices(p)},
          has_permutations_{is_plain(p) && form == overtaking::allowed}, lists_{lists_of(p)} {}

    /// Whether, on every stage, the forwards of interchangeable microbatches are sorted, and so are the gradients.
    [[nodiscard]] bool is_sorted() const { return is_sorted_; }
    /// Whether a gradient may use the stash of any forward (`stage_storage`).
    [[nodiscard]] bool has_permutations() const { return has_permutations_; }
    /// The interchangeable microbatches, in ascending lists; every microbatch is in one.
    [[nodiscard]] const std::vector<std::vector<std::size_t>>& lists() const { return lists_; }
    [[nodiscard]] bool are_interchangeable(std::size_t a, std::size_t b) const {
        return std::any_of(lists_.begin(), lists_.end(), [&](const auto& list) {
            return std::binary_search(list.begin(), list.end(), a) && std::binary_search(list.begin(), list.end(), b);
        });
    }

private:
    [[nodiscard]] static bool has_choices(const problem& p) {
        for (const stage s : p.graph.all_stages())
            if (useful_options(p, s).size() > 1) return true;
        return false;
    }
    [[nodiscard]] static std::vector<std::vector<std::size_t>> lists_of(const problem& p) {
        std::vector<std::vector<std::size_t>> lists;
        for (const microbatch m : p.graph.all_microbatches()) {
            const auto same = std::find_if(lists.begin(), lists.end(), [&](const auto& list) {
                return may_exchange(p, microbatch{list.front()}, m);
            });
            (same == lists.end() ? lists.emplace_back() : *same).push_back(m.position());
        }
        return lists;
    }
    [[nodiscard]] static bool may_exchange(const problem& p, microbatch a, microbatch b) {
        const auto& all = p.microbatches;
        if (all.are_equal()) return true;
        const auto agree = [&](auto next) {
            std::optional<microbatch> x{a};
            std::optional<microbatch> y{b};
            for (; x && y; x = next(*x), y = next(*y))
                if (!have_equal_factors(p, *x, *y)) return false;
            return !x && !y;
        };
        return agree([&](microbatch m) { return all.slice_before(m); }) &&
               agree([&](microbatch m) { return all.slice_after(m); });
    }
    [[nodiscard]] static bool have_equal_factors(const problem& p, microbatch a, microbatch b) {
        for (const stage s : p.graph.all_stages())
            if (p.microbatches.factors(s, a) != p.microbatches.factors(s, b)) return false;
        return true;
    }

    bool is_sorted_;
    bool has_permutations_;
    std::vector<std::vector<std::size_t>> lists_;
};

} // namespace optpipe::cp
