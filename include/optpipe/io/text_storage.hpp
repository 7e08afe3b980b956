#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

namespace optpipe {

/// The number of (stage, microbatch) pairs that use the storage option `name`.
struct storage_use {
    std::string name;
    std::size_t count = 0;
    per_stage<std::size_t> by_stage{};
};

/// The use of each storage option, in the stages' order of options. Unused options are left out. Empty if the problem's
/// only options are to keep or to offload entire stashes.
[[nodiscard]] std::vector<storage_use> storage_uses(const problem& p, const schedule& s);

/// Writes a table of the storage options in use. If there are few stages, each has a column. Writes nothing if the
/// problem's only options are to keep or to offload entire stashes.
void write_storage_uses(std::ostream& out, const problem& p, const schedule& s);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/container.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/io/text_table.hpp"

#include <algorithm>
#include <ostream>

namespace optpipe {

OPTPIPE_INLINE std::vector<storage_use> storage_uses(const problem& p, const schedule& s) {
    std::vector<storage_use> uses;
    if (is_described_by_costs(p)) return uses;
    per_stage<std::vector<std::size_t>> position(p.graph.stages());
    for (const stage at : p.graph.all_stages())
        for (std::size_t i = 0; i < p.storage_options(at); ++i) {
            const std::string name{p.storage_of(at, i).name.view()};
            auto found = std::find_if(uses.begin(), uses.end(), [&](const storage_use& u) { return u.name == name; });
            if (found == uses.end()) {
                uses.push_back({name, 0, per_stage<std::size_t>(p.graph.stages(), 0)});
                found = uses.end() - 1;
            }
            position[at].push_back(static_cast<std::size_t>(found - uses.begin()));
        }
    for (const auto& [op, start, end] : s.operations) {
        if (op.kind != operation_kind::forward) continue;
        auto& use = uses[position[op.stage][op.storage]];
        ++use.count;
        ++use.by_stage[op.stage];
    }
    std::erase_if(uses, [](const storage_use& u) { return u.count == 0; });
    return uses;
}

OPTPIPE_INLINE void write_storage_uses(std::ostream& out, const problem& p, const schedule& s) {
    constexpr std::size_t most_columns = 8;
    const auto uses = storage_uses(p, s);
    if (uses.empty()) return;
    const bool by_stage = p.graph.stages() > 1 && p.graph.stages() <= most_columns;
    std::vector<table_row> lines{{"storage", "microbatches of stages", "share"}};
    for (const stage at : p.graph.all_stages())
        if (by_stage) lines.front().push_back("stage " + std::to_string(at.value()));
    const auto all = static_cast<double>(p.graph.cells());
    for (const auto& use : uses) {
        lines.push_back(
            {printable(use.name), std::to_string(use.count), detail::percent(static_cast<double>(use.count) / all)});
        if (!by_stage) continue;
        for (const auto count : use.by_stage)
            lines.back().push_back(std::to_string(count));
    }
    write_table(out, lines);
}

} // namespace optpipe
#endif
