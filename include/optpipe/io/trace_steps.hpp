#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/io/json_trace_reader.hpp"
#include "optpipe/io/trace_names.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/profile/cost_profile.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// Divides the ranges of one trace into steps.
class trace_steps {
public:
    trace_steps(const problem& p, const trace_options& options, const std::string& source)
        : p_{p}, options_{options}, source_{source}, microseconds_{microseconds()}, only_stage_{only_stage()} {}

    void add(cost_profile& profile, std::uint64_t first_step, const trace_reader& reader) const {
        auto steps = steps_of(ranges_by_class(reader));
        if (steps.empty())
            refuse("", "has no range of an operation among " + std::to_string(reader.events()) +
                           " events; operations are named as in PP:2F5, or by --range");
        for (auto& [number, step] : steps) {
            set_storage(step);
            try {
                profile.add(p_, first_step + number, step, {});
            } catch (const input_error& e) {
                throw input_error{source_, e.violations()};
            }
        }
    }

private:
    /// A stage and a kind of operation. Ranges are counted separately for each stage and kind.
    using class_key = std::pair<stage, operation_kind>;
    using ranges_of_class = std::map<class_key, std::vector<trace_range>>;

    [[noreturn]] void refuse(const std::string& place, const std::string& why) const {
        throw input_error{source_, {{place, why}}};
    }

    [[nodiscard]] double microseconds() const {
        const std::string_view unit = p_.time_unit;
        if (unit == "s") return 1e6;
        if (unit == "ms") return 1e3;
        if (unit == "us" || unit == "µs" || unit == "μs") return 1.0;
        if (unit == "ns") return 1e-3;
        refuse("", "has times in microseconds, but the problem's time_unit \"" + printable(unit, 20) +
                       "\" isn't s, ms, us or ns");
    }

    [[nodiscard]] std::optional<stage> only_stage() const {
        if (!options_.rank || options_.rank->position() >= p_.graph.ranks()) return std::nullopt;
        const auto by_rank = stages_by_rank(p_.graph);
        const auto& own = by_rank[*options_.rank];
        return own.size() == 1 ? std::optional{*own.begin()} : std::nullopt;
    }
    [[nodiscard]] stage stage_of(const named_operation& of) const {
        if (of.stage) return stage{*of.stage};
        const auto where = "the name of its ranges has no {stage}, so ";
        if (!options_.rank || options_.rank->position() >= p_.graph.ranks())
            refuse(std::string{spelling(of.kind)}, std::string{where} + "there must be one trace for each rank");
        if (!only_stage_) refuse(std::string{spelling(of.kind)}, std::string{where} + "each rank must have one stage");
        return *only_stage_;
    }

    /// The ranges by stage and kind. Each list is sorted by microbatch, then by start. GPU ranges take precedence over
    /// host ranges of the same stage and kind.
    [[nodiscard]] ranges_of_class ranges_by_class(const trace_reader& reader) const {
        ranges_of_class found;
        for (const auto& each : reader.ranges())
            if (!reader.is_plan(each.process)) found[{stage_of(each.of), each.of.kind}].push_back(each);
        for (auto& [key, ranges] : found) {
            const bool has_gpu =
                std::any_of(ranges.begin(), ranges.end(), [](const trace_range& each) { return each.is_on_gpu; });
            std::erase_if(ranges, [&](const trace_range& each) { return has_gpu && !each.is_on_gpu; });
            std::sort(ranges.begin(), ranges.end(), [](const trace_range& a, const trace_range& b) {
                return std::tie(a.of.microbatch, a.start) < std::tie(b.of.microbatch, b.start);
            });
            merge_overlapping(ranges);
        }
        return found;
    }
    /// Whether two ranges overlap by more than rounding errors. Contract: `a` starts no later than `b`.
    static bool overlap(const trace_range& a, const trace_range& b) {
        constexpr double rounding = 1e-3; // relative to the shorter range
        return a.start + a.took - b.start > rounding * std::min(a.took, b.took);
    }
    /// Merges overlapping ranges of the same operation. Overlapping ranges may be nested, or on several streams or
    /// threads.
    static void merge_overlapping(std::vector<trace_range>& ranges) {
        std::vector<trace_range> merged;
        for (auto& each : ranges) {
            if (!merged.empty() && merged.back().of == each.of && overlap(merged.back(), each)) {
                merged.back().took = std::max(merged.back().took, each.start + each.took - merged.back().start);
                continue;
            }
            merged.push_back(std::move(each));
        }
        ranges = std::move(merged);
    }

    [[nodiscard]] std::map<std::uint64_t, schedule> steps_of(const ranges_of_class& found) const {
        const auto first = first_start(found);
        std::map<std::uint64_t, schedule> steps;
        for (const auto& [key, ranges] : found) {
            std::map<std::uint32_t, std::uint64_t> counts;
            std::uint64_t unnumbered = 0;
            for (const auto& each : ranges) {
                const auto all = p_.graph.microbatches();
                const auto m = each.of.microbatch.value_or(static_cast<std::uint32_t>(unnumbered % all));
                const auto step = each.of.microbatch ? counts[m]++ : unnumbered++ / all;
                auto& to = steps.try_emplace(step, schedule{p_.graph, {}}).first->second;
                const duration start{(each.start - first) / microseconds_};
                to.operations.push_back(
                    {{key.first, key.second, microbatch{m}}, start, start + duration{each.took / microseconds_}});
            }
        }
        return steps;
    }
    [[nodiscard]] static double first_start(const ranges_of_class& found) {
        double first = 0.0;
        bool is_first = true;
        for (const auto& [key, ranges] : found)
            for (const auto& each : ranges) {
                first = is_first ? each.start : std::min(first, each.start);
                is_first = false;
            }
        return first;
    }

    /// Sets the storage options of a step's operations to those of the plan. Without a plan, storage options are
    /// inferred from the step's operations.
    void set_storage(schedule& step) const {
        std::map<std::pair<stage, microbatch>, std::vector<operation*>> cells;
        for (auto& timed : step.operations) {
            if (timed.op.stage.position() >= p_.graph.stages() ||
                timed.op.microbatch.position() >= p_.graph.microbatches())
                refuse(to_string(timed.op), "the problem has no such stage or microbatch");
            cells[{timed.op.stage, timed.op.microbatch}].push_back(&timed.op);
        }
        if (options_.plan) {
            for (const auto& timed : options_.plan->operations)
                if (const auto at = cells.find({timed.op.stage, timed.op.microbatch}); at != cells.end())
                    for (auto* op : at->second)
                        op->storage = timed.op.storage;
            return;
        }
        for (auto& [cell, operations] : cells)
            set_storage(operations);
    }
    void set_storage(const std::vector<operation*>& cell) const {
        const auto has = [&](auto is_kind) {
            return std::any_of(cell.begin(), cell.end(), [&](const operation* op) { return is_kind(op->kind); });
        };
        const bool offloads = has([](operation_kind kind) { return is_transfer(kind); });
        const bool recomputes = has([](operation_kind kind) { return kind == operation_kind::recompute; });
        const auto& options = p_.storage[cell.front()->stage];
        std::vector<storage_index> possible;
        for (std::size_t o = 0; o < options.size(); ++o)
            if (options[o].offloads() == offloads && options[o].recomputes() == recomputes)
                possible.push_back(static_cast<storage_index>(o));
        for (auto* op : cell) {
            for (const auto other : possible)
                if (!is_same_class(*op, possible.front(), other))
                    refuse(to_string(*op), "may be of the storage option " + name_of(*op, possible.front()) + " or " +
                                               name_of(*op, other) + "; the plan tells, with --plan");
            op->storage = possible.empty() ? storage_index{} : possible.front();
        }
    }
    [[nodiscard]] bool is_same_class(operation op, storage_index a, storage_index b) const {
        auto other = op;
        op.storage = a;
        other.storage = b;
        return key_of(p_, op) == key_of(p_, other);
    }
    [[nodiscard]] std::string name_of(const operation& op, storage_index o) const {
        return "\"" + printable(p_.storage_of(op.stage, o).name.view(), 60) + "\"";
    }

    const problem& p_;
    const trace_options& options_;
    const std::string& source_;
    double microseconds_;
    /// The only stage of the trace's rank; empty if the rank has several stages.
    std::optional<stage> only_stage_;
};

} // namespace optpipe::detail
