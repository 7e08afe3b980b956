#include "../../examples/language_model/pipeline_model.hpp"
#include "optpipe/execution/threads/executor.hpp"
#include "optpipe/execution/threads/run.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/interleaved.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/pipe_offload.hpp"
#include "optpipe/schedule/builders/zero_bubble_auto.hpp"
#include "optpipe/schedule/builders/zero_bubble_h2.hpp"
#include "optpipe/schedule/builders/zero_bubble_v.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/lower.hpp"
#include "optpipe/schedule/program_check.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

using namespace language_model;
using namespace std::chrono_literals;
namespace threads = optpipe::threads;

namespace {

const std::string text =
    "a schedule is an order; times are derived. what runs is the order of each lane, and no lane waits "
    "for more than it has to; what is stashed is freed, what travels comes back.";
constexpr shape tiny{.hidden = 8, .heads = 2, .sequence = 6, .sequences = 2, .vocabulary = 128};
constexpr std::size_t layers = 8;

using stages_type = std::vector<model_stage<double>>;

struct run_result {
    std::vector<double> losses;
    std::size_t offloads = 0;
};

/// Trains for some steps by a schedule, in exactly the memory that its programs name.
run_result train(stages_type& stages, const optpipe::problem& p, const optpipe::schedule& s, std::size_t steps,
                 bool update = true) {
    const auto programs = lower(p, s,
                                {.bytes_per_unit = 1.0,
                                 .alignment = alignof(double),
                                 .message_bytes = sizeof(double) * stages.front().boundary(),
                                 .placement = optpipe::part_placement::contiguous,
                                 .update = update});
    REQUIRE(programs.has_value());
    threads::options how;
    how.patience = 60s;
    how.device_memory = optpipe::per_rank<std::size_t>(p.graph.ranks());
    for (const auto& each : *programs)
        how.device_memory[each.self] = each.device_bytes + each.message_bytes;
    threads::cluster cluster{p.graph.ranks(), how};
    std::vector<std::unique_ptr<pipeline_model<double>>> models;
    for (std::size_t r = 0; r < p.graph.ranks(); ++r)
        models.push_back(std::make_unique<pipeline_model<double>>(stages, text, tiny, p.graph.microbatches()));
    threads::run(
        *programs, cluster, [&](optpipe::rank r) -> pipeline_model<double>& { return *models[r.position()]; }, steps);
    run_result result;
    result.losses.resize(steps);
    for (const auto& m : models)
        for (std::size_t k = 0; k < m->losses().size(); ++k)
            result.losses[k] += m->losses()[k];
    result.offloads = measure(p, s).offloads;
    return result;
}

std::vector<double> gradients_of(stages_type& stages) {
    std::vector<double> all;
    for (auto& each : stages)
        all.insert(all.end(), each.gradients().begin(), each.gradients().end());
    return all;
}

struct trial {
    std::string name;
    optpipe::problem p;
    optpipe::schedule s;
};

template <class Builder> void add(std::vector<trial>& all, const Builder& build, const optpipe::problem& p) {
    const auto s = build_schedule(p, build);
    INFO(std::string{build.name});
    REQUIRE(s.has_value());
    all.push_back({std::string{build.name}, p, *s});
}

std::vector<trial> trials() {
    constexpr std::size_t ranks = 4;
    constexpr std::size_t microbatches = 6;
    std::vector<trial> all;
    const auto four = make_stages<double>(tiny, layers, 4, 7);
    const auto eight = make_stages<double>(tiny, layers, 8, 7);
    const auto linear = problem_of(four, to_any_graph(optpipe::graph<ranks, microbatches>{}));
    add(all, optpipe::gpipe, linear);
    add(all, optpipe::one_forward_one_backward, linear);
    add(all, optpipe::zero_bubble_h2, linear);
    add(all, optpipe::zero_bubble_auto, linear);
    const auto loop =
        problem_of(eight, to_any_graph(optpipe::graph<ranks, microbatches, optpipe::placement::loop<2>>{}));
    add(all, optpipe::interleaved, loop);
    const auto v = problem_of(eight, to_any_graph(optpipe::graph<ranks, microbatches, optpipe::placement::v>{}));
    add(all, optpipe::zero_bubble_v, v);
    auto tight = problem_of(four, linear.graph, optpipe::duration{0.8});
    for (const auto r : tight.graph.all_ranks())
        tight.memory_limit[r] = 2.0 * tight.costs[optpipe::stage{r.position()}].activation;
    auto quick = optpipe::adaptive;
    quick.effort = 1000;
    add(all, quick, tight);
    return all;
}

} // namespace

TEST_CASE("under every schedule the gradients are those of the model without a pipeline, bit for bit") {
    std::size_t travelled = 0;
    for (const auto& t : trials()) {
        CAPTURE(t.name);
        auto alone = make_stages<double>(tiny, layers, t.p.graph.stages(), 7);
        const auto loss =
            unpipelined_step(alone, text_step{text, tiny, t.p.graph.microbatches(), 0}, t.p.graph.microbatches());
        auto piped = make_stages<double>(tiny, layers, t.p.graph.stages(), 7);
        const auto result = train(piped, t.p, t.s, 1, false);
        CHECK(gradients_of(piped) == gradients_of(alone));
        CHECK(loss > 0.0);
        travelled += result.offloads;
    }
    CHECK(travelled > 0);
}

TEST_CASE("the loss falls alike under every schedule") {
    constexpr std::size_t steps = 12;
    std::vector<double> with_four, with_eight;
    for (const auto& t : trials()) {
        CAPTURE(t.name);
        auto stages = make_stages<double>(tiny, layers, t.p.graph.stages(), 7);
        const auto losses = train(stages, t.p, t.s, steps).losses;
        CHECK(losses.back() < 0.95 * losses.front());
        auto& first = stages.size() == 4 ? with_four : with_eight;
        if (first.empty()) first = losses;
        CHECK(losses == first);
    }
}
