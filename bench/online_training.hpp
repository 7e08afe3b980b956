#pragma once

// Training of the language model for bench_online, on ranks that are threads. Operations sleep until their planned time
// is over, and host links have a limited rate, so the plan is measured and not the processor.

#include "language_model/pipeline_model.hpp"
#include <optpipe/execution.hpp>
#include <optpipe/online.hpp>
#include <optpipe/planner.hpp>
#include <optpipe/schedule/time/noise.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace online_bench {

using namespace optpipe;
using clock = std::chrono::steady_clock;

inline constexpr language_model::shape model_shape{.hidden = 16, .heads = 2, .sequence = 16, .sequences = 1};
using model_type = language_model::pipeline_model<float>;

/// The real costs of operations, from a step on.
struct phase {
    std::string name;
    std::size_t from = 0;
    problem costs;
    /// Bytes that the host link of each rank transfers in a unit of the problem's time.
    per_rank<double> link_bytes{};
};

struct training {
    std::vector<phase> phases;
    std::size_t steps = 0;
    noise_model noise{};
    /// A unit of the problem's time on the clock; 0 if only the model itself takes time.
    clock_time unit{};
    std::string text{};

    [[nodiscard]] const phase& at(std::size_t step) const {
        auto last = phases.begin();
        for (auto each = phases.begin(); each != phases.end(); ++each)
            if (each->from <= step) last = each;
        return *last;
    }
    [[nodiscard]] std::size_t end_of(std::size_t which) const {
        return which + 1 < phases.size() ? phases[which + 1].from : steps;
    }
    [[nodiscard]] clock::duration time_of(std::size_t step, const operation& op) const {
        return on_clock(step_noise{noise, step}(at(step).costs, op), unit);
    }
    [[nodiscard]] std::chrono::nanoseconds copy_time(std::size_t step, const operation& op, std::size_t bytes) const {
        const auto& now = at(step);
        const double factor = step_noise{noise, step}(now.costs, op) / duration_of(now.costs, op);
        return on_clock(duration{factor * static_cast<double>(bytes) / now.link_bytes[now.costs.rank_of(op.stage)]},
                        unit);
    }
};

/// The stages of one rank, slowed down to the times of the training.
class paced_stages {
public:
    paced_stages(model_type& of, const training& how) : model_{of}, how_{how} {}
    /// To be called between two steps.
    void begin_step(std::size_t step) { step_ = step; }

    template <class Lane> void forward(Lane& on, const execution::forward_task& t) {
        const pace keep{*this, operation_kind::forward, t};
        model_.forward(on, t);
    }
    template <class Lane> void backward_input(Lane& on, const execution::backward_task& t) {
        const pace keep{*this, operation_kind::backward_input, t};
        model_.backward_input(on, t);
    }
    template <class Lane> void backward_weight(Lane& on, const execution::weight_task& t) {
        const pace keep{*this, operation_kind::backward_weight, t};
        model_.backward_weight(on, t);
    }
    template <class Lane> void backward(Lane& on, const execution::backward_task& t) {
        const pace keep{*this, operation_kind::backward, t};
        model_.backward(on, t);
    }
    template <class Lane> void update(Lane& on, stage which) { model_.update(on, which); }

private:
    class pace {
    public:
        template <class Task>
        pace(const paced_stages& of, operation_kind kind, const Task& t)
            : end_{clock::now() + of.how_.time_of(of.step_, {t.stage, kind, t.microbatch, t.storage})} {}
        pace(const pace&) = delete;
        pace& operator=(const pace&) = delete;
        ~pace() { std::this_thread::sleep_until(end_); }

    private:
        clock::time_point end_;
    };

    model_type& model_;
    const training& how_;
    std::size_t step_ = 0;
};

[[nodiscard]] inline lowering_options lowering() {
    return {.bytes_per_unit = 1.0,
            .alignment = alignof(float),
            .message_bytes = sizeof(float) * model_shape.boundary(),
            .placement = part_placement::contiguous,
            .update = true};
}

/// Ranks that are threads, with the model's stages and the training's links.
class training_cluster {
public:
    explicit training_cluster(const training& how)
        : how_{how},
          step_of_(first().graph.ranks()), stages_{language_model::make_stages<float>(
                                               model_shape, first().graph.stages(), first().graph.stages(), 1)},
          cluster_{first().graph.ranks(), options()} {
        for (std::size_t r = 0; r < cluster_.ranks(); ++r)
            models_.push_back(
                std::make_unique<model_type>(stages_, how.text, model_shape, first().graph.microbatches()));
    }
    [[nodiscard]] threads::cluster& ranks() { return cluster_; }
    [[nodiscard]] model_type& model(rank r) { return *models_[r.position()]; }
    [[nodiscard]] const std::vector<double>& losses() const { return models_.back()->losses(); }
    /// To be called by the thread of the rank, between two of its steps.
    void begin_step(rank r, std::size_t step) { step_of_[r.position()].store(step); }

private:
    [[nodiscard]] const problem& first() const { return how_.phases.front().costs; }
    threads::options options() {
        threads::options made;
        made.record_times = true;
        made.transfer = first().transfer;
        made.messages = threads::planned_messages(first(), how_.unit);
        made.copies = [this](rank r, const task_label& what, std::size_t bytes) {
            return how_.copy_time(step_of_[r.position()].load(), what.op, bytes);
        };
        return made;
    }

    const training& how_;
    std::vector<std::atomic<std::size_t>> step_of_;
    std::vector<language_model::model_stage<float>> stages_;
    std::vector<std::unique_ptr<model_type>> models_{};
    threads::cluster cluster_;
};

/// Work of a rank's thread in a step outside the program, in seconds.
struct beside_the_step {
    /// Before the first instruction: a plan is loaded.
    double before = 0.0;
    /// After the last one: the wait for the minimum over all ranks.
    double wait = 0.0;
    /// After that: programs are exchanged; on rank 0, costs are compared and plans are published.
    double after = 0.0;
    [[nodiscard]] double sum() const { return before + wait + after; }
};

/// A control channel that records when a step begins and ends.
template <execution::control_channel Channel> class timed_channel {
public:
    explicit timed_channel(Channel& of) : of_{of} {}
    [[nodiscard]] rank self() const { return of_.self(); }
    [[nodiscard]] std::size_t ranks() const { return of_.ranks(); }
    void publish(std::string_view text) { of_.publish(text); }
    [[nodiscard]] std::optional<std::string> next_published() { return of_.next_published(); }
    void report(std::string_view text) { of_.report(text); }
    [[nodiscard]] std::optional<execution::rank_text> next_report() { return of_.next_report(); }
    void begin_minimum(std::uint64_t value) {
        voted_ = clock::now();
        of_.begin_minimum(value);
    }
    [[nodiscard]] std::uint64_t minimum() {
        asked_ = clock::now();
        const auto least = of_.minimum();
        agreed_ = clock::now();
        return least;
    }
    void cancel(std::string_view what_it_did, std::string_view reason) { of_.cancel(what_it_did, reason); }

    /// Times of the last step, which began and ended at these times.
    [[nodiscard]] beside_the_step times(clock::time_point begin, clock::time_point end) const {
        const auto seconds = [](clock::duration d) { return std::chrono::duration<double>{d}.count(); };
        return {seconds(voted_ - begin), seconds(agreed_ - asked_), seconds(end - agreed_)};
    }

private:
    Channel& of_;
    clock::time_point voted_{}, asked_{}, agreed_{};
};

/// A plan of the planner, in seconds since it was given the problem.
struct planner_step {
    double seconds = 0.0;
    duration objective{};
};

/// The record of a run.
struct record {
    /// Per step, on rank 0.
    std::vector<double> seconds{};
    /// By rank and step.
    std::vector<std::vector<beside_the_step>> beside{};
    std::vector<double> losses{};
    std::vector<online_event> log{};
    double planner_seconds = 0.0;
    /// Steps of the planner for the last planned problem.
    std::vector<planner_step> planning{};
    problem planned{};
    /// The schedule in use at the end of each phase.
    std::vector<schedule> in_use{};
};

/// Training that replans while it runs.
inline record train_online(const training& how, const problem& guess, const schedule& first, online_options options) {
    training_cluster all{how};
    record seen;
    seen.beside.resize(guess.graph.ranks());
    std::mutex mutex;
    options.planning.how.progress = [&](const search_progress& step) {
        const std::scoped_lock lock{mutex};
        if (!seen.planning.empty() && step.seconds < seen.planning.back().seconds) seen.planning.clear();
        seen.planning.push_back({step.seconds, step.objective});
    };
    threads::on_all_ranks(all.ranks(), [&](threads::executor& here) {
        const auto self = here.self();
        paced_stages stages{all.model(self), how};
        timed_channel channel{all.ranks().control(self)};
        const online_setting setting{lowering(), how.unit};
        online_run run{guess, first, here, stages, channel, setting, options};
        std::size_t which = 0;
        for (std::size_t step = 0; step < how.steps; ++step) {
            stages.begin_step(step);
            all.begin_step(self, step);
            const auto begin = clock::now();
            run.step();
            const auto end = clock::now();
            seen.beside[self.position()].push_back(channel.times(begin, end));
            if (self != rank{0}) continue;
            seen.seconds.push_back(std::chrono::duration<double>{end - begin}.count());
            if (step + 1 != how.end_of(which)) continue;
            seen.in_use.push_back(run.controller()->present_schedule());
            ++which;
        }
        if (self != rank{0}) return;
        seen.log = run.controller()->log();
        seen.planner_seconds = run.controller()->planner().processor_seconds();
        seen.planned = run.controller()->present_problem();
    });
    seen.losses = all.losses();
    return seen;
}

/// Training that never switches.
struct fixed_record {
    std::vector<double> seconds{};
    std::vector<double> losses{};
    /// By step: the times of the instructions of all ranks.
    std::vector<std::vector<rank_times>> times{};
};

inline fixed_record train_fixed(const training& how, const per_rank<rank_program>& programs) {
    training_cluster all{how};
    fixed_record seen;
    seen.times.assign(how.steps, std::vector<rank_times>(programs.size()));
    threads::on_all_ranks(all.ranks(), [&](threads::executor& here) {
        const auto self = here.self();
        paced_stages stages{all.model(self), how};
        runner<threads::executor, paced_stages> runs{programs[self], here, stages};
        for (std::size_t step = 0; step < how.steps; ++step) {
            stages.begin_step(step);
            all.begin_step(self, step);
            runs.forget_times();
            const auto begin = clock::now();
            runs.step();
            const std::chrono::duration<double> took = clock::now() - begin;
            if (self == rank{0}) seen.seconds.push_back(took.count());
            seen.times[step][self.position()] = {&programs[self], runs.times()};
        }
    });
    seen.losses = all.losses();
    return seen;
}
inline per_rank<rank_program> programs_of(const problem& p, const schedule& s) {
    return lower(p, s, lowering()).value();
}

} // namespace online_bench
