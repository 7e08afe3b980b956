#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/equal_sequences.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/overlaps.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/sequences.hpp"
#include "optpipe/schedule/construct/serial_order.hpp"
#include "optpipe/schedule/dispatch/dispatch_search.hpp"
#include "optpipe/schedule/dispatch/graph_dispatcher.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace optpipe {

/// The values that `graph_dispatch_search` tries. The values are set by hand, are the same for every problem, and
/// aren't tuned.
struct graph_dispatch_search_parameters {
    std::array<double, 7> depths{1.0, 2.0, 0.7, 1.4, 3.0, 0.5, dispatch_options::no_limit};
    std::array<int, 3> further{0, 1, -1};
    std::array<forward_preference, 3> preferences{
        forward_preference::deepest_stage, forward_preference::oldest_microbatch, forward_preference::shallowest_stage};
    /// A random change of the depth multiplies it by a factor from `least_factor` to `least_factor + factor_range`. The
    /// mean logarithm of the factors is about 0, to avoid drift. One in `changes_per_draw` changes sets the depth to
    /// one of `depths`.
    double least_factor = 0.78;
    double factor_range = 0.48;
    std::size_t changes_per_draw = 4;
    std::array<std::size_t, 4> most_weights{std::numeric_limits<std::size_t>::max(), 3, 1, 0};
    /// A random change of `most_weights` draws a number below `weights_drawn`.
    std::size_t weights_drawn = 6;
    /// Weight of changes that move a sequence, if sequences differ. All other kinds of changes have the weight 1.
    std::size_t moves_of_sequences = 4;
    /// Weight of changes that forbid or allow a pair, in problems with pairs. Not tuned. On 28 drawn problems with
    /// pairs, changes of avoided pairs and waits shorten orders by 1 % in the mean (equal effort).
    std::size_t changes_of_avoided = 2;
    /// A random change draws the longest wait from `least_wait` to `least_wait + wait_range`. Values below 0 count as
    /// 0, and then nothing waits. Not tuned.
    double least_wait = -1.0;
    double wait_range = 3.0;
    /// Temperature of simulated annealing at the beginning and at the end, as shares of the objective. Annealing made
    /// orders 0.7 % shorter in the mean on sixteen random problems, eight with slices and eight with unequal
    /// microbatches (2500 trials, four seeds). Without annealing, changes for the worse are undone.
    double first_temperature = 2e-3;
    double last_temperature = 1e-4;
    /// Number of trials in one round of annealing, if enough trials are left. The temperature falls during the round.
    /// The next round starts from the best parameters.
    std::size_t trials_of_round = 20'000;
};

/// Searches for the run of a `graph_dispatcher` that gives the shortest step. The search first tries all combinations
/// of the dispatcher's parameters, and then uses simulated annealing. Each step changes one thing at random: a
/// parameter, the order of sequences, the allowed pairs, a stage's storage option, or its microbatches in flight.
template <pipeline_graph Graph> class graph_dispatch_search {
public:
    /// `trials` is the number of runs of the dispatcher.
    graph_dispatch_search(const basic_problem<Graph>& p, best_order<Graph>& best, stop_check stop, std::size_t trials,
                          std::uint64_t seed)
        : p_{&p}, best_{&best}, stop_{stop}, left_{trials}, random_{seed},
          sequences_{sequences_of(p)}, places_{places_on_ranks(p.graph)}, work_(p.graph.ranks()) {
        find_work();
        for (const stage s : p.graph.all_stages()) {
            std::vector<storage_index> kept;
            for (std::size_t i = 0; i < p.storage_options(s); ++i)
                if (!p.storage_of(s, i).offloads()) kept.push_back(static_cast<storage_index>(i));
            can_run_ = can_run_ && !kept.empty();
            options_.push_back(std::move(kept));
        }
        find_changes();
    }

    void run() {
        best_->offer(one_at_a_time(*p_));
        if (!can_run_) return;
        auto best = first_without_offloads();
        auto value = duration::unlimited();
        try_careful(best, value);
        search_grid(best, value);
        if (value.is_unlimited()) value = p_->serial_time();
        while (left_ > 0 && !stop_())
            anneal(best, value, with_.first_temperature);
    }
    /// A search for a short time. Tries the values of one parameter at a time, and then anneals at `last_temperature`.
    /// In a few hundred trials, orders were 0.4 % shorter than at `first_temperature` (48 short searches). The first
    /// trial uses the order `entering`, in which slices of one sequence are consecutive.
    void run_from(std::vector<microbatch> entering) {
        if (!can_run_) return;
        auto best = first_without_offloads();
        best.sequence = std::move(entering);
        best.pairs = !p_->overlaps.empty();
        auto value = duration::unlimited();
        tune(best, value);
        while (left_ > 0 && !stop_() && !value.is_unlimited())
            anneal(best, value, with_.last_temperature);
    }
    /// All microbatches, grouped by sequence. The sequences are in the order in which they begin in `given`.
    [[nodiscard]] std::vector<microbatch> entrance_order(const basic_order<Graph>& given) const {
        std::vector<std::size_t> sequence_of(p_->graph.microbatches());
        for (std::size_t i = 0; i < sequences_.size(); ++i)
            for (const microbatch m : sequences_[i])
                sequence_of[m.position()] = i;
        std::vector<unsigned char> has_entered(sequences_.size(), 0);
        std::vector<std::size_t> places;
        for (const auto& op : given.operations)
            if (const auto i = sequence_of[op.microbatch.position()]; !std::exchange(has_entered[i], 1))
                places.push_back(i);
        return in_order(places);
    }
    /// All microbatches, with the longest sequences in the middle.
    [[nodiscard]] std::vector<microbatch> longest_inside() const { return in_order(longest_inside(shortest_first())); }

private:
    enum class change_kind { further, weights, depth, careful, forward_first, storage, sequence, pairs, avoided, wait };

    /// One round of simulated annealing from `best`, from `first_temperature` to `last_temperature`.
    void anneal(graph_dispatch_options& best, duration& best_value, double first_temperature) {
        const auto trials = static_cast<double>(std::min(left_, with_.trials_of_round));
        const double ratio = with_.last_temperature / first_temperature;
        auto now = best;
        auto value = best_value;
        for (double i = 0.0; i < trials && !stop_(); ++i) {
            auto next = now;
            change(next);
            const auto temperature = first_temperature * std::pow(ratio, i / trials) * best_value;
            const auto most = value - std::log(1.0 - random_.share()) * temperature;
            const auto reached = try_out(next, stop_, most);
            if (reached.is_unlimited() || reached > most) continue;
            value = reached;
            now = std::move(next);
            if (value >= best_value) continue;
            best_value = value;
            best = now;
        }
    }
    /// Like `first_options`, but without offloads: each stage has its first option that doesn't offload.
    graph_dispatch_options first_without_offloads() const {
        auto first = first_options(*p_);
        for (std::size_t s = 0; s < options_.size(); ++s)
            first.storage[s] = options_[s].front();
        return first;
    }
    /// Tries two careful runs: with the first storage options, and with the options that hold least. Careful runs
    /// seldom get stuck, and usually give a good first order.
    void try_careful(graph_dispatch_options& best, duration& value) {
        auto now = first_without_offloads();
        now.careful = true;
        // If this run were stopped at once, a plan with a short time limit would have no two microbatches in flight.
        constexpr std::chrono::milliseconds least_time{100};
        const auto end = std::chrono::steady_clock::now() + least_time;
        const stop_when later{[&] { return stop_() && std::chrono::steady_clock::now() >= end; }};
        keep_better(now, best, value, stop_check{later});
        if (stop_() && !value.is_unlimited()) return;
        for (const stage s : p_->graph.all_stages()) {
            const auto& kept = options_[s.position()];
            now.storage[s.position()] = *std::min_element(kept.begin(), kept.end(), [&](auto a, auto b) {
                return p_->storage_of(s, a).held < p_->storage_of(s, b).held;
            });
        }
        if (now.storage != first_without_offloads().storage) keep_better(now, best, value);
    }
    /// Tries all combinations of the parameters with three orders of sequences: as given, shortest first, longest in
    /// the middle. All stages use the storage option with the same number, and every number is tried. A run that gets
    /// stuck is repeated as a careful run. With the longest in the middle, orders were 1.4 % shorter in the mean than
    /// with the longest first (1200 and 1500 trials on 35 draws of unequal microbatches in 7 settings). The gain was 5
    /// to 8 % in v pipelines with loose memory limits, and −2 % in the worst setting. On 60 problems, stuck runs were
    /// repeated at once, or as careful runs at the end. Repeating stuck runs at once made orders 1.8 % shorter after
    /// 0.3 s (five shorter, none longer), and equal after 1 s.
    ///
    /// Further microbatches in flight are tried only if most of the trials remain for the annealing.
    void search_grid(graph_dispatch_options& best, duration& value) {
        const auto given = left_;
        for (const int further : with_.further) {
            search_grid(further, best, value);
            constexpr std::size_t least_rest = 4; // times the trials used until now
            if (left_ < least_rest * (given - left_)) return;
        }
    }
    void search_grid(int further, graph_dispatch_options& best, duration& value) {
        const auto orders = first_sequences();
        auto base = first_without_offloads();
        base.further.assign(p_->graph.stages(), further);
        for (std::size_t option = 0; option < most_options(); ++option)
            for (const auto& sequence : orders) {
                store_all(base, option);
                base.sequence = sequence;
                base.pairs = !p_->overlaps.empty();
                search_parameters(base, best, value);
                if (!base.pairs) continue;
                base.pairs = false;
                search_parameters(base, best, value);
            }
    }
    /// The largest number of a stage's storage options that don't offload.
    [[nodiscard]] std::size_t most_options() const {
        std::size_t most = 1;
        for (const auto& kept : options_)
            most = std::max(most, kept.size());
        return most;
    }
    /// Selects the storage option with the number `option` on every stage. Stages with fewer options use their last
    /// option.
    void store_all(graph_dispatch_options& now, std::size_t option) const {
        for (std::size_t s = 0; s < options_.size(); ++s)
            now.storage[s] = options_[s][std::min(option, options_[s].size() - 1)];
    }
    void search_parameters(graph_dispatch_options now, graph_dispatch_options& best, duration& value) {
        for (const double depth : with_.depths)
            for (const auto preference : preferences())
                for (const auto weights : with_.most_weights)
                    for (const bool forward_first : priorities()) {
                        if (left_ == 0 || (stop_() && best_->found())) return;
                        now.depth = depth;
                        now.forwards = preference;
                        now.forward_first = forward_first;
                        now.most_weights = weights;
                        now.careful = false;
                        if (!keep_better(now, best, value).is_unlimited()) continue;
                        now.careful = true;
                        keep_better(now, best, value);
                    }
    }
    /// With one stage per rank, no forward competes with another stage's forward.
    std::vector<forward_preference> preferences() const {
        if (one_stage_per_rank(p_->graph)) return {with_.preferences.front()};
        return {with_.preferences.begin(), with_.preferences.end()};
    }
    /// The values of `forward_first` that are worth a trial.
    std::vector<bool> priorities() const {
        if (p_->microbatches.has_slices()) return {false, true};
        return {false};
    }
    /// Tries several values of each parameter in turn, and keeps the values with the best result. Depth and the order
    /// of sequences come first: other parameters hardly shortened an order on 80 draws.
    void tune(graph_dispatch_options& best, duration& value) {
        const auto try_with = [&](const auto& change) {
            auto now = best;
            change(now);
            if (now != best && left_ > 0 && !stop_()) keep_better(now, best, value);
        };
        keep_better(best, best, value);
        if (value.is_unlimited()) try_with([](auto& now) { now.careful = true; });
        for (const double depth : with_.depths)
            try_with([&](auto& now) { now.depth = depth; });
        for (const auto& sequence : first_sequences())
            try_with([&](auto& now) { now.sequence = sequence; });
        for (const auto weights : with_.most_weights)
            try_with([&](auto& now) { now.most_weights = weights; });
        for (const auto preference : preferences())
            try_with([&](auto& now) { now.forwards = preference; });
        for (const bool forward_first : priorities())
            try_with([&](auto& now) { now.forward_first = forward_first; });
        for (const int more : with_.further)
            try_with([&](auto& now) { now.further.assign(p_->graph.stages(), more); });
        for (std::size_t option = 0; option < most_options(); ++option)
            try_with([&](auto& now) { store_all(now, option); });
        try_with([](auto& now) { now.careful = !now.careful; });
    }
    std::vector<std::vector<microbatch>> first_sequences() const {
        std::vector<std::vector<microbatch>> all{first_options(*p_).sequence};
        if (sequences_by_cost(*p_).size() == 1) return all;
        for (const auto& some : {in_order(shortest_first()), longest_inside()})
            if (std::find(all.begin(), all.end(), some) == all.end()) all.push_back(some);
        return all;
    }
    std::vector<std::size_t> shortest_first() const {
        std::vector<std::size_t> places(sequences_.size());
        std::iota(places.begin(), places.end(), std::size_t{0});
        std::vector<duration> work;
        for (const auto& slices : sequences_)
            work.push_back(work_of(*p_, slices));
        std::stable_sort(places.begin(), places.end(), [&](auto a, auto b) { return work[a] < work[b]; });
        return places;
    }
    /// Returns every second element of a sorted list, followed by the other elements in reverse. The largest elements
    /// are then in the middle.
    static std::vector<std::size_t> longest_inside(const std::vector<std::size_t>& sorted) {
        std::vector<std::size_t> found;
        for (std::size_t i = 0; i < sorted.size(); i += 2)
            found.push_back(sorted[i]);
        for (std::size_t i = sorted.size(); i-- > 0;)
            if (i % 2 == 1) found.push_back(sorted[i]);
        return found;
    }
    std::vector<microbatch> in_order(const std::vector<std::size_t>& places) const {
        std::vector<microbatch> all;
        for (const auto i : places)
            all.insert(all.end(), sequences_[i].begin(), sequences_[i].end());
        return all;
    }

    /// Lists the kinds of changes that can make a difference. A kind listed n times is drawn n times as often.
    void find_changes() {
        changes_ = {change_kind::further, change_kind::weights, change_kind::depth, change_kind::careful,
                    change_kind::forward_first};
        if (std::any_of(options_.begin(), options_.end(), [](const auto& kept) { return kept.size() > 1; }))
            changes_.push_back(change_kind::storage);
        if (!p_->overlaps.empty()) {
            changes_.insert(changes_.end(), {change_kind::pairs, change_kind::wait});
            changes_.insert(changes_.end(), with_.changes_of_avoided, change_kind::avoided);
        }
        if (sequences_by_cost(*p_).size() > 1)
            changes_.insert(changes_.end(), with_.moves_of_sequences, change_kind::sequence);
    }
    void change(graph_dispatch_options& options) {
        const auto s = random_.below(p_->graph.stages());
        switch (changes_[random_.below(changes_.size())]) {
        case change_kind::further: options.further[s] += static_cast<int>(2 * random_.below(2)) - 1; break;
        case change_kind::weights: options.most_weights = random_.below(with_.weights_drawn); break;
        case change_kind::depth: options.depth = changed_depth(options.depth); break;
        case change_kind::careful: options.careful = !options.careful; break;
        case change_kind::forward_first: options.forward_first = !options.forward_first; break;
        case change_kind::storage: options.storage[s] = options_[s][random_.below(options_[s].size())]; break;
        case change_kind::sequence: move_sequence(options.sequence); break;
        case change_kind::pairs: options.pairs = !options.pairs; break;
        case change_kind::avoided: change_avoided(options); break;
        case change_kind::wait: change_wait(options); break;
        }
    }
    /// Avoids a pair, or lets it start. In half of the cases, similar pairs of other ranks (`are_alike`) change, too.
    void change_avoided(graph_dispatch_options& options) {
        constexpr std::size_t half = 50; // percent
        const auto& all = p_->overlaps;
        const auto& drawn = *(all.begin() + static_cast<std::ptrdiff_t>(random_.below(all.size())));
        const bool one = random_.chance(half);
        options.avoided.resize(all.size());
        const unsigned char avoids = options.avoided[all.position(drawn)] == 0 ? 1 : 0;
        for (const overlap& each : all)
            if (one ? &each == &drawn : are_alike(each, drawn)) options.avoided[all.position(each)] = avoids;
        options.pairs = true;
    }
    void change_wait(graph_dispatch_options& options) {
        options.wait = std::max(0.0, with_.least_wait + with_.wait_range * random_.share());
        options.pairs = true;
    }
    /// Whether the stages of the pairs have the same places on their ranks.
    [[nodiscard]] bool are_alike(const overlap& a, const overlap& b) const {
        return a.kind == b.kind && places_[a.forward] == places_[b.forward] &&
               places_[a.backward] == places_[b.backward];
    }
    double changed_depth(double depth) {
        if (random_.below(with_.changes_per_draw) == 0) return with_.depths[random_.below(with_.depths.size())];
        return depth * (with_.least_factor + with_.factor_range * random_.share());
    }
    /// Moves one sequence to the position of another sequence.
    void move_sequence(std::vector<microbatch>& all) {
        std::vector<std::size_t> places;
        for (const microbatch m : all)
            for (std::size_t i = 0; i < sequences_.size(); ++i)
                if (sequences_[i].front() == m) places.push_back(i);
        const auto from = places.begin() + static_cast<std::ptrdiff_t>(random_.below(places.size()));
        const auto to = places.begin() + static_cast<std::ptrdiff_t>(random_.below(places.size()));
        if (from < to)
            std::rotate(from, from + 1, to + 1);
        else
            std::rotate(to, from, from + 1);
        all = in_order(places);
    }

    /// Runs the dispatcher with the options `now`, which become `best` if the objective is below `value`. Returns the
    /// objective.
    duration keep_better(const graph_dispatch_options& now, graph_dispatch_options& best, duration& value) {
        return keep_better(now, best, value, stop_);
    }
    duration keep_better(const graph_dispatch_options& now, graph_dispatch_options& best, duration& value,
                         stop_check stop) {
        const auto reached = try_out(now, stop, value);
        if (reached >= value) return reached;
        value = reached;
        best = now;
        return reached;
    }
    /// Runs the dispatcher. Returns the objective, or `too_long` if the run gave up, as it would exceed `most`.
    duration try_out(const graph_dispatch_options& options, stop_check stop, duration most) {
        if (left_ > 0) --left_;
        graph_dispatcher<Graph> dispatcher{*p_, options};
        auto made =
            most.is_unlimited() || !may_give_up_ ? dispatcher.run(stop) : dispatcher.run_until(most, work_, stop);
        return dispatcher.gave_up() ? too_long : best_->offer({p_->graph, std::move(made)});
    }
    /// Sums up the durations of all computations of each rank, without recomputation.
    void find_work() {
        for (const stage s : p_->graph.all_stages())
            for (const microbatch m : p_->graph.all_microbatches()) {
                const auto c = p_->cost(s, m);
                auto& work = work_[p_->rank_of(s)];
                work += c.forward;
                if (c.gradients != gradient_kind::none) work += c.backward_input;
                if (c.gradients == gradient_kind::full) work += c.backward_weight;
            }
    }
    /// Longer than any step, but not unlimited.
    static constexpr duration too_long{std::numeric_limits<double>::max()};

    graph_dispatch_search_parameters with_{};
    const basic_problem<Graph>* p_;
    best_order<Graph>* best_;
    stop_check stop_;
    std::size_t left_;
    random_numbers random_;
    std::vector<std::vector<microbatch>> sequences_;
    per_stage<std::size_t, Graph::stage_extent> places_;
    /// The least work of each rank, unless there are pairs, which may take less time. Runs are given up only if there
    /// are no pairs and the objective is the makespan.
    typename graph_dispatcher<Graph>::work_by_rank work_;
    bool may_give_up_ = p_->overlaps.empty() && p_->objective == objective_kind::makespan;
    /// For each stage, its storage options that don't offload.
    std::vector<std::vector<storage_index>> options_{};
    std::vector<change_kind> changes_{};
    bool can_run_ = true;
};

} // namespace optpipe
