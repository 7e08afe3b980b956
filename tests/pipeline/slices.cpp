// Factors from lengths: slices of sequences, packed documents.
#include "optpipe/pipeline/slices.hpp"

#include "optpipe/core/contract.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/pipeline_builder.hpp"
#include "optpipe/pipeline/validate_problem.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

namespace {

using namespace optpipe;

void check_factors(const cost_factors& f, double forward, double backward_input, double others) {
    CHECK(f.forward == doctest::Approx(forward));
    CHECK(f.backward_input == doctest::Approx(backward_input));
    CHECK(f.backward_weight == doctest::Approx(others));
    CHECK(f.memory == doctest::Approx(others));
    CHECK(f.message == doctest::Approx(others));
}

// Two sequences of two slices, at compile time.
constexpr auto two_sequences = slices<3, 4>(std::array{8, 8}, 0.5, 2);
static_assert(two_sequences.factors(stage{0}, microbatch{0}) == cost_factors{0.375, 0.5 / 1.5, 0.5, 0.5, 0.5});
static_assert(two_sequences.factors(stage{2}, microbatch{3}).forward == 0.625);
static_assert(two_sequences.slice_after(microbatch{0}) && !two_sequences.slice_after(microbatch{1}));
static_assert(two_sequences.fits(3, 4) && !two_sequences.fits(3, 5));

} // namespace

TEST_CASE("slices of equal length: attention grows along the sequence") {
    // slice i of k: (2i + 1) / k² of attention, 1 / k of the rest
    const auto list = slices(std::vector{4096}, 0.25, 4);
    for (std::size_t i = 0; i < 4; ++i) {
        const double attention = (2.0 * static_cast<double>(i) + 1.0) / 16.0;
        check_factors(list.factors(stage{0}, microbatch{i}), 0.75 * 0.25 + 0.25 * attention,
                      (0.75 * 0.25 + 0.5 * attention) / 1.25, 0.25);
    }
    CHECK_FALSE(list.slice_before(microbatch{0}));
    CHECK(list.slice_before(microbatch{3}) == microbatch{2});
    CHECK(slices(std::vector(3, 100), 0.7, 1) == microbatch_list<>{}); // whole, and equal
}

TEST_CASE("sequences of unequal length: relative to the mean, or to a length that is given") {
    const auto list = slices(std::vector{1000, 3000}, 0.5, 1);
    check_factors(list.factors(stage{0}, microbatch{0}), 0.25 + 0.125, (0.25 + 0.25) / 1.5, 0.5);
    check_factors(list.factors(stage{0}, microbatch{1}), 0.75 + 1.125, (0.75 + 2.25) / 1.5, 1.5);
    CHECK_FALSE(list.has_slices());
    const auto halves = slices(std::vector{2000.0}, 0.5, 2, 1000.0);
    check_factors(halves.factors(stage{0}, microbatch{0}), 1.0, 1.0, 1.0);
    check_factors(halves.factors(stage{0}, microbatch{1}), 0.5 + 1.5, (0.5 + 3.0) / 1.5, 1.0);
}

TEST_CASE("slices of equal time: F, and I and W together, take the same for each") {
    for (const double share : {0.0, 0.25, 0.5, 1.0}) {
        CAPTURE(share);
        const auto list = equal_time_slices(std::vector{512, 2048}, share, 8, 1024);
        double tokens = 0.0;
        for (std::size_t m = 0; m < 16; ++m) {
            const auto& f = list.factors(stage{0}, microbatch{m});
            const double length = m < 8 ? 0.5 : 2.0;
            const double time = ((1.0 - share) * length + share * length * length) / 8.0;
            CHECK(f.forward == doctest::Approx(time));
            // I takes 1 + a of the sequence's F, and W takes 1 − a.
            CHECK((1.0 + share) * f.backward_input + (1.0 - share) * f.backward_weight == doctest::Approx(2.0 * time));
            if (m % 8 > 0) CHECK(f.memory <= list.factors(stage{0}, microbatch{m - 1}).memory + 1e-12);
            tokens += f.memory;
        }
        CHECK(tokens == doctest::Approx(2.5));
    }
    // x² / 2 + x / 2 = 1 / 2
    CHECK(end_of_time(0.5, 0.5) == doctest::Approx(0.6180339887));
    CHECK(end_of_time(0.25, 1.0) == doctest::Approx(0.5));
    CHECK(end_of_time(6.0, 0.5) == doctest::Approx(3.0));
    static_assert(end_of_time(0.25, 0.0) == 0.25);
}

TEST_CASE("a share of attention for each stage: times are equal on the stage with the largest") {
    const std::array shares{0.5, 0.0};
    const auto list = equal_time_slices(std::vector{64}, shares, 2);
    CHECK(list.is_by_stage());
    const double first = (std::sqrt(5.0) - 1.0) / 2.0;
    check_factors(list.factors(stage{0}, microbatch{0}), 0.5, (0.5 * first + first * first) / 1.5, first);
    check_factors(list.factors(stage{1}, microbatch{1}), 1.0 - first, 1.0 - first, 1.0 - first);
    CHECK(list.fits(2, 2));
    CHECK_FALSE(list.fits(3, 2));
}

TEST_CASE("slices of whole tokens") {
    CHECK(equal_time_lengths(4096, 0.0, 4) == std::vector<std::size_t>(4, 1024));
    CHECK(equal_time_lengths(1000, 0.5, 2) == std::vector<std::size_t>{618, 382});
    CHECK(equal_time_lengths(1000, 0.5, 2, 100) == std::vector<std::size_t>{600, 400});
    CHECK(equal_time_lengths(400, 1.0, 4, 100) == std::vector<std::size_t>(4, 100)); // at least one multiple each
    CHECK(equal_time_lengths(2000, 0.5, 2, 1, 1000) == std::vector<std::size_t>{1303, 697}); // x² / 2 + x / 2 = 3 / 2
    const auto list = slices_of(std::vector<std::vector<std::size_t>>{{600, 400}, {1000}}, 0.5);
    check_factors(list.factors(stage{0}, microbatch{0}), 0.3 + 0.18, (0.3 + 0.36) / 1.5, 0.6);
    check_factors(list.factors(stage{0}, microbatch{1}), 0.2 + 0.32, (0.2 + 0.64) / 1.5, 0.4);
    CHECK(list.factors(stage{0}, microbatch{2}) == usual_factors);
    CHECK(list.slice_after(microbatch{0}) == microbatch{1});
    CHECK_FALSE(list.is_slice(microbatch{2}));
    CHECK(slices_of(std::vector<std::vector<int>>{{2, 2}, {2, 2}}, 0.5) == slices(std::vector{4, 4}, 0.5, 2));
}

TEST_CASE("packed documents: lengths add up, and so do their squares") {
    const std::vector<std::vector<int>> documents{{4096}, {1024, 3072}, {2048, 1024, 1024}};
    const auto list = packed_documents(documents, 0.5);
    CHECK(list.factors(stage{0}, microbatch{0}) == usual_factors);
    check_factors(list.factors(stage{0}, microbatch{1}), 0.5 + 0.5 * 0.625, (0.5 + 0.625) / 1.5, 1.0);
    check_factors(list.factors(stage{0}, microbatch{2}), 0.5 + 0.5 * 0.375, (0.5 + 0.375) / 1.5, 1.0);
    CHECK_FALSE(list.has_slices());
    const auto longer = packed_documents(documents, 0.5, 8192);
    check_factors(longer.factors(stage{0}, microbatch{0}), 0.25 + 0.125, (0.25 + 0.25) / 1.5, 0.5);
}

TEST_CASE("microbatches that differ on some stages only") {
    const auto list = scaled_stages(std::array{stage{2}}, std::array{1, 3}, 3);
    CHECK(list.factors(stage{2}, microbatch{1}) == equal_factors(3.0));
    CHECK(list.factors(stage{2}, microbatch{0}) == usual_factors);
    CHECK(list.factors(stage{1}, microbatch{1}) == usual_factors);
}

TEST_CASE("a list of another number of microbatches or stages is refused") {
    pipeline_builder model;
    model.add_chain({rank{0}, rank{1}}, unit_memory{});
    auto p = model.build(6);
    p.microbatches = slices(std::vector(3, 10), 0.5, 2);
    CHECK(validate(p).empty());
    p.microbatches = slices(std::vector(4, 10), 0.5, 2);
    REQUIRE(validate(p).size() == 1);
    CHECK(validate(p).front().text() == "microbatches: must list 6 microbatches on 2 stages");
    p.microbatches = slices(std::vector(3, 10), std::array{0.1, 0.2, 0.3}, 2);
    CHECK(validate(p).size() == 1);
    p.microbatches = {};
    p.microbatches.set_sequences(std::vector{1, 1, 2});
    CHECK(validate(p).size() == 1);
}

TEST_CASE("a costed length that is negative or no finite number is refused") {
    if (!contracts_throw()) return;
    const std::vector<std::vector<int>> lists{{4, 4}};
    for (const double length : {-5.0, std::nan(""), HUGE_VAL}) {
        CAPTURE(length);
        CHECK_THROWS_AS(static_cast<void>(slices(std::vector{8}, 0.5, 2, length)), contract_error);
        CHECK_THROWS_AS(static_cast<void>(equal_time_slices(std::vector{8}, 0.5, 2, length)), contract_error);
        CHECK_THROWS_AS(static_cast<void>(equal_time_lengths(8, 0.5, 2, 1, length)), contract_error);
        CHECK_THROWS_AS(static_cast<void>(slices_of(lists, 0.5, length)), contract_error);
        CHECK_THROWS_AS(static_cast<void>(packed_documents(lists, 0.5, length)), contract_error);
    }
}
