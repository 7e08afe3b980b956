#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/io/pytorch_actions.hpp"
#include "optpipe/pipeline/graph.hpp"

#include <string>
#include <vector>

namespace optpipe {

/// Whether a file has the format `compute_comms`. Only `compute_comms` files have actions other than computations.
[[nodiscard]] bool is_compute_comms(const pytorch_schedule& file);

/// All faults of the messages in a `compute_comms` file, with places. Examples: a missing receive or partner, a message
/// on the wrong rank, a send without a wait, an empty cell. Contract: the computations in `file` have stages and
/// microbatches of `g`, and are on the right ranks.
[[nodiscard]] std::vector<violation> message_violations(const any_graph& g, const pytorch_schedule& file);

/// When sends end. Buffered sends end immediately, like some small sends. Rendezvous sends end when their receive is
/// posted, like large sends with NCCL. On each rank, messages end in the order of issue.
enum class pytorch_sends { buffered, rendezvous };

/// The first action that never runs on each stuck rank, such as "row 2 stops at 1F0". Empty if all actions run.
/// Contract: there are no `message_violations`.
[[nodiscard]] std::vector<std::string> stuck_actions(const any_graph& g, const pytorch_schedule& file,
                                                     pytorch_sends sends);

namespace detail {

[[nodiscard]] constexpr bool is_message(pytorch_action_kind kind) {
    return kind >= pytorch_action_kind::send_forward && kind <= pytorch_action_kind::receive_backward;
}
[[nodiscard]] constexpr bool is_send(pytorch_action_kind kind) {
    return kind == pytorch_action_kind::send_forward || kind == pytorch_action_kind::send_backward;
}
[[nodiscard]] constexpr bool is_wait(pytorch_action_kind kind) {
    return kind == pytorch_action_kind::wait_send_forward || kind == pytorch_action_kind::wait_send_backward;
}

/// The action at the other end of a message. Contract: the action is a send or a receive.
[[nodiscard]] pytorch_action message_partner(const pytorch_action& action);

/// The action that waits for a send.
[[nodiscard]] pytorch_action wait_for(pytorch_action sent);

/// The receive of a computation's input, if the input is a message.
[[nodiscard]] pytorch_action received_by(const pytorch_action& computed);

} // namespace detail
} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/contract.hpp"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace optpipe {
namespace detail {

OPTPIPE_INLINE pytorch_action message_partner(const pytorch_action& action) {
    switch (action.kind) {
    case pytorch_action_kind::send_forward:
        return {action.stage.next(), pytorch_action_kind::receive_forward, action.microbatch, {}};
    case pytorch_action_kind::receive_forward:
        return {action.stage.previous(), pytorch_action_kind::send_forward, action.microbatch, {}};
    case pytorch_action_kind::send_backward:
        return {action.stage.previous(), pytorch_action_kind::receive_backward, action.microbatch, {}};
    case pytorch_action_kind::receive_backward:
        return {action.stage.next(), pytorch_action_kind::send_backward, action.microbatch, {}};
    case pytorch_action_kind::forward:
    case pytorch_action_kind::backward_input:
    case pytorch_action_kind::backward_weight:
    case pytorch_action_kind::backward:
    case pytorch_action_kind::overlap:
    case pytorch_action_kind::wait_send_forward:
    case pytorch_action_kind::wait_send_backward:
    case pytorch_action_kind::unshard:
    case pytorch_action_kind::reshard:
    case pytorch_action_kind::reduce_gradients:
    case pytorch_action_kind::wait_reduce_gradients: break;
    }
    OPTPIPE_EXPECT(false, "message_partner: not a message");
    return action;
}

OPTPIPE_INLINE pytorch_action wait_for(pytorch_action sent) {
    sent.kind = sent.kind == pytorch_action_kind::send_forward ? pytorch_action_kind::wait_send_forward
                                                               : pytorch_action_kind::wait_send_backward;
    return sent;
}

OPTPIPE_INLINE pytorch_action received_by(const pytorch_action& computed) {
    const bool forwards = computed.kind == pytorch_action_kind::forward;
    return {computed.stage,
            forwards ? pytorch_action_kind::receive_forward : pytorch_action_kind::receive_backward,
            computed.microbatch,
            {}};
}

/// The actions of each rank, and the position of each action. An overlap is replaced by the actions inside the overlap.
class pytorch_rows {
public:
    pytorch_rows(const any_graph& g, const pytorch_schedule& file) : g_{&g} {
        for (const auto& row : file.rows) {
            auto& actions = rows.emplace_back();
            for_each_action(row, [&](const pytorch_action& each) { actions.push_back(each); });
        }
        for (std::size_t r = 0; r < rows.size(); ++r)
            for (std::size_t i = 0; i < rows[r].size(); ++i)
                if (rows[r][i].microbatch) at_.emplace(key_of(rows[r][i]), std::pair{r, i});
    }

    [[nodiscard]] const any_graph& graph() const { return *g_; }

    /// The row of an action, and the position of the action in the row.
    [[nodiscard]] std::optional<std::pair<std::size_t, std::size_t>> find(const pytorch_action& action) const {
        const auto found = at_.find(key_of(action));
        return found == at_.end() ? std::nullopt : std::optional{found->second};
    }
    [[nodiscard]] bool has_before(std::size_t r, std::size_t i, const pytorch_action& action) const {
        const auto found = find(action);
        return found && found->first == r && found->second < i;
    }

    /// The stage whose activation or gradient is the input of a computation. Empty for forwards of the first stage,
    /// backwards of the last stage, and weight gradients.
    [[nodiscard]] std::optional<stage> source_of(const pytorch_action& computed) const {
        if (computed.kind == pytorch_action_kind::backward_weight) return std::nullopt;
        if (computed.kind == pytorch_action_kind::forward)
            return computed.stage.position() == 0 ? std::nullopt : std::optional{computed.stage.previous()};
        return computed.stage.position() + 1 == g_->stages() ? std::nullopt : std::optional{computed.stage.next()};
    }
    /// Whether the input of `computed` comes from another rank.
    [[nodiscard]] bool receives(const pytorch_action& computed) const {
        const auto source = source_of(computed);
        return source && g_->rank_of(*source) != g_->rank_of(computed.stage);
    }

    using key = std::tuple<stage, pytorch_action_kind, microbatch>;
    [[nodiscard]] static key key_of(const pytorch_action& action) {
        return {action.stage, action.kind, action.microbatch.value_or(microbatch{})};
    }

    std::vector<std::vector<pytorch_action>> rows{};

private:
    const any_graph* g_;
    std::map<key, std::pair<std::size_t, std::size_t>> at_{};
};

class pytorch_message_check {
public:
    pytorch_message_check(const any_graph& g, const pytorch_schedule& file) : g_{g}, file_{file}, rows_{g, file} {
        for (const auto& row : rows_.rows)
            for (const auto& each : row)
                has_waits_ = has_waits_ || is_wait(each.kind);
    }

    [[nodiscard]] std::vector<violation> run() && {
        for (std::size_t r = 0; r < rows_.rows.size(); ++r) {
            const auto& cells = file_.rows[r];
            const auto empty = std::find(cells.begin(), cells.end(), std::nullopt);
            if (empty != cells.end())
                found_.push_back(
                    {"row " + std::to_string(r + 1) + ", cell " + std::to_string(empty - cells.begin() + 1),
                     "is empty, which compute_comms doesn't allow"});
            for (std::size_t i = 0; i < rows_.rows[r].size(); ++i)
                check(r, i);
        }
        return std::move(found_);
    }

private:
    void say(std::size_t r, const pytorch_action& action, const std::string& what) {
        found_.push_back({"row " + std::to_string(r + 1), to_string(action) + " " + what});
    }

    void check(std::size_t r, std::size_t i) {
        const auto& action = rows_.rows[r][i];
        if (is_compute(action.kind)) {
            const auto needed = received_by(action);
            if (rows_.receives(action) && !rows_.has_before(r, i, needed))
                say(r, action, "has no " + to_string(needed) + " before it");
            return;
        }
        if (!is_message(action.kind) && !is_wait(action.kind)) return;
        if (action.stage.position() >= g_.stages() || action.microbatch->position() >= g_.microbatches())
            return say(r, action, "is of a stage or a microbatch that the problem doesn't have");
        if (g_.rank_of(action.stage).position() != r)
            return say(r, action, "is of a stage on rank " + std::to_string(g_.rank_of(action.stage).value()));
        if (rows_.find(action) != std::pair{r, i}) return say(r, action, "is there twice");
        if (is_wait(action.kind))
            check_wait(r, i, action);
        else
            check_message(r, i, action);
    }

    void check_wait(std::size_t r, std::size_t i, const pytorch_action& wait) {
        auto sent = wait;
        sent.kind = wait.kind == pytorch_action_kind::wait_send_forward ? pytorch_action_kind::send_forward
                                                                        : pytorch_action_kind::send_backward;
        if (!rows_.has_before(r, i, sent)) say(r, wait, "has no " + to_string(sent) + " before it");
    }

    void check_message(std::size_t r, std::size_t i, const pytorch_action& message) {
        const bool goes_up =
            message.kind == pytorch_action_kind::send_forward || message.kind == pytorch_action_kind::receive_backward;
        const auto end = goes_up ? g_.stages() - 1 : 0;
        if (message.stage.position() == end) return say(r, message, "has no other end: there is no such stage");
        const auto partner = message_partner(message);
        if (g_.rank_of(partner.stage) == g_.rank_of(message.stage))
            return say(r, message, "is between two stages of one rank");
        if (!rows_.find(partner)) return say(r, message, "has no " + to_string(partner));
        if (!is_send(message.kind)) return;
        if (!is_computed_before(r, i, message)) say(r, message, "comes before what it sends");
        if (!has_waits_) return;
        const auto wait = rows_.find(wait_for(message));
        if (!wait || wait->first != r || wait->second < i)
            say(r, message, "has no " + to_string(wait_for(message)) + " behind it");
    }

    [[nodiscard]] bool is_computed_before(std::size_t r, std::size_t i, const pytorch_action& sent) const {
        const auto has = [&](pytorch_action_kind kind) {
            return rows_.has_before(r, i, {sent.stage, kind, sent.microbatch, {}});
        };
        if (sent.kind == pytorch_action_kind::send_forward) return has(pytorch_action_kind::forward);
        return has(pytorch_action_kind::backward) || has(pytorch_action_kind::backward_input);
    }

    const any_graph& g_;
    const pytorch_schedule& file_;
    pytorch_rows rows_;
    bool has_waits_ = false;
    std::vector<violation> found_{};
};

/// Simulates the rows.
class pytorch_run {
public:
    pytorch_run(const any_graph& g, const pytorch_schedule& file, pytorch_sends sends)
        : rows_{g, file}, sends_{sends}, next_(rows_.rows.size(), 0), issued_(rows_.rows.size()) {}

    [[nodiscard]] std::vector<std::string> stuck() && {
        for (bool moved = true; moved;) {
            moved = false;
            for (std::size_t r = 0; r < next_.size(); ++r)
                moved = progress(r) || moved;
        }
        std::vector<std::string> found;
        for (std::size_t r = 0; r < next_.size(); ++r)
            if (next_[r] < rows_.rows[r].size())
                found.push_back("row " + std::to_string(r + 1) + " stops at " + to_string(rows_.rows[r][next_[r]]));
        return found;
    }

private:
    bool progress(std::size_t r) {
        bool moved = false;
        for (; next_[r] < rows_.rows[r].size() && pass(r, rows_.rows[r][next_[r]]); ++next_[r])
            moved = true;
        while (meets_partner(r))
            moved = true;
        return moved;
    }

    /// Ends the first pending message of rank `r` if the other rank's first pending message matches.
    bool meets_partner(std::size_t r) {
        if (issued_[r].empty()) return false;
        const auto message = issued_[r].front();
        const auto partner = message_partner(message);
        auto& there = issued_[rows_.graph().rank_of(partner.stage).position()];
        if (there.empty() || there.front() != partner) return false;
        done_.insert(pytorch_rows::key_of(message));
        done_.insert(pytorch_rows::key_of(partner));
        there.pop_front();
        issued_[r].pop_front();
        return true;
    }

    bool pass(std::size_t r, const pytorch_action& action) {
        const bool is_rendezvous = sends_ == pytorch_sends::rendezvous;
        if (is_message(action.kind)) {
            if (is_rendezvous)
                issued_[r].push_back(action);
            else
                done_.insert(pytorch_rows::key_of(action));
            return true;
        }
        if (is_wait(action.kind)) {
            const auto sent = action.kind == pytorch_action_kind::wait_send_forward
                                  ? pytorch_action_kind::send_forward
                                  : pytorch_action_kind::send_backward;
            return !is_rendezvous || is_done(action, sent);
        }
        if (is_compute(action.kind) && !can_compute(action)) return false;
        if (action.microbatch) done_.insert(pytorch_rows::key_of(action));
        return true;
    }

    [[nodiscard]] bool is_done(const pytorch_action& of, pytorch_action_kind kind) const {
        return done_.contains(pytorch_rows::key_of({of.stage, kind, of.microbatch, {}}));
    }
    [[nodiscard]] bool has_gradient(const pytorch_action& of) const {
        return is_done(of, pytorch_action_kind::backward) || is_done(of, pytorch_action_kind::backward_input);
    }

    [[nodiscard]] bool can_compute(const pytorch_action& action) const {
        if (action.kind == pytorch_action_kind::backward_weight)
            return is_done(action, pytorch_action_kind::backward_input);
        const bool forwards = action.kind == pytorch_action_kind::forward;
        if (!forwards && !is_done(action, pytorch_action_kind::forward)) return false;
        const auto source = rows_.source_of(action);
        if (!source) return true;
        if (rows_.receives(action)) {
            const auto received = received_by(action);
            return is_done(received, received.kind) &&
                   is_done(message_partner(received), message_partner(received).kind);
        }
        const pytorch_action before{*source, action.kind, action.microbatch, {}};
        return forwards ? is_done(before, pytorch_action_kind::forward) : has_gradient(before);
    }

    pytorch_rows rows_;
    pytorch_sends sends_;
    std::vector<std::size_t> next_;
    std::vector<std::deque<pytorch_action>> issued_;
    std::set<pytorch_rows::key> done_{};
};

} // namespace detail

OPTPIPE_INLINE bool is_compute_comms(const pytorch_schedule& file) {
    const auto communicates = [](const auto& cell) { return cell && !is_compute(cell->kind); };
    return std::any_of(file.rows.begin(), file.rows.end(), [&](const pytorch_schedule::row& row) {
        return std::any_of(row.begin(), row.end(), communicates);
    });
}

OPTPIPE_INLINE std::vector<violation> message_violations(const any_graph& g, const pytorch_schedule& file) {
    return detail::pytorch_message_check{g, file}.run();
}

OPTPIPE_INLINE std::vector<std::string> stuck_actions(const any_graph& g, const pytorch_schedule& file,
                                                      pytorch_sends sends) {
    return detail::pytorch_run{g, file, sends}.stuck();
}

} // namespace optpipe
#endif
