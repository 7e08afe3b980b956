// Example 22: a model that isn't a chain of stages, microbatches that differ, and slices of a sequence.
//
// A frozen vision encoder and the embedding of the text both feed a language model. Microbatches have different numbers
// of images, so the encoder takes longer for some of them than for others. `plan` chooses an order in which devices
// wait little for each other.

#include <optpipe/optpipe.hpp>
#include <optpipe/planner.hpp>

#include <array>
#include <chrono>
#include <iostream>
#include <vector>

using namespace optpipe;
using namespace optpipe::literals;
using namespace std::chrono_literals;

namespace {

/// An encoder and a language model: a graph of five stages on three ranks.
problem encoder_and_language_model() {
    // The encoder is frozen, and nothing before it is trained, so it has no backward. A frozen encoder behind trained
    // stages would have `gradient_kind::input`.
    constexpr stage_costs frozen{
        .forward = 4_ms, .activation = 0.8_gb, .weight_stash = 0_gb, .gradients = gradient_kind::none};
    constexpr stage_costs layer{.forward = 1_ms, .backward_input = 1_ms, .backward_weight = 1_ms, .activation = 0.1_gb};
    constexpr stage_costs half{.forward = 4_ms, .backward_input = 5_ms, .backward_weight = 3_ms, .activation = 1_gb};
    // Factors on all costs of the encoder and its projector. A factor is above 0, even for a microbatch without images.
    constexpr std::array images{0.5, 2.1, 0.9, 0.1, 1.3, 1.7};

    pipeline_builder model;
    const auto encoder = model.add(rank{0}, frozen);
    const auto projector = model.add(rank{0}, layer, {encoder});
    const auto text = model.add(rank{1}, layer);
    const auto lower_half = model.add(rank{1}, half, {projector, text});
    model.add(rank{2}, half, {lower_half});
    problem p = model.build(images.size());
    p.microbatches = scaled_stages(std::array{encoder, projector}, images, p.graph.stages());
    p.p2p = hop_times<>{0.5_ms};
    p.memory_limit = per_rank<memory_size>(3, 2.5_gb);
    return p;
}

/// Eight sequences, each cut into four slices that take the same time: because a slice attends to all slices before it,
/// the first slice has the most tokens. Half of a whole sequence's forward is attention.
problem sliced_sequences() {
    constexpr stage_costs costs{.forward = 2_ms, .backward_input = 3_ms, .backward_weight = 1_ms, .activation = 1_gb};
    pipeline_builder model;
    model.add_chain({rank{0}, rank{1}, rank{2}, rank{3}}, uniform_memory{costs});
    problem p = model.build(8 * 4);
    p.microbatches = equal_time_slices(std::vector(8, 4096), 0.5, 4);
    p.memory_limit = per_rank<memory_size>(4, 1.8_gb);
    return p;
}

bool show(const problem& p) {
    const auto best = plan(p, {.time_limit = 1s});
    if (!best) {
        std::cerr << describe(best.why()) << '\n';
        return false;
    }
    write_grid(std::cout, p, report_of(p, *best));
    std::cout << "\nfound by " << best->method << ", gap " << format_number(100.0 * best->gap, 3) << " %\n\n";
    return validate(p, best->schedule).empty();
}

} // namespace

int main() {
    const bool is_valid_graph = show(encoder_and_language_model());
    const bool is_valid_sliced = show(sliced_sequences());
    return is_valid_graph && is_valid_sliced ? 0 : 1;
}
