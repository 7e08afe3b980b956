#pragma once

#include "optpipe/io/pytorch_actions.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

/// Runs the rows of a `compute_comms` file like PyTorch in the slowest case: a rank's messages progress one after the
/// other, in the order of issue, and every send waits for its receive. Shares no code with the lowering.
namespace rendezvous {

using namespace optpipe;

class run_of {
public:
    explicit run_of(const pytorch_schedule& file) : file_{file}, next_(file.rows.size(), 0), issued_(file.rows.size()) {
        for (std::size_t r = 0; r < file.rows.size(); ++r)
            for (const auto& cell : file.rows[r]) {
                const auto stage_index = cell.value().stage.value();
                if (stage_index >= where_.size()) where_.resize(stage_index + std::size_t{1}, file.rows.size());
                where_[stage_index] = r;
            }
    }

    /// The actions that never run, such as "rank 2: 5RECV_B1"; empty if all run.
    std::vector<std::string> stuck() {
        for (bool moved = true; moved;) {
            moved = false;
            for (std::size_t r = 0; r < next_.size(); ++r)
                moved = progress(r) || moved;
        }
        std::vector<std::string> left;
        for (std::size_t r = 0; r < next_.size(); ++r) {
            if (next_[r] < file_.rows[r].size()) left.push_back(at(r, to_string(*file_.rows[r][next_[r]])));
            for (const auto& message : issued_[r])
                left.push_back(at(r, message.first));
        }
        return left;
    }

private:
    /// Its spelling, and the spelling and rank of its other end.
    using message_end = std::pair<std::string, std::pair<std::string, std::size_t>>;

    static std::string at(std::size_t r, const std::string& action) {
        return "rank " + std::to_string(r) + ": " + action;
    }
    static std::string name(std::size_t s, const std::string& kind, const pytorch_action& a) {
        return std::to_string(s) + kind + std::to_string(a.microbatch.value().value());
    }

    bool progress(std::size_t r) {
        bool moved = false;
        for (; next_[r] < file_.rows[r].size() && can_pass(r, *file_.rows[r][next_[r]]); ++next_[r])
            moved = true;
        while (!issued_[r].empty()) {
            const auto [own, other] = issued_[r].front();
            auto& there = issued_[other.second];
            if (there.empty() || there.front().first != other.first) break;
            done_.insert({own, other.first});
            there.pop_front();
            issued_[r].pop_front();
            moved = true;
        }
        return moved;
    }

    bool done(std::size_t s, const std::string& kind, const pytorch_action& a) const {
        return done_.contains(name(s, kind, a));
    }
    bool gradient_done(std::size_t s, const pytorch_action& a) const { return done(s, "I", a) || done(s, "B", a); }

    /// Issues a message, or runs any other action once all its inputs are available.
    bool can_pass(std::size_t r, const pytorch_action& a) {
        const std::size_t s = a.stage.value();
        const auto issue = [&](bool ready, std::size_t peer, const std::string& kind) {
            if (ready) issued_[r].push_back({to_string(a), {name(peer, kind, a), where_[peer]}});
            return ready;
        };
        bool ready = true;
        switch (a.kind) {
        case pytorch_action_kind::send_forward: return issue(done(s, "F", a), s + 1, "RECV_F");
        case pytorch_action_kind::receive_forward: return issue(true, s - 1, "SEND_F");
        case pytorch_action_kind::send_backward: return issue(gradient_done(s, a), s - 1, "RECV_B");
        case pytorch_action_kind::receive_backward: return issue(true, s + 1, "SEND_B");
        case pytorch_action_kind::wait_send_forward: return done(s, "SEND_F", a);
        case pytorch_action_kind::wait_send_backward: return done(s, "SEND_B", a);
        case pytorch_action_kind::forward:
            ready = s == 0 || done(s - 1, "F", a);
            if (s > 0 && where_[s - 1] != r) ready = done(s, "RECV_F", a);
            break;
        case pytorch_action_kind::backward_input:
        case pytorch_action_kind::backward:
            ready = done(s, "F", a) && (s + 1 == where_.size() || gradient_done(s + 1, a));
            if (s + 1 < where_.size() && where_[s + 1] != r) ready = done(s, "RECV_B", a);
            break;
        case pytorch_action_kind::backward_weight: ready = done(s, "I", a); break;
        case pytorch_action_kind::overlap: return false; // not in our files
        case pytorch_action_kind::unshard:
        case pytorch_action_kind::reshard:
        case pytorch_action_kind::reduce_gradients:
        case pytorch_action_kind::wait_reduce_gradients: return true;
        }
        if (ready) done_.insert(to_string(a));
        return ready;
    }

    const pytorch_schedule& file_;
    std::vector<std::size_t> next_;
    std::vector<std::deque<message_end>> issued_;
    std::vector<std::size_t> where_{};
    std::set<std::string> done_{};
};

/// Faults of the waits for sends: each send must have one later wait on its row, and each wait a send.
inline std::vector<std::string> unmatched_waits(const pytorch_schedule& file) {
    std::vector<std::string> found;
    for (const auto& row : file.rows) {
        std::set<std::string> open;
        for (const auto& cell : row) {
            const auto text = to_string(cell.value());
            const auto wait = text.find("WAIT_SEND");
            if (wait != std::string::npos) {
                if (open.erase(text.substr(0, wait) + text.substr(wait + 5)) == 0) found.push_back(text);
            } else if (text.find("SEND") != std::string::npos) {
                open.insert(text);
            }
        }
        found.insert(found.end(), open.begin(), open.end());
    }
    return found;
}

} // namespace rendezvous
