#include "../../examples/language_model/cuda/device_pipeline.hpp"
#include "../../examples/language_model/cuda/reversible_device_pipeline.hpp"
#include "../../examples/language_model/cuda/stream_device.cuh"
#include "../../examples/language_model/whole_model.hpp"
#include "partition.hpp"
#include "trainer.hpp"
#include <optpipe/execution/cuda/executor.hpp>
#include <optpipe/execution/cuda/graph.hpp>
#include <optpipe/execution/measured.hpp>
#include <optpipe/execution/run.hpp>
#include <optpipe/execution/threads/control_channel.hpp>
#include <optpipe/online.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

namespace gpu_bench {
namespace {

using namespace optpipe;
using language_model::stream_device;
using stage_type = language_model::device_stage<stream_device>;
using model_type = language_model::device_pipeline<stream_device>;
using text_type = language_model::device_text<stream_device>;
using runner_type = runner<cuda::executor, model_type>;

constexpr std::uint64_t seed = 1;
constexpr language_model::adamw_rates rates{.learning_rate = 3e-4};

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

/// Calls `body(i)` for all i, each on its own thread, and throws the first error.
template <class Body> void side_by_side(std::size_t count, const Body& body) {
    std::vector<std::exception_ptr> errors(count);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i)
        threads.emplace_back([&, i] {
            try {
                body(i);
            } catch (...) {
                errors[i] = std::current_exception();
            }
        });
    for (auto& each : threads)
        each.join();
    for (const auto& each : errors)
        if (each) std::rethrow_exception(each);
}

/// ‖is − expected‖ / ‖expected‖
double relative_norm(const std::vector<float>& is, const std::vector<float>& expected) {
    double apart = 0.0, all = 0.0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double e = expected[i];
        apart += (is[i] - e) * (is[i] - e);
        all += e * e;
    }
    return std::sqrt(apart / all);
}

/// The ranks of one process, and their programs.
class session {
public:
    session(std::vector<std::unique_ptr<stream_device>>& devices, std::vector<stage_type>& stages,
            const text_type& batches, std::span<const rank_program> programs, const cuda::options& how,
            const std::vector<language_model::stash_storage>& storage, bool learns)
        : cluster_{programs.size(), how} {
        for (const auto& p : programs) {
            const auto r = p.self.position();
            models_.push_back(std::make_unique<model_type>(*devices[r], stages, batches, rates, storage));
            models_.back()->learn(false);
            if (learns || !storage.empty()) models_.back()->prepare(stage{r});
            runners_.push_back(std::make_unique<runner_type>(p, cluster_[p.self], *models_.back()));
        }
    }
    void learn() {
        for (auto& each : models_)
            each->learn(true);
    }
    void step() {
        side_by_side(runners_.size(), [&](std::size_t r) { runners_[r]->step(); });
    }
    /// One step of all ranks.
    cuda::step_graph capture() {
        return cluster_.capture([&] {
            for (auto& each : runners_)
                each->issue();
        });
    }
    void run(cuda::step_graph captured) {
        cluster_.launch(captured);
        cluster_.finish();
    }
    void forget_times() {
        for (auto& each : runners_)
            each->forget_times();
    }
    [[nodiscard]] std::vector<rank_times> times(std::span<const rank_program> programs) const {
        std::vector<rank_times> all;
        for (std::size_t r = 0; r < programs.size(); ++r)
            all.push_back({&programs[r], runners_[r]->times()});
        return all;
    }

private:
    cuda::cluster cluster_;
    std::vector<std::unique_ptr<model_type>> models_;
    std::vector<std::unique_ptr<runner_type>> runners_;
};

/// Records the squares of gradients.
class noting_model : public language_model::reversible_device_pipeline<stream_device> {
public:
    using reversible_device_pipeline::reversible_device_pipeline;
    template <class Lane> double gradient_squares(Lane& lane, optpipe::stage s) {
        return squares_.emplace_back(reversible_device_pipeline::gradient_squares(lane, s));
    }
    /// One per step that wasn't void.
    [[nodiscard]] const std::vector<double>& squares() const { return squares_; }

private:
    std::vector<double> squares_;
};

} // namespace

class trainer::state {
public:
    explicit state(const training_setup& how) : how_{how}, parts_{how.ranks, how.is_divided} {
        for (std::size_t r = 0; r < how.ranks; ++r)
            devices_.push_back(std::make_unique<stream_device>(how.products, parts_.multiprocessors()));
        std::vector<std::optional<stage_type>> made(how.ranks);
        side_by_side(how.ranks, [&](std::size_t i) {
            made[i].emplace(how.shape, language_model::stage_place{how.layers_per_stage, i == 0, i + 1 == how.ranks},
                            seed + i, language_model::device_math<stream_device>{*devices_[i]});
        });
        for (auto& each : made)
            stages_.push_back(*std::move(each));
        for (auto& each : stages_)
            initial_.push_back(load(each.parameters()));
        batches_.emplace(*devices_.front(), how.text, how.shape, how.microbatches);
        compute_reference();
    }

    [[nodiscard]] const stage_type& at(stage s) const { return stages_[s.position()]; }
    [[nodiscard]] int multiprocessors() const { return parts_.multiprocessors(); }
    void set_storage(problem& p, duration transfer) const {
        language_model::set_storage(p, stages_, how_.storage, transfer);
    }

    timeline record(const any_graph& graph, std::span<const rank_program> programs) {
        constexpr int steps = 3;
        begin_anew();
        session now{devices_, stages_, *batches_, programs, options_with(true), how_.storage, false};
        for (int i = 0; i < steps; ++i) {
            now.forget_times();
            now.step();
        }
        const auto times = now.times(programs);
        timeline result{measured_schedule(graph, times, std::chrono::milliseconds{1}), 0};
        for (const auto& each : times)
            result.most_bytes = std::max(result.most_bytes, high_water(each, memory_arena::device));
        return result;
    }

    training_result train(std::span<const rank_program> programs, std::size_t steps) {
        training_result result;
        begin_anew();
        session now{devices_, stages_, *batches_, programs, options_with(false), how_.storage, true};
        now.step();
        compare_gradients(result);
        begin_anew();
        now.learn();
        for (std::size_t k = 0; k < steps; ++k)
            result.milliseconds.push_back(timed_step(result, k, [&] { now.step(); }));
        try {
            const auto captured = now.capture();
            for (std::size_t k = 0; k < steps; ++k)
                result.graph_milliseconds.push_back(timed_step(result, steps + k, [&] { now.run(captured); }));
        } catch (const std::exception& e) {
            result.graph_failure = e.what();
        }
        return result;
    }

    online_result train_online(const problem& p, const schedule& first, const online_setting& setting,
                               const online_options& options, std::size_t steps) {
        using run_type = online_run<cuda::executor, model_type, threads::control_channel>;
        begin_anew();
        cuda::cluster cluster{how_.ranks, options_with(true)};
        threads::failure failed;
        threads::control_board control{how_.ranks, patience, failed};
        std::vector<std::unique_ptr<model_type>> models(how_.ranks);
        std::vector<std::unique_ptr<run_type>> runs(how_.ranks);
        side_by_side(how_.ranks, [&](std::size_t r) {
            models[r] = std::make_unique<model_type>(*devices_[r], stages_, *batches_, rates, how_.storage);
            models[r]->prepare(stage{r});
            runs[r] = std::make_unique<run_type>(p, first, cluster[rank{r}], *models[r], control[rank{r}], setting,
                                                 options);
        });
        training_result result;
        for (std::size_t k = 0; k < steps; ++k)
            result.milliseconds.push_back(
                timed_step(result, k, [&] { side_by_side(how_.ranks, [&](std::size_t r) { runs[r]->step(); }); }));
        const auto& found = *runs.front()->controller();
        return {std::move(result.losses), std::move(result.milliseconds), found.log(), found.present_problem(),
                found.present_schedule()};
    }

    validated_result train_validated(std::span<const rank_program> programs,
                                     const execution::post_validation_options& how, std::size_t steps) {
        using validated_type = execution::post_validated<noting_model, threads::control_channel>;
        using run_type = runner<cuda::executor, validated_type>;
        begin_anew();
        cuda::cluster cluster{how_.ranks, options_with(false)};
        threads::failure failed;
        threads::control_board control{how_.ranks, patience, failed};
        std::vector<std::unique_ptr<noting_model>> models(how_.ranks);
        std::vector<std::unique_ptr<validated_type>> validated(how_.ranks);
        std::vector<std::unique_ptr<run_type>> runs(how_.ranks);
        side_by_side(how_.ranks, [&](std::size_t r) {
            models[r] = std::make_unique<noting_model>(*devices_[r], stages_, *batches_, rates);
            models[r]->prepare(stage{r});
            validated[r] = std::make_unique<validated_type>(programs[r], *models[r], control[rank{r}], how);
            runs[r] = std::make_unique<run_type>(programs[r], cluster[rank{r}], *validated[r]);
        });
        training_result found;
        validated_result result;
        for (std::size_t k = 0; k < steps; ++k)
            for (bool is_void = true; is_void;) {
                result.milliseconds.push_back(
                    timed_step(found, k, [&] { side_by_side(how_.ranks, [&](std::size_t r) { runs[r]->step(); }); }));
                is_void = validated.front()->was_void();
                if (is_void) {
                    ++result.voids;
                    found.losses.pop_back();
                }
            }
        side_by_side(how_.ranks, [&](std::size_t r) { validated[r]->finish(cluster[rank{r}]); });
        result.losses = std::move(found.losses);
        for (std::size_t k = 0; k < steps; ++k) {
            double all = 0.0;
            for (const auto& each : models)
                all += each->squares()[k];
            result.norms.push_back(std::sqrt(all));
        }
        for (auto& each : stages_)
            result.parameters.push_back(load(each.parameters()));
        return result;
    }

private:
    static constexpr std::chrono::seconds patience{20};

    [[nodiscard]] std::vector<float> load(std::span<const float> from) { return devices_.front()->load<float>(from); }
    [[nodiscard]] cuda::options options_with(bool times) const {
        return {.patience = patience, .streams = parts_.streams(), .record_times = times};
    }
    /// Resets to the initial parameters, no gradients, no losses and the first batch.
    void begin_anew() {
        for (std::size_t i = 0; i < stages_.size(); ++i) {
            devices_[i]->use_own();
            devices_[i]->overwrite<float>(stages_[i].parameters(), initial_[i]);
            const auto gradients = stages_[i].gradients();
            devices_[i]->clear(gradients.data(), gradients.size());
        }
        batches_->load(0);
        static_cast<void>(stages_.back().take_loss());
    }
    /// Computes the gradients without a pipeline, in one stream.
    void compute_reference() {
        begin_anew();
        for (auto& each : devices_)
            each->use(devices_.front()->own());
        language_model::unpipelined_step(stages_, *batches_, how_.microbatches);
        for (auto& each : stages_)
            reference_.push_back(load(each.gradients()));
    }
    void compare_gradients(training_result& result) {
        result.has_same_gradients = true;
        for (std::size_t i = 0; i < stages_.size(); ++i) {
            const auto is = load(stages_[i].gradients());
            const double apart = relative_norm(is, reference_[i]);
            if (!(apart <= result.gradient_difference)) result.gradient_difference = apart;
            result.has_same_gradients = result.has_same_gradients && is == reference_[i];
        }
    }
    template <class Step> double timed_step(training_result& result, std::size_t which, const Step& step) {
        batches_->load(which);
        const auto begin = std::chrono::steady_clock::now();
        step();
        const double taken = milliseconds_since(begin);
        result.losses.push_back(stages_.back().take_loss() * batches_->share());
        return taken;
    }

    training_setup how_;
    partition parts_;
    std::vector<std::unique_ptr<stream_device>> devices_;
    std::vector<stage_type> stages_;
    std::optional<text_type> batches_;
    std::vector<std::vector<float>> initial_, reference_;
};

trainer::trainer(const training_setup& how) : state_{std::make_unique<state>(how)} {}
trainer::~trainer() = default;
std::size_t trainer::kept_bytes(stage s) const { return sizeof(float) * state_->at(s).kept(); }
std::size_t trainer::freed_bytes(stage s) const { return sizeof(float) * state_->at(s).freed(); }
std::size_t trainer::message_bytes() const { return sizeof(float) * state_->at(stage{0}).boundary(); }
int trainer::multiprocessors() const { return state_->multiprocessors(); }
timeline trainer::record(const any_graph& graph, std::span<const rank_program> programs) {
    return state_->record(graph, programs);
}
void trainer::set_storage(problem& p, duration transfer) const { state_->set_storage(p, transfer); }
training_result trainer::train(std::span<const rank_program> programs, std::size_t steps) {
    return state_->train(programs, steps);
}
online_result trainer::train_online(const problem& p, const schedule& first, const online_setting& setting,
                                    const online_options& options, std::size_t steps) {
    return state_->train_online(p, first, setting, options, steps);
}
validated_result trainer::train_validated(std::span<const rank_program> programs,
                                          const execution::post_validation_options& how, std::size_t steps) {
    return state_->train_validated(programs, how, steps);
}

} // namespace gpu_bench
