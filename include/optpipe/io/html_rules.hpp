#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/format.hpp"
#include "optpipe/core/standard.hpp"
#include "optpipe/io/write_json.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#if OPTPIPE_DEFINES(io)
namespace optpipe::detail {

/// Writes numbers and lists for the data of the page.
struct html_json {
    /// Number of significant digits. With 9 digits, every position is right to the pixel at the strongest zoom.
    static constexpr int digits = 9;

    static std::string number(double value) { return format_number(value, digits); }
    static std::string list(const std::vector<std::string>& texts) { return "[" + joined(texts, ",") + "]"; }
    template <class Range, class Text> static std::string list_of(const Range& range, const Text& text) {
        std::vector<std::string> texts;
        for (const auto& each : range)
            texts.push_back(text(each));
        return list(texts);
    }
};

/// Tables with the inputs and memory effects of operations, as JSON. Microbatches with equal rules share a table.
class html_rules : html_json {
public:
    explicit html_rules(const problem& p) : p_{&p} {
        for (const microbatch m : p.graph.all_microbatches()) {
            if (m.position() > 0 && p.microbatches.are_equal()) break;
            auto text = table_of(m);
            const auto known = std::find(tables_.begin(), tables_.end(), text);
            table_of_microbatch_.push_back(std::to_string(known - tables_.begin()));
            if (known == tables_.end()) tables_.push_back(std::move(text));
        }
    }

    /// For each table and stage, the operations' inputs and memory effects.
    [[nodiscard]] std::string tables() const { return list(tables_); }
    /// For each microbatch, the index of its table. Has only one entry if all microbatches are equal.
    [[nodiscard]] std::string table_numbers() const { return list(table_of_microbatch_); }
    /// For each microbatch, its sequence, and its position among the sequence's slices. Empty if there are no slices.
    [[nodiscard]] std::string slices() const {
        if (!p_->microbatches.has_slices()) return "[]";
        std::vector<std::string> all;
        std::size_t sequences = 0, slice = 0;
        for (const microbatch m : p_->graph.all_microbatches()) {
            slice = p_->microbatches.slice_before(m) ? slice + 1 : 0;
            if (slice == 0) ++sequences;
            all.push_back(list({std::to_string(sequences - 1), std::to_string(slice)}));
        }
        return list(all);
    }

private:
    [[nodiscard]] std::string table_of(microbatch m) const {
        return list_of(p_->graph.all_stages(), [&](stage s) {
            const operation f = forward(s, m), gradient = backward_input(s, m);
            return json_object({{"effects", effects(s, m)},
                                {"inputs", list({inputs(f), inputs(gradient)})},
                                {"frees", list({frees(f), frees(gradient)})}});
        });
    }
    /// For each storage option and kind: memory acquired and released on the device, then on the host.
    [[nodiscard]] std::string effects(stage s, microbatch m) const {
        std::vector<std::string> by_option;
        for (std::size_t o = 0; o < p_->storage_options(s); ++o)
            by_option.push_back(list_of(all_operation_kinds, [&](operation_kind kind) {
                const auto e = memory_effect_of(*p_, operation{s, kind, m, static_cast<storage_index>(o)});
                return list({number(e.acquired_at_start.value()), number(e.released_at_end.value()),
                             number(e.host_acquired_at_start.value()), number(e.host_released_at_end.value())});
            }));
        return list(by_option);
    }
    /// The operations of other stages or microbatches whose results `op` needs. Each entry has the stage, the kind (I
    /// may stand for a B), the microbatch difference, and the delay.
    [[nodiscard]] std::string inputs(const operation& op) const {
        std::vector<std::string> all;
        for_each_input_of_others(*p_, op, [&](const operation& before, duration delay) {
            const auto later = static_cast<long>(before.microbatch.value()) - static_cast<long>(op.microbatch.value());
            all.push_back(
                list({std::to_string(before.stage.value()), std::to_string(static_cast<unsigned>(before.kind)),
                      std::to_string(later), number(delay.value())}));
        });
        return list(all);
    }
    /// Memory of other operations that the end of `op` frees. Each entry has a rank and an amount.
    [[nodiscard]] std::string frees(const operation& op) const {
        std::vector<std::string> all;
        for_each_release_of_others(*p_, op, [&](rank r, memory_size amount) {
            all.push_back(list({std::to_string(r.value()), number(amount.value())}));
        });
        return list(all);
    }

    const problem* p_;
    std::vector<std::string> tables_;
    std::vector<std::string> table_of_microbatch_;
};

} // namespace optpipe::detail
#endif
