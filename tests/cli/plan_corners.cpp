// The program on files at the limits of the format.
#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"
#include "fuzz/corner_problem.hpp"
#include "fuzz/iterations.hpp"
#include "optpipe/io.hpp"
#include "optpipe/io/json.hpp"
#include "optpipe/schedule.hpp"

#include <cstddef>
#include <cstdlib>
#include <string>

using namespace optpipe;

namespace {

/// Checks that the bound exceeds the objective at most by rounding.
void check_schedule(const problem& p, const std::string& text) {
    const auto document = parse_schedule(text, "planned");
    CHECK(document.unreadable.empty());
    const auto s = to_schedule(p, document);
    const auto violations = validate(p, s);
    CHECK_MESSAGE(violations.empty(), violations.front().text());
    const auto wrong = claims_violations(document, measure(p, s), claim_slacks_of(p, s));
    CHECK_MESSAGE(wrong.empty(), wrong.front().text());
    CHECK(document.bound.has_value());
}

} // namespace

TEST_CASE("a file from the edges is refused, has no schedule, or gets a valid one") {
    // OPTPIPE_FUZZ_FOLDER keeps the files, so that others can judge them.
    const char* kept = std::getenv("OPTPIPE_FUZZ_FOLDER");
    const program::workplace here;
    std::size_t planned = 0;
    const auto count = fuzz::iterations(60);
    for (std::size_t i = 0; i < count; ++i) {
        const auto seed = fuzz::first_seed() + i;
        random_numbers random{seed};
        const auto text = problem_to_json(fuzz::corner_maker{random}.make());
        INFO("seed " << seed << ", text:\n" << text);
        const auto name = kept ? std::string{kept} + "/" + std::to_string(seed) : here / "problem";
        write_file(name + ".json", text);
        const auto limit = std::to_string(0.001 * static_cast<double>(random.below(30)));
        const auto result = program::run(
            {"plan", name + ".json", "--time-limit", limit, "--threads", "1", "--out", name + ".plan.json"});
        CAPTURE(result.err);
        const bool known_end = result.status == 0 || result.status == 2 || result.status == 3;
        CHECK_MESSAGE(known_end, "exit status " << result.status);
        CHECK_FALSE(program::contains(result.err, "contract violated"));
        if (result.status != 0) {
            CHECK(result.says({".json: "}));
            continue;
        }
        ++planned;
        check_schedule(parse_problem(text, "again"), program::content_of(name + ".plan.json"));
    }
    MESSAGE(planned << " of " << count << " were planned");
    if (count >= 50) CHECK(planned > count / 2);
}

#endif
