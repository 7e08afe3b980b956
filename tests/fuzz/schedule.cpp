#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "fuzz/mutate.hpp"
#include "optpipe/io.hpp"
#include "optpipe/schedule.hpp"
#include "oracle/reference_checker.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

using namespace optpipe;

namespace {

struct planned {
    problem given;
    std::string text;
};

/// Small problems, each with a schedule as text.
std::vector<planned> plans() {
    std::vector<planned> all;
    for (const auto& text : fuzz::problem_texts()) {
        auto p = parse_problem(text, "given");
        const auto order = adaptive_builder<>{{}, 1}(p);
        if (!order || p.graph.cells() > 64) continue;
        auto schedule_text =
            schedule_to_json(p, make_report(p, "adaptive", *time_order(p, *order), bounds_of(p).best()));
        all.push_back({std::move(p), std::move(schedule_text)});
    }
    return all;
}

std::optional<schedule_document> parsed(const std::string& text) {
    try {
        return parse_schedule(text, "mutated");
    } catch (const input_error& e) {
        CHECK(!e.violations().empty());
        CHECK(std::string{e.what()}.find('\n') == std::string::npos);
        return std::nullopt;
    }
}

struct tally {
    std::size_t read = 0;
    std::size_t valid = 0;
};

/// Does the same as `optpipe check` and `optpipe draw` with a file.
void check_text(const problem& p, const std::string& text, tally& seen) {
    const auto document = parsed(text);
    if (!document) return;
    ++seen.read;
    const auto timed = to_schedule(p, *document);
    const bool sound = validate(p, timed).empty();
    CHECK(sound == is_valid(p, timed));
    const operation_numbering number{p.graph};
    const auto exists = [&](const timed_operation& t) {
        return number.contains(t.op) && t.op.storage < std::max<std::size_t>(1, p.storage[t.op.stage].size());
    };
    if (!std::all_of(timed.operations.begin(), timed.operations.end(), exists)) {
        CHECK(!sound);
        return;
    }
    const auto m = measure(p, timed);
    const auto claims = claims_violations(*document, m, claim_slacks_of(p, timed));
    auto report = make_report(p, document->method, timed);
    if (document->bound && *document->bound <= m.objective) report.bound = document->bound;
    CHECK(!schedule_to_svg(p, report).empty());
    if (!sound || !document->unreadable.empty() || !claims.empty()) return;
    ++seen.valid;
    // Their tolerances are relative to different quantities.
    if (!is_valid(p, timed, tolerance{1e-8})) return;
    const auto judged = oracle::judge(p, timed);
    CHECK_MESSAGE(judged.valid(), judged.text());
}

} // namespace

TEST_CASE("a mutated schedule is refused, or found valid by an independent reading of the rules too") {
    const auto given = plans();
    REQUIRE(given.size() >= 4);
    tally seen;
    const auto count = fuzz::iterations(4000);
    for (std::size_t i = 0; i < count; ++i) {
        const auto seed = fuzz::first_seed() + i;
        const auto& plan = given[seed % given.size()];
        fuzz::mutator mutator{seed};
        const auto text = mutator.mutate(plan.text);
        INFO("seed " << seed << ", text:\n" << text);
        check_text(plan.given, text, seen);
    }
    MESSAGE(seen.read << " of " << count << " were read, " << seen.valid << " are valid");
    if (count < 100) return;
    CHECK(seen.read > count / 10);
    CHECK(seen.read < count);
    CHECK(seen.valid > count / 100);
    CHECK(seen.valid < seen.read);
}

TEST_CASE("what mutation once found: schedules so long or so short that no axis fits them") {
    const auto p = parse_problem(fuzz::content_of(OPTPIPE_SOURCE_DIR "/tests/data/two-ranks.json"), "given");
    tally seen;
    for (const std::string time : {"1.7976931348623157e308", "1e300", "5e-324", "1e-305", "-1e308", "0"}) {
        const auto op =
            R"({"op": "0F0", "start": 0, "end": )" + time + R"(}, {"op": "1F0", "start": )" + time + R"(, "end": 0})";
        check_text(p, R"({"format": "optpipe.schedule/1", "operations": [)" + op + "]}", seen);
    }
    CHECK(seen.read == 3); // the others are beyond 1e100
    CHECK(seen.valid == 0);
}

#endif
