#pragma once

#include "optpipe/execution/error.hpp"
#include "optpipe/execution/mpi/notice.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::mpi {

/// Makes all ranks end a run together, whether or not the run was successful.
///
/// A rank that fails reports its failure to rank 0. The first report that rank 0 receives is the verdict on the run.
/// Rank 0 sends the verdict to all ranks. Each rank confirms the verdict, ends its messages, and reports that it is
/// done. Rank 0 announces the end when all ranks are done or `patience` has passed, and names the missing ranks.
/// Without rank 0, the other ranks stop waiting after twice the time limit. Only one thread at a time may use an
/// agreement.
class agreement {
public:
    using milliseconds = std::chrono::milliseconds;

    agreement(communicator by, milliseconds patience)
        : board_{std::move(by)}, patience_{patience},
          heard_(static_cast<std::size_t>(board_.by().ranks()), false), done_{heard_} {}

    /// Reports a failure of this rank. If several failures are reported, the first one counts.
    void report(const execution_error& what) {
        if (verdict_ || reported_) return;
        reported_ = true;
        notice n{notice::kind_type::report, what.rank(), what.operation(), what.reason()};
        if (is_first()) return decide(n);
        board_.send(optpipe::rank{0}, n);
        begin_to_end();
    }
    /// Announces that this rank has no running messages, and starts no more.
    void done() {
        if (done_[self()]) return;
        done_[self()] = true;
        if (!is_first()) board_.send(optpipe::rank{0}, {});
        if (!deadline_) begin_to_end();
    }
    /// Processes the notices that have arrived. Returns whether a notice arrived.
    bool poll() {
        bool moved = false;
        while (const auto came = board_.next()) {
            take(came->from, came->what);
            moved = true;
        }
        const auto now = std::chrono::steady_clock::now(); // one instant for closing the run and for the time limit
        const auto is_late = [&] { return deadline_ && now >= *deadline_; };
        if (is_first() && deadline_ && !closed_ && (has_all() || is_late())) close();
        if (is_late() && !closed_) missing_ = "no answer from rank 0";
        over_ = (closed_ && board_.has_gone()) || is_late();
        return moved;
    }
    /// Called once notices can't be sent or received any more.
    void give_up() {
        over_ = true;
        missing_ = "no notices";
    }

    /// The error that ended the run. Empty if the run has no error, or this rank doesn't know the error yet.
    [[nodiscard]] const std::optional<execution_error>& verdict() const { return verdict_; }
    [[nodiscard]] bool is_over() const { return over_; }
    /// Names the ranks that didn't answer or still have running messages. May be empty.
    [[nodiscard]] const std::string& missing() const { return missing_; }
    [[nodiscard]] communicator& by() { return board_.by(); }

private:
    [[nodiscard]] std::size_t self() const { return static_cast<std::size_t>(board_.by().rank()); }
    [[nodiscard]] bool is_first() const { return self() == 0; }

    [[nodiscard]] static bool is_from_all(const std::vector<bool>& ranks) {
        return std::find(ranks.begin(), ranks.end(), false) == ranks.end();
    }
    /// Whether rank 0 has received all notices that it can expect. A rank that is done may still confirm a verdict. A
    /// late notice could reach a later communicator with the same identity.
    [[nodiscard]] bool has_all() const { return is_from_all(done_) && (!verdict_ || is_from_all(heard_)); }
    [[nodiscard]] bool has_answered(std::size_t r) const { return verdict_ ? heard_[r] : done_[r]; }

    void begin_to_end() { deadline_ = std::chrono::steady_clock::now() + (is_first() ? patience_ : 2 * patience_); }
    void decide(notice n) {
        n.kind = notice::kind_type::verdict;
        board_.send_to_others(n);
        accept(n);
    }
    void accept(const notice& n) {
        verdict_.emplace(n.where, n.operation, n.reason);
        heard_[self()] = true;
        if (!is_first()) board_.send(optpipe::rank{0}, {notice::kind_type::heard});
        begin_to_end();
    }
    void take(int from, const notice& n) {
        switch (n.kind) {
        case notice::kind_type::report:
            if (!verdict_) decide(n);
            return;
        case notice::kind_type::verdict: return accept(n);
        case notice::kind_type::heard: heard_[static_cast<std::size_t>(from)] = true; return;
        case notice::kind_type::done: done_[static_cast<std::size_t>(from)] = true; return;
        case notice::kind_type::over:
            closed_ = true;
            missing_ = n.reason;
            return;
        }
    }
    /// Announces the end of the run. Called on rank 0.
    void close() {
        missing_ = listed("no answer from rank ", [&](std::size_t r) { return !has_answered(r); });
        if (missing_.empty())
            missing_ = listed("messages are under way at rank ", [&](std::size_t r) { return !done_[r]; });
        board_.send_to_others({notice::kind_type::over, optpipe::rank{0}, {}, missing_});
        closed_ = true;
        *deadline_ += patience_; // leaves time to send the last notices
    }

    template <class Is> [[nodiscard]] std::string listed(const std::string& what, const Is& is) const {
        std::string text;
        for (std::size_t r = 0; r < done_.size(); ++r)
            if (is(r)) text += (text.empty() ? what : " and ") + std::to_string(r);
        return text;
    }

    notice_board board_;
    milliseconds patience_;
    std::vector<bool> heard_;
    std::vector<bool> done_;
    bool reported_ = false;
    std::optional<execution_error> verdict_;
    std::optional<std::chrono::steady_clock::time_point> deadline_;
    bool closed_ = false;
    bool over_ = false;
    std::string missing_;
};

} // namespace optpipe::mpi
