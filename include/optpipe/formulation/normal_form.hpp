#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/formulation/formulate.hpp"
#include "optpipe/formulation/operation_table.hpp"
#include "optpipe/formulation/plan_times.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

namespace optpipe::formulation {

/// Brings a schedule into the normal form of the model (`microbatch_order`, `operation_table`). Numbers interchangeable
/// microbatches by their first forward. Sorts weight gradients in the order of the input gradients. Adds zero-length
/// transfers and recomputations for stashes that aren't offloaded or recomputed.
class normal_form {
public:
    explicit normal_form(const formulated& f) : f_{f}, t_{*f.operations} {}

    /// Refused (`does_not_apply`) if offloaded microbatches overtake each other and the model excludes overtaking. The
    /// schedule must be valid, with storage options that the model has.
    [[nodiscard]] outcome<plan_times> run(const schedule& s) {
        read(s);
        number_by_first_forward();
        if (f_.keeps_order && !keep_order()) {
            refusal why;
            why.sentence = "microbatches overtake each other, which the model excludes";
            return why;
        }
        for (const stage at : t_.problem().graph.all_stages())
            sort_weights(at);
        if (t_.problem().objective == objective_kind::span) start_at_zero();
        for (const stage at : t_.problem().graph.all_stages())
            place_unused(at);
        return std::move(result_);
    }

private:
    using starts = std::vector<double>;

    [[nodiscard]] bool is_offloaded(cell c) const { return result_.is_offloaded(t_, c); }
    [[nodiscard]] double& start(role what, cell c) { return result_.start[t_.id(what, c)]; }
    [[nodiscard]] double end(role what, cell c) {
        return start(what, c) + t_.length(t_.id(what, c), result_.storage[c]);
    }

    void read_options(const schedule& s) {
        for (const auto& timed : s.operations)
            if (timed.op.kind == operation_kind::forward)
                result_.storage[t_.cell_of(t_.id_of(timed.op))] = timed.op.storage;
    }
    void read(const schedule& s) {
        result_ = plan_times{t_};
        read_options(s);
        for (const auto& timed : s.operations) {
            const auto c = t_.cell_at(timed.op.stage, timed.op.microbatch.position());
            const double at = timed.start.value();
            switch (timed.op.kind) {
            case operation_kind::forward: start(role::forward, c) = at; break;
            case operation_kind::backward_input: start(role::gradient, c) = at; break;
            case operation_kind::backward_weight: start(role::weight, c) = at; break;
            case operation_kind::backward:
                start(role::gradient, c) = at;
                if (!t_.problem().split_backward) break;
                start(role::weight, c) = end(role::gradient, c);
                result_.is_full[c] = t_.is_full_better(timed.op.stage, result_.storage[c]) ? 1 : 0;
                break;
            case operation_kind::offload: start(role::offload, c) = at; break;
            case operation_kind::reload: start(role::reload, c) = at; break;
            case operation_kind::recompute: start(role::recompute, c) = at; break;
            }
        }
    }
    /// Moves the values of cell from[m] to the stage's m-th cell.
    void renumber(stage s, role what, const std::vector<std::size_t>& from) {
        const auto first = t_.id(what, t_.cell_at(s, 0));
        const starts old(result_.start.begin() + static_cast<std::ptrdiff_t>(first),
                         result_.start.begin() + static_cast<std::ptrdiff_t>(first + from.size()));
        for (std::size_t m = 0; m < from.size(); ++m)
            result_.start[first + m] = old[from[m]];
    }
    template <class Value> void renumber(stage s, std::vector<Value>& flags, const std::vector<std::size_t>& from) {
        const auto first = t_.cell_at(s, 0);
        const std::vector<Value> old(flags.begin() + static_cast<std::ptrdiff_t>(first),
                                     flags.begin() + static_cast<std::ptrdiff_t>(first + from.size()));
        for (std::size_t m = 0; m < from.size(); ++m)
            flags[first + m] = old[from[m]];
    }
    /// Sorts interchangeable microbatches by the start of this operation on this stage. Element m of the result is the
    /// old index of the new microbatch m.
    [[nodiscard]] std::vector<std::size_t> sorted_by_start(stage s, role what) {
        std::vector<std::size_t> order(t_.microbatches());
        for (const auto& list : t_.interchangeable()) {
            auto sorted = list;
            std::stable_sort(sorted.begin(), sorted.end(), [&](microbatch a, microbatch b) {
                return start(what, t_.cell_at(s, a.position())) < start(what, t_.cell_at(s, b.position()));
            });
            for (std::size_t i = 0; i < list.size(); ++i)
                order[list[i].position()] = sorted[i].position();
        }
        return order;
    }
    void number_by_first_forward() {
        auto from = sorted_by_start(stage{0}, role::forward);
        for (std::size_t m = 1; m < from.size(); ++m) // the slices of a sequence follow its first slice
            if (t_.problem().microbatches.slice_before(microbatch{m})) from[m] = from[m - 1] + 1;
        for (const stage s : t_.problem().graph.all_stages()) {
            for (std::size_t what = 0; what < roles; ++what)
                renumber(s, static_cast<role>(what), from);
            renumber(s, result_.is_full, from);
            renumber(s, result_.storage, from);
        }
    }
    [[nodiscard]] bool keep_order() {
        bool offloaded = false;
        for (cell c = 0; c < t_.cells(); ++c)
            offloaded = offloaded || is_offloaded(c);
        for (const stage s : t_.problem().graph.all_stages()) {
            const auto forwards = sorted_by_start(s, role::forward), gradients = sorted_by_start(s, role::gradient);
            if (offloaded && !f_.is_pooled &&
                !(std::is_sorted(forwards.begin(), forwards.end()) &&
                  std::is_sorted(gradients.begin(), gradients.end())))
                return false;
            renumber(s, role::forward, forwards);
            renumber(s, role::gradient, gradients);
            renumber(s, role::weight, gradients);
            renumber(s, result_.is_full, gradients);
            if (f_.is_pooled) number_transfers(s);
            sort_transfers(s, role::offload);
            sort_transfers(s, role::reload);
        }
        return true;
    }
    /// Numbers the transfers of a stage, regardless of their microbatches. The transfers that take place get the first
    /// numbers.
    void number_transfers(stage s) {
        std::vector<std::size_t> from(t_.microbatches());
        std::iota(from.begin(), from.end(), std::size_t{0});
        std::stable_partition(from.begin(), from.end(), [&](std::size_t m) { return is_offloaded(t_.cell_at(s, m)); });
        renumber(s, role::offload, from);
        renumber(s, role::reload, from);
        renumber(s, result_.storage, from);
    }
    void sort_transfers(stage s, role what) {
        std::vector<cell> offloaded;
        starts at;
        for (std::size_t m = 0; m < t_.microbatches(); ++m)
            if (const cell c = t_.cell_at(s, m); is_offloaded(c)) {
                offloaded.push_back(c);
                at.push_back(start(what, c));
            }
        std::sort(at.begin(), at.end());
        for (std::size_t i = 0; i < at.size(); ++i)
            start(what, offloaded[i]) = at[i];
    }
    /// Reassigns the starts of weight gradients of equal cost, in the order of their input gradients.
    void sort_weights(stage s) {
        std::vector<cell> split;
        for (std::size_t m = 0; m < t_.microbatches(); ++m)
            if (const cell c = t_.cell_at(s, m); result_.is_full[c] == 0) split.push_back(c);
        std::stable_sort(split.begin(), split.end(),
                         [&](cell a, cell b) { return start(role::gradient, a) < start(role::gradient, b); });
        for (auto from = split.begin(); from != split.end();) {
            const auto to = std::stable_partition(
                from, split.end(), [&, first = *from](cell c) { return t_.have_equal_weights(first, c); });
            sort_weights(std::vector<cell>(from, to));
            from = to;
        }
    }
    void sort_weights(const std::vector<cell>& cells) {
        starts at;
        for (const cell c : cells)
            at.push_back(start(role::weight, c));
        std::sort(at.begin(), at.end());
        for (std::size_t i = 0; i < at.size(); ++i)
            start(role::weight, cells[i]) = at[i];
    }
    void start_at_zero() {
        double first = std::numeric_limits<double>::infinity();
        for (operation_id a = 0; a < t_.size(); ++a)
            if (result_.takes_place(t_, a)) first = std::min(first, result_.start[a]);
        for (auto& at : result_.start)
            at -= first;
    }
    void place_unused(stage s) {
        if (t_.may_offload(s)) place_unused_transfers(s);
        for (std::size_t m = 0; m < t_.microbatches(); ++m)
            if (const cell c = t_.cell_at(s, m); !result_.takes_place(t_, t_.id(role::recompute, c)))
                start(role::recompute, c) = start(role::gradient, c);
    }
    /// Places the zero-length transfers of a stage. If overtaking is allowed, both transfers of a stash come at the end
    /// of F. If microbatches keep their order, zero-length transfers keep this order, too. An offload comes at the
    /// later of two times: the end of F, and the end of the previous offload. An offload that would lie within a reload
    /// of an earlier microbatch moves to the end of this reload. A zero-length reload comes at the later of two times:
    /// its offload, or the end of the previous reload. If transfers are pooled, the zero-length transfers come last, at
    /// the start of the last gradient.
    void place_unused_transfers(stage s) {
        if (f_.is_pooled) {
            const double end_of_all = start(role::gradient, t_.cell_at(s, t_.microbatches() - 1));
            for (std::size_t m = 0; m < t_.microbatches(); ++m)
                if (const cell c = t_.cell_at(s, m); !is_offloaded(c))
                    start(role::offload, c) = start(role::reload, c) = end_of_all;
            return;
        }
        double last_out = 0.0, last_in = 0.0;
        for (std::size_t m = 0; m < t_.microbatches(); ++m) {
            const cell c = t_.cell_at(s, m);
            if (!is_offloaded(c)) {
                double out = end(role::forward, c);
                if (f_.keeps_order) out = std::max(out, last_out);
                for (std::size_t k = 0; k < m && f_.keeps_order; ++k)
                    if (const cell b = t_.cell_at(s, k); is_offloaded(b))
                        if (start(role::reload, b) < out && out < end(role::reload, b)) out = end(role::reload, b);
                start(role::offload, c) = out;
                start(role::reload, c) = f_.keeps_order ? std::max(out, last_in) : out;
                last_out = out;
                last_in = start(role::reload, c);
            } else {
                last_out = end(role::offload, c);
                last_in = end(role::reload, c);
            }
        }
    }

    const formulated& f_;
    const operation_table& t_;
    plan_times result_;
};

} // namespace optpipe::formulation
