#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower/options.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// Bytes of the message that hands on a microbatch's activation. The message with the activation's gradient is equally
/// large. Data of edges that hold memory isn't included.
inline std::size_t bytes_handed_on(const problem& p, stage from, microbatch m, const lowering_options& how) {
    double size = 0.0;
    p.graph.for_each_edge_out_of(from, [&](const edge& e) {
        if (e.held <= memory_size{}) size = std::max(size, e.size);
    });
    return how.scaled(how.bytes_of_message(from.position()), size * p.microbatches.factors(from, m).message);
}

/// A value in the memory of one rank. A copy lives from the operation that makes it, or the message that brings it. The
/// lifetime ends with the last use on this rank. All uses of a copy are on one lane, so the use written last runs last.
struct value_copy {
    value_kind value = value_kind::boundary;
    operation produced_by{};
    /// The first stage that uses the copy.
    stage consumer{};
    rank at{};
    /// The size of the copy, or 0 if the problem doesn't state the size. Only data held by edges, and attention keys
    /// and values, have stated sizes.
    memory_size held{};
    /// Whether the schedule counts the copy as device memory of its rank. A planned copy counts from `produced_by` to
    /// the instant `until`.
    bool is_planned = false;
    duration last_end{};
    std::size_t until = 0;
    /// Number of operations and messages that use the copy.
    std::size_t uses = 0;

    [[nodiscard]] memory_arena arena() const { return is_planned ? memory_arena::device : memory_arena::message; }
};

/// Whether `op` makes the copy, rather than uses the copy. Contract: `op` is on the rank of the copy.
[[nodiscard]] constexpr bool is_made_by(const value_copy& copy, const operation& op) {
    return is_same_work(copy.produced_by, op);
}

/// A copy that an operation makes or uses.
struct value_link {
    link_way way = link_way::input;
    value_kind value = value_kind::boundary;
    stage other{};
    microbatch slice{};
    std::size_t copy = 0;
};

/// A value that is sent to another rank. One message serves all consumers on the receiving rank.
struct planned_message {
    operation produced_by{};
    value_kind value = value_kind::boundary;
    std::vector<operation> consumers;
    rank from{};
    rank to{};
    duration starts{};
    duration takes{};
    /// The copy on the sender, and the copy on the receiver.
    std::size_t sent = 0;
    std::size_t received = 0;
    /// The instants between which the plan sends the message.
    std::size_t start = 0;
    std::size_t end = 0;
};

/// All values that a schedule's operations hand on to each other. On the producer's rank, consumers share one copy of
/// an activation, and messages share another. An activation is sent once to each other rank that needs it. An edge that
/// holds memory has its own copy, which is sent when the consumer needs it. Each gradient goes to only one stage.
class handed_values {
public:
    /// Finds an operation in the schedule. If the schedule has a full backward in place of a `backward_input`, finds
    /// the full backward. Null if the schedule doesn't have the operation.
    using find_operation = std::function<const timed_operation*(const operation&)>;

    handed_values(const problem& p, std::span<const timed_operation> operations, find_operation find)
        : p_{p}, find_{std::move(find)}, number_{p.graph} {
        for (const auto& timed : operations) {
            hand_on(timed);
            if (p.microbatches.is_slice(timed.op.microbatch)) keep_for_slices(timed);
        }
        sort_links();
    }

    [[nodiscard]] const std::vector<value_copy>& copies() const { return copies_; }
    [[nodiscard]] const std::vector<planned_message>& messages() const { return messages_; }
    /// The links of an operation, inputs before outputs. Inputs and outputs are each sorted by kind of value, stage and
    /// slice.
    [[nodiscard]] std::span<const value_link> links_of(const operation& op) const {
        const auto* const first = &first_link_[number_(op)];
        return std::span{links_}.subspan(first[0], first[1] - first[0]);
    }
    /// Converts all times to instants with `instant(time)`.
    template <class Instant> void number_instants(const Instant& instant) {
        for (auto& copy : copies_)
            copy.until = instant(copy.last_end);
        for (auto& message : messages_) {
            message.start = instant(message.starts);
            message.end = instant(message.starts + message.takes);
        }
    }

private:
    struct use {
        const timed_operation* by;
        duration delay;
        memory_size held;
        value_kind value;
    };

    [[nodiscard]] bool is_on(rank r, const use& u) const { return p_.rank_of(u.by->op.stage) == r; }
    /// The memory that the edge between two stages holds for a microbatch.
    [[nodiscard]] memory_size held_between(stage from, stage to, microbatch m) const {
        memory_size held{};
        p_.graph.for_each_edge_into(to, [&](const edge& e) {
            if (e.from == from) held = p_.microbatches.factors(from, m).memory * e.held;
        });
        return held;
    }

    void hand_on(const timed_operation& timed) {
        const auto& op = timed.op;
        if (op.kind != operation_kind::forward && !is_gradient(op.kind)) return;
        for (auto& users : shared_)
            users.clear();
        for_each_consumer(p_, op, [&](const operation& after, duration delay) {
            const bool is_partial = op.kind == operation_kind::forward && after.kind != operation_kind::forward;
            const auto* by = find_(after);
            if (!by || (after.stage == op.stage && !is_partial)) return; // `keep_for_slices` adds these values
            const auto held = is_partial ? memory_size{}
                                         : held_between(std::min(op.stage, after.stage),
                                                        std::max(op.stage, after.stage), op.microbatch);
            const use u{by, delay, held, is_partial ? value_kind::partial : value_kind::boundary};
            if (held > memory_size{} || is_gradient(op.kind)) return hand_to(timed, std::span{&u, 1});
            const std::size_t place = is_on(p_.rank_of(op.stage), u) ? 0 : 1;
            shared_[(is_partial ? 2U : 0U) + place].push_back(u);
        });
        for (const auto& users : shared_)
            hand_to(timed, users);
    }
    /// Adds a copy of the value of `from`, on the rank of `from`. The copy's users are all on this rank, or all on
    /// other ranks.
    void hand_to(const timed_operation& from, std::span<const use> users) {
        if (users.empty()) return;
        const rank home = p_.rank_of(from.op.stage);
        const auto made = add_copy(from.op, users, home);
        copies_[made].is_planned = users.front().held > memory_size{};
        for (const use& u : users)
            link(from.op, {link_way::output, u.value, u.by->op.stage, {}, made});
        if (is_on(home, users.front())) return use_copy(made, from.op, users);
        std::vector<rank> reached;
        for (const use& u : users) {
            const rank to = p_.rank_of(u.by->op.stage);
            if (std::find(reached.begin(), reached.end(), to) != reached.end()) continue;
            reached.push_back(to);
            send(from, made, users, to);
        }
        copies_[made].uses = reached.size();
    }
    void send(const timed_operation& from, std::size_t made, std::span<const use> users, rank to) {
        std::vector<use> there;
        for (const use& u : users)
            if (is_on(to, u)) there.push_back(u);
        const auto received = add_copy(from.op, there, to);
        use_copy(received, from.op, there);
        planned_message message{from.op, there.front().value, {}, p_.rank_of(from.op.stage), to, from.end, {}, made,
                                received};
        message.takes = there.front().delay;
        for (const use& u : there) {
            message.takes = std::min(message.takes, u.delay);
            message.consumers.push_back(u.by->op);
        }
        if (there.front().held > memory_size{})
            message.starts = std::max(from.end, there.front().by->start - message.takes);
        std::sort(message.consumers.begin(), message.consumers.end(),
                  [&](const operation& a, const operation& b) { return starts_before(*find_(a), *find_(b)); });
        messages_.push_back(std::move(message));
    }
    std::size_t add_copy(const operation& made_by, std::span<const use> users, rank at) {
        value_copy copy{users.front().value, made_by, users.front().by->op.stage, at, users.front().held};
        for (const use& u : users) {
            copy.last_end = std::max(copy.last_end, u.by->end);
            copy.consumer = std::min(copy.consumer, u.by->op.stage);
        }
        copies_.push_back(copy);
        return copies_.size() - 1;
    }
    void use_copy(std::size_t copy, const operation& made_by, std::span<const use> users) {
        copies_[copy].uses = users.size();
        for (const use& u : users)
            link(u.by->op, {link_way::input, u.value, made_by.stage, {}, copy});
    }
    void link(const operation& op, const value_link& l) { linked_.emplace_back(number_(op), l); }
    /// Groups the links by operation, and sorts the links of each operation.
    void sort_links() {
        first_link_.resize(number_.size() + 1);
        for (const auto& [op, l] : linked_)
            ++first_link_[op + 1];
        for (std::size_t op = 0; op < number_.size(); ++op)
            first_link_[op + 1] += first_link_[op];
        links_.resize(linked_.size());
        auto next = first_link_;
        for (const auto& [op, l] : linked_)
            links_[next[op]++] = l;
        linked_.clear();
        for (std::size_t op = 0; op < number_.size(); ++op) {
            const auto own = std::span{links_}.subspan(first_link_[op], first_link_[op + 1] - first_link_[op]);
            std::sort(own.begin(), own.end(), is_before);
        }
    }
    static bool is_before(const value_link& a, const value_link& b) {
        return std::tie(a.way, a.value, a.other, a.slice) < std::tie(b.way, b.value, b.other, b.slice);
    }

    /// Adds the attention keys and values of a slice, and their gradients. The slice's F makes the keys and values. The
    /// backward of the sequence's last slice makes the gradients.
    void keep_for_slices(const timed_operation& timed) {
        const auto& op = timed.op;
        const auto held = p_.cost(op.stage, op.microbatch).kv;
        if (op.kind != operation_kind::forward || held <= memory_size{}) return;
        const stage s = op.stage;
        std::vector<operation> readers;
        std::vector<operation> gradients;
        for (auto m = std::optional{op.microbatch}; m; m = p_.microbatches.slice_after(*m)) {
            if (*m != op.microbatch) readers.push_back(forward(s, *m));
            readers.push_back(recompute_of(s, *m));
            gradients.insert(gradients.begin(), backward_input(s, *m));
        }
        readers.insert(readers.end(), gradients.begin(), gradients.end());
        keep(value_kind::keys_values, op, held, op, readers);
        const auto* first = find_(gradients.front());
        if (gradients.size() == 1 || !first) return;
        gradients.erase(gradients.begin());
        keep(value_kind::keys_values_gradient, first->op, held, op, gradients);
    }
    void keep(value_kind value, const operation& made_by, memory_size held, const operation& slice,
              const std::vector<operation>& users) {
        value_copy copy{value, made_by, slice.stage, p_.rank_of(slice.stage), held, true};
        const auto at = copies_.size();
        copy.last_end = find_(made_by)->end;
        link(made_by, {link_way::output, value, slice.stage, slice.microbatch, at});
        for (const auto& each : users) {
            const auto* user = find_(each);
            if (!user) continue;
            const bool adds = value == value_kind::keys_values_gradient && each.microbatch != slice.microbatch;
            link(user->op, {adds ? link_way::output : link_way::input, value, slice.stage, slice.microbatch, at});
            copy.last_end = std::max(copy.last_end, user->end);
            ++copy.uses;
        }
        copies_.push_back(copy);
    }

    const problem& p_;
    find_operation find_;
    operation_numbering<any_graph> number_;
    std::vector<value_copy> copies_;
    std::vector<planned_message> messages_;
    /// The users of one operation's values. Lists 0 and 1: users of the activation on the same rank, and on other
    /// ranks. Lists 2 and 3: users of the partial result on the same rank, and on other ranks.
    std::array<std::vector<use>, 4> shared_{};
    /// Links with their operations' indices. Empty once the links are sorted.
    std::vector<std::pair<std::size_t, value_link>> linked_;
    std::vector<value_link> links_;
    /// Indexed by operation: the position of the operation's first link. An extra entry marks the end of the list.
    std::vector<std::size_t> first_link_;
};

} // namespace optpipe::detail
