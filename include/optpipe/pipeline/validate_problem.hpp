#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/core/format.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

inline std::string place(const char* list, std::size_t at, const char* field = nullptr) {
    std::string text = std::string{list} + "[" + std::to_string(at) + "]";
    return field ? text + "." + field : text;
}

class number_checks {
public:
    explicit number_checks(std::vector<violation>& found) : found_{&found} {}

    void positive(const std::string& where, double value) {
        if (value > 0.0 && value < least_)
            found_->push_back({where, "must be at least " + format_number(least_) + ", is " + format_number(value)});
        else
            check(where, value, value > 0.0, "must be above 0");
    }
    void not_negative(const std::string& where, double value) {
        check(where, value, value >= 0.0, "must not be negative");
    }

private:
    void check(const std::string& where, double value, bool holds, const char* rule) {
        if (!std::isfinite(value))
            found_->push_back({where, "is not a finite number"});
        else if (!holds)
            found_->push_back({where, std::string{rule} + ", is " + format_number(value)});
        else if (value > most_)
            found_->push_back({where, "must be at most " + format_number(most_) + ", is " + format_number(value)});
    }

    // beyond these limits, sums and areas (memory × time) would leave the range of a double
    static constexpr double least_ = 1e-60;
    static constexpr double most_ = 1e60;
    std::vector<violation>* found_;
};

/// Checks each storage option of a stage, and that the options don't contradict each other.
template <pipeline_graph Graph>
void validate_storage(const basic_problem<Graph>& p, stage s, std::vector<violation>& found) {
    const auto& list = p.storage[s];
    const auto& costs = p.costs[s];
    const auto at_stage = place("stages", s.position(), "storage");
    if (list.empty()) found.push_back({at_stage, "must hold at least one option"});
    if (list.size() > most_storage_options)
        found.push_back({at_stage, "holds " + std::to_string(list.size()) + " options, at most " +
                                       std::to_string(most_storage_options) + " are possible"});
    if (costs.transfer)
        found.push_back({place("stages", s.position(), "transfer"),
                         "must be empty in a problem: set_stage turns transfer times into storage options"});
    number_checks numbers{found};
    if (is_described_by_costs(costs, list)) {
        if (const auto& transfer = list.back().transfer) {
            numbers.not_negative(place("stages", s.position(), "offload"), transfer->offload.value());
            numbers.not_negative(place("stages", s.position(), "reload"), transfer->reload.value());
        }
        return;
    }
    for (std::size_t i = 0; i < list.size(); ++i) {
        const auto& option = list[i];
        const auto field = [&](const char* name) { return place(at_stage.c_str(), i, name); };
        const auto at_most = [&](const char* name, memory_size value, memory_size most, const char* of) {
            if (value > most && most >= memory_size{})
                found.push_back({field(name), format_number(value) + " is above " + of + ", " + format_number(most)});
        };
        if (option.name.empty()) found.push_back({field("name"), "must not be empty"});
        if (option.name.is_cut())
            found.push_back({field("name"), "must have at most " + std::to_string(longest_storage_name) + " bytes"});
        for (std::size_t j = 0; j < i; ++j)
            if (list[j].name == option.name && !option.name.is_cut())
                found.push_back({field("name"), "is that of storage[" + std::to_string(j) + "], too"});
        if (option.held.is_unlimited())
            found.push_back({field("held"), "is missing: all of it is the stage's activation"});
        else
            numbers.not_negative(field("held"), option.held.value());
        numbers.not_negative(field("recompute"), option.recompute.value());
        numbers.not_negative(field("backward_extra"), option.backward_extra.value());
        numbers.not_negative(field("transfer_size"), option.transfer_size.value());
        if (!option.held.is_unlimited()) at_most("held", option.held, costs.activation, "the stage's activation");
        at_most("transfer_size", option.transfer_size, option.held, "held");
        const bool restores_nothing = option.recompute == duration{} && option.backward_extra == duration{};
        const auto whole = costs.activation - tolerance{}.at(costs.activation);
        if (restores_nothing && option.held >= memory_size{} && option.held < whole)
            found.push_back({field("held"), format_number(option.held) + " is less than the stage's activation, " +
                                                format_number(costs.activation) +
                                                ", and nothing restores the rest: recompute or backward_extra"});
        if (option.recompute > duration{} && option.backward_extra > duration{})
            found.push_back({field("backward_extra"), "excludes recompute: either ahead of the backward or inside it"});
        if (option.transfer) {
            numbers.not_negative(field("offload"), option.transfer->offload.value());
            numbers.not_negative(field("reload"), option.transfer->reload.value());
        } else if (option.transfer_size > memory_size{}) {
            found.push_back({field("transfer_size"), "needs offload and reload, the durations of the transfers"});
        }
    }
}

template <pipeline_graph Graph> void validate_costs(const basic_problem<Graph>& p, std::vector<violation>& found) {
    number_checks numbers{found};
    for (const stage s : p.graph.all_stages()) {
        const auto& c = p.costs[s];
        const auto at = s.position();
        const auto zero_unless = [&](bool has, const char* field, double value) {
            if (has) return numbers.positive(place("stages", at, field), value);
            if (value != 0.0)
                found.push_back(
                    {place("stages", at, field), "must be 0 with this backward, is " + format_number(value)});
        };
        numbers.positive(place("stages", at, "forward"), c.forward.value());
        zero_unless(c.gradients != gradient_kind::none, "backward_input", c.backward_input.value());
        zero_unless(c.gradients == gradient_kind::full, "backward_weight", c.backward_weight.value());
        if (c.gradients != gradient_kind::full && c.weight_stash != memory_size{})
            found.push_back({place("stages", at, "weight_stash"),
                             "must be 0 with this backward, is " + format_number(c.weight_stash)});
        numbers.not_negative(place("stages", at, "kv"), c.kv.value());
        numbers.not_negative(place("stages", at, "activation"), c.activation.value());
        numbers.not_negative(place("stages", at, "weight_stash"), c.weight_stash.value());
        validate_storage(p, s, found);
    }
    if (p.p2p.is_uniform()) {
        numbers.not_negative("p2p", p.p2p.uniform().value());
        return;
    }
    for (const rank a : p.graph.all_ranks())
        for (const rank b : p.graph.all_ranks())
            numbers.not_negative(place("p2p", a.position()) + "[" + std::to_string(b.value()) + "]",
                                 p.p2p(a, b).value());
}

inline std::string edge_name(const edge& e) {
    return "edge from stage " + std::to_string(e.from.value()) + " to " + std::to_string(e.to.value());
}

template <pipeline_graph Graph> void validate_edges(const basic_problem<Graph>& p, std::vector<violation>& found) {
    number_checks numbers{found};
    for (const stage s : p.graph.all_stages())
        p.graph.for_each_edge_out_of(s, [&](const edge& e) {
            const auto name = edge_name(e);
            numbers.not_negative(name + ".size", e.size);
            numbers.not_negative(name + ".held", e.held.value());
            if (p.costs[e.from].gradients != gradient_kind::none && p.costs[e.to].gradients == gradient_kind::none)
                found.push_back({place("stages", e.to.position(), "backward"),
                                 "is \"none\", but stage " + std::to_string(e.from.value()) +
                                     ", which feeds it, computes gradients"});
        });
}

template <pipeline_graph Graph>
void validate_microbatches(const basic_problem<Graph>& p, std::vector<violation>& found) {
    if (!p.microbatches.has_factors()) return;
    number_checks numbers{found};
    for (const microbatch m : p.graph.all_microbatches())
        for (const stage s : p.graph.all_stages()) {
            if (s.position() > 0 && !p.microbatches.is_by_stage()) break;
            const auto& f = p.microbatches.factors(s, m);
            const auto check = [&](const char* name, double value) {
                auto where = place("microbatches", m.position(), name);
                if (p.microbatches.is_by_stage()) where += "[" + std::to_string(s.value()) + "]";
                numbers.positive(where, value);
            };
            check("forward", f.forward);
            check("backward_input", f.backward_input);
            check("backward_weight", f.backward_weight);
            check("memory", f.memory);
            check("message", f.message);
        }
}

template <pipeline_graph Graph> void validate_groups(const basic_problem<Graph>& p, std::vector<violation>& found) {
    number_checks numbers{found};
    p.groups.for_each_group([&](const std::vector<stage>& members, duration delay) {
        numbers.not_negative("groups: delay of stage " + std::to_string(members.front().value()), delay.value());
    });
}

/// Reports pairs that no rank can run, and pairs shorter than one of their operations. Contract: all stages have a
/// rank.
template <pipeline_graph Graph> void validate_overlaps(const basic_problem<Graph>& p, std::vector<violation>& found) {
    number_checks numbers{found};
    std::size_t position = 0;
    for (const overlap& each : p.overlaps) {
        const auto i = position++;
        const auto field = [&](const char* name) { return place("overlaps", i, name); };
        bool exist = true;
        for (const auto& [name, s] : {std::pair{"forward", each.forward}, {"backward", each.backward}}) {
            if (s.position() < p.graph.stages()) continue;
            exist = false;
            found.push_back({field(name), "is " + std::to_string(s.value()) + ", there are " +
                                              std::to_string(p.graph.stages()) + " stages"});
        }
        numbers.positive(field("duration"), each.duration.value());
        numbers.not_negative(field("memory"), each.memory.value());
        if (!exist) continue;
        const auto rank_text = [&](stage s) {
            return "stage " + std::to_string(s.value()) + " on rank " + std::to_string(p.rank_of(s).value());
        };
        if (p.rank_of(each.forward) != p.rank_of(each.backward))
            found.push_back(
                {place("overlaps", i), "has " + rank_text(each.forward) + ", and " + rank_text(each.backward)});
        const auto& back = p.costs[each.backward];
        const bool is_whole = each.kind == overlap_kind::backward;
        if (back.gradients == gradient_kind::none || (is_whole && back.gradients == gradient_kind::input))
            found.push_back({field("kind"),
                             "stage " + std::to_string(each.backward.value()) + " has no " + (is_whole ? "B" : "I")});
        const auto longest = std::max(p.costs[each.forward].forward, is_whole ? back.backward() : back.backward_input);
        if (each.duration > duration{} && each.duration < longest - tolerance{1e-9}.at(longest))
            found.push_back({field("duration"), format_number(each.duration) + " is shorter than a part, which takes " +
                                                    format_number(longest)});
    }
}

template <pipeline_graph Graph> void validate_limits(const basic_problem<Graph>& p, std::vector<violation>& found) {
    number_checks numbers{found};
    for (const rank r : p.graph.all_ranks()) {
        if (!p.memory_limit[r].is_unlimited())
            numbers.not_negative(place("memory_limit", r.position()), p.memory_limit[r].value());
        if (!p.host_memory_limit[r].is_unlimited())
            numbers.not_negative(place("host_memory_limit", r.position()), p.host_memory_limit[r].value());
    }
}

/// Reports memory limits that are too low for a single microbatch. Contract: all values are valid.
template <pipeline_graph Graph> void validate_fit(const basic_problem<Graph>& p, std::vector<violation>& found) {
    // A small host doesn't make a problem invalid, so the host is large here. The planner finds out whether a schedule
    // exists.
    auto with_large_host = p;
    for (auto& limit : with_large_host.host_memory_limit)
        limit = memory_size::unlimited();
    const auto slack = tolerance{}.at(p.memory_scale());
    for (const rank r : p.graph.all_ranks()) {
        if (p.memory_limit[r].is_unlimited()) continue;
        const auto needed = is_plain(p) ? least_memory(with_large_host, r).needed : least_memory_of_any(p, r);
        if (needed > p.memory_limit[r] + slack)
            found.push_back({place("memory_limit", r.position()),
                             format_number(p.memory_limit[r]) + " is below " + format_number(needed) +
                                 ", what a single microbatch needs on rank " + std::to_string(r.value())});
    }
}

/// Reports tables, groups and edges that don't match the number of ranks or stages.
template <pipeline_graph Graph> [[nodiscard]] std::vector<violation> validate_sizes(const basic_problem<Graph>& p) {
    std::vector<violation> found;
    const auto expect = [&](const char* field, std::size_t entries, std::size_t wanted, const char* of) {
        if (entries != wanted)
            found.push_back(
                {field, "has " + std::to_string(entries) + " entries, there are " + std::to_string(wanted) + of});
    };
    expect("costs", p.costs.size(), p.graph.stages(), " stages");
    expect("storage", p.storage.size(), p.graph.stages(), " stages");
    expect("memory_limit", p.memory_limit.size(), p.graph.ranks(), " ranks");
    expect("host_memory_limit", p.host_memory_limit.size(), p.graph.ranks(), " ranks");
    expect("transfer.link", p.transfer.link.size(), p.graph.ranks(), " ranks");
    if (!p.p2p.is_uniform()) expect("p2p", p.p2p.ranks(), p.graph.ranks(), " ranks");
    if (!p.microbatches.fits(p.graph.stages(), p.graph.microbatches()))
        found.push_back({"microbatches", "must list " + std::to_string(p.graph.microbatches()) + " microbatches on " +
                                             std::to_string(p.graph.stages()) + " stages"});
    if (!p.groups.fits(p.graph.stages()))
        found.push_back({"groups", "must be of " + std::to_string(p.graph.stages()) + " stages"});
    for (const stage s : p.graph.all_stages())
        p.graph.for_each_edge_out_of(s, [&](const edge& e) {
            if (e.to.position() >= p.graph.stages())
                found.push_back({edge_name(e), "there are " + std::to_string(p.graph.stages()) + " stages"});
        });
    for (const rank r : p.transfer.link.indices())
        if (p.transfer.link[r] >= p.graph.ranks())
            found.push_back({place("transfer.link", r.position()), "is " + std::to_string(p.transfer.link[r]) +
                                                                       ", must be below the number of ranks, " +
                                                                       std::to_string(p.graph.ranks())});
    return found;
}

/// All violations, except memory limits that are too low for a single microbatch.
template <pipeline_graph Graph> [[nodiscard]] std::vector<violation> validate_values(const basic_problem<Graph>& p) {
    auto found = validate_sizes(p);
    if (!found.empty()) return found;
    if (p.graph.ranks() == 0) found.push_back({"ranks", "must be at least 1"});
    if (p.graph.microbatches() == 0) found.push_back({"microbatches", "must be at least 1"});
    if (p.graph.stages() == 0) found.push_back({"stages", "must hold at least one stage"});
    if (p.transfer.engines != 1 && p.transfer.engines != 2)
        found.push_back({"transfer.engines", "must be 1 or 2, is " + std::to_string(p.transfer.engines)});
    if (!p.split_backward && !p.full_backward)
        found.push_back({"full_backward", "is false, and so is split_backward: there is no backward"});

    bool in_range = true;
    per_rank<bool> used(p.graph.ranks(), false);
    for (const stage s : p.graph.all_stages()) {
        const rank r = p.rank_of(s);
        if (r.position() >= p.graph.ranks()) {
            in_range = false;
            found.push_back({place("stages", s.position(), "rank"), "is " + std::to_string(r.value()) + ", there are " +
                                                                        std::to_string(p.graph.ranks()) + " ranks"});
        } else {
            used[r] = true;
        }
    }
    if (in_range && p.graph.stages() > 0)
        for (const rank r : p.graph.all_ranks())
            if (!used[r]) found.push_back({"stages", "rank " + std::to_string(r.value()) + " holds no stage"});
    validate_costs(p, found);
    validate_edges(p, found);
    validate_groups(p, found);
    if (in_range) validate_overlaps(p, found);
    validate_microbatches(p, found);
    validate_limits(p, found);
    return found;
}

} // namespace detail

/// All violations of the format (io/README.md), each with the field and the reason. The list is empty if the problem
/// can be planned.
template <pipeline_graph Graph> [[nodiscard]] std::vector<violation> validate(const basic_problem<Graph>& p) {
    auto found = detail::validate_values(p);
    if (found.empty()) detail::validate_fit(p, found);
    return found;
}

#if defined(OPTPIPE_COMPILED) // defined in the library
[[nodiscard]] std::vector<violation> validate(const problem& p);
#endif

} // namespace optpipe
