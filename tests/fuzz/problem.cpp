#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "fuzz/mutate.hpp"
#include "optpipe/io.hpp"
#include "optpipe/schedule.hpp"

#include <optional>
#include <sstream>
#include <string>

using namespace optpipe;

namespace {

/// Problems with more stages times microbatches are read, but not planned.
constexpr std::size_t most_cells = 160;

std::optional<problem> parsed(const std::string& text) {
    try {
        return parse_problem(text, "mutated");
    } catch (const input_error& e) {
        CHECK(!e.violations().empty());
        CHECK(std::string{e.what()}.find('\n') == std::string::npos);
        return std::nullopt;
    }
}

void check_round_trip(const problem& p) {
    const auto text = problem_to_json(p);
    CHECK(problem_to_json(parse_problem(text, "again")) == text);
}

void check_schedule(const problem& p, const schedule_report& report, duration bound) {
    const auto violations = validate(p, report.schedule);
    CHECK_MESSAGE(violations.empty(), report.method << ": " << violations.front().text());
    const auto objective = report.measures.objective;
    CHECK_MESSAGE(bound <= (1.0 + 1e-6) * objective,
                  report.method << ": " << bound.value() << " > " << objective.value());

    const auto document = parse_schedule(schedule_to_json(p, report), "again");
    CHECK(document.unreadable.empty());
    CHECK(document.operations.size() == report.schedule.operations.size());
    CHECK(claims_violations(document, report.measures, claim_slacks_of(p, report.schedule)).empty());
}

void draw(const problem& p, const schedule_report& report) {
    CHECK(!schedule_to_svg(p, report).empty());
    CHECK(!schedule_to_chrome_trace(p, report).empty());
    std::ostringstream out;
    write_grid(out, p, report);
    CHECK(!verdict(p, report).empty());
}

/// Returns whether there was a schedule.
template <class Builder> bool check_builder(const problem& p, const Builder& build, duration bound) {
    const auto timed = build_schedule(p, build);
    if (!timed) {
        CHECK(!describe(timed.why()).empty());
        return false;
    }
    const auto report = make_report(p, std::string{Builder::name}, *timed);
    check_schedule(p, report, bound);
    draw(p, report);
    return true;
}

struct tally {
    std::size_t accepted = 0;
    std::size_t planned = 0;
};

void check_text(const std::string& text, tally& seen) {
    const auto p = parsed(text);
    if (!p) return;
    ++seen.accepted;
    CHECK(validate(*p).empty());
    check_round_trip(*p);
    if (p->graph.stages() * p->graph.microbatches() > most_cells) return;
    const auto bound = bounds_of(*p).best();
    CHECK(bound >= duration{});
    CHECK(!bound.is_unlimited());
    check_builder(*p, gpipe, bound);
    check_builder(*p, one_forward_one_backward, bound);
    const bool planned = check_builder(*p, adaptive_builder<>{{}, 1}, bound);
    CHECK((planned || !fits_one_at_a_time(*p)));
    seen.planned += planned ? 1 : 0;
}

} // namespace

TEST_CASE("a mutated problem is refused, or planned like any other") {
    const auto texts = fuzz::problem_texts();
    REQUIRE(texts.size() >= 5);
    tally seen;
    const auto count = fuzz::iterations(4000);
    for (std::size_t i = 0; i < count; ++i) {
        const auto seed = fuzz::first_seed() + i;
        fuzz::mutator mutator{seed};
        const auto text = mutator.mutate(texts[seed % texts.size()]);
        INFO("seed " << seed << ", text:\n" << text);
        check_text(text, seen);
    }
    MESSAGE(seen.accepted << " of " << count << " were accepted, " << seen.planned << " planned");
    // If nothing were accepted, only the parser would be tested.
    if (count < 100) return;
    CHECK(seen.accepted > count / 10);
    CHECK(seen.accepted < count);
    CHECK(seen.planned > count / 20);
}

TEST_CASE("what mutation once found: numbers so extreme that sums, areas or counts leave their range") {
    const auto with = [](const std::string& field, const std::string& number) {
        auto text = fuzz::content_of(OPTPIPE_SOURCE_DIR "/tests/data/v-three-ranks.json");
        const auto at = text.rfind("\"" + field + "\": ") + field.size() + 4;
        return text.replace(at, text.find_first_of(",} ", at) - at, number);
    };
    tally seen;
    // A limit whose tolerance is larger than any stash, and one beyond the range of a count.
    for (const auto* limit : {"999999", "1100000", "1e30", "1e60"})
        check_text(with("memory_limit", limit), seen);
    CHECK(seen.planned == 4);
    // Refused: numbers that make the length of a step, or its inverse, infinite.
    for (const auto* number : {"1.7976931348623157e308", "1e61", "1e-61", "5e-324"})
        for (const auto* field : {"forward", "backward_input", "backward_weight"})
            check_text(with(field, number), seen);
    CHECK(seen.accepted == 4);
    check_text(with("forward", "1e60"), seen);
    check_text(with("backward_weight", "1e-60"), seen);
    check_text(with("memory_limit", "4, \"p2p\": -0.0"), seen);
    CHECK(seen.planned == 7);
}

#endif
