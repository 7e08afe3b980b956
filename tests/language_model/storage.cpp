// Every microbatch of a stage may be stored in another way: the gradients stay the same, bit for bit, in exactly the
// memory of the plan.
#include "language_model/mixed_training.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/builders/zero_bubble_v.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace {

namespace placement = optpipe::placement;

constexpr std::size_t ranks = 4;
constexpr std::size_t microbatches = 8;

template <class Placement, class Builder>
void check(const Builder& build, const training::storage_options& storage, std::uint64_t seed) {
    CAPTURE(std::string{build.name});
    CAPTURE(seed);
    const auto p = training::stored_problem<Placement>(ranks, microbatches, storage);
    const auto [tight, s] = training::mixed_schedule(p, build, seed);
    CHECK(training::gradients_by(tight, s, storage) == training::gradients_alone(s));
}

} // namespace

TEST_CASE("with one storage option everywhere, under full and under split backwards") {
    for (const auto& option : training::all_storage) {
        CAPTURE(std::string{option.name});
        check<placement::linear>(optpipe::one_forward_one_backward, {option}, 1);
        check<placement::linear>(optpipe::zero_bubble_h1, {option}, 2);
    }
}

TEST_CASE("with random mixes of all options") {
    for (std::uint64_t seed = 10; seed < 16; ++seed) {
        check<placement::linear>(optpipe::gpipe, training::all_storage, seed);
        check<placement::linear>(optpipe::one_forward_one_backward, training::all_storage, seed);
        check<placement::linear>(optpipe::zero_bubble_h1, training::all_storage, seed);
        check<placement::v>(optpipe::zero_bubble_v, training::all_storage, seed);
    }
}

TEST_CASE("step after step, with updates") {
    const auto p = training::stored_problem<placement::linear>(ranks, microbatches, training::all_storage);
    const auto [tight, s] = training::mixed_schedule(p, optpipe::zero_bubble_h1, 20);
    const auto plain = mixed_storage::without_options(p);
    auto stored = training::fresh_stages(ranks);
    auto kept = training::fresh_stages(ranks);
    CHECK(training::train(stored, tight, s, 4, training::all_storage) ==
          training::train(kept, plain, *build_schedule(plain, optpipe::zero_bubble_h1), 4));
}

TEST_CASE("between forward and backward no more is held than the option says") {
    using language_model::recomputation;
    const auto peak_with = [](const language_model::stash_storage& option) {
        const auto p = training::stored_problem<placement::linear>(ranks, microbatches, {option});
        return measure(p, training::mixed_schedule(p, optpipe::gpipe, 1).schedule).peak_memory;
    };
    const auto full = peak_with({.name = "full", .again = recomputation::full, .inside = true});
    const auto stages = training::fresh_stages(ranks);
    for (const std::size_t r : {0U, 1U, 2U}) {
        const auto input = r == 0 ? 0 : sizeof(double) * stages[r].boundary();
        CHECK(full[optpipe::rank{r}].value() == static_cast<double>(microbatches * input));
    }
    const auto kept = peak_with({.name = "keep"});
    const auto attention = peak_with({.name = "attention", .again = recomputation::attention, .inside = true});
    const auto activations = peak_with({.name = "activations", .again = recomputation::feed_forward, .inside = true});
    for (const auto r : optpipe::index_range<optpipe::rank>{ranks}) {
        const auto layers = static_cast<double>(training::layers / ranks * microbatches * sizeof(double));
        constexpr auto& s = training::tiny;
        CHECK((kept[r] - attention[r]).value() == layers * static_cast<double>(s.boundary() + s.attention_weights()));
        CHECK((kept[r] - activations[r]).value() == layers * static_cast<double>(s.tokens() * s.feed_forward()));
    }
}

TEST_CASE("a full recomputation restores each piece where both backwards find it") {
    const auto stages = training::fresh_stages(3);
    for (const auto& stage : stages) {
        const language_model::stash_layout layout{stage, language_model::recomputation::full};
        const auto places = layout.after_recompute({std::min(layout.held(), stage.kept()), stage.kept(), true});
        std::size_t moved = 0;
        for (std::size_t i = 0; i < layout.pieces().size(); ++i) {
            CHECK(places.pieces[i].size() == 1);
            if (layout.pieces()[i].is_kept && !layout.stays(i, places)) ++moved;
        }
        // The head isn't recomputed: the memory that its input gradient frees prevents one piece.
        CHECK(moved == (&stage == &stages.back() ? 1 : 0));
    }
}
