// A small engine that trains by a plan: what it measures becomes a problem, the problem a plan, and the plan what the
// loop of each device does. A device is a thread with memory of its own; the host is memory that doesn't count.
#include "mailbox.hpp"
#include "model.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/pipeline.hpp>
#include <optpipe/planner.hpp>
#include <optpipe/schedule.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
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
// Stashes that fit a device. One microbatch after the other through four stages would keep four on the first.
constexpr double stashes = 3.0;

/// What a forward leaves for the backward: input and output.
struct stash {
    matrix x;
    matrix y;
};

matrix input_of(std::uint32_t microbatch) { return engine::random_matrix(samples, width, 100 + microbatch, 1.0); }
layer stage_of(std::uint32_t s) { return layer{width, s}; }
/// The loss is half the sum of squares: its gradient is what comes out.
matrix gradient_of_loss(const matrix& y) { return y; }

/// Milliseconds that a call takes: the least of some, as the others were disturbed.
template <class Call> double measured(const Call& call) {
    constexpr int times = 9;
    double least = 1e9;
    for (int i = 0; i < times; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        call();
        const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
        least = std::min(least, taken.count());
    }
    // What is too short to be measured takes some time.
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

/// One device: a stage, the stashes on it, and those that it has put on the host.
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

/// The same step on one device, one microbatch after the other.
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

} // namespace

int main() {
    const auto p = measured_problem();
    const auto planned = optpipe::plan(p);
    if (!planned) return std::cerr << optpipe::describe(planned.why()) << '\n', 1;
    std::cout << "a step of " << optpipe::format_number(planned->objective) << " ms, at least "
              << optpipe::format_number(planned->bound) << " ms\n";

    const auto lists = optpipe::operations_by_rank(planned->schedule);
    engine::mailbox activations;
    engine::mailbox gradients;
    std::vector<device> all;
    for (std::uint32_t r = 0; r < devices; ++r)
        all.emplace_back(r, activations, gradients);
    {
        std::vector<std::jthread> threads;
        for (std::uint32_t r = 0; r < devices; ++r)
            threads.emplace_back([&, r] { all[r].run(lists[optpipe::rank{r}]); });
    }

    const auto alone = train_alone();
    // Sums over microbatches in another order.
    constexpr double rounding = 1e-9;
    for (std::uint32_t r = 0; r < devices; ++r) {
        const auto off = difference(all[r].gradient(), alone[r].gradient());
        std::cout << "device " << r << ": " << all[r].most_stashes() << " stashes at most, gradient off by "
                  << optpipe::format_number(off, 2) << '\n';
        if (off > rounding || static_cast<double>(all[r].most_stashes()) > stashes) return 1;
    }
    return 0;
}
