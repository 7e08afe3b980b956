#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/lower/handed_values.hpp"
#include "optpipe/program/lower/instants.hpp"
#include "optpipe/program/lower/options.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// An operation, a pair, a message, or two messages issued together. A time is the index of an instant.
struct plan_node {
    static constexpr std::size_t not_an_operation = std::numeric_limits<std::size_t>::max();
    std::size_t start = 0;
    std::size_t end = 0;
    std::size_t operation = not_an_operation;
    std::vector<std::size_t> messages;
    /// For a pair: its backward, and its working memory. `operation` is the forward of a pair.
    std::size_t backward = not_an_operation;
    memory_size memory{};
    [[nodiscard]] bool is_message() const { return operation == not_an_operation; }
    [[nodiscard]] bool is_pair() const { return backward != not_an_operation; }
};

/// The operations of a valid schedule and the messages between them, with all precedences.
class plan_graph {
public:
    plan_graph(const problem& p, const schedule& s, message_lanes lanes)
        : problem_{&p}, operations_{in_order(s)}, number_{p.graph}, place_of_{numbered(number_, operations_)},
          slack_{time_slack(p, s)}, values_{p, operations_, [this](const operation& op) { return find(op); }},
          instant_{all_times(), slack_} {
        add_operation_nodes(s);
        values_.number_instants(instant_);
        add_message_nodes(lanes);
        successors_.resize(nodes_.size());
        add_data_edges();
        add_lane_edges();
    }

    [[nodiscard]] const std::vector<plan_node>& nodes() const { return nodes_; }
    [[nodiscard]] const handed_values& values() const { return values_; }
    [[nodiscard]] const std::vector<planned_message>& messages() const { return values_.messages(); }
    [[nodiscard]] const timed_operation& operation_of(const plan_node& n) const { return operations_[n.operation]; }
    [[nodiscard]] const timed_operation& backward_of(const plan_node& n) const { return operations_[n.backward]; }
    /// Calls `visit(operation)` for the operation of a node. If the node is a pair, calls `visit` for the forward and
    /// then for the backward. Contract: the node isn't a message.
    template <class Visit> void for_each_operation(const plan_node& n, const Visit& visit) const {
        visit(operations_[n.operation].op);
        if (n.is_pair()) visit(operations_[n.backward].op);
    }
    [[nodiscard]] const std::vector<std::size_t>& successors(std::size_t node) const { return successors_[node]; }
    [[nodiscard]] bool has(const operation& op) const { return place_of_[number_(op)] != nothing; }
    /// `op`, or the full backward that takes its place in the plan.
    [[nodiscard]] operation in_plan(const operation& op) const {
        const auto full = sibling(op, operation_kind::backward);
        return op.kind == operation_kind::backward_input && has(full) ? full : op;
    }

private:
    static constexpr std::size_t nothing = std::numeric_limits<std::size_t>::max();

    static std::vector<timed_operation> in_order(const schedule& s) {
        std::vector<timed_operation> all{s.operations.begin(), s.operations.end()};
        std::sort(all.begin(), all.end(), starts_before);
        return all;
    }
    static std::vector<std::size_t> numbered(const operation_numbering<any_graph>& number,
                                             const std::vector<timed_operation>& operations) {
        std::vector<std::size_t> place_of(number.size(), nothing);
        for (std::size_t i = 0; i < operations.size(); ++i)
            place_of[number(operations[i].op)] = i;
        return place_of;
    }
    [[nodiscard]] const timed_operation* find(const operation& op) const {
        const auto place = place_of_[number_(in_plan(op))];
        return place == nothing ? nullptr : &operations_[place];
    }
    [[nodiscard]] std::vector<duration> all_times() const {
        std::vector<duration> times;
        for (const auto& [op, start, end] : operations_)
            times.insert(times.end(), {start, end});
        for (const auto& message : messages())
            times.insert(times.end(), {message.starts, message.starts + message.takes});
        return times;
    }

    /// Adds a node for each operation or pair, ordered by start.
    void add_operation_nodes(const schedule& s) {
        std::vector<std::size_t> partner(operations_.size(), nothing);
        for_each_pair(s, [&](const timed_operation& f, const timed_operation& b) {
            partner[place_of_[number_(f.op)]] = place_of_[number_(b.op)];
        });
        node_of_.resize(operations_.size());
        for (std::size_t i = 0; i < operations_.size(); ++i) {
            const auto& timed = operations_[i];
            if (is_second_part(timed.op)) continue;
            node_of_[i] = nodes_.size();
            auto& node = nodes_.emplace_back(plan_node{instant_(timed.start), instant_(timed.end), i, {}});
            if (partner[i] == nothing) continue;
            node.backward = partner[i];
            node_of_[node.backward] = node_of_[i];
            node.memory = overlap_of(*problem_, timed.op, operations_[node.backward].op)->memory;
        }
        first_message_ = nodes_.size();
    }

    /// Whether two messages in opposite directions between the same two ranks form one exchange. Both messages must use
    /// the same lane at both ends, and overlap in the plan. The exchange must not delay the consumers of the first
    /// message.
    [[nodiscard]] bool belong_together(const planned_message& a, const planned_message& b, message_lanes lanes) const {
        if (a.from != b.to || a.to != b.from) return false;
        const bool same_lane = lanes == message_lanes::single ||
                               (lanes == message_lanes::per_direction && a.produced_by.kind == b.produced_by.kind);
        if (!same_lane || (b.start != a.start && b.start >= a.end)) return false;
        const auto& producer = *find(b.produced_by);
        const auto& consumer = *find(a.consumers.front());
        return consumer.start >= producer.end + a.takes - slack_ && instant_(consumer.start) >= b.start;
    }
    void add_message_nodes(message_lanes lanes) {
        std::map<std::pair<rank, rank>, std::vector<std::size_t>> between;
        const auto& all = messages();
        for (std::size_t i = 0; i < all.size(); ++i)
            between[std::minmax(all[i].from, all[i].to)].push_back(i);
        for (auto& [pair, own] : between) {
            std::stable_sort(own.begin(), own.end(),
                             [&](std::size_t a, std::size_t b) { return all[a].start < all[b].start; });
            for (std::size_t i = 0; i < own.size(); ++i) {
                const auto& first = all[own[i]];
                plan_node node{.start = first.start, .end = first.end, .messages = {own[i]}};
                if (i + 1 < own.size() && belong_together(first, all[own[i + 1]], lanes)) {
                    const auto& second = all[own[++i]];
                    node.messages.push_back(own[i]);
                    node.start = second.start;
                    node.end = std::max(first.end, second.end);
                }
                nodes_.push_back(std::move(node));
            }
        }
    }

    [[nodiscard]] std::size_t node_of(const operation& op) const { return node_of_[place_of_[number_(op)]]; }
    void add_edge(const operation& before, const operation& after) {
        if (has(before) && has(after)) successors_[node_of(before)].push_back(node_of(after));
    }
    /// Adds edges for the dependencies within a rank. Messages are the edges between ranks.
    void add_input_edges(const operation& op) {
        const stash_way way{has(offload_of(op.stage, op.microbatch)), has(recompute_of(op.stage, op.microbatch))};
        for_each_dependency(*problem_, op, way, [&](const operation& before, duration) {
            if (problem_->rank_of(before.stage) != problem_->rank_of(op.stage)) return;
            add_edge(in_plan(before), op);
        });
    }
    void add_data_edges() {
        for (std::size_t n = first_message_; n < nodes_.size(); ++n)
            for (const auto m : nodes_[n].messages) {
                successors_[node_of(messages()[m].produced_by)].push_back(n);
                for (const auto& consumer : messages()[m].consumers)
                    successors_[n].push_back(node_of(consumer));
            }
        for (const stage s : problem_->graph.all_stages())
            for (const microbatch m : problem_->graph.all_microbatches()) {
                const auto back = in_plan(backward_input(s, m));
                for (const auto& op : {forward(s, m), back, backward_weight(s, m), offload_of(s, m), reload_of(s, m),
                                       recompute_of(s, m)})
                    add_input_edges(op);
            }
    }
    void add_lane_edges() {
        std::vector<std::size_t> last(3 * problem_->graph.ranks(), nothing);
        for (std::size_t n = 0; n < first_message_; ++n) {
            const auto& op = operation_of(nodes_[n]).op;
            std::size_t lane = 0;
            if (is_transfer(op.kind)) lane = 1 + copy_engine_of(problem_->transfer, is_inward(op.kind));
            auto& before = last[3 * problem_->rank_of(op.stage).position() + lane];
            if (before != nothing) successors_[before].push_back(n);
            before = n;
        }
    }

    const problem* problem_;
    std::vector<timed_operation> operations_;
    operation_numbering<any_graph> number_;
    /// Indexed by operation: the operation's position in `operations_`.
    std::vector<std::size_t> place_of_;
    duration slack_;
    handed_values values_;
    plan_instants instant_;
    /// The operations and pairs, followed by the messages.
    std::vector<plan_node> nodes_;
    std::size_t first_message_ = 0;
    /// Indexed by position in `operations_`: the operation's node.
    std::vector<std::size_t> node_of_;
    std::vector<std::vector<std::size_t>> successors_;
};

} // namespace optpipe::detail
