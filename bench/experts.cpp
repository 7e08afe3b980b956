// Two pipelines that share the experts of their layers, as threads, with rate-limited links between equal ranks: how
// Two pipelines that share the experts of their layers, as threads, with rate-limited links between equal ranks: how
// long a pair takes compared with its model, and how long a step with pairs takes compared with the best plan without
// pairs. Tokens are routed, sent and computed as in training. Each piece of computation then sleeps until it has lasted
// as long as it is told.
#include <optpipe/execution.hpp>
#include <optpipe/optpipe.hpp>
#include <optpipe/planner.hpp>
#include <optpipe/program/lower.hpp>

#include <benchmark/benchmark.h>
#include <language_model/expert_model.hpp>
#include <language_model/whole_model.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;
using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

constexpr std::size_t pipelines = 2;
constexpr std::size_t ranks = 2;
/// The first only embeds, and has no experts; two more per rank.
constexpr std::size_t stages = 5;
constexpr std::size_t microbatches = 8;
constexpr clock_time unit = 3ms;
constexpr language_model::shape shape{.hidden = 8, .heads = 2, .sequence = 16, .sequences = 8, .vocabulary = 128};

/// The lengths of the pieces of computation of a stage with experts, in units, and of one exchange of tokens if half of
/// them go to the other pipeline. Exchanges are 35 % of the work.
struct lengths {
    double router = 0.5, experts = 2, blocks = 4, blocks_back = 5, experts_back = 3, block_weights = 4,
           expert_weights = 1, exchange = 2.625;

    [[nodiscard]] double of(language_model::expert_phase what) const {
        using enum language_model::expert_phase;
        switch (what) {
        case router: return lengths::router;
        case experts: return lengths::experts;
        case blocks: return lengths::blocks;
        case blocks_back: return lengths::blocks_back;
        case experts_back: return lengths::experts_back;
        case block_weights: return lengths::block_weights;
        case expert_weights: return lengths::expert_weights;
        }
        return 0.0;
    }
    [[nodiscard]] double forward() const { return router + experts + blocks; }
    [[nodiscard]] double backward() const { return blocks_back + experts_back + block_weights + expert_weights; }
};
constexpr lengths usual{};
/// Share of a stage's usual lengths that the embedding takes.
constexpr double embedding = 0.05;

/// A channel whose texts to other ranks leave one after the other, at a limited rate, while the sender goes on.
class limited_channel {
public:
    limited_channel(threads::control_channel& inner, double bytes_per_second)
        : inner_{&inner}, rate_{bytes_per_second} {}

    [[nodiscard]] rank self() const { return inner_->self(); }
    [[nodiscard]] std::size_t ranks() const { return inner_->ranks(); }
    void send(rank to, std::string_view text) {
        const auto now = clock_type::now();
        if (to != self()) {
            const std::chrono::duration<double> takes{static_cast<double>(text.size()) / rate_};
            free_ = std::max(free_, now) + std::chrono::duration_cast<clock_type::duration>(takes);
        }
        const auto arrives = to == self() ? now : free_;
        std::string marked(sizeof arrives, '\0');
        std::memcpy(marked.data(), &arrives, sizeof arrives);
        inner_->send(to, marked.append(text));
    }
    [[nodiscard]] std::string receive(rank from) {
        auto text = inner_->receive(from);
        clock_type::time_point arrives;
        std::memcpy(&arrives, text.data(), sizeof arrives);
        std::this_thread::sleep_until(arrives);
        return text.substr(sizeof arrives);
    }

private:
    threads::control_channel* inner_;
    double rate_;
    clock_type::time_point free_{};
};

using model = language_model::expert_model<double, limited_channel>;
using stage_list = std::vector<language_model::model_stage<double>>;

struct replica {
    explicit replica(std::size_t self)
        : place{self, pipelines}, blocks{language_model::make_stages<double>(shape, stages - 1, stages, 7)},
          experts{language_model::make_experts<double>(shape, {4, pipelines, self}, stages, 11)} {}
    language_model::replica_place place;
    stage_list blocks;
    std::vector<language_model::expert_layer<double>> experts;
};

/// The problem of one pipeline, in which a pair lasts as long as both computations or both communications, whichever is
/// longer.
problem make(bool has_pairs) {
    per_stage<rank> rank_of(stages);
    for (const stage s : rank_of.indices())
        rank_of[s] = rank{s == stage{0} ? 0 : (s.position() - 1) % ranks};
    replica one{0};
    auto p = language_model::problem_of(one.blocks, any_graph{ranks, microbatches, placement::map<>{rank_of}});
    add_experts(p, one.experts);
    for (const stage s : p.graph.all_stages())
        p.change_stage(s, [&](stage_costs& c) {
            const double share = s == stage{0} ? embedding : 1.0;
            const double exchanges = s == stage{0} ? 0.0 : 2.0 * usual.exchange;
            c.forward = duration{share * (s == stage{0} ? usual.blocks : usual.forward()) + exchanges};
            c.backward_input =
                duration{share * (usual.blocks_back + (s == stage{0} ? 0.0 : usual.experts_back)) + exchanges};
            c.backward_weight = duration{share * (usual.block_weights + (s == stage{0} ? 0.0 : usual.expert_weights))};
        });
    const duration pair{std::max(usual.forward() + usual.backward(), 4.0 * usual.exchange)};
    for (const stage f : p.graph.all_stages())
        for (const stage b : p.graph.all_stages())
            if (has_pairs && f != stage{0} && b != stage{0} && p.rank_of(f) == p.rank_of(b))
                p.overlaps.add({f, b, overlap_kind::backward, pair, {}});
    return p;
}

/// The measured step of the slower pipeline, and the mean of measured over planned durations: of pairs, and of the
/// operations of stages with experts that run alone.
struct measured_step {
    double units = 0.0;
    double pair_ratio = 0.0;
    double alone_ratio = 0.0;
};
/// The mean of some numbers.
struct mean {
    double sum = 0.0;
    std::size_t count = 0;

    void add(double number) {
        sum += number;
        ++count;
    }
    [[nodiscard]] double value() const { return count > 0 ? sum / static_cast<double>(count) : 0.0; }
};
measured_step run(const problem& p, const schedule& s) {
    const auto programs = lower(p, s,
                                {.bytes_per_unit = 1.0,
                                 .alignment = alignof(double),
                                 .message_bytes = sizeof(double) * shape.boundary(),
                                 .placement = part_placement::contiguous})
                              .value();
    // Half of the tokens take `exchange`.
    const double bytes = 0.5 * static_cast<double>(sizeof(double) * shape.boundary());
    const double rate = bytes / (usual.exchange * std::chrono::duration<double>{unit}.count());
    threads::failure failed;
    std::vector<std::unique_ptr<threads::control_board>> boards;
    for (std::size_t r = 0; r < ranks; ++r)
        boards.push_back(std::make_unique<threads::control_board>(pipelines, 60s, failed));
    const auto pace = [](stage of, language_model::expert_phase what, model::clock::time_point began) {
        const auto length = (of == stage{0} ? embedding : 1.0) * usual.of(what) * unit;
        std::this_thread::sleep_until(began + std::chrono::duration_cast<clock_type::duration>(length));
    };
    const std::string text(4096, 'a');
    std::string varied = text;
    for (std::size_t i = 0; i < varied.size(); ++i)
        varied[i] = static_cast<char>(i * i % 127);
    std::array<measured_step, pipelines> results;
    std::array<std::exception_ptr, pipelines> errors;
    {
        std::vector<std::jthread> running;
        for (std::size_t d = 0; d < pipelines; ++d)
            running.emplace_back([&, d] {
                try {
                    replica own{d};
                    std::vector<limited_channel> channels;
                    for (std::size_t r = 0; r < ranks; ++r)
                        channels.emplace_back((*boards[r])[rank{d}], rate);
                    std::vector<model> models;
                    for (std::size_t r = 0; r < ranks; ++r)
                        models.emplace_back(own.blocks, own.experts, varied, shape, microbatches, own.place,
                                            channels[r], pace);
                    threads::cluster cluster{ranks, {.patience = 60s, .record_times = true}};
                    const auto times = threads::run(
                        programs, cluster, [&](rank r) -> model& { return models[r.position()]; }, 2);
                    const auto measured = measured_schedule(p.graph, times, unit);
                    results[d].units = last_end(measured).value();
                    mean pairs;
                    for_each_pair(measured, [&](const timed_operation& f, const timed_operation& b) {
                        pairs.add((f.end - f.start) / pair_duration(p, *overlap_of(p, f.op, b.op), f.op, b.op));
                    });
                    mean alone;
                    for (const auto& each : measured.operations)
                        if (!each.op.is_paired && each.op.stage != stage{0})
                            alone.add((each.end - each.start) / duration_of(p, each.op));
                    results[d].pair_ratio = pairs.value();
                    results[d].alone_ratio = alone.value();
                } catch (...) {
                    errors[d] = std::current_exception();
                }
            });
    }
    for (const auto& each : errors)
        if (each) std::rethrow_exception(each);
    const auto larger = [&](double measured_step::*of) { return std::max(results[0].*of, results[1].*of); };
    return {larger(&measured_step::units), larger(&measured_step::pair_ratio), larger(&measured_step::alone_ratio)};
}

void experts(benchmark::State& state) {
    const auto alone = make(false);
    const auto paired = make(true);
    const plan_options how{.time_limit = 5s};
    const auto without = plan(alone, how).value();
    const auto with = plan(paired, how).value();
    std::vector<double> faster;
    std::vector<double> ratios;
    std::vector<double> alone_ratios;
    for (auto _ : state) {
        const auto slow = run(alone, without.schedule);
        const auto fast = run(paired, with.schedule);
        state.SetIterationTime(fast.units * std::chrono::duration<double>{unit}.count());
        faster.push_back(slow.units / fast.units);
        ratios.push_back(fast.pair_ratio);
        alone_ratios.push_back(slow.alone_ratio);
    }
    const double exchanges = 4.0 * usual.exchange;
    state.counters["exchange share"] = exchanges / (exchanges + usual.forward() + usual.backward());
    state.counters["planned faster"] = last_end(without.schedule) / last_end(with.schedule);
    state.counters["faster"] = optpipe::detail::median_of(std::move(faster));
    state.counters["pair / model"] = optpipe::detail::median_of(std::move(ratios));
    state.counters["alone / model"] = optpipe::detail::median_of(std::move(alone_ratios));
}

} // namespace

BENCHMARK(experts)->UseManualTime()->Iterations(5)->Unit(benchmark::kMillisecond);
BENCHMARK_MAIN();
