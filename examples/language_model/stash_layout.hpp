#pragma once

#include "layout.hpp"
#include "stage.hpp"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

namespace language_model {

/// A range of the memory that a task has for a stash: of the memory that lasts until the weight gradient (`kept`,
/// `restored_kept` and `added`, one after the other), or of the rest (`freed`, `restored_freed`).
struct stretch {
    bool lasts = false;
    std::size_t begin = 0;
    std::size_t size = 0;
};

/// Free memory, to be allocated.
class free_memory {
public:
    void add(const stretch& free) { free_.push_back(free); }
    /// Allocates one range if one is large enough, otherwise several; none if all together are too small.
    std::vector<stretch> take(std::size_t size) {
        const auto fits = std::find_if(free_.begin(), free_.end(), [&](const auto& each) { return each.size >= size; });
        if (fits != free_.end()) return {cut(*fits, size)};
        std::size_t all = 0;
        for (const auto& each : free_)
            all += each.size;
        std::vector<stretch> taken;
        if (all < size) return taken;
        for (auto& each : free_)
            if (const auto now = std::min(size, each.size); now > 0) {
                taken.push_back(cut(each, now));
                size -= now;
            }
        return taken;
    }

private:
    static stretch cut(stretch& from, std::size_t size) {
        const stretch result{from.lasts, from.begin, size};
        from.begin += size;
        from.size -= size;
        return result;
    }

    std::vector<stretch> free_{};
};

struct stash_piece {
    bool is_kept;
    bool is_restored;
    piece where;
};

struct stash_places {
    /// The place of the stage's input, if a recomputation starts from it.
    std::vector<stretch> input{};
    /// The places of each piece; none if it is in workspace, or doesn't exist.
    std::vector<std::vector<stretch>> pieces{};
};

/// The sizes that determine the memory of a task, in elements.
struct stash_sizes {
    std::size_t kept = 0;
    /// With `restored_kept` and `added`.
    std::size_t all_kept = 0;
    /// Whether there is a recomputation ahead of the backward.
    bool ahead = false;
};

/// The places of the pieces of a stage's stash, some of them recomputed, from task to task. Most pieces have a single
/// range.
class stash_layout {
public:
    template <class Stage>
    stash_layout(const Stage& stage, recomputation again)
        : whole_{stage.kept() + stage.freed()},
          input_{again == recomputation::full && !stage.is_first() ? stage.boundary() : 0}, held_{input_} {
        const auto restored = stage.restored_by(again);
        add(true, stage.kept_pieces(), restored.kept);
        add(false, stage.freed_pieces(), restored.freed);
    }

    /// The pieces, those to keep first.
    [[nodiscard]] const std::vector<stash_piece>& pieces() const { return pieces_; }
    /// Elements that the forward leaves.
    [[nodiscard]] std::size_t held() const { return held_; }

    [[nodiscard]] stash_places after_forward(std::size_t kept) const {
        stash_places at;
        free_memory room;
        room.add({true, 0, kept});
        room.add({false, 0, held_ - kept});
        if (input_ > 0) at.input = room.take(input_);
        for (const auto& each : pieces_)
            at.pieces.push_back(each.is_restored ? std::vector<stretch>{} : room.take(each.where.size));
        return at;
    }
    /// Pieces recomputed in the backward may be in workspace only.
    [[nodiscard]] stash_places after_recompute(const stash_sizes& sizes) const {
        const auto freed = held_ - sizes.kept;
        auto at = after_forward(sizes.kept);
        free_memory room;
        for (const auto& each : at.input) // it is read before anything is written
            room.add(each);
        room.add({true, sizes.kept, sizes.all_kept - sizes.kept});
        if (sizes.ahead) room.add({false, freed, whole_ - sizes.all_kept - freed});
        for (std::size_t i = 0; i < pieces_.size(); ++i)
            if (pieces_[i].is_restored) at.pieces[i] = room.take(pieces_[i].where.size);
        return at;
    }
    /// Moves all kept pieces to the memory that lasts, unless they are there. `at` is the result of `after_recompute`.
    [[nodiscard]] stash_places after_input_gradient(const stash_sizes& sizes, stash_places at) const {
        std::vector<piece> taken;
        for (std::size_t i = 0; i < pieces_.size(); ++i)
            if (stays(i, at))
                for (const auto& each : at.pieces[i])
                    taken.push_back({each.begin, each.size});
        std::sort(taken.begin(), taken.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
        free_memory room;
        for (const auto& each : rest_of(sizes.all_kept, taken))
            room.add({true, each.begin, each.size});
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            if (stays(i, at)) continue;
            at.pieces[i] = pieces_[i].is_kept ? room.take(pieces_[i].where.size) : std::vector<stretch>{};
            if (pieces_[i].is_kept && at.pieces[i].empty())
                throw std::logic_error{"what the weight gradient needs is larger than weight_stash says"};
        }
        return at;
    }
    /// Whether the piece is already where the weight gradient expects it.
    [[nodiscard]] bool stays(std::size_t which, const stash_places& at) const {
        const auto& places = at.pieces[which];
        return pieces_[which].is_kept && !places.empty() &&
               std::all_of(places.begin(), places.end(), [](const auto& each) { return each.lasts; });
    }

private:
    void add(bool is_kept, const std::vector<piece>& all, const std::vector<piece>& restored) {
        for (const auto& each : all) {
            const bool is_restored = std::any_of(restored.begin(), restored.end(), [&](const piece& some) {
                return some.begin <= each.begin && each.begin < some.begin + some.size;
            });
            pieces_.push_back({is_kept, is_restored, each});
            if (!is_restored) held_ += each.size;
        }
    }

    std::size_t whole_;
    std::size_t input_;
    std::size_t held_;
    std::vector<stash_piece> pieces_{};
};

} // namespace language_model
