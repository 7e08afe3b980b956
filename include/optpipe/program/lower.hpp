#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower/options.hpp"
#include "optpipe/schedule/schedule.hpp"

namespace optpipe {

/// The programs that run a schedule, one per rank: every lane in the order of the schedule, with the waits that
/// keep to the plan whatever the timing: for inputs, and for memory that has to be freed before.
///
/// The device arena of each rank is as large as the peak of the plan, up to rounding of sizes; the buffers of messages
/// come on top. Stages that are neighbours on one rank hand over without a message. Refuses a schedule that `validate`
/// rejects (with `forward_only`: `validate_forward_only`), one whose memory has no order (two stashes swapped at one
/// instant in a full memory), one that exceeds the limit with the placement asked for, and one that offloads a stash
/// which no part of host memory holds. `check_programs` accepts the programs. O(n log n) for n operations, times the
/// number of buffers that a rank holds at once.
[[nodiscard]] outcome<per_rank<rank_program>> lower(const problem& p, const schedule& s,
                                                    const lowering_options& options = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(programs)
#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower/options.hpp"
#include "optpipe/program/lower/plan_graph.hpp"
#include "optpipe/program/lower/program_writer.hpp"
#include "optpipe/schedule/construct/forward_only.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// The bytes of a stash by its parts (`buffer_role`).
struct stash_bytes {
    std::size_t kept = 0;
    std::size_t freed = 0;
    std::size_t resident_kept = 0;
    std::size_t resident_freed = 0;
    std::size_t restored_kept = 0;
    std::size_t restored_freed = 0;
    std::size_t added = 0;

    [[nodiscard]] std::size_t moved() const { return kept + freed; }
    [[nodiscard]] std::size_t held() const { return moved() + resident_kept + resident_freed; }
    [[nodiscard]] std::size_t restored() const { return restored_kept + restored_freed; }
    /// What I is done with.
    [[nodiscard]] std::size_t all_freed() const { return freed + resident_freed + restored_freed; }
    [[nodiscard]] std::size_t all_kept() const { return kept + resident_kept + restored_kept; }
};

/// Of a stage with a storage option, each part as large as `bytes_of` says. `most_kept`: of what is held, unless more
/// has to be.
template <class BytesOf>
[[nodiscard]] stash_bytes divide_stash(const stage_costs& c, const storage_option& stored, memory_size most_kept,
                                       const BytesOf& bytes_of) {
    const auto restored = stored.restored(c);
    const auto kept = std::min(restored, c.weight_stash);
    const auto least_kept = std::max(memory_size{}, kept - (restored - stored.held));
    const auto held_kept = std::max(least_kept, std::min({stored.held, kept, most_kept}));
    const auto held_freed = stored.held - held_kept;
    const bool in_part = stored.offloads() && stored.transfer_size < stored.held;
    const auto moved_kept = in_part ? std::min(stored.transfer_size, held_kept) : held_kept;
    const auto moved_freed = in_part ? stored.transfer_size - moved_kept : held_freed;
    return {bytes_of(moved_kept),
            bytes_of(moved_freed),
            bytes_of(held_kept - moved_kept),
            bytes_of(held_freed - moved_freed),
            bytes_of(kept - held_kept),
            bytes_of(restored - kept - held_freed),
            bytes_of(c.weight_stash - kept)};
}

class lowering {
public:
    lowering(const problem& p, const schedule& s, const lowering_options& options, message_lanes grouping)
        : p_{p}, options_{options}, plan_{p, s, grouping}, number_{p.graph}, stash_(p.graph.stages()),
          written_(number_.size(), no_instruction), made_(number_.size(), no_buffer), arrived_(made_),
          cells_(p.graph.cells(), no_buffers), capacity_(p.graph.ranks()), host_capacity_(p.graph.ranks()),
          computed_(p.graph.ranks()), weights_left_(p.graph.stages(), p.graph.microbatches()) {
        for (const stage at : p.graph.all_stages())
            find_sizes(at);
        find_capacities();
        for (const rank r : p.graph.all_ranks())
            writers_.emplace_back(r, p.transfer.engines, options.lanes, capacity_[r],
                                  arena_allocator{host_capacity_[r], host_part()});
    }

    /// Whether each stash that is offloaded fits into a part of host memory.
    [[nodiscard]] bool fits_parts() const {
        return std::all_of(plan_.nodes().begin(), plan_.nodes().end(), [&](const plan_node& node) {
            if (node.is_message()) return true;
            const auto& op = plan_.operation_of(node).op;
            return op.kind != operation_kind::offload || stash_of(op).moved() <= host_part();
        });
    }

    /// False if the precedences have a cycle.
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
            node.is_message() ? write_exchange(node) : write_operation(node);
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
        for (const rank r : all.indices()) {
            all[r] = writers_[r.position()].finish();
            all[r].ranks = p_.graph.ranks();
            all[r].stages = p_.graph.stages();
            all[r].microbatches = p_.graph.microbatches();
            all[r].alignment = options_.alignment;
            all[r].host_part = options_.host_part;
            all[r].forward_only = options_.forward_only;
        }
        return all;
    }

    /// The rank that got more than its plan's peak and, with that, more than its limit.
    [[nodiscard]] std::optional<refusal> over_limit(const per_rank<rank_program>& all) const {
        std::optional<refusal> why;
        const auto slack = tolerance{}.at(p_.memory_scale());
        const auto beyond = [&](rank r, std::size_t bytes, std::size_t planned, memory_size limit,
                                refusal_reason what) {
            const memory_size needed{static_cast<double>(bytes) / options_.bytes_per_unit};
            if (bytes <= planned || needed <= limit + slack) return;
            why = refusal{.reason = what, .rank = r, .needed = needed, .limit = limit};
        };
        for (const auto& each : all) {
            const rank r = each.self;
            beyond(r, each.device_bytes, capacity_[r], p_.memory_limit[r], refusal_reason::over_memory);
            beyond(r, each.host_bytes, host_capacity_[r], p_.host_memory_limit[r], refusal_reason::over_host_memory);
        }
        return why;
    }

private:
    static constexpr std::uint32_t no_instruction = arena_allocator::no_instruction;

    /// The buffers of one stage and microbatch, by their roles.
    using cell = std::array<buffer_id, buffer_roles>;
    static constexpr std::array moved_roles{buffer_role::kept, buffer_role::freed};
    static constexpr std::array held_roles{buffer_role::kept, buffer_role::freed, buffer_role::resident_kept,
                                           buffer_role::resident_freed};
    static constexpr std::array restored_roles{buffer_role::restored_kept, buffer_role::restored_freed};
    static constexpr std::array freed_roles{buffer_role::freed, buffer_role::resident_freed,
                                            buffer_role::restored_freed};
    static constexpr std::array kept_roles{buffer_role::kept, buffer_role::resident_kept, buffer_role::restored_kept,
                                           buffer_role::added};

    [[nodiscard]] std::size_t host_part() const {
        return options_.host_part > 0 ? options_.host_part : arena_allocator::no_parts;
    }
    [[nodiscard]] part_placement placement_in(memory_arena which) const {
        const bool has_parts = which == memory_arena::host && options_.host_part > 0;
        return has_parts ? part_placement::contiguous : options_.placement;
    }
    /// Of every storage option of a stage. Without a list, a stash moves as a whole if it moves.
    void find_sizes(stage at) {
        const auto rounded = [&](memory_size size) {
            return options_.aligned(
                static_cast<std::size_t>(std::llround(std::max(0.0, size.value() * options_.bytes_per_unit))));
        };
        const auto options = p_.storage[at].empty() ? 1 : p_.storage[at].size();
        if (options_.forward_only) return stash_[at].resize(options);
        for (std::size_t i = 0; i < options; ++i) {
            auto most_kept = memory_size::unlimited();
            for (const auto& each : options_.kept)
                if (each.stage == at && each.storage == i) most_kept = each.kept;
            stash_[at].push_back(divide_stash(p_.costs[at], p_.storage_of(at, i), most_kept, rounded));
        }
    }
    [[nodiscard]] const stash_bytes& stash_of(const operation& op) const { return stash_[op.stage][op.storage]; }

    /// The peaks of the plan in bytes. At one instant, what is freed comes before what is added.
    void find_capacities() {
        struct change {
            std::size_t instant;
            std::int64_t device;
            std::int64_t host;
        };
        per_rank<std::vector<change>> changes(p_.graph.ranks());
        for (const auto& node : plan_.nodes()) {
            if (node.is_message()) continue;
            const auto& op = plan_.operation_of(node).op;
            auto& own = changes[p_.rank_of(op.stage)];
            const auto& stash = stash_of(op);
            const auto moved = static_cast<std::int64_t>(stash.moved());
            const auto freed = static_cast<std::int64_t>(stash.all_freed());
            const auto kept = static_cast<std::int64_t>(stash.all_kept());
            const auto added = static_cast<std::int64_t>(stash.added);
            switch (op.kind) {
            case operation_kind::forward:
                own.push_back({node.start, static_cast<std::int64_t>(stash.held()), 0});
                break;
            case operation_kind::recompute:
                own.push_back({node.start, static_cast<std::int64_t>(stash.restored()), 0});
                break;
            case operation_kind::backward_input:
                own.push_back({node.start, added, 0});
                own.push_back({node.end, -freed, 0});
                break;
            case operation_kind::backward_weight: own.push_back({node.end, -kept - added, 0}); break;
            case operation_kind::backward: own.push_back({node.end, -kept - freed, 0}); break;
            case operation_kind::offload:
                own.push_back({node.start, 0, moved});
                own.push_back({node.end, -moved, 0});
                break;
            case operation_kind::reload:
                own.push_back({node.start, moved, 0});
                own.push_back({node.end, 0, -moved});
                break;
            }
        }
        for (const rank r : p_.graph.all_ranks()) {
            auto& own = changes[r];
            std::sort(own.begin(), own.end(), [](const change& a, const change& b) { return a.instant < b.instant; });
            std::int64_t device = 0;
            std::int64_t host = 0;
            for (std::size_t i = 0; i < own.size(); ++i) {
                device += own[i].device;
                host += own[i].host;
                if (i + 1 < own.size() && own[i + 1].instant == own[i].instant) continue;
                capacity_[r] = std::max(capacity_[r], static_cast<std::size_t>(std::max<std::int64_t>(device, 0)));
                host_capacity_[r] =
                    std::max(host_capacity_[r], static_cast<std::size_t>(std::max<std::int64_t>(host, 0)));
            }
        }
    }

    /// Of the stage that has its last weight gradient.
    void write_reduction(const operation& last) {
        auto& w = writer(last.stage);
        w.depend_on(written(last));
        const auto at =
            w.write({.kind = instruction_kind::reduce, .op = forward(last.stage, microbatch{0})}, lane_kind::reduce);
        reductions_.emplace_back(last.stage, at);
    }
    /// In the order of the reductions, so that none waits for a later one.
    void write_updates() {
        const auto write = [&](stage s) {
            writer(s).write({.kind = instruction_kind::update, .op = forward(s, microbatch{0})}, lane_kind::compute);
        };
        if (!options_.reduce)
            for (const stage s : p_.graph.all_stages())
                write(s);
        for (const auto& [s, reduced] : reductions_) {
            writer(s).depend_on(reduced);
            write(s);
        }
    }

    [[nodiscard]] program_writer& writer(stage s) { return writers_[p_.rank_of(s).position()]; }
    [[nodiscard]] cell& cell_of(const operation& op) { return cells_[cell_numbering{p_.graph}(op)]; }
    [[nodiscard]] std::uint32_t written(const operation& op) const { return written_[number_(op)]; }

    /// What an operation takes from an arena when it starts.
    [[nodiscard]] std::size_t demand(const operation& op, memory_arena which) const {
        const auto& stash = stash_of(op);
        const bool on_host = which == memory_arena::host;
        switch (op.kind) {
        case operation_kind::forward: return on_host ? 0 : stash.held();
        case operation_kind::reload: return on_host ? 0 : stash.moved();
        case operation_kind::recompute: return on_host ? 0 : stash.restored();
        case operation_kind::backward_input: return on_host ? 0 : stash.added;
        case operation_kind::offload: return on_host ? stash.moved() : 0;
        case operation_kind::backward_weight:
        case operation_kind::backward: return 0;
        }
        return 0;
    }
    static constexpr std::array planned_arenas{memory_arena::device, memory_arena::host};

    [[nodiscard]] bool fits(const plan_node& node) {
        const auto& op = plan_.operation_of(node).op;
        for (const auto which : planned_arenas) {
            auto& arena = writer(op.stage).arena(which);
            arena.advance(node.start);
            if (arena.free_bytes() < demand(op, which)) return false;
        }
        return true;
    }
    /// All ready nodes wait for memory: times that differ by rounding only, or transfers without duration. The first
    /// node gets memory that is promised for later, or memory beyond the plan's peak.
    void make_room(std::vector<std::size_t>& parked) {
        const auto first = parked.front();
        parked.erase(parked.begin());
        const auto& op = plan_.operation_of(plan_.nodes()[first]).op;
        for (const auto which : planned_arenas) {
            auto& arena = writer(op.stage).arena(which);
            const auto needed = demand(op, which);
            while (arena.free_bytes() < needed && arena.keep_next_promise()) {
            }
            if (arena.free_bytes() < needed) arena.grow(needed - arena.free_bytes());
        }
        ready_.push(first);
    }

    void write_operation(const plan_node& node) {
        const auto op = plan_.operation_of(node).op;
        auto& w = writer(op.stage);
        w.arena(memory_arena::message).advance(node.start);
        instruction i{.kind = is_transfer(op.kind) ? instruction_kind::copy : instruction_kind::compute, .op = op};
        switch (op.kind) {
        case operation_kind::forward: prepare_forward(node, w, i); break;
        case operation_kind::backward_input:
        case operation_kind::backward: prepare_gradient(node, w, i); break;
        case operation_kind::backward_weight: prepare_weight(node, w, i); break;
        case operation_kind::recompute: prepare_recomputation(w, i); break;
        case operation_kind::offload:
        case operation_kind::reload: prepare_transfer(node, w, i); break;
        }
        written_[number_(op)] = w.write(i, is_transfer(op.kind) ? w.copy_lane(op.kind) : lane_kind::compute);
        if (!is_transfer(op.kind)) computed_[p_.rank_of(op.stage)].emplace_back(node.end, written(op));
        if (is_weight_gradient(op.kind) && --weights_left_[op.stage] == 0 && options_.reduce) write_reduction(op);
    }
    /// The last computation of a rank, of those that are written, that ends by then.
    [[nodiscard]] std::uint32_t computed_by(rank r, std::size_t instant) const {
        const auto& own = computed_[r];
        const auto last = std::find_if(own.rbegin(), own.rend(), [&](const auto& c) { return c.first <= instant; });
        return last == own.rend() ? no_instruction : last->second;
    }
    void take_input(program_writer& w, instruction& i, const operation& producer) {
        const bool local = p_.rank_of(producer.stage) == p_.rank_of(i.op.stage);
        const auto id = (local ? made_ : arrived_)[number_(producer)];
        w.depend_on(w.program().buffers[id.position()].first_use);
        i.set(buffer_role::input, id);
    }
    void make_output(program_writer& w, instruction& i) {
        const auto id = w.acquire(memory_arena::message, message_bytes(i.op), part_placement::contiguous);
        made_[number_(i.op)] = id;
        i.set(buffer_role::output, id);
    }
    /// Of what an operation hands to the next stage, or to the one before.
    [[nodiscard]] std::size_t message_bytes(const operation& produced_by) const {
        const auto s = produced_by.stage.position();
        return options_.bytes_of_message(direction_of(produced_by) == message_direction::forward ? s : s - 1);
    }
    static buffer_id& buffer(cell& c, buffer_role role) { return c[static_cast<std::size_t>(role)]; }
    /// Of one operation's stash, by its role.
    [[nodiscard]] std::size_t bytes_of(const operation& op, buffer_role role) const {
        const auto& stash = stash_of(op);
        switch (role) {
        case buffer_role::kept: return stash.kept;
        case buffer_role::freed: return stash.freed;
        case buffer_role::resident_kept: return stash.resident_kept;
        case buffer_role::resident_freed: return stash.resident_freed;
        case buffer_role::restored_kept: return stash.restored_kept;
        case buffer_role::restored_freed: return stash.restored_freed;
        case buffer_role::added: return stash.added;
        case buffer_role::host: return stash.moved();
        case buffer_role::input:
        case buffer_role::output: return 0; // no part of it
        }
        return 0;
    }
    /// New memory for the next instruction.
    void take(program_writer& w, const operation& op, memory_arena which, std::span<const buffer_role> roles) {
        for (const auto role : roles)
            if (const auto bytes = bytes_of(op, role); bytes > 0)
                buffer(cell_of(op), role) = w.acquire(which, bytes, placement_in(which));
    }
    void name(instruction& i, std::span<const buffer_role> roles) {
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

    void prepare_forward(const plan_node& node, program_writer& w, instruction& i) {
        const auto& op = i.op;
        if (!p_.is_first(op.stage)) take_input(w, i, forward(op.stage.previous(), op.microbatch));
        release(w, i.buffer(buffer_role::input), node.end);
        take(w, op, memory_arena::device, held_roles);
        name(i, held_roles);
        if (!p_.is_last(op.stage)) make_output(w, i);
    }
    /// What brings the stash of an operation back to the device, or leaves it there.
    [[nodiscard]] std::uint32_t brought_back(const operation& op) const {
        const auto back = reload_of(op.stage, op.microbatch);
        return written(plan_.has(back) ? back : forward(op.stage, op.microbatch));
    }
    void prepare_recomputation(program_writer& w, instruction& i) {
        w.depend_on(brought_back(i.op));
        take(w, i.op, memory_arena::device, restored_roles);
        name(i, held_roles);
        name(i, restored_roles);
    }
    void prepare_gradient(const plan_node& node, program_writer& w, instruction& i) {
        const auto& op = i.op;
        const auto again = recompute_of(op.stage, op.microbatch);
        w.depend_on(plan_.has(again) ? written(again) : brought_back(op));
        if (!p_.is_last(op.stage)) take_input(w, i, plan_.gradient(op.stage.next(), op.microbatch));
        const bool splits = op.kind == operation_kind::backward_input;
        if (splits) take(w, op, memory_arena::device, std::array{buffer_role::added});
        name(i, kept_roles);
        name(i, freed_roles);
        release(w, i.buffer(buffer_role::input), node.end);
        release(w, op, freed_roles, node.end);
        if (!splits) release(w, op, kept_roles, node.end);
        if (!p_.is_first(op.stage)) make_output(w, i);
    }
    void prepare_weight(const plan_node& node, program_writer& w, instruction& i) {
        w.depend_on(written(backward_input(i.op.stage, i.op.microbatch)));
        name(i, kept_roles);
        release(w, i.op, kept_roles, node.end);
    }
    void prepare_transfer(const plan_node& node, program_writer& w, instruction& i) {
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
    /// One rank's end of all messages of the node.
    void write_parts(const plan_node& node, rank r) {
        using side_kind = exchange_part::side_kind;
        auto& w = writers_[r.position()];
        w.arena(memory_arena::message).advance(node.start);
        auto& parts = w.program().parts;
        instruction i{.kind = instruction_kind::exchange, .first_part = static_cast<std::uint32_t>(parts.size())};
        auto on = lane_kind::compute;
        for (const auto m : node.messages) {
            const auto& message = plan_.messages()[m];
            const auto which = number_(message.produced_by);
            const auto side = message.from == r ? side_kind::send : side_kind::receive;
            if (side == side_kind::send) {
                w.depend_on(written(message.produced_by));
                parts.push_back({side, message.to, message.produced_by, made_[which]});
                w.release(made_[which], message.end);
            } else {
                const auto before = computed_by(r, message.start);
                if (options_.receives == receive_issue::when_due && before != no_instruction) w.depend_on(before);
                arrived_[which] =
                    w.acquire(memory_arena::message, message_bytes(message.produced_by), part_placement::contiguous);
                parts.push_back({side, message.from, message.produced_by, arrived_[which]});
            }
            on = w.message_lane(direction_of(message.produced_by), side);
        }
        i.parts = static_cast<std::uint32_t>(node.messages.size());
        w.write(i, on);
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
    /// By stage and storage option.
    per_stage<std::vector<stash_bytes>> stash_;
    /// Per operation: the position of its instruction, and where what it hands on is made, and arrives elsewhere.
    std::vector<std::uint32_t> written_;
    std::vector<buffer_id> made_;
    std::vector<buffer_id> arrived_;
    std::vector<cell> cells_;
    per_rank<std::size_t> capacity_;
    per_rank<std::size_t> host_capacity_;
    std::vector<program_writer> writers_;
    /// Of each rank, in order: when each computation ends, and its instruction.
    per_rank<std::vector<std::pair<std::size_t, std::uint32_t>>> computed_;
    /// Weight gradients that aren't written yet.
    per_stage<std::size_t> weights_left_;
    /// Of all ranks, in the order of issue: the stage, and the instruction.
    std::vector<std::pair<stage, std::uint32_t>> reductions_;
    std::priority_queue<std::size_t, std::vector<std::size_t>, sooner> ready_{sooner{&plan_}};
};

/// Whether all stashes and messages of a step together can be addressed.
inline bool is_addressable(const problem& p, const lowering_options& options) {
    double bytes = 2.0 * static_cast<double>(options.message_bytes) * static_cast<double>(p.graph.stages());
    for (const auto message : options.boundary_bytes)
        bytes += 2.0 * static_cast<double>(message);
    for (const auto& c : p.costs)
        bytes += (c.activation + c.weight_stash).value() * options.bytes_per_unit +
                 4.0 * static_cast<double>(options.alignment);
    return bytes * static_cast<double>(p.graph.microbatches()) < 0x1p60;
}

} // namespace detail

OPTPIPE_INLINE outcome<per_rank<rank_program>> lower(const problem& p, const schedule& s,
                                                     const lowering_options& options) {
    constexpr std::size_t most_alignment = std::size_t{1} << 20U;
    OPTPIPE_EXPECT(options.alignment > 0 && options.alignment <= most_alignment, "lower: alignment is 1 to 1 MiB");
    OPTPIPE_EXPECT(options.host_part % options.alignment == 0,
                   "lower: parts of host memory end at multiples of the alignment");
    OPTPIPE_EXPECT(options.bytes_per_unit > 0.0, "lower: a unit of memory has more than 0 bytes");
    const auto refuse = [](std::string_view sentence) { return detail::not_executable(sentence, 0); };
    OPTPIPE_EXPECT(!(options.forward_only && options.update), "lower: forwards alone leave nothing to update by");
    OPTPIPE_EXPECT(!(options.forward_only && options.reduce), "lower: forwards alone leave nothing to reduce");
    if (options.forward_only) {
        if (!validate_forward_only(p, s).empty())
            return refuse("the schedule isn't one of forwards alone; validate_forward_only says why");
    } else if (!is_valid(p, s)) {
        return refuse("the schedule breaks a rule of the problem: " + validate(p, s).front().reason);
    }
    if (!detail::is_addressable(p, options))
        return refuse("the stashes and messages of a step can't be addressed in bytes");
    for (const auto grouping : {options.lanes, message_lanes::separate}) {
        detail::lowering work{p, s, options, grouping};
        if (!work.fits_parts()) return refuse("a stash that is offloaded is larger than a part of host memory");
        if (!work.write()) continue;
        auto programs = work.programs();
        if (const auto why = work.over_limit(programs)) return *why;
        return programs;
    }
    return refuse("operations that take no time wait for each other");
}

} // namespace optpipe
#endif
