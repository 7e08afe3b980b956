#include "../../examples/language_model/adamw.hpp"
#include "../../examples/language_model/whole_model.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

using namespace language_model;

namespace {

const std::string text =
    "a schedule is an order; times are derived. what runs is the order of each lane, and no lane waits "
    "for more than it has to; what is stashed is freed, what travels comes back.";
constexpr shape tiny{.hidden = 8, .heads = 2, .sequence = 6, .sequences = 2, .vocabulary = 128};

double loss_of(std::vector<model_stage<double>> stages, const text_step& step) {
    return unpipelined_step(stages, step, 2);
}

} // namespace

TEST_CASE("gradients are the slopes of the loss") {
    const text_step step{text, tiny, 2, 0};
    for (const std::size_t count : {1U, 2U, 3U}) {
        auto stages = make_stages<double>(tiny, 3, count, 7);
        unpipelined_step(stages, step, 2);
        double worst = 0.0;
        for (std::size_t i = 0; i < count; ++i)
            for (std::size_t k = 0; k < stages[i].parameters().size(); k += 37) {
                constexpr double width = 2e-6;
                auto moved = make_stages<double>(tiny, 3, count, 7);
                moved[i].parameters()[k] += width;
                const double above = loss_of(moved, step);
                moved[i].parameters()[k] -= 2 * width;
                const double slope = (above - loss_of(moved, step)) / (2 * width);
                worst = std::max(worst, std::abs(slope - stages[i].gradients()[k]));
            }
        CHECK(worst < 1e-8);
    }
}

TEST_CASE("the number of stages changes nothing but who holds what") {
    // The stages draw their parameters by number, so the parameters of two stages are copied into one.
    const text_step step{text, tiny, 3, 1};
    auto two = make_stages<double>(tiny, 2, 2, 7);
    auto one = make_stages<double>(tiny, 2, 1, 7);
    const auto first = two[0].parameters();
    const auto second = two[1].parameters();
    REQUIRE(first.size() + second.size() == one[0].parameters().size());
    std::copy(first.begin(), first.end(), one[0].parameters().begin());
    std::copy(second.begin(), second.end(), one[0].parameters().begin() + static_cast<std::ptrdiff_t>(first.size()));
    CHECK(unpipelined_step(two, step, 3) == unpipelined_step(one, step, 3));
    const std::vector<double> whole(one[0].gradients().begin(), one[0].gradients().end());
    std::vector<double> parts(two[0].gradients().begin(), two[0].gradients().end());
    parts.insert(parts.end(), two[1].gradients().begin(), two[1].gradients().end());
    CHECK(parts == whole);
}

TEST_CASE("what the input gradient frees isn't needed for the weight gradient") {
    const text_step step{text, tiny, 1, 0};
    auto stages = make_stages<double>(tiny, 1, 1, 3);
    auto& only = stages[0];
    std::vector<double> kept(only.kept());
    std::vector<double> freed(only.freed());
    std::vector<double> none(only.boundary());
    only.forward(step[0], none, kept, freed, none);
    only.backward_input(step[0], 1.0, none, kept, freed, none);
    freed = {};
    only.backward_weight(step[0], kept);
    double sum = 0.0;
    for (const double g : only.gradients())
        sum += std::abs(g);
    CHECK(std::isfinite(sum));
    CHECK(sum > 0.0);
}

TEST_CASE("training lowers the loss") {
    auto stages = make_stages<double>(tiny, 2, 2, 11);
    std::vector<adamw<double>> optimizers;
    for (auto& one : stages)
        optimizers.emplace_back(one.parameters().size(), adamw_rates{});
    std::vector<double> losses;
    for (std::size_t i = 0; i < 60; ++i) {
        losses.push_back(unpipelined_step(stages, text_step{text, tiny, 4, i}, 4));
        for (std::size_t k = 0; k < stages.size(); ++k)
            optimizers[k].step(stages[k].parameters(), stages[k].gradients());
    }
    CHECK(losses.front() > 4.0);
    CHECK(losses.back() < 0.75 * losses.front());
}
