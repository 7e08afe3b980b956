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

/// How ranks come to one end, be it good or bad.
///
/// A rank that fails reports it to rank 0, which takes the first report that it gets for what ended the run and tells
/// all. Each answers that it has heard, takes back or brings to its end what it has under way, and says when it is
/// done; so does one that simply leaves. When all have, or after its patience, rank 0 says that it is over, and which
/// ranks haven't answered. If rank 0 is the one that is gone, the others stop waiting for it after twice the patience.
/// For one thread at a time.
class agreement {
public:
    using milliseconds = std::chrono::milliseconds;

    agreement(communicator by, milliseconds patience)
        : board_{std::move(by)}, patience_{patience},
          heard_(static_cast<std::size_t>(board_.by().ranks()), false), done_{heard_} {}

    /// What failed here. Only the first failure of all ranks counts.
    void report(const execution_error& what) {
        if (verdict_ || reported_) return;
        reported_ = true;
        notice n{notice::kind_type::report, what.rank(), what.operation(), what.reason()};
        if (is_first()) return decide(n);
        board_.send(optpipe::rank{0}, n);
        begin_to_end();
    }
    /// This rank has nothing under way any more and won't have again.
    void done() {
        if (done_[self()]) return;
        done_[self()] = true;
        if (!is_first()) board_.send(optpipe::rank{0}, {});
        if (!deadline_) begin_to_end();
    }
    /// Whether there was anything new.
    bool poll() {
        bool moved = false;
        while (const auto came = board_.next()) {
            take(came->from, came->what);
            moved = true;
        }
        const auto is_late = [&] { return deadline_ && std::chrono::steady_clock::now() >= *deadline_; };
        if (is_first() && deadline_ && !closed_ && (has_all() || is_late())) close();
        if (is_late() && !closed_) missing_ = "no answer from rank 0";
        over_ = (closed_ && board_.has_gone()) || is_late();
        return moved;
    }
    /// For when not even notices get through.
    void give_up() {
        over_ = true;
        missing_ = "no notices";
    }

    /// What ended the run, as soon as it is known.
    [[nodiscard]] const std::optional<execution_error>& verdict() const { return verdict_; }
    [[nodiscard]] bool is_over() const { return over_; }
    /// Who didn't answer at the end; empty: all did, and nobody sends anything any more.
    [[nodiscard]] const std::string& missing() const { return missing_; }
    [[nodiscard]] communicator& by() { return board_.by(); }

private:
    [[nodiscard]] std::size_t self() const { return static_cast<std::size_t>(board_.by().rank()); }
    [[nodiscard]] bool is_first() const { return self() == 0; }

    [[nodiscard]] static bool is_from_all(const std::vector<bool>& ranks) {
        return std::find(ranks.begin(), ranks.end(), false) == ranks.end();
    }
    /// Whether rank 0 gets no more notices: a rank that has said that it is done may yet answer a verdict, and an
    /// answer that comes later would be taken for one on the next communicator that gets this one's place.
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
    /// By rank 0.
    void close() {
        missing_ = listed("no answer from rank ", [&](std::size_t r) { return !has_answered(r); });
        if (missing_.empty())
            missing_ = listed("messages are under way at rank ", [&](std::size_t r) { return !done_[r]; });
        board_.send_to_others({notice::kind_type::over, optpipe::rank{0}, {}, missing_});
        closed_ = true;
        *deadline_ += patience_; // for these to go
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
