#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/program/graph.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/memory.hpp"
#include "optpipe/program/shape.hpp"
#include "optpipe/program/write_program.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// An operation's instruction, and whether it is a pair's backward.
struct operation_place {
    std::size_t rank = 0;
    std::size_t position = 0;
    bool is_second = false;
    [[nodiscard]] constexpr instruction_place instruction() const { return {rank, position}; }
    friend constexpr bool operator==(const operation_place&, const operation_place&) = default;
};

/// Checks that programs execute a complete training step with the right buffers. Finds matching exchanges, and the
/// pairs of instructions that need an order.
class program_meaning {
public:
    program_meaning(std::span<const rank_program> programs, std::vector<violation>& found)
        : programs_{programs}, found_{found}, order_(programs.size()), sends_(programs.size()),
          receives_(programs.size()) {
        if (programs.empty() || programs[0].stages == 0 || programs[0].microbatches == 0) return;
        stages_ = programs[0].stages;
        microbatches_ = programs[0].microbatches;
        places_.resize(all_operation_kinds.size() * stages_ * microbatches_);
        home_.resize(stages_);
        updates_.resize(stages_);
        reductions_.resize(stages_);
        for (std::size_t r = 0; r < programs.size(); ++r)
            for (std::size_t i = 0; i < programs[r].instructions.size(); ++i)
                enter({r, i});
        match_messages();
        if (!found_.empty()) return;
        check_all_or_none(reductions_, "reductions", "forwards alone leave nothing to reduce");
        check_all_or_none(updates_, "updates", "forwards alone leave nothing to update by");
        for (std::size_t s = 0; s < stages_; ++s)
            follows(reductions_[s], updates_[s]);
        for (std::size_t s = 0; s < stages_; ++s)
            for (std::size_t m = 0; m < microbatches_; ++m)
                check_cell(stage{s}, microbatch{m});
    }

    [[nodiscard]] const std::vector<std::pair<instruction_place, instruction_place>>& partners() const {
        return partners_;
    }
    /// Pairs of instructions of rank `r` that must run in order. The order of buffer lifetimes isn't included.
    [[nodiscard]] std::vector<instruction_pair> order(std::size_t r) const { return order_[r]; }

private:
    using place = std::optional<operation_place>;
    using side_kind = exchange_part::side_kind;
    using stash_sizes = std::array<std::size_t, 6>;
    struct message_end {
        operation_place at;
        const exchange_part* part;
    };
    /// Identifies a message by its value, its sent buffer and its receiving rank.
    struct message_key {
        value_kind value;
        operation made;
        std::size_t to;
        buffer_id sent;
        friend auto operator<=>(const message_key&, const message_key&) = default;
        friend bool operator==(const message_key&, const message_key&) = default;
    };

    [[nodiscard]] place& place_of(const operation& op) {
        return places_[(static_cast<std::size_t>(op.kind) * stages_ + op.stage.position()) * microbatches_ +
                       op.microbatch.position()];
    }
    [[nodiscard]] const instruction& instruction_at(const operation_place& i) const {
        return programs_[i.rank].instructions[i.position];
    }
    [[nodiscard]] operation_buffers at(const operation_place& i) const {
        const auto& now = instruction_at(i);
        if (i.is_second) return programs_[i.rank].pairs[now.pair].backward;
        return {now.op, now.buffers, now.first_link, now.links};
    }
    [[nodiscard]] const program_buffer& buffer(std::size_t r, buffer_id id) const {
        return programs_[r].buffers[id.position()];
    }
    void report(const operation_place& i, const std::string& reason) {
        found_.push_back(
            {place_of_instruction(i.rank, i.position), describe(programs_[i.rank], instruction_at(i)) + " " + reason});
    }

    [[nodiscard]] const step_shape& shape() const { return programs_[0].shape; }
    /// Checks the updates or the reductions. Either every stage that trains weights has exactly one update (or
    /// reduction), or no stage has any.
    void check_all_or_none(std::span<const place> of_stages, const char* which, const char* not_after_forwards) {
        std::size_t has = 0;
        std::size_t lacks = 0;
        for (std::size_t s = 0; s < of_stages.size(); ++s)
            if (of_stages[s])
                ++has;
            else if (shape().gradients_of(stage{s}) == gradient_kind::full)
                ++lacks;
        if (has == 0) return;
        if (programs_[0].forward_only) found_.push_back({which, not_after_forwards});
        if (lacks > 0) found_.push_back({which, "some stages have one, others don't"});
    }

    void enter(const operation_place& i) {
        const auto& now = instruction_at(i);
        const auto on = programs_[i.rank].lanes[now.lane];
        if (!belongs(now, on)) report(i, "is on the lane '" + std::string{spelling(on)} + "'");
        if (now.kind == instruction_kind::exchange) {
            if (now.parts == 0) report(i, "has no messages");
            for (std::size_t k = 0; k < now.parts; ++k) {
                const auto& part = programs_[i.rank].parts[now.first_part + k];
                auto& ends = part.side == side_kind::send ? sends_ : receives_;
                ends[i.rank][{part.peer.position(), direction_of(part.message)}].push_back({i, &part});
            }
            return;
        }
        stays_home(i);
        if (now.kind == instruction_kind::update || now.kind == instruction_kind::reduce) {
            auto& once = (now.kind == instruction_kind::update ? updates_ : reductions_)[now.op.stage.position()];
            if (once) report(i, "appears twice");
            if (shape().gradients_of(now.op.stage) != gradient_kind::full) report(i, "is of a stage without W");
            once = i;
            return;
        }
        if (is_transfer(now.op.kind) != (now.kind == instruction_kind::copy)) report(i, "is of another kind");
        enter_operation(i);
        if (now.is_pair()) enter_backward({i.rank, i.position, true});
    }
    void enter_operation(const operation_place& i) {
        const auto op = at(i).op;
        if (op.is_paired != instruction_at(i).is_pair()) report(i, "is a part of a pair without the other part");
        if (place_of(op)) report(i, "appears twice");
        place_of(op) = i;
    }
    void enter_backward(const operation_place& i) {
        stays_home(i);
        enter_operation(i);
        const auto memory = programs_[i.rank].pairs[instruction_at(i).pair].memory;
        if (memory == no_buffer) return;
        const auto& taken = buffer(i.rank, memory);
        if (taken.arena != memory_arena::device || taken.first_use != i.position || taken.last_use != i.position)
            report(i, "has memory for more than the pair");
    }
    void stays_home(const operation_place& i) {
        auto& home = home_[at(i).op.stage.position()];
        if (!home) home = i.rank;
        if (*home != i.rank) report(i, "is of a stage that rank " + std::to_string(*home) + " has");
    }
    [[nodiscard]] bool belongs(const instruction& i, lane_kind on) const {
        switch (on) {
        case lane_kind::compute: return i.kind == instruction_kind::compute || i.kind == instruction_kind::update;
        case lane_kind::copy: return i.kind == instruction_kind::copy;
        case lane_kind::copy_out: return i.kind == instruction_kind::copy && i.op.kind == operation_kind::offload;
        case lane_kind::copy_in: return i.kind == instruction_kind::copy && i.op.kind == operation_kind::reload;
        case lane_kind::send_forward:
        case lane_kind::receive_forward:
        case lane_kind::send_backward:
        case lane_kind::receive_backward:
        case lane_kind::forward:
        case lane_kind::backward:
        case lane_kind::communication: return i.kind == instruction_kind::exchange;
        case lane_kind::reduce: return i.kind == instruction_kind::reduce;
        }
        return false;
    }

    /// Requires the given order of sends or receives, because messages match by order.
    void keep_order(const std::vector<message_end>& ends) {
        for (std::size_t k = 1; k < ends.size(); ++k)
            if (ends[k - 1].at != ends[k].at) follows(ends[k - 1].at, ends[k].at);
    }
    void match_messages() {
        for (std::size_t r = 0; r < programs_.size(); ++r) {
            for (const auto* ends : {&sends_[r], &receives_[r]})
                for (const auto& [key, list] : *ends)
                    keep_order(list);
            for (auto& [key, sent] : sends_[r]) {
                const auto [peer, way] = key;
                auto& received = receives_[peer][{r, way}];
                for (std::size_t k = 0; k < sent.size() || k < received.size(); ++k) {
                    if (k >= received.size()) {
                        report(sent[k].at, "has no partner");
                    } else if (k >= sent.size()) {
                        report(received[k].at, "has no partner");
                    } else {
                        match(sent[k], received[k]);
                    }
                }
            }
            for (auto& [key, received] : receives_[r])
                if (sends_[key.first].count({r, key.second}) == 0)
                    for (const auto& end : received)
                        report(end.at, "has no partner");
        }
    }
    void match(const message_end& from, const message_end& to) {
        partners_.emplace_back(from.at.instruction(), to.at.instruction());
        const auto& made = from.part->message;
        if ((made.kind != operation_kind::forward && !is_gradient(made.kind)) || !place_of(made))
            return report(from.at, "sends a value that no instruction produces");
        if (from.part->message != to.part->message || from.part->value != to.part->value ||
            from.part->consumer != to.part->consumer)
            return report(from.at, "meets " + describe(programs_[to.at.rank], instruction_at(to.at)) + " of rank " +
                                       std::to_string(to.at.rank));
        const auto& sent = buffer(from.at.rank, from.part->buffer);
        const auto& received = buffer(to.at.rank, to.part->buffer);
        if (sent.bytes != received.bytes) report(from.at, "sends another number of bytes than is received");
        if (received.first_use != to.at.position)
            report(to.at, "receives into a buffer that another instruction begins");
        const message_key key{from.part->value, made, to.at.rank, from.part->buffer};
        if (!messages_.try_emplace(key, from, to).second) report(from.at, "sends a message twice");
        ++sent_[{made.stage, made.kind, made.microbatch}];
    }

    /// Requires that `before` ends before `after`, if both exist on one rank.
    void follows(const place& before, const place& after) {
        if (before && after && before->rank == after->rank)
            order_[after->rank].emplace_back(before->position, after->position);
    }
    /// Checks one stage and microbatch in a step of forwards only.
    void check_forward(stage s, microbatch m) {
        using enum buffer_role;
        for (const auto kind : all_operation_kinds)
            if (const auto& other = place_of({s, kind, m}); other && kind != operation_kind::forward)
                report(*other, "is in a program of forwards alone");
        const auto f = place_of(forward(s, m));
        if (!f)
            return found_.push_back(
                {"stage " + std::to_string(s.value()) + ", microbatch " + std::to_string(m.value()), "needs one F"});
        has_none(*f, {kept, freed, resident_kept, resident_freed, restored_kept, restored_freed, added, host});
        check_links_of_forward(*f);
    }
    /// Checks one stage without gradients, for one microbatch.
    void check_frozen(stage s, microbatch m) {
        using enum buffer_role;
        for (const auto kind : all_operation_kinds)
            if (const auto& other = place_of({s, kind, m}); other && kind != operation_kind::forward)
                report(*other, "is of a stage without gradients");
        const auto f = place_of(forward(s, m));
        if (!f)
            return found_.push_back(
                {"stage " + std::to_string(s.value()) + ", microbatch " + std::to_string(m.value()), "needs one F"});
        check_sizes(*f, {}, {});
        for (const auto role : {kept, freed, resident_kept, resident_freed})
            fills(*f, role, memory_arena::device);
        has_none(*f, {restored_kept, restored_freed, added, host});
        check_links_of_forward(*f);
    }
    void check_cell(stage s, microbatch m) {
        if (programs_[0].forward_only) return check_forward(s, m);
        const auto gradients = shape().gradients_of(s);
        if (gradients == gradient_kind::none) return check_frozen(s, m);
        const bool has_weights = gradients == gradient_kind::full;
        const auto f = place_of(forward(s, m));
        const auto i = place_of(backward_input(s, m));
        const auto w = place_of(backward_weight(s, m));
        const auto b = place_of(backward(s, m));
        const auto out = place_of(offload_of(s, m));
        const auto in = place_of(reload_of(s, m));
        if (!f || !i == !b || (has_weights ? !i != !w : b || w) || !out != !in) {
            found_.push_back({"stage " + std::to_string(s.value()) + ", microbatch " + std::to_string(m.value()),
                              has_weights
                                  ? "needs one F, either one B or one I and one W, and OFFLOAD with RELOAD or neither"
                                  : "needs one F, one I without W, and OFFLOAD with RELOAD or neither"});
            return;
        }
        const auto back = i ? i : b;
        follows(f, back);
        follows(i, w);
        follows(f, out);
        follows(out, in);
        follows(in, back);
        follows(w ? w : b, reductions_[s.position()]);
        follows(w ? w : b, updates_[s.position()]);
        const auto again = place_of(recompute_of(s, m));
        follows(in ? in : f, again);
        follows(again, back);
        for (const auto& other : {back, w, out, in, again})
            if (other && at(*other).op.storage != at(*f).op.storage)
                report(*other, "has another storage option than its forward");
        check_stash(*f, *back, w, out, in, again);
        check_links_of_forward(*f);
        check_links_of_gradient(*back);
        if (again) check_links_of_recomputation(*again);
        for (const auto& other : {w, out, in})
            if (other) has_links(*other, 0, 0);
    }
    [[nodiscard]] place gradient_of(stage s, microbatch m) {
        const auto full = place_of(backward(s, m));
        return full ? full : place_of(backward_input(s, m));
    }

    [[nodiscard]] std::size_t bytes(const operation_place& i, buffer_role role) const {
        const auto id = at(i).buffer(role);
        return id == no_buffer ? 0 : buffer(i.rank, id).bytes;
    }
    /// Checks that both instructions have the same buffer, or none, in each role.
    void same(const operation_place& a, const operation_place& b, std::initializer_list<buffer_role> roles) {
        for (const auto role : roles)
            if (at(a).buffer(role) != at(b).buffer(role)) report(b, "has another stash than it was given");
    }
    void in_arena(const operation_place& i, buffer_role role, memory_arena arena) {
        const auto id = at(i).buffer(role);
        if (id != no_buffer && buffer(i.rank, id).arena != arena) report(i, "has a buffer in another arena");
    }
    /// Checks that `i` is the first user of its buffer for `role`.
    void begins(const operation_place& i, buffer_role role) {
        const auto id = at(i).buffer(role);
        if (id != no_buffer && buffer(i.rank, id).first_use != i.position)
            report(i, "fills a buffer that another instruction begins");
    }
    void has_none(const operation_place& i, std::initializer_list<buffer_role> roles) {
        for (const auto role : roles)
            if (at(i).buffer(role) != no_buffer) report(i, "has a buffer that it has no use for");
    }

    void check_stash(const operation_place& f, const operation_place& back, const place& w, const place& out,
                     const place& in, const place& again) {
        using enum buffer_role;
        check_sizes(f, w, again);
        for (const auto role : {kept, freed, resident_kept, resident_freed})
            fills(f, role, memory_arena::device);
        if (out) check_transfer(f, *out, *in);
        if (again) {
            same(in ? *in : f, *again, {kept, freed});
            same(f, *again, {resident_kept, resident_freed});
            fills(*again, restored_kept, memory_arena::device);
            fills(*again, restored_freed, memory_arena::device);
            has_none(*again, {added, host});
            same(*again, back, {restored_kept, restored_freed});
        } else {
            has_none(back, {restored_kept, restored_freed});
        }
        same(in ? *in : f, back, {kept, freed});
        same(f, back, {resident_kept, resident_freed});
        has_none(f, {restored_kept, restored_freed, added, host});
        has_none(back, {host});
        if (!w) return has_none(back, {added});
        fills(back, added, memory_arena::device);
        same(back, *w, {kept, resident_kept, restored_kept, added});
        has_none(*w, {freed, resident_freed, restored_freed, host});
    }
    void check_transfer(const operation_place& f, const operation_place& out, const operation_place& in) {
        using enum buffer_role;
        same(f, out, {kept, freed});
        fills(out, host, memory_arena::host);
        same(out, in, {host});
        if (bytes(out, host) != bytes(f, kept) + bytes(f, freed)) report(out, "offloads another number of bytes");
        for (const auto role : {kept, freed}) {
            fills(in, role, memory_arena::device);
            if (bytes(in, role) != bytes(f, role)) report(in, "reloads another number of bytes");
        }
        for (const auto& copy : {out, in})
            has_none(copy, {resident_kept, resident_freed, restored_kept, restored_freed, added});
    }
    void fills(const operation_place& i, buffer_role role, memory_arena arena) {
        begins(i, role);
        in_arena(i, role, arena);
    }
    /// Checks that stashes of equal stage, storage option and memory factor have equal sizes.
    void check_sizes(const operation_place& f, const place& w, const place& again) {
        using enum buffer_role;
        const auto op = at(f).op;
        const auto key = std::tuple{op.stage, op.storage, shape().microbatches.factors(op.stage, op.microbatch).memory};
        const auto restores = [&](buffer_role role) { return again ? bytes(*again, role) : 0; };
        const stash_sizes own{bytes(f, kept),           bytes(f, freed),         bytes(f, resident_kept),
                              bytes(f, resident_freed), restores(restored_kept), restores(restored_freed)};
        if (const auto [usual, is_first] = sizes_.try_emplace(key, own); !is_first && usual->second != own)
            report(f, "is stashed in another number of bytes than a microbatch before that is stored alike");
        if (!w) return;
        const auto for_weight = bytes(*w, added);
        if (const auto [usual, is_first] = added_.try_emplace(key, for_weight);
            !is_first && usual->second != for_weight)
            report(f, "is followed by another number of bytes for W than elsewhere");
    }

    /// The buffer of the only link of `i` with these properties, else `no_buffer`.
    [[nodiscard]] buffer_id linked(const operation_place& i, link_way way, value_kind value, stage other,
                                   microbatch slice = {}) const {
        auto found = no_buffer;
        for (const auto& link : links_of(i)) {
            if (link.way != way || link.value != value || link.other != other || link.slice != slice) continue;
            if (found != no_buffer) return no_buffer;
            found = link.buffer;
        }
        return found;
    }
    [[nodiscard]] std::span<const buffer_link> links_of(const operation_place& i) const {
        return std::span{programs_[i.rank].links}.subspan(at(i).first_link, at(i).links);
    }
    /// Checks an instruction's numbers of inputs and outputs, and their buffers' arenas.
    void has_links(const operation_place& i, std::size_t inputs, std::size_t outputs) {
        const auto links = links_of(i);
        const auto given = static_cast<std::size_t>(
            std::count_if(links.begin(), links.end(), [](const auto& l) { return l.way == link_way::input; }));
        if (given != inputs) report(i, "has an input too many or too few");
        if (links.size() - given != outputs) report(i, "has an output too many or too few");
        for (const auto& link : links) {
            const auto arena = buffer(i.rank, link.buffer).arena;
            const bool is_of_slice = link.value >= value_kind::keys_values;
            if (is_of_slice ? arena != memory_arena::device : arena == memory_arena::host)
                report(i, "has a buffer in another arena");
        }
    }

    /// Required numbers of inputs and outputs, counted while links are checked.
    struct ends_of_links {
        std::size_t inputs = 0;
        std::size_t outputs = 0;
        /// The messages for the outputs.
        std::vector<message_key> messages{};
    };
    void check_links_of_forward(const operation_place& f) {
        const stage s = at(f).op.stage;
        const microbatch m = at(f).op.microbatch;
        ends_of_links ends;
        shape().feeds.for_each_into(s, stages_, [&](const edge& e) {
            check_input(f, place_of(forward(e.from, m)), value_kind::boundary, ends);
        });
        shape().feeds.for_each_out_of(s, stages_, [&](const edge& e) {
            check_output(f, place_of(forward(e.to, m)), value_kind::boundary, ends);
        });
        if (!programs_[0].forward_only)
            shape().groups.for_each_member(
                s, [&](stage member, duration) { check_output(f, gradient_of(member, m), value_kind::partial, ends); });
        check_slices_of_forward(f, ends);
        check_ends(f, ends);
    }
    void check_links_of_gradient(const operation_place& back) {
        const stage s = at(back).op.stage;
        const microbatch m = at(back).op.microbatch;
        ends_of_links ends;
        shape().feeds.for_each_out_of(s, stages_, [&](const edge& e) {
            if (shape().carries_gradients(e)) check_input(back, gradient_of(e.to, m), value_kind::boundary, ends);
        });
        shape().feeds.for_each_into(s, stages_, [&](const edge& e) {
            if (shape().carries_gradients(e)) check_output(back, gradient_of(e.from, m), value_kind::boundary, ends);
        });
        shape().groups.for_each_member(s, [&](stage member, duration) {
            check_input(back, place_of(forward(member, m)), value_kind::partial, ends);
        });
        check_slices_of_gradient(back, ends);
        check_ends(back, ends);
    }
    void check_links_of_recomputation(const operation_place& again) {
        const stage s = at(again).op.stage;
        const microbatch m = at(again).op.microbatch;
        std::size_t inputs = 0;
        for (auto b = std::optional{m}; b; b = shape().microbatches.slice_before(*b))
            if (const auto maker = place_of(forward(s, *b)))
                inputs += keeps(again, link_way::input, value_kind::keys_values, *b, *maker);
        has_links(again, inputs, 0);
    }
    void check_ends(const operation_place& now, ends_of_links& ends) {
        has_links(now, ends.inputs, ends.outputs);
        auto& needed = ends.messages;
        std::sort(needed.begin(), needed.end());
        needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
        const auto op = at(now).op;
        const auto sent = sent_.find({op.stage, op.kind, op.microbatch});
        if (needed.size() != (sent == sent_.end() ? 0 : sent->second)) report(now, "hands on too much or too little");
    }
    /// Checks the input that `now` gets from `before`. The operation `before` may be on another rank or may not exist.
    void check_input(const operation_place& now, const place& before, value_kind value, ends_of_links& ends) {
        if (!before) return;
        ++ends.inputs;
        const auto from = at(*before).op.stage;
        const auto in = linked(now, link_way::input, value, from);
        const auto out = linked(*before, link_way::output, value, at(now).op.stage);
        if (in == no_buffer || out == no_buffer) return report(now, "has an input too many or too few");
        if (before->rank == now.rank) {
            if (out != in) report(now, "has another input than it was given");
            return follows(before, now);
        }
        const auto* message = message_of({value, at(*before).op, now.rank, out});
        if (!message || message->second.part->buffer != in) return report(now, "has an input that isn't received");
        follows(message->second.at, now);
    }
    /// Checks the output that `now` hands to `after`. The operation `after` may be on another rank or may not exist.
    void check_output(const operation_place& now, const place& after, value_kind value, ends_of_links& ends) {
        if (!after) return;
        ++ends.outputs;
        const auto out = linked(now, link_way::output, value, at(*after).op.stage);
        if (out == no_buffer) return report(now, "has an output too many or too few");
        if (buffer(now.rank, out).first_use != now.position)
            report(now, "fills a buffer that another instruction begins");
        if (after->rank == now.rank) return;
        const message_key key{value, at(now).op, after->rank, out};
        const auto* message = message_of(key);
        if (!message || message->first.at.rank != now.rank) return report(now, "has an output that isn't sent");
        ends.messages.push_back(key);
    }
    [[nodiscard]] const std::pair<message_end, message_end>* message_of(const message_key& key) const {
        const auto found = messages_.find(key);
        return found == messages_.end() ? nullptr : &found->second;
    }

    /// Checks that a slice's F makes its keys and values, and uses those of all earlier slices.
    void check_slices_of_forward(const operation_place& f, ends_of_links& ends) {
        const stage s = at(f).op.stage;
        const microbatch m = at(f).op.microbatch;
        if (const auto before = shape().microbatches.slice_before(m)) follows(place_of(forward(s, *before)), f);
        ends.outputs += keeps(f, link_way::output, value_kind::keys_values, m, f);
        for (auto b = shape().microbatches.slice_before(m); b; b = shape().microbatches.slice_before(*b))
            if (const auto maker = place_of(forward(s, *b)))
                ends.inputs += keeps(f, link_way::input, value_kind::keys_values, *b, *maker);
    }
    void check_slices_of_gradient(const operation_place& back, ends_of_links& ends) {
        const stage s = at(back).op.stage;
        const microbatch m = at(back).op.microbatch;
        auto last = m;
        for (auto a = shape().microbatches.slice_after(m); a; a = shape().microbatches.slice_after(*a))
            last = *a;
        if (last != m) follows(gradient_of(s, *shape().microbatches.slice_after(m)), back);
        const auto first_gradient = gradient_of(s, last);
        for (auto b = std::optional{m}; b; b = shape().microbatches.slice_before(*b)) {
            const auto maker = place_of(forward(s, *b));
            if (!maker || !first_gradient) return; // reported where the missing operation itself is checked
            ends.inputs += keeps(back, link_way::input, value_kind::keys_values, *b, *maker);
            if (*b == last) continue;
            const auto way = *b == m ? link_way::input : link_way::output;
            const auto added = keeps(back, way, value_kind::keys_values_gradient, *b, *first_gradient);
            (way == link_way::input ? ends.inputs : ends.outputs) += added;
        }
    }
    /// Checks that `now` is linked to the buffer from `maker` for a slice. Returns the number of links to this buffer:
    /// 1, or 0 if the slice has no attention keys and values.
    std::size_t keeps(const operation_place& now, link_way way, value_kind value, microbatch slice,
                      const operation_place& maker) {
        const auto s = at(now).op.stage;
        if (!shape().microbatches.is_slice(slice)) return 0;
        const auto first = place_of(forward(s, slice));
        if (!first || linked(*first, link_way::output, value_kind::keys_values, s, slice) == no_buffer) return 0;
        const auto made = linked(maker, link_way::output, value, s, slice);
        const auto mine = linked(now, way, value, s, slice);
        if (made == no_buffer || mine != made)
            report(now, "has other keys and values than it was given");
        else if (buffer(now.rank, made).first_use != maker.position)
            report(maker, "fills a buffer that another instruction begins");
        if (maker != now) follows(maker, now);
        return 1;
    }

    using channels = std::map<std::pair<std::size_t, message_direction>, std::vector<message_end>>;

    std::span<const rank_program> programs_;
    std::vector<violation>& found_;
    std::size_t stages_ = 0;
    std::size_t microbatches_ = 0;
    std::vector<place> places_;
    std::vector<std::optional<std::size_t>> home_;
    std::vector<place> updates_;
    std::vector<place> reductions_;
    std::vector<std::vector<instruction_pair>> order_;
    std::vector<channels> sends_;
    std::vector<channels> receives_;
    std::vector<std::pair<instruction_place, instruction_place>> partners_;
    std::map<message_key, std::pair<message_end, message_end>> messages_;
    /// The number of messages that carry an operation's result.
    std::map<std::tuple<stage, operation_kind, microbatch>, std::size_t> sent_;
    /// The first sizes seen, by stage, storage option, and the microbatch's factor on memory.
    std::map<std::tuple<stage, storage_index, double>, stash_sizes> sizes_;
    std::map<std::tuple<stage, storage_index, double>, std::size_t> added_;
};

} // namespace optpipe::detail
