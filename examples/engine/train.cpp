// A small engine that trains by a plan: its measurements become a problem, and the problem becomes a plan. The plan is
// executed twice: by the engine's own loop, which walks a list of operations on each device, and as programs, run by an
// executor on the engine's streams. A device has its own memory; host memory isn't limited.
#include "executor.hpp"
#include "mailbox.hpp"
#include "model.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/execution.hpp>
#include <optpipe/pipeline.hpp>
#include <optpipe/planner.hpp>
#include <optpipe/program/lower.hpp>
#include <optpipe/schedule.hpp>
#include <optpipe/testing/conformance.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using engine::layer;
using engine::matrix;

constexpr std::size_t devices = 4;
constexpr std::size_t microbatches = 8;
constexpr std::size_t width = 48;
constexpr std::size_t samples = 8;
// Number of stashes that fit on a device. Running one microbatch after the other through four stages would need four on
// the first device.
constexpr double stashes = 3.0;
constexpr std::size_t message_bytes = samples * width * sizeof(double);

/// The stash of a forward: its input and output.
struct stash {
    matrix x;
    matrix y;
};

matrix input_of(std::uint32_t microbatch) { return engine::random_matrix(samples, width, 100 + microbatch, 1.0); }
layer stage_of(std::uint32_t s) { return layer{width, s}; }
/// The loss is half the sum of squares, so its gradient is the output.
matrix gradient_of_loss(const matrix& y) { return y; }

/// Duration of a call in milliseconds: the minimum of several, as the others were disturbed.
template <class Call> double measured(const Call& call) {
    constexpr int times = 9;
    double least = 1e9;
    for (int i = 0; i < times; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        call();
        const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
        least = std::min(least, taken.count());
    }
    // A call too short to be measured still takes some time.
    constexpr double resolution = 1e-4;
    return std::max(least, resolution);
}

optpipe::problem measured_problem() {
    auto one = stage_of(0);
    const auto x = input_of(0);
    const auto y = one.forward(x);
    const auto inner = layer::inner_gradient(y, gradient_of_loss(y));
    const double copy = measured([&] { return stash{x, y}; });
    const optpipe::stage_costs costs{optpipe::duration{measured([&] { return one.forward(x); })},
                                     optpipe::duration{measured([&] { return one.backward_input(inner); })},
                                     optpipe::duration{measured([&] { one.backward_weight(x, inner); })},
                                     optpipe::memory_size{static_cast<double>(x.bytes() + y.bytes())},
                                     optpipe::memory_size{static_cast<double>(x.bytes() + inner.bytes())},
                                     optpipe::transfer_times{optpipe::duration{copy}, optpipe::duration{copy}}};
    optpipe::per_stage<optpipe::rank> where(devices);
    for (const auto s : where.indices())
        where[s] = optpipe::rank{s.position()};
    optpipe::problem p{optpipe::any_graph{devices, microbatches, optpipe::placement::map<>{where}},
                       optpipe::per_stage<optpipe::stage_costs>(devices, costs)};
    for (auto& limit : p.memory_limit)
        limit = stashes * costs.activation;
    p.name = "engine";
    p.time_unit = "ms";
    p.memory_unit = "bytes";
    return p;
}

/// One device: a stage, the stashes on it, and those moved to the host.
class device {
public:
    device(std::uint32_t self, engine::mailbox& activations, engine::mailbox& gradients)
        : self_{self}, layer_{stage_of(self)}, activations_{&activations}, gradients_{&gradients} {}

    void run(const std::vector<optpipe::timed_operation>& mine) {
        for (const auto& each : mine)
            run(each.op);
    }
    [[nodiscard]] const matrix& gradient() const { return layer_.gradient(); }
    [[nodiscard]] std::size_t most_stashes() const { return most_; }

private:
    void run(const optpipe::operation& op) {
        const auto m = op.microbatch.value();
        switch (op.kind) {
        case optpipe::operation_kind::forward: return forward(m);
        case optpipe::operation_kind::backward_input: return backward_input(m);
        case optpipe::operation_kind::backward_weight: return backward_weight(m);
        case optpipe::operation_kind::backward: return backward_input(m), backward_weight(m);
        case optpipe::operation_kind::offload: host_.insert(stashes_.extract(m)); return;
        case optpipe::operation_kind::reload: stashes_.insert(host_.extract(m)); return count();
        case optpipe::operation_kind::recompute: return; // this problem has no storage options
        }
    }
    void count() { most_ = std::max(most_, stashes_.size() + for_weights_.size()); }

    void forward(std::uint32_t m) {
        auto x = self_ == 0 ? input_of(m) : activations_->receive({self_, m});
        auto y = layer_.forward(x);
        if (self_ + 1 < devices) activations_->send({self_ + 1, m}, y);
        stashes_.emplace(m, stash{std::move(x), std::move(y)});
        count();
    }
    void backward_input(std::uint32_t m) {
        auto own = std::move(stashes_.extract(m).mapped());
        auto dy = self_ + 1 < devices ? gradients_->receive({self_, m}) : gradient_of_loss(own.y);
        auto inner = layer::inner_gradient(own.y, std::move(dy));
        if (self_ > 0) gradients_->send({self_ - 1, m}, layer_.backward_input(inner));
        for_weights_.emplace(m, std::pair{std::move(own.x), std::move(inner)});
    }
    void backward_weight(std::uint32_t m) {
        const auto [x, inner] = std::move(for_weights_.extract(m).mapped());
        layer_.backward_weight(x, inner);
    }

    std::uint32_t self_;
    layer layer_;
    engine::mailbox* activations_;
    engine::mailbox* gradients_;
    std::map<std::uint32_t, stash> stashes_{};
    std::map<std::uint32_t, std::pair<matrix, matrix>> for_weights_{};
    std::map<std::uint32_t, stash> host_{};
    std::size_t most_ = 0;
};

/// The stage of a device for programs. Buffers belong to the program: a stash has the input and the output first, and
/// later the input and the inner gradient.
class stage_on_buffers {
public:
    explicit stage_on_buffers(std::uint32_t self) : self_{self}, layer_{stage_of(self)} {}

    void forward(adapter::lane&, const optpipe::execution::forward_task& t) {
        const auto x = self_ == 0 ? input_of(t.microbatch.value()) : read(t.input);
        const auto y = layer_.forward(x);
        write(first(t.kept), x);
        write(second(t.kept), y);
        if (!t.output.empty()) write(t.output, y);
    }
    void backward_input(adapter::lane&, const optpipe::execution::backward_task& t) {
        const auto y = read(second(t.kept));
        const auto inner = layer::inner_gradient(y, t.input.empty() ? gradient_of_loss(y) : read(t.input));
        if (!t.output.empty()) write(t.output, layer_.backward_input(inner));
        write(second(t.kept), inner);
    }
    void backward_weight(adapter::lane&, const optpipe::execution::weight_task& t) {
        layer_.backward_weight(read(first(t.kept)), read(second(t.kept)));
    }
    [[nodiscard]] const matrix& gradient() const { return layer_.gradient(); }

private:
    static std::span<std::byte> first(optpipe::execution::stash_part part) {
        return optpipe::execution::contiguous(part).first(message_bytes);
    }
    static std::span<std::byte> second(optpipe::execution::stash_part part) {
        return optpipe::execution::contiguous(part).subspan(message_bytes, message_bytes);
    }
    static matrix read(std::span<const std::byte> from) {
        matrix m{samples, width};
        std::memcpy(m.values.data(), from.data(), m.bytes());
        return m;
    }
    static void write(std::span<std::byte> to, const matrix& m) { std::memcpy(to.data(), m.values.data(), m.bytes()); }

    std::uint32_t self_;
    layer layer_;
};
static_assert(optpipe::execution::check_stage_model<stage_on_buffers, adapter::lane>());

/// Calls `body(executor)` on all devices at the same time.
template <class Body> void on_devices(const Body& body) {
    engine::machine machine;
    engine::post post;
    std::vector<std::jthread> threads;
    for (std::uint32_t r = 0; r < devices; ++r)
        threads.emplace_back([&, r] {
            adapter::executor mine{machine, post, optpipe::rank{r}, devices};
            body(mine);
        });
}

/// Computes the same step on one device, one microbatch after the other.
std::vector<layer> train_alone() {
    std::vector<layer> layers;
    for (std::uint32_t s = 0; s < devices; ++s)
        layers.push_back(stage_of(s));
    for (std::uint32_t m = 0; m < microbatches; ++m) {
        std::vector<matrix> values{input_of(m)};
        for (const auto& each : layers)
            values.push_back(each.forward(values.back()));
        auto dy = gradient_of_loss(values.back());
        for (std::size_t s = devices; s-- > 0;) {
            const auto inner = layer::inner_gradient(values[s + 1], std::move(dy));
            layers[s].backward_weight(values[s], inner);
            dy = layers[s].backward_input(inner);
        }
    }
    return layers;
}

double difference(const matrix& a, const matrix& b) {
    double most = 0.0;
    for (std::size_t i = 0; i < a.values.size(); ++i)
        most = std::max(most, std::abs(a.values[i] - b.values[i]));
    return most;
}

using gradients = std::vector<matrix>;

gradients by_own_loop(const optpipe::schedule& plan, bool& fits) {
    const auto lists = optpipe::operations_by_rank(plan);
    engine::mailbox activations;
    engine::mailbox back;
    std::vector<device> all;
    for (std::uint32_t r = 0; r < devices; ++r)
        all.emplace_back(r, activations, back);
    {
        std::vector<std::jthread> threads;
        for (std::uint32_t r = 0; r < devices; ++r)
            threads.emplace_back([&, r] { all[r].run(lists[optpipe::rank{r}]); });
    }
    gradients found;
    for (const auto& each : all) {
        std::cout << "a device held " << each.most_stashes() << " stashes\n";
        fits = fits && static_cast<double>(each.most_stashes()) <= stashes;
        found.push_back(each.gradient());
    }
    return found;
}

gradients by_programs(const optpipe::problem& p, const optpipe::schedule& plan) {
    optpipe::lowering_options how;
    how.bytes_per_unit = 1.0;
    how.message_bytes = message_bytes;
    how.placement = optpipe::part_placement::contiguous;
    const auto programs = optpipe::lower(p, plan, how).value();
    std::vector<stage_on_buffers> stages;
    for (std::uint32_t r = 0; r < devices; ++r)
        stages.emplace_back(r);
    std::vector<std::string> errors(devices);
    on_devices([&](adapter::executor& mine) {
        const auto r = mine.self().position();
        try {
            optpipe::run(programs[mine.self()], mine, stages[r]);
        } catch (const optpipe::error& e) {
            errors[r] = e.what();
        }
    });
    for (const auto& each : errors)
        if (!each.empty()) throw optpipe::error{each};
    gradients found;
    for (const auto& each : stages)
        found.push_back(each.gradient());
    return found;
}

/// Number of violations that the conformance suite finds in the executor.
std::size_t faults() {
    std::mutex mutex;
    std::size_t count = 0;
    on_devices([&](adapter::executor& mine) {
        for (const auto& v : optpipe::testing::check_executor(mine)) {
            const std::scoped_lock lock{mutex};
            std::cout << v.text() << '\n';
            ++count;
        }
    });
    return count;
}

bool are_right(const char* way, const gradients& found) {
    const auto alone = train_alone();
    double off = 0.0;
    for (std::size_t r = 0; r < devices; ++r)
        off = std::max(off, difference(found[r], alone[r].gradient()));
    // Tolerance for sums over microbatches in another order.
    constexpr double rounding = 1e-9;
    std::cout << way << ": gradients off by " << optpipe::format_number(off, 2) << '\n';
    return off <= rounding;
}

} // namespace

int main() try {
    const auto p = measured_problem();
    const auto planned = optpipe::plan(p);
    if (!planned) return std::cerr << optpipe::describe(planned.why()) << '\n', 1;
    std::cout << "a step of " << optpipe::format_number(planned->objective) << " ms, at least "
              << optpipe::format_number(planned->bound) << " ms\n";
    bool right = true;
    right = are_right("by its own loop", by_own_loop(planned->schedule, right)) && right;
    right = are_right("by programs", by_programs(p, planned->schedule)) && right;
    return right && faults() == 0 ? 0 : 1;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 1;
}
