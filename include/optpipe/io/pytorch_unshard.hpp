#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/io/pytorch_actions.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// For each cell of a row, the stages of the next computations, starting with the cell's own. Each cell has at most
/// `count` stages, in order of first use. The result has one entry more than there are cells.
[[nodiscard]] inline std::vector<std::vector<stage>> next_stages(const pytorch_schedule::row& row, std::size_t count) {
    std::vector<std::vector<stage>> next(row.size() + 1);
    std::vector<stage> by_use;
    for (std::size_t i = row.size(); i-- > 0;) {
        if (row[i] && is_compute(row[i]->kind)) {
            std::erase(by_use, row[i]->stage);
            by_use.insert(by_use.begin(), row[i]->stage);
        }
        const auto shown = static_cast<std::ptrdiff_t>(std::min(count, by_use.size()));
        next[i].assign(by_use.begin(), by_use.begin() + shown);
    }
    return next;
}

/// Adds UNSHARD and RESHARD for stages under FSDP. At any time, only the next `count` stages of the row have gathered
/// parameters. The parameters of one stage are gathered while another stage computes. A stage's parameters are released
/// after the reduction of its gradients. Contract: the row has no overlaps.
[[nodiscard]] inline pytorch_schedule::row with_unshards(const pytorch_schedule::row& row, std::size_t count) {
    OPTPIPE_EXPECT(count > 0, "with_unshards: a stage that computes needs its parameters");
    const auto reduces = [&](std::size_t i) {
        return i < row.size() && row[i] &&
               (row[i]->kind == pytorch_action_kind::reduce_gradients ||
                row[i]->kind == pytorch_action_kind::wait_reduce_gradients);
    };
    const auto next = next_stages(row, count);
    pytorch_schedule::row result;
    std::vector<stage> gathered;
    const auto change_to = [&](const std::vector<stage>& wanted) {
        const auto has = [](const std::vector<stage>& list, stage s) {
            return std::find(list.begin(), list.end(), s) != list.end();
        };
        for (const stage s : gathered)
            if (!has(wanted, s)) result.push_back(pytorch_action{s, pytorch_action_kind::reshard, {}, {}});
        for (const stage s : wanted)
            if (!has(gathered, s)) result.push_back(pytorch_action{s, pytorch_action_kind::unshard, {}, {}});
        gathered = wanted;
    };
    change_to(next[0]);
    for (std::size_t i = 0; i < row.size(); ++i) {
        result.push_back(row[i]);
        const bool computes = row[i] && is_compute(row[i]->kind);
        if ((computes || reduces(i)) && !reduces(i + 1)) change_to(next[i + 1]);
    }
    return result;
}

} // namespace optpipe::detail
