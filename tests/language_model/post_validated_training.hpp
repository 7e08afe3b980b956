#pragma once

#include "../../examples/language_model/reversible_model.hpp"
#include "language_model/training.hpp"
#include "optpipe/execution/post_validation.hpp"
#include "optpipe/program/lower.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

/// Trains with an optimizer that depends on the gradients of all stages, some of which overflow on purpose.
namespace training {

/// A stage whose gradients overflow in a step.
struct overflow {
    std::size_t step = 0;
    optpipe::stage stage{};
    friend bool operator==(const overflow&, const overflow&) = default;
};
using overflows = std::vector<overflow>;
inline bool overflows_at(const overflows& all, std::size_t step, optpipe::stage s) {
    return std::find(all.begin(), all.end(), overflow{step, s}) != all.end();
}

/// A model whose gradients overflow before anything reads them.
class overflowing_model : public language_model::reversible_model<double> {
public:
    overflowing_model(stages_type& stages, std::size_t microbatches, const overflows& where)
        : reversible_model<double>{stages, text, tiny, microbatches}, where_{where} {}

    template <class Lane> double gradient_squares(Lane& on, optpipe::stage s) {
        if (overflows_at(where_, step_of(s), s)) stage(s).gradients().back() = std::numeric_limits<double>::infinity();
        return reversible_model<double>::gradient_squares(on, s);
    }

private:
    overflows where_;
};

/// The training of one case, with its options.
struct reversible_case {
    std::size_t steps = 20;
    training::overflows overflows{};
    optpipe::execution::post_validation_options options{};
};

using parameter_values = std::vector<std::vector<double>>;
inline parameter_values parameters_of(stages_type& stages) {
    parameter_values all;
    for (auto& each : stages)
        all.emplace_back(each.parameters().begin(), each.parameters().end());
    return all;
}

/// The results of training without a pipeline, computed by separate formulas.
struct lone_training {
    parameter_values parameters;
    std::vector<double> losses;
    /// Sums of squares of the gradients, by step and stage; not finite if one of the gradients overflowed.
    std::vector<std::vector<double>> squares;
};

inline std::vector<optpipe::rank> order_of_numbers(std::size_t ranks) {
    std::vector<optpipe::rank> order;
    for (std::size_t r = 0; r < ranks; ++r)
        order.emplace_back(r);
    return order;
}
inline double scale_for(double norm, double max_norm) {
    if (!std::isfinite(norm)) return 0.0;
    return norm > max_norm ? max_norm / norm : 1.0;
}
/// Norm of the gradients of all stages in a mask.
inline double norm_of(const std::vector<double>& squares, const std::vector<bool>& mask) {
    double sum = 0.0;
    for (std::size_t s = 0; s < squares.size(); ++s)
        sum += mask[s] ? squares[s] : 0.0;
    return std::sqrt(sum);
}
inline std::vector<double> norms_of(const lone_training& alone) {
    std::vector<double> norms;
    for (const auto& squares : alone.squares)
        norms.push_back(norm_of(squares, std::vector<bool>(squares.size(), true)));
    return norms;
}
/// Whether some rank, in this order, would scale by another factor than the one that all gradients demand.
inline bool is_mistaken(const optpipe::schedule& s, const std::vector<double>& squares,
                        const optpipe::execution::post_validation_options& how) {
    const double right = scale_for(norm_of(squares, std::vector<bool>(squares.size(), true)), how.max_norm);
    std::vector<bool> known(squares.size(), false);
    bool mistaken = false;
    for (const auto r : how.order) {
        for (const auto each : s.graph.all_stages())
            if (s.graph.rank_of(each) == r) known[each.position()] = true;
        mistaken |= scale_for(norm_of(squares, known), how.max_norm) != right;
    }
    return mistaken;
}
/// The number of steps that must be void, in this order. After the last step there is none.
inline std::size_t voids_in(const optpipe::schedule& s, const lone_training& alone,
                            const optpipe::execution::post_validation_options& how) {
    if (how.barrier) return 0;
    return static_cast<std::size_t>(std::count_if(alone.squares.begin(), alone.squares.end() - 1,
                                                  [&](const auto& each) { return is_mistaken(s, each, how); }));
}

/// The sum of squares of each stage's gradients, some of which overflow first.
inline std::vector<double> gradient_squares(stages_type& stages, const overflows& where, std::size_t step) {
    std::vector<double> squares;
    for (std::size_t i = 0; i < stages.size(); ++i) {
        const auto g = stages[i].gradients();
        if (overflows_at(where, step, optpipe::stage{i})) g.back() = std::numeric_limits<double>::infinity();
        squares.push_back(std::inner_product(g.begin(), g.end(), g.begin(), 0.0));
    }
    return squares;
}

inline lone_training train_alone(const optpipe::schedule& s, const reversible_case& how) {
    auto stages = fresh_stages(s.graph.stages());
    std::vector<language_model::adamw<double>> optimizers;
    for (auto& each : stages)
        optimizers.emplace_back(each.parameters().size(), language_model::adamw_rates{});
    lone_training result;
    for (std::size_t k = 0; k < how.steps; ++k) {
        step_alone(stages, s, k);
        result.losses.push_back(stages.back().take_loss() *
                                language_model::text_step{text, tiny, s.graph.microbatches(), k}.share());
        const auto& squares = result.squares.emplace_back(gradient_squares(stages, how.overflows, k));
        const double scale = scale_for(norm_of(squares, std::vector<bool>(squares.size(), true)), how.options.max_norm);
        for (std::size_t i = 0; i < stages.size(); ++i) {
            if (scale != 0.0) optimizers[i].step(stages[i].parameters(), stages[i].gradients(), scale);
            std::fill(stages[i].gradients().begin(), stages[i].gradients().end(), 0.0);
        }
    }
    result.parameters = parameters_of(stages);
    return result;
}

/// The programs of a schedule, each part in one piece, with updates.
inline optpipe::per_rank<optpipe::rank_program> updating_programs(const optpipe::problem& p,
                                                                  const optpipe::schedule& s) {
    auto programs = lower(p, s,
                          {.bytes_per_unit = 1.0,
                           .alignment = alignof(double),
                           .message_bytes = sizeof(double) * tiny.boundary(),
                           .placement = optpipe::part_placement::contiguous,
                           .update = true});
    REQUIRE(programs.has_value());
    return std::move(*programs);
}

/// Trains one rank on an executor of any kind. Returns the number of void steps.
template <class Executor, class Channel>
std::size_t train_rank(const optpipe::rank_program& program, Executor& here, Channel& channel, overflowing_model& inner,
                       const reversible_case& how) {
    using model_type = optpipe::execution::post_validated<overflowing_model, Channel>;
    model_type model{program, inner, channel, how.options};
    optpipe::runner<Executor, model_type> run{program, here, model};
    std::size_t runs = 0;
    for (std::size_t k = 0; k < how.steps; ++k)
        do {
            run.step();
            ++runs;
        } while (model.was_void());
    model.finish(here);
    return runs - how.steps;
}

/// A plain case; one for each place of an overflow in the first step, in two consecutive steps and in the last; one
/// with several places; and two in which gradients are scaled down, the last also with the barrier.
inline std::vector<reversible_case> reversible_cases(const optpipe::schedule& s) {
    const auto last = optpipe::stage{s.graph.stages() - 1};
    const auto middle = optpipe::stage{s.graph.stages() / 2};
    const optpipe::stage first{0};
    std::vector<reversible_case> all{{}};
    for (const auto at : {first, middle, last})
        all.push_back({.overflows = {{0, at}, {7, at}, {8, at}, {19, at}}});
    all.push_back({.overflows = {{3, first}, {3, last}, {4, middle}, {18, last}, {19, first}}});
    auto norms = norms_of(train_alone(s, {}));
    std::sort(norms.begin(), norms.end());
    all.push_back({.options = {.max_norm = norms[norms.size() / 2]}});
    for (const bool barrier : {false, true})
        all.push_back({.overflows = {{5, last}, {6, middle}}, .options = {.max_norm = norms[2], .barrier = barrier}});
    return all;
}

} // namespace training
