#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/control_channel.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe::execution {

/// A letter from rank 0 to another rank, or from any rank to rank 0.
struct control_letter {
    enum class kind_type : std::uint8_t {
        text,  ///< a published text from rank 0, or a report to rank 0
        value, ///< a value sent to rank 0 (`begin_minimum`), or the least value sent by rank 0
        peer,  ///< a text between two ranks, which rank 0 forwards; `value` is the receiver (to rank 0) or the sender
               ///< (from rank 0)
    };
    kind_type kind = kind_type::text;
    std::uint64_t value = 0;
    std::string text{};
};

/// One rank's state in a control channel. All letters go to or from rank 0. A `control_star` produces letters and takes
/// those that arrive. A carrier delivers the letters, and keeps their order between any two ranks.
class control_star {
public:
    struct addressed {
        rank to{};
        control_letter what{};
    };

    control_star(rank self, std::size_t ranks);

    [[nodiscard]] rank self() const { return self_; }
    [[nodiscard]] std::size_t ranks() const { return ranks_; }

    void publish(std::string_view text);
    void report(std::string_view text);
    void begin_minimum(std::uint64_t value);
    [[nodiscard]] std::optional<std::string> next_published();
    [[nodiscard]] std::optional<rank_text> next_report();

    /// Sends the text by way of rank 0, which exchanges letters with every rank.
    void send_to(rank to, std::string_view text);
    [[nodiscard]] bool has_text_of(rank from) const { return !received_[from.position()].empty(); }
    [[nodiscard]] std::string next_of_peer(rank from);

    /// Whether this rank has called `begin_minimum` and hasn't yet read the result by `read_minimum`.
    [[nodiscard]] bool is_under_way() const { return under_way_; }
    /// Whether the least value of all ranks is known.
    [[nodiscard]] bool has_minimum() const { return minimum_.has_value(); }
    [[nodiscard]] std::uint64_t read_minimum();
    /// Names the ranks whose values haven't arrived, such as "rank 2 and rank 3".
    [[nodiscard]] std::string missing() const;

    /// Handles a letter that has arrived. Throws `error` if no rank of this channel can have sent the letter.
    void take(rank from, control_letter what);
    [[nodiscard]] bool has_outgoing() const { return !outbox_.empty(); }
    /// Removes all letters from the outbox, and returns them.
    [[nodiscard]] std::vector<addressed> take_outbox();

private:
    [[nodiscard]] bool is_first() const { return self_ == rank{0}; }

    void send(control_letter what);
    void send_to_others(const control_letter& what);
    void count(rank from, std::uint64_t value);
    void pass_on(rank from, control_letter what);

    rank self_;
    std::size_t ranks_;
    std::deque<std::string> published_;
    std::deque<rank_text> reports_;
    /// On rank 0: the value of each rank for the all-reduce under way. Empty for ranks whose value hasn't arrived.
    std::vector<std::optional<std::uint64_t>> values_;
    std::optional<std::uint64_t> minimum_;
    bool under_way_ = false;
    /// Texts received from other ranks, indexed by sender.
    std::vector<std::deque<std::string>> received_;
    std::vector<addressed> outbox_;
};

} // namespace optpipe::execution

#if OPTPIPE_DEFINES(execution)
#include "optpipe/core/contract.hpp"
#include "optpipe/core/error.hpp"

#include <algorithm>
#include <utility>

namespace optpipe::execution {

namespace detail {

template <class T> std::optional<T> next_of(std::deque<T>& all) {
    if (all.empty()) return std::nullopt;
    std::optional<T> first{std::move(all.front())};
    all.pop_front();
    return first;
}

} // namespace detail

OPTPIPE_INLINE control_star::control_star(rank self, std::size_t ranks)
    : self_{self}, ranks_{ranks}, values_(ranks), received_(ranks) {}

OPTPIPE_INLINE void control_star::publish(std::string_view text) {
    OPTPIPE_EXPECT(is_first(), "control channel: rank 0 publishes");
    published_.emplace_back(text);
    send_to_others({control_letter::kind_type::text, 0, std::string{text}});
}

OPTPIPE_INLINE void control_star::report(std::string_view text) {
    send({control_letter::kind_type::text, 0, std::string{text}});
}

OPTPIPE_INLINE std::optional<std::string> control_star::next_published() { return detail::next_of(published_); }
OPTPIPE_INLINE std::optional<rank_text> control_star::next_report() { return detail::next_of(reports_); }
OPTPIPE_INLINE std::string control_star::next_of_peer(rank from) {
    return *detail::next_of(received_[from.position()]);
}

OPTPIPE_INLINE std::vector<control_star::addressed> control_star::take_outbox() { return std::exchange(outbox_, {}); }

OPTPIPE_INLINE void control_star::begin_minimum(std::uint64_t value) {
    OPTPIPE_EXPECT(!under_way_, "control channel: the last minimum hasn't been read");
    under_way_ = true;
    send({control_letter::kind_type::value, value, {}});
}

OPTPIPE_INLINE void control_star::send_to(rank to, std::string_view text) {
    OPTPIPE_EXPECT(to.position() < ranks_, "control channel: a text for a rank that there isn't");
    if (to == self_)
        received_[to.position()].emplace_back(text);
    else
        send({control_letter::kind_type::peer, to.value(), std::string{text}});
}

OPTPIPE_INLINE std::uint64_t control_star::read_minimum() {
    under_way_ = false;
    return *std::exchange(minimum_, std::nullopt);
}

OPTPIPE_INLINE std::string control_star::missing() const {
    if (!is_first()) return "rank 0";
    std::string names;
    for (std::size_t r = 0; r < ranks_; ++r)
        if (!values_[r]) names += (names.empty() ? "rank " : " and rank ") + std::to_string(r);
    return names;
}

OPTPIPE_INLINE void control_star::take(rank from, control_letter what) {
    switch (what.kind) {
    case control_letter::kind_type::text:
        if (is_first())
            reports_.push_back({from, std::move(what.text)});
        else
            published_.push_back(std::move(what.text));
        return;
    case control_letter::kind_type::value:
        if (is_first())
            count(from, what.value);
        else
            minimum_ = what.value;
        return;
    case control_letter::kind_type::peer:
        if (what.value >= ranks_)
            throw error{"control channel: a letter that names rank " + std::to_string(what.value) + " of " +
                        std::to_string(ranks_)};
        if (is_first())
            pass_on(from, std::move(what));
        else
            received_[static_cast<std::size_t>(what.value)].push_back(std::move(what.text));
        return;
    }
    throw error{"control channel: a letter that can't be read"};
}

OPTPIPE_INLINE void control_star::send(control_letter what) {
    if (is_first()) return take(self_, std::move(what));
    outbox_.push_back({rank{0}, std::move(what)});
}

OPTPIPE_INLINE void control_star::send_to_others(const control_letter& what) {
    for (std::size_t to = 1; to < ranks_; ++to)
        outbox_.push_back({rank{to}, what});
}

OPTPIPE_INLINE void control_star::pass_on(rank from, control_letter what) {
    const rank to{static_cast<std::size_t>(what.value)};
    what.value = from.value();
    if (to == self_)
        received_[from.position()].push_back(std::move(what.text));
    else
        outbox_.push_back({to, std::move(what)});
}

OPTPIPE_INLINE void control_star::count(rank from, std::uint64_t value) {
    values_[from.position()] = value;
    if (std::find(values_.begin(), values_.end(), std::nullopt) != values_.end()) return;
    minimum_ = **std::min_element(values_.begin(), values_.end());
    std::fill(values_.begin(), values_.end(), std::nullopt);
    send_to_others({control_letter::kind_type::value, *minimum_, {}});
}

} // namespace optpipe::execution
#endif
