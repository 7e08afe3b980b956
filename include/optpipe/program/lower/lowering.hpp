#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower/handed_values.hpp"
#include "optpipe/program/lower/options.hpp"
#include "optpipe/program/lower/pack_buffers.hpp"
#include "optpipe/program/lower/plan_graph.hpp"
#include "optpipe/program/lower/planned_peaks.hpp"
#include "optpipe/program/lower/program_writer.hpp"
#include "optpipe/program/lower/stash_parts.hpp"
#include "optpipe/program/step_shape.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// Limit in bytes for all stashes and messages of a step together.
inline constexpr double most_addressable_bytes = 0x1p60;

/// The packings of all arenas that were too large at the first attempt.
using arena_packings = std::map<std::pair<rank, memory_arena>, buffer_packing>;

/// Writes the programs of all ranks together. An operation or message is written after all its dependencies. When
/// several operations or messages are ready, the earliest in the plan is written first.
class lowering {
public:
    lowering(const problem& p, const schedule& s, const lowering_options& options, message_lanes grouping,
             const arena_packings& packings)
        : p_{p}, options_{options}, plan_{p, s, grouping}, number_{p.graph}, parts_of_{p, options},
          copy_bytes_{sizes_of_copies()}, written_(number_.size(), no_instruction),
          held_(copy_bytes_.size(), no_buffer), uses_left_(copy_bytes_.size()),
          cells_(p.graph.cells(), no_buffers), device_peak_{planned_peaks(p, plan_, parts_of_, memory_arena::device,
                                                                          copy_bytes_, options)},
          host_peak_{planned_peaks(p, plan_, parts_of_, memory_arena::host, copy_bytes_, options)},
          computed_(p.graph.ranks()), weights_left_(p.graph.stages(), p.graph.microbatches()) {
        for (const rank r : p.graph.all_ranks())
            writers_.emplace_back(r, p.transfer.engines, options.lanes, arena(r, memory_arena::device, packings),
                                  arena(r, memory_arena::host, packings));
        for (std::size_t c = 0; c < uses_left_.size(); ++c)
            uses_left_[c] = copies()[c].uses;
    }

    /// Whether each offloaded stash fits into a part of host memory.
    [[nodiscard]] bool fits_parts() const {
        return std::all_of(plan_.nodes().begin(), plan_.nodes().end(), [&](const plan_node& node) {
            if (node.is_message()) return true;
            const auto& op = plan_.operation_of(node).op;
            return op.kind != operation_kind::offload || parts_of_(op).moved() <= host_part();
        });
    }

    /// Writes the programs. Returns false if the precedences have a cycle.
    bool write() {
        std::vector<std::size_t> missing(plan_.nodes().size(), 0);
        for (std::size_t n = 0; n < missing.size(); ++n)
            for (const auto after : plan_.successors(n))
                ++missing[after];
        for (std::size_t n = 0; n < missing.size(); ++n)
            if (missing[n] == 0) ready_.push(n);
        std::size_t written = 0;
        std::vector<std::size_t> parked;
        while (!ready_.empty() || !parked.empty()) {
            if (ready_.empty()) make_room(parked);
            const auto n = ready_.top();
            ready_.pop();
            const auto& node = plan_.nodes()[n];
            if (!node.is_message() && !fits(node)) {
                parked.push_back(n);
                continue;
            }
            if (node.is_message())
                write_exchange(node);
            else
                write_operation(node);
            ++written;
            for (const auto after : plan_.successors(n))
                if (--missing[after] == 0) ready_.push(after);
            for (const auto again : std::exchange(parked, {}))
                ready_.push(again);
        }
        return written == missing.size();
    }

    per_rank<rank_program> programs() {
        if (options_.update) write_updates();
        per_rank<rank_program> all(p_.graph.ranks());
        const auto shape = shape_of(p_);
        for (const rank r : all.indices()) {
            all[r] = writers_[r.position()].finish();
            all[r].ranks = p_.graph.ranks();
            all[r].stages = p_.graph.stages();
            all[r].microbatches = p_.graph.microbatches();
            all[r].shape = shape;
            all[r].alignment = options_.alignment;
            all[r].host_part = options_.host_part;
            all[r].forward_only = options_.forward_only;
        }
        return all;
    }

    /// The refusal of an arena above both its plan's peak and its rank's limit, if any.
    [[nodiscard]] std::optional<refusal> over_limit() const {
        std::optional<refusal> why;
        for_each_arena([&](rank r, memory_arena which, const arena_allocator& arena) {
            if (arena.size() <= most_bytes(r, which)) return;
            const bool on_host = which == memory_arena::host;
            why = refusal{.reason = on_host ? refusal_reason::over_host_memory : refusal_reason::over_memory,
                          .sentence = placement_in(which) == part_placement::contiguous
                                          ? "stashes of one piece leave gaps (plan with a lower limit)"
                                          : "",
                          .rank = r,
                          .needed = memory_size{static_cast<double>(arena.size()) / options_.bytes_per_unit},
                          .limit = limit_of(r, which)};
        });
        return why;
    }
    /// Whether any values other than stashes are kept in device memory.
    [[nodiscard]] bool has_planned_copies() const {
        return std::any_of(copies().begin(), copies().end(), [](const value_copy& copy) { return copy.is_planned; });
    }
    /// Whether no arena is larger than the plan's peak.
    [[nodiscard]] bool is_within_peak() const {
        bool is_within = true;
        for_each_arena([&](rank r, memory_arena which, const arena_allocator& arena) {
            is_within = is_within && arena.size() <= peak(r, which);
        });
        return is_within;
    }
    /// Packs an arena again if fragments make it too large. Too large means above the limit or, with `to_peak`, above
    /// the plan's peak. New packings stay valid, because buffers are allocated in the same order.
    [[nodiscard]] arena_packings packed(bool to_peak) const {
        arena_packings made;
        for_each_arena([&](rank r, memory_arena which, const arena_allocator& arena) {
            const auto most = to_peak ? peak(r, which) : most_bytes(r, which);
            if (arena.size() > most && placement_in(which) == part_placement::contiguous)
                made[{r, which}] = buffer_packer{arena.lifetimes(), arena.part(), most}.run();
        });
        return made;
    }

private:
    static constexpr std::uint32_t no_instruction = arena_allocator::no_instruction;

    /// The buffers of one stage and microbatch, by role.
    using cell = std::array<buffer_id, buffer_roles>;
    static constexpr std::array planned_arenas{memory_arena::device, memory_arena::host};
    static constexpr std::array moved_roles{buffer_role::kept, buffer_role::freed};
    static constexpr std::array held_roles{buffer_role::kept, buffer_role::freed, buffer_role::resident_kept,
                                           buffer_role::resident_freed};
    static constexpr std::array restored_roles{buffer_role::restored_kept, buffer_role::restored_freed};
    static constexpr std::array freed_roles{buffer_role::freed, buffer_role::resident_freed,
                                            buffer_role::restored_freed};
    static constexpr std::array kept_roles{buffer_role::kept, buffer_role::resident_kept, buffer_role::restored_kept,
                                           buffer_role::added};

    [[nodiscard]] arena_allocator arena(rank r, memory_arena which, const arena_packings& packings) const {
        const auto part = which == memory_arena::host ? host_part() : arena_allocator::no_parts;
        const auto found = packings.find({r, which});
        if (found == packings.end()) return arena_allocator{peak(r, which), part};
        return arena_allocator{peak(r, which), part, found->second};
    }
    /// The plan's peak, in bytes.
    [[nodiscard]] std::size_t peak(rank r, memory_arena which) const {
        return (which == memory_arena::host ? host_peak_ : device_peak_)[r];
    }
    [[nodiscard]] memory_size limit_of(rank r, memory_arena which) const {
        return (which == memory_arena::host ? p_.host_memory_limit : p_.memory_limit)[r];
    }
    /// Largest allowed size of an arena in bytes: the memory limit, or the plan's rounded peak if larger.
    [[nodiscard]] std::size_t most_bytes(rank r, memory_arena which) const {
        const auto limit = limit_of(r, which) + tolerance{}.at(p_.memory_scale());
        const auto bytes = std::min(limit.value() * options_.bytes_per_unit, most_addressable_bytes);
        return std::max(peak(r, which), static_cast<std::size_t>(bytes));
    }
    template <class Visit> void for_each_arena(const Visit& visit) const {
        for (const rank r : p_.graph.all_ranks())
            for (const auto which : planned_arenas)
                visit(r, which, writers_[r.position()].arena(which));
    }
    [[nodiscard]] std::size_t host_part() const {
        return options_.host_part > 0 ? options_.host_part : arena_allocator::no_parts;
    }
    [[nodiscard]] part_placement placement_in(memory_arena which) const {
        const bool has_parts = which == memory_arena::host && options_.host_part > 0;
        return has_parts ? part_placement::contiguous : options_.placement;
    }

    /// Writes the reduction of a stage's gradients after `last`, the stage's last weight gradient.
    void write_reduction(const operation& last) {
        auto& w = writer(last.stage);
        w.depend_on(written(last));
        const auto at =
            w.write({.kind = instruction_kind::reduce, .op = forward(last.stage, microbatch{0})}, lane_kind::reduce);
        reductions_.emplace_back(last.stage, at);
    }
    /// Writes updates in the order of reductions, so that none waits for a later reduction.
    void write_updates() {
        const auto write = [&](stage s) {
            writer(s).write({.kind = instruction_kind::update, .op = forward(s, microbatch{0})}, lane_kind::compute);
        };
        if (!options_.reduce)
            for (const stage s : p_.graph.all_stages())
                if (p_.costs[s].gradients == gradient_kind::full) write(s);
        for (const auto& [s, reduced] : reductions_) {
            writer(s).depend_on(reduced);
            write(s);
        }
    }

    [[nodiscard]] program_writer& writer(stage s) { return writers_[p_.rank_of(s).position()]; }
    [[nodiscard]] cell& cell_of(const operation& op) { return cells_[cell_numbering{p_.graph}(op)]; }
    [[nodiscard]] std::uint32_t written(const operation& op) const { return written_[number_(op)]; }

    [[nodiscard]] bool fits(const plan_node& node) {
        const auto& op = plan_.operation_of(node).op;
        for (const auto which : planned_arenas) {
            auto& arena = writer(op.stage).arena(which);
            arena.advance(node.start);
            if (arena.room() < acquired(node, which)) return false;
        }
        return true;
    }
    /// Bytes of device or host memory that an operation or a pair allocates when it starts.
    [[nodiscard]] std::size_t acquired(const plan_node& node, memory_arena from) const {
        std::size_t bytes = from == memory_arena::device ? memory_of_pair(node) : 0;
        plan_.for_each_operation(node, [&](const operation& op) {
            bytes += parts_of_.acquired(op, from);
            for (const auto& link : plan_.values().links_of(op))
                if (copies()[link.copy].arena() == from && is_made_by(copies()[link.copy], op))
                    bytes += copy_bytes_[link.copy];
        });
        return bytes;
    }
    /// Working memory of a pair on the device, in bytes.
    [[nodiscard]] std::size_t memory_of_pair(const plan_node& node) const {
        return options_.rounded_bytes(node.memory);
    }
    /// Lets the first waiting node take memory that becomes free later, or memory beyond the peak. Called if all ready
    /// nodes wait, after rounding errors or transfers of no duration.
    void make_room(std::vector<std::size_t>& parked) {
        const auto first = parked.front();
        parked.erase(parked.begin());
        const auto& node = plan_.nodes()[first];
        for (const auto which : planned_arenas) {
            auto& arena = writer(plan_.operation_of(node).op.stage).arena(which);
            const auto needed = acquired(node, which);
            while (arena.room() < needed && arena.keep_next_promise()) {
            }
            if (arena.room() < needed) arena.raise_budget(needed - arena.room());
        }
        ready_.push(first);
    }

    void write_operation(const plan_node& node) {
        const auto op = plan_.operation_of(node).op;
        auto& w = writer(op.stage);
        w.arena(memory_arena::message).advance(node.start);
        const auto [own, buffers, first_link, links] = prepared(node, w, op);
        instruction i{.kind = is_transfer(op.kind) ? instruction_kind::copy : instruction_kind::compute,
                      .op = own,
                      .buffers = buffers,
                      .first_link = first_link,
                      .links = links};
        if (node.is_pair()) add_backward(node, w, i);
        const auto at = w.write(i, is_transfer(op.kind) ? w.copy_lane(op.kind) : lane_kind::compute);
        plan_.for_each_operation(node, [&](const operation& each) { written_[number_(each)] = at; });
        if (!is_transfer(op.kind)) computed_[p_.rank_of(op.stage)].emplace_back(node.end, at);
        plan_.for_each_operation(node, [&](const operation& each) {
            if (is_weight_gradient(each.kind) && --weights_left_[each.stage] == 0 && options_.reduce)
                write_reduction(each);
        });
    }
    /// Adds the backward of a pair to the instruction of its forward. The backward can't reuse the forward's memory,
    /// because both run at the same time.
    void add_backward(const plan_node& node, program_writer& w, instruction& i) {
        paired_backward second{prepared(node, w, plan_.backward_of(node).op)};
        if (const auto bytes = memory_of_pair(node); bytes > 0) {
            second.memory = w.acquire(memory_arena::device, bytes, placement_in(memory_arena::device));
            w.release(second.memory, node.end);
        }
        i.pair = static_cast<std::uint32_t>(w.program().pairs.size());
        w.program().pairs.push_back(second);
    }
    /// Allocates and frees an operation's buffers, and adds its dependencies to the next instruction.
    operation_buffers prepared(const plan_node& node, program_writer& w, const operation& op) {
        operation_buffers i{op};
        switch (op.kind) {
        case operation_kind::forward: prepare_forward(node, w, i); break;
        case operation_kind::backward_input:
        case operation_kind::backward: prepare_gradient(node, w, i); break;
        case operation_kind::backward_weight: prepare_weight(node, w, i); break;
        case operation_kind::recompute: prepare_recomputation(node, w, i); break;
        case operation_kind::offload:
        case operation_kind::reload: prepare_transfer(node, w, i); break;
        }
        return i;
    }
    /// The last computation of rank `r` that has been written and ends by `instant`.
    [[nodiscard]] std::uint32_t computed_by(rank r, std::size_t instant) const {
        const auto& own = computed_[r];
        const auto last = std::find_if(own.rbegin(), own.rend(), [&](const auto& c) { return c.first <= instant; });
        return last == own.rend() ? no_instruction : last->second;
    }
    [[nodiscard]] const std::vector<value_copy>& copies() const { return plan_.values().copies(); }
    [[nodiscard]] std::vector<std::size_t> sizes_of_copies() const {
        std::vector<std::size_t> all;
        for (const auto& copy : copies())
            all.push_back(bytes_of(copy));
        return all;
    }
    [[nodiscard]] std::size_t bytes_of(const value_copy& copy) const {
        if (copy.held > memory_size{}) return options_.rounded_bytes(copy.held);
        const bool is_forward = direction_of(copy.produced_by) == message_direction::forward;
        const stage from = is_forward ? copy.produced_by.stage : copy.consumer;
        const auto m = copy.produced_by.microbatch;
        if (copy.value == value_kind::partial)
            return options_.scaled(options_.partial_bytes, p_.microbatches.factors(from, m).message);
        return bytes_handed_on(p_, from, m, options_);
    }
    /// Adds links to the used copies, and frees each copy after its last use.
    void use_copies(const plan_node& node, program_writer& w, operation_buffers& i) {
        for (const auto& link : plan_.values().links_of(i.op)) {
            if (is_made_by(copies()[link.copy], i.op)) continue;
            w.depend_on(w.program().buffers[held_[link.copy].position()].first_use);
            add_link(link);
            use_once(w, link.copy, node.end);
        }
    }
    /// Allocates the copies that an operation makes.
    void make_copies(const plan_node& node, program_writer& w, operation_buffers& i) {
        for (const auto& link : plan_.values().links_of(i.op)) {
            if (!is_made_by(copies()[link.copy], i.op)) continue;
            if (held_[link.copy] == no_buffer) {
                held_[link.copy] =
                    w.acquire(copies()[link.copy].arena(), copy_bytes_[link.copy], part_placement::contiguous);
                if (copies()[link.copy].uses == 0) w.release(held_[link.copy], node.end);
            }
            add_link(link);
        }
        auto& all = w.program().links;
        std::stable_sort(links_.begin(), links_.end(),
                         [](const buffer_link& a, const buffer_link& b) { return a.way < b.way; });
        i.first_link = static_cast<std::uint32_t>(all.size());
        i.links = static_cast<std::uint32_t>(links_.size());
        all.insert(all.end(), links_.begin(), links_.end());
        links_.clear();
    }
    void add_link(const value_link& link) {
        links_.push_back({link.way, link.value, link.other, link.slice, held_[link.copy]});
    }
    /// Counts one use of a copy by the next instruction. Frees the copy if no other use remains.
    void use_once(program_writer& w, std::size_t copy, std::size_t instant) {
        if (--uses_left_[copy] > 0) return;
        w.release(held_[copy], copies()[copy].is_planned ? copies()[copy].until : instant);
    }
    static buffer_id& buffer(cell& c, buffer_role role) { return c[static_cast<std::size_t>(role)]; }
    /// Allocates the buffers that `op` has in `roles`. The buffers are in use from the next instruction on.
    void take(program_writer& w, const operation& op, memory_arena which, std::span<const buffer_role> roles) {
        for (const auto role : roles)
            if (const auto bytes = parts_of_.part(op, role); bytes > 0)
                buffer(cell_of(op), role) = w.acquire(which, bytes, placement_in(which));
    }
    void name(operation_buffers& i, std::span<const buffer_role> roles) {
        for (const auto role : roles)
            i.set(role, buffer(cell_of(i.op), role));
    }
    void release(program_writer& w, const operation& op, std::span<const buffer_role> roles, std::size_t instant) {
        for (const auto role : roles)
            release(w, buffer(cell_of(op), role), instant);
    }
    static void release(program_writer& w, buffer_id id, std::size_t instant) {
        if (id != no_buffer) w.release(id, instant);
    }

    void prepare_forward(const plan_node& node, program_writer& w, operation_buffers& i) {
        const auto& op = i.op;
        use_copies(node, w, i);
        take(w, op, memory_arena::device, held_roles);
        name(i, held_roles);
        if (!parts_of_.keeps(op.stage)) release(w, op, held_roles, node.end);
        make_copies(node, w, i);
    }
    /// The reload of the stash of `op`, or the forward if there is no reload.
    [[nodiscard]] std::uint32_t brought_back(const operation& op) const {
        const auto back = reload_of(op.stage, op.microbatch);
        return written(plan_.has(back) ? back : forward(op.stage, op.microbatch));
    }
    void prepare_recomputation(const plan_node& node, program_writer& w, operation_buffers& i) {
        w.depend_on(brought_back(i.op));
        use_copies(node, w, i);
        take(w, i.op, memory_arena::device, restored_roles);
        name(i, held_roles);
        name(i, restored_roles);
        make_copies(node, w, i);
    }
    void prepare_gradient(const plan_node& node, program_writer& w, operation_buffers& i) {
        const auto& op = i.op;
        const auto again = recompute_of(op.stage, op.microbatch);
        w.depend_on(plan_.has(again) ? written(again) : brought_back(op));
        use_copies(node, w, i);
        const bool splits = op.kind == operation_kind::backward_input;
        if (splits) take(w, op, memory_arena::device, std::array{buffer_role::added});
        name(i, kept_roles);
        name(i, freed_roles);
        release(w, op, freed_roles, node.end);
        if (!splits) release(w, op, kept_roles, node.end);
        make_copies(node, w, i);
    }
    void prepare_weight(const plan_node& node, program_writer& w, operation_buffers& i) {
        w.depend_on(written(backward_input(i.op.stage, i.op.microbatch)));
        name(i, kept_roles);
        release(w, i.op, kept_roles, node.end);
    }
    void prepare_transfer(const plan_node& node, program_writer& w, operation_buffers& i) {
        const auto& op = i.op;
        constexpr std::array host{buffer_role::host};
        const bool leaves = op.kind == operation_kind::offload;
        w.depend_on(written(leaves ? forward(op.stage, op.microbatch) : offload_of(op.stage, op.microbatch)));
        if (leaves)
            take(w, op, memory_arena::host, host);
        else
            take(w, op, memory_arena::device, moved_roles);
        name(i, moved_roles);
        name(i, host);
        if (leaves)
            release(w, op, moved_roles, node.end);
        else
            release(w, op, host, node.end);
    }

    void write_exchange(const plan_node& node) {
        const auto& any = plan_.messages()[node.messages.front()];
        write_parts(node, any.from);
        write_parts(node, any.to);
    }
    /// Writes the sends and receives of rank `r` for all messages of the node.
    void write_parts(const plan_node& node, rank r) {
        using side_kind = exchange_part::side_kind;
        auto& w = writers_[r.position()];
        w.arena(memory_arena::message).advance(node.start);
        auto& parts = w.program().parts;
        instruction i{.kind = instruction_kind::exchange, .first_part = static_cast<std::uint32_t>(parts.size())};
        auto on = lane_kind::compute;
        for (const auto m : node.messages) {
            const auto& message = plan_.messages()[m];
            const auto side = message.from == r ? side_kind::send : side_kind::receive;
            const auto copy = side == side_kind::send ? message.sent : message.received;
            if (side == side_kind::send) {
                w.depend_on(written(message.produced_by));
                use_once(w, copy, message.end);
            } else {
                const auto before = computed_by(r, message.start);
                if (options_.receives == receive_issue::when_due && before != no_instruction) w.depend_on(before);
                held_[copy] = w.acquire(memory_arena::message, copy_bytes_[copy], part_placement::contiguous);
            }
            parts.push_back({side, side == side_kind::send ? message.to : message.from, message.produced_by,
                             held_[copy], message.value, named_consumer(message)});
            on = w.message_lane(direction_of(message.produced_by), side);
        }
        i.parts = static_cast<std::uint32_t>(node.messages.size());
        w.write(i, on);
    }

    /// The first stage that uses the message on the receiving rank, or `adjacent_stage`.
    [[nodiscard]] stage named_consumer(const planned_message& message) const {
        const auto first = copies()[message.received].consumer;
        const auto s = message.produced_by.stage;
        const bool is_forward = direction_of(message.produced_by) == message_direction::forward;
        return (is_forward ? first == s.next() : first.next() == s) ? adjacent_stage : first;
    }

    struct sooner {
        const plan_graph* plan;
        bool operator()(std::size_t a, std::size_t b) const {
            const auto& x = plan->nodes()[a];
            const auto& y = plan->nodes()[b];
            return std::tuple{x.start, x.end, !x.is_message(), a} > std::tuple{y.start, y.end, !y.is_message(), b};
        }
    };

    const problem& p_;
    lowering_options options_;
    plan_graph plan_;
    operation_numbering<any_graph> number_;
    stash_parts parts_of_;
    /// Indexed by copy of a value. `copy_bytes_` has each copy's size in bytes, `held_` its buffer, and `uses_left_`
    /// its unwritten uses.
    std::vector<std::size_t> copy_bytes_;
    /// Indexed by operation: the position of the operation's instruction.
    std::vector<std::uint32_t> written_;
    std::vector<buffer_id> held_;
    std::vector<std::size_t> uses_left_;
    /// The links of the next instruction.
    std::vector<buffer_link> links_;
    std::vector<cell> cells_;
    per_rank<std::size_t> device_peak_;
    per_rank<std::size_t> host_peak_;
    std::vector<program_writer> writers_;
    /// The computations of each rank, in order. Each entry has the instant at which the computation ends, and its
    /// instruction's position.
    per_rank<std::vector<std::pair<std::size_t, std::uint32_t>>> computed_;
    /// Number of each stage's weight gradients not yet written.
    per_stage<std::size_t> weights_left_;
    /// The stage and instruction of each reduction on all ranks, in the order of issue.
    std::vector<std::pair<stage, std::uint32_t>> reductions_;
    std::priority_queue<std::size_t, std::vector<std::size_t>, sooner> ready_{sooner{&plan_}};
};

} // namespace optpipe::detail
