// Example 18: an optimizer that doesn't wait for the gradients of all ranks.
//
// If one gradient overflows, the whole step is skipped, and gradients whose norm is too large are scaled down. Both
// depend on all ranks, so ranks usually wait for each other before their optimizer steps. Here ranks don't wait: each
// rank decides with the information of the ranks before it, and begins the forwards of the next step. Meanwhile the
// information of all ranks comes back, and a rank that decided wrongly undoes its optimizer step and makes it again.
// The model is trained both ways, with overflows on different ranks now and then. All parameters are bitwise the same.
//
//     example_18_post_validation [TEXT]

#include "language_model/reversible_model.hpp"
#include <optpipe/execution.hpp>
#include <optpipe/optpipe.hpp>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

namespace {

using namespace optpipe;
using stages_type = std::vector<language_model::model_stage<float>>;

constexpr language_model::shape shape{.hidden = 32, .heads = 4, .sequence = 32, .sequences = 2};
constexpr std::size_t layers = 4;
constexpr std::size_t steps = 30;
constexpr double max_norm = 2.0;

/// A model whose loss scale is too large in every eighth step: a gradient of one stage or another overflows.
class overflowing_model : public language_model::reversible_model<float> {
public:
    using reversible_model::reversible_model;

    template <class Lane> double gradient_squares(Lane& on, optpipe::stage s) {
        const auto step = step_of(s);
        if (step % 8 == 3 && step / 8 == s.position())
            stage(s).gradients().front() = std::numeric_limits<float>::infinity();
        return reversible_model::gradient_squares(on, s);
    }
};

struct trained {
    std::vector<std::vector<float>> parameters;
    std::vector<double> losses;
    std::size_t voids = 0;
};

/// The training of one rank. Returns the number of void steps, which were run again.
std::size_t train_rank(const rank_program& program, threads::executor& here, threads::control_channel& channel,
                       overflowing_model& inner, const execution::post_validation_options& how) {
    using model_type = execution::post_validated<overflowing_model, threads::control_channel>;
    model_type model{program, inner, channel, how};
    runner<threads::executor, model_type> run{program, here, model};
    std::size_t voids = 0;
    for (std::size_t k = 0; k < steps; ++k)
        for (run.step(); model.was_void(); ++voids)
            run.step();
    model.finish(here); // the last step's updates are validated, too
    return voids;
}

trained train(const problem& p, const schedule& s, const std::string& text,
              const execution::post_validation_options& how) {
    auto stages = language_model::make_stages<float>(shape, layers, p.graph.stages(), 1);
    const auto programs = lower(p, s,
                                {.bytes_per_unit = 1.0,
                                 .alignment = alignof(float),
                                 .message_bytes = sizeof(float) * shape.boundary(),
                                 .placement = part_placement::contiguous,
                                 .update = true})
                              .value();
    threads::cluster ranks{p.graph.ranks()};
    trained result;
    threads::on_all_ranks(ranks, [&](threads::executor& here) {
        overflowing_model model{stages, text, shape, p.graph.microbatches()};
        const auto voids = train_rank(programs[here.self()], here, ranks.control(here.self()), model, how);
        if (here.self() != rank{p.graph.ranks() - 1}) return;
        result.losses = model.losses();
        result.voids = voids;
    });
    for (auto& each : stages)
        result.parameters.emplace_back(each.parameters().begin(), each.parameters().end());
    return result;
}

} // namespace

int main(int count, char** arguments) try {
    const auto text = read_file(count > 1 ? arguments[1] : "../README.md");
    const auto stages = language_model::make_stages<float>(shape, layers, 4, 1);
    auto p = problem_of(stages, to_any_graph(graph<4, 8>{}));
    p.objective = objective_kind::span; // the longest time that any rank is engaged
    const auto s = build_schedule(p, zero_bubble_h2).value();

    const auto waited = train(p, s, text, {.max_norm = max_norm, .barrier = true});
    const auto went_on = train(p, s, text, {.max_norm = max_norm, .order = execution::order_of_ends(s)});
    const bool agree = waited.parameters == went_on.parameters && waited.losses == went_on.losses;
    std::cout << "nats per byte: " << went_on.losses.front() << ", after " << steps
              << " steps: " << went_on.losses.back() << "\nwithout a barrier " << went_on.voids
              << " steps were void; the parameters " << (agree ? "are the same" : "differ") << '\n'
              << "with the barrier a step takes " << measure(p, s).makespan.value() << " forwards, without it "
              << measure(p, s).span.value() << '\n';
    return agree && went_on.voids > 0 && waited.voids == 0 ? 0 : 1;
} catch (const error& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
