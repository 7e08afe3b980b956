// Example 22: a model that isn't a chain of stages, and microbatches that differ.
//
// A frozen vision encoder and the embedding of the text both feed a language model. Microbatches have different numbers
// of images, so the encoder takes longer for some of them than for others. `plan` chooses an order in which devices
// wait little for each other.

#include <optpipe/optpipe.hpp>
#include <optpipe/planner.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <vector>

using namespace optpipe::literals;
using namespace std::chrono_literals;

int main() {
    using namespace optpipe;

    // Stages are numbered so that each comes after those that feed it. Nothing before the encoder is trained, so it has
    // no backward; an encoder behind trained stages would have `gradient_kind::input`.
    constexpr stage encoder{0}, projector{1}, text{2}, lower_half{3}, upper_half{4};
    constexpr std::array rank_of{rank{0}, rank{0}, rank{1}, rank{1}, rank{2}};
    constexpr stage_costs frozen{
        .forward = 4_ms, .activation = 0.8_gb, .weight_stash = 0_gb, .gradients = gradient_kind::none};
    constexpr stage_costs layer{.forward = 1_ms, .backward_input = 1_ms, .backward_weight = 1_ms, .activation = 0.1_gb};
    constexpr stage_costs half{.forward = 4_ms, .backward_input = 5_ms, .backward_weight = 3_ms, .activation = 1_gb};
    constexpr std::array cost_of{frozen, layer, layer, half, half};

    constexpr std::array images{1, 5, 2, 0, 3, 4};
    constexpr std::size_t stages = cost_of.size();
    per_stage<rank> ranks(stages);
    per_stage<stage_costs> costs(stages);
    for (const stage s : ranks.indices()) {
        ranks[s] = rank_of[s.position()];
        costs[s] = cost_of[s.position()];
    }
    const edges::any feeds{
        stages, {{encoder, projector}, {projector, lower_half}, {text, lower_half}, {lower_half, upper_half}}};
    problem p{any_graph{3, images.size(), placement::map<>{ranks}, feeds}, costs};
    p.p2p = hop_times<>{0.5_ms};
    p.memory_limit = per_rank<memory_size>(3, 2.5_gb);

    // Factors on all costs of a stage for a microbatch. A factor is above 0, even for a microbatch without images.
    std::vector<cost_factors> factors;
    for (const stage s : ranks.indices())
        for (const int count : images) {
            const double scale = s == encoder || s == projector ? 0.1 + 0.4 * count : 1.0;
            factors.push_back({scale, scale, scale, scale, scale});
        }
    p.microbatches.set_factors_by_stage(factors, images.size());

    const auto best = plan(p, {.time_limit = 2s});
    if (!best) {
        std::cerr << describe(best.why()) << '\n';
        return 1;
    }
    write_grid(std::cout, p, report_of(p, *best));
    std::cout << "\nfound by " << best->method << ", gap " << format_number(100.0 * best->gap, 3) << " %\n";
    return validate(p, best->schedule).empty() ? 0 : 1;
}
