// What autograd saves: counted, moved to the host, recomputed, and left for W.
#include "libtorch/small_model.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/execution/libtorch/measure.hpp"
#include "optpipe/execution/libtorch/stage_runner.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/validate_problem.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

using libtorch::stash_option;
using libtorch::tensors;

const stash_option keep{};
const stash_option offload{false, 1.0, {}};
const stash_option ahead{true, 0.0, {""}};
const stash_option inside{false, 0.0, {""}};
const stash_option selective{true, 0.0, {"inner"}};

/// The gradients of the input and the weights of one microbatch of the second stage.
tensors gradients_with(const libtorch::training& model, const stash_option& how, bool splits) {
    libtorch::stash_memory memory;
    libtorch::stage_runner runner{model, {stage{1}, 3, 1}, {how}, memory};
    const tensors inputs{small_model::input_of(0, microbatch{})};
    static_cast<void>(runner.rehearse(inputs, 0));
    small_model::forget_gradients(model);
    auto [now, outputs] = runner.forward(0, microbatch{}, inputs, 0);
    if (how.share > 0.0) {
        const auto bytes = memory.device.now();
        now->saved->move_to_host(how.share);
        CHECK(memory.device.now() == 0);
        CHECK(memory.host.now() == bytes);
        now->saved->move_to_device();
        CHECK(memory.device.now() == bytes);
        CHECK(memory.host.now() == 0);
    }
    if (how.is_ahead) {
        const auto before = memory.device.now();
        now->saved->recompute();
        CHECK(memory.device.now() > before);
    }
    const tensors gradient{at::cos(outputs.front())};
    auto all = splits ? runner.backward_input(*now, gradient) : runner.backward(*now, gradient);
    if (splits) runner.backward_weight(*now);
    now.reset();
    CHECK(memory.device.now() == 0);
    for (const auto& each : model.stages[1].parameters)
        all.push_back(each.grad());
    return all;
}

void check_equal(const tensors& found, const tensors& expected) {
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
        CAPTURE(i);
        REQUIRE(found[i].defined());
        CHECK(at::equal(found[i], expected[i]));
    }
}

TEST_CASE("each storage option, with whole and with split backwards, has the gradients of autograd") {
    at::set_num_threads(1);
    const auto model = small_model::training_of(3);
    const auto x = small_model::input_of(0, microbatch{}).requires_grad_();
    tensors to{x};
    to.insert(to.end(), model.stages[1].parameters.begin(), model.stages[1].parameters.end());
    tensors expected;
    {
        const libtorch::random_scope random{at::kCPU, libtorch::seed_of(model, 0, stage{1}, microbatch{}, 1)};
        const auto y = model.stages[1].forward({x}).front();
        expected = torch::autograd::grad({y}, to, {at::cos(y.detach())});
    }
    for (const auto& how : {keep, offload, ahead, inside, selective})
        for (const bool splits : {false, true}) {
            CAPTURE(how.is_ahead);
            CAPTURE(splits);
            check_equal(gradients_with(model, how, splits), expected);
        }
}

/// Checks a stage that has outputs without gradients, and two that don't depend on its input but on each other.
void check_outputs_beside(bool shares_weights) {
    at::set_num_threads(1);
    auto model = small_model::training_of(3, shares_weights);
    auto& module = model.stages[1];
    const auto forward = module.forward;
    const auto bias = module.parameters[1];
    module.forward = [=](const tensors& inputs) {
        const auto beside = at::sin(bias);
        return tensors{at::argmax(inputs[1], 1), beside, forward({inputs[1]}).front(), at::exp(beside), inputs[0]};
    };
    const tensors inputs{at::arange(3), small_model::input_of(0, microbatch{})};
    const auto gradients_of = [&](bool splits) {
        libtorch::stash_memory memory;
        libtorch::stage_runner runner{model, {stage{1}, 3, 1}, {keep}, memory};
        static_cast<void>(runner.rehearse(inputs, 0));
        small_model::forget_gradients(model);
        auto [now, outputs] = runner.forward(0, microbatch{}, inputs, 0);
        const tensors gradients{{}, at::cos(outputs[1]), at::cos(outputs[2]), at::cos(outputs[3]), {}};
        auto all = splits ? runner.backward_input(*now, gradients) : runner.backward(*now, gradients);
        if (splits) runner.backward_weight(*now);
        REQUIRE(all.size() == 2);
        CHECK(!all[0].defined());
        all.erase(all.begin());
        for (const auto& each : module.parameters)
            all.push_back(each.grad());
        return all;
    };
    const auto x = small_model::input_of(0, microbatch{}).requires_grad_();
    tensors to{x};
    to.insert(to.end(), module.parameters.begin(), module.parameters.end());
    const libtorch::random_scope random{at::kCPU, libtorch::seed_of(model, 0, stage{1}, microbatch{}, 1)};
    const auto y = module.forward({inputs[0], x});
    const auto expected = torch::autograd::grad(
        {y[1], y[2], y[3]}, to, {at::cos(y[1].detach()), at::cos(y[2].detach()), at::cos(y[3].detach())});
    for (const bool splits : {false, true}) {
        const auto found = gradients_of(splits);
        REQUIRE(found.size() == expected.size());
        for (std::size_t i = 0; i < found.size(); ++i)
            CHECK(at::allclose(found[i], expected[i], 1e-12, 1e-15));
    }
}

TEST_CASE("a stage may have outputs without gradients, and outputs that don't depend on its input") {
    check_outputs_beside(false);
    check_outputs_beside(true);
}

TEST_CASE("recomputation happens under the autocast of the forward") {
    at::set_num_threads(1);
    libtorch::training model;
    torch::nn::Linear inner{small_model::width, small_model::width};
    const auto forward = [inner](const tensors& inputs) mutable {
        const libtorch::autocast_scope casts{{at::kCPU, true, at::kBFloat16}};
        return tensors{libtorch::part(
            "inner", [&inner](const at::Tensor& x) { return at::gelu(inner->forward(x)); }, inputs.front())};
    };
    for (std::size_t s = 0; s < 3; ++s)
        model.stages.push_back({forward, inner->parameters(), {}});
    model.input = [](std::size_t step, microbatch m) { return tensors{small_model::input_of(step, m).to(at::kFloat)}; };
    const auto gradient_with = [&](const stash_option& how) {
        libtorch::stash_memory memory;
        libtorch::stage_runner runner{model, {stage{1}, 3, 1}, {how}, memory};
        auto [now, outputs] = runner.forward(0, microbatch{}, model.input(0, microbatch{}), 0);
        const bool is_cast = outputs.front().scalar_type() == at::kBFloat16;
        CHECK(is_cast);
        small_model::forget_gradients(model);
        static_cast<void>(runner.backward(*now, {at::ones_like(outputs.front())}));
        return inner->weight.grad().clone();
    };
    CHECK(at::equal(gradient_with(keep), gradient_with({false, 0.0, {"inner"}})));
}

TEST_CASE("a forward that saves other tensors when it is repeated is refused") {
    auto model = small_model::training_of(3);
    auto calls = std::make_shared<int>(0);
    const auto forward = model.stages[1].forward;
    model.stages[1].forward = [=](const tensors& inputs) {
        return ++*calls % 2 == 1 ? forward(inputs) : tensors{at::tanh(inputs.front())};
    };
    libtorch::stash_memory memory;
    libtorch::stage_runner runner{model, {stage{1}, 3, 1}, {ahead}, memory};
    auto done = runner.forward(0, microbatch{}, {small_model::input_of(0, microbatch{})}, 0);
    CHECK_THROWS_WITH_AS(done.now->saved->recompute(), doctest::Contains("when it was recomputed"), error);
}

TEST_CASE("a stage is measured with every storage option, and left as it was") {
    at::set_num_threads(1);
    const auto model = small_model::training_of(3);
    const auto before = model.stages[1].parameters.front().clone();
    const auto random = libtorch::random_state(at::kCPU);
    const auto p = libtorch::measured_problem(model, to_any_graph(graph<3, 4>{}), {.repeats = 2});
    CHECK(validate(p).empty());
    CHECK(at::equal(model.stages[1].parameters.front(), before));
    CHECK(at::equal(libtorch::random_state(at::kCPU), random));
    for (const auto& each : model.stages[1].parameters)
        CHECK(!each.grad().defined());

    const auto& costs = p.costs[stage{1}];
    const auto& options = p.storage[stage{1}];
    std::vector<std::string> names;
    for (const auto& each : options)
        names.emplace_back(each.name.view());
    CHECK(names == std::vector<std::string>{"keep", "offload", "recompute", "selective"});
    // The input alone, which is what a recomputation of the whole stage starts from.
    const auto input = static_cast<double>(8 * small_model::samples * small_model::width);
    CHECK(options[2].held.value() == input);
    CHECK(options[3].held > options[2].held);
    CHECK(costs.activation > options[3].held);
    // Three gradients come to it, and some of the activation goes.
    CHECK(costs.weight_stash.value() > 3 * input);
    CHECK(costs.weight_stash.value() < costs.activation.value() + 3 * input);
    CHECK(costs.forward > duration{});

    const auto alone = libtorch::measure_stage(model.stages[1], {small_model::input_of(0, microbatch{})});
    CHECK(alone.costs.activation == costs.activation);
    CHECK(alone.costs.weight_stash == costs.weight_stash);
    CHECK(alone.storage.size() == 3);
    CHECK(alone.outputs.size() == 1);
}

TEST_CASE("modules of LibTorch are stages") {
    torch::nn::Sequential sequence{torch::nn::Linear{3, 2}, torch::nn::Tanh{}};
    const auto of_holder = libtorch::stage_of(sequence);
    const auto of_pointer = libtorch::stage_of(sequence.ptr());
    const auto of_any = libtorch::stage_of(torch::nn::AnyModule{torch::nn::Linear{3, 2}});
    const auto x = at::ones({1, 3});
    CHECK(at::equal(of_holder.forward({x}).front(), of_pointer.forward({x}).front()));
    CHECK(of_any.forward({x}).front().size(1) == 2);
    for (const auto* const each : {&of_holder, &of_pointer, &of_any})
        CHECK(each->parameters.size() == 2);
}

} // namespace
