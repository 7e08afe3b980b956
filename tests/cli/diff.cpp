#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

using namespace program;
using nlohmann::json;

namespace {

/// A problem, and plans of it by methods.
struct plans {
    workplace place;
    std::string problem = place / "problem.json";

    /// Without a limit of memory.
    explicit plans(const std::string& name) {
        auto given = json::parse(content_of(data(name)));
        given.erase("memory_limit");
        place.write("problem.json", given.dump());
    }
    std::string by(const std::string& method) const {
        const auto path = place / (method + ".json");
        const auto result = run({"plan", problem, "--method", method, "--quiet", "--out", path});
        REQUIRE_MESSAGE(result.status == 0, result);
        return path;
    }
    [[nodiscard]] finished diff(const std::string& a, const std::string& b) const {
        return run({"diff", problem, a, b});
    }
};

} // namespace

TEST_CASE("diff of two plans: exit status, measures, peaks, and the first difference of each rank") {
    const plans here{"problems/unit-p4-m8-mem100.json"};
    const auto one = here.by("1f1b");
    const auto other = here.by("gpipe");
    const auto same = here.diff(one, one);
    CHECK_MESSAGE((same.status == 0 && same.out.starts_with("the same")), same);
    const auto result = here.diff(one, other);
    REQUIRE_MESSAGE((result.status == 1 && result.err.empty()), result);
    CHECK_MESSAGE((words_after("step", result.out) == std::vector<std::string>{"33", "33"}), result);
    // Of 1F1B, rank 0 begins with four forwards, and holds four stashes.
    const auto first = words_after("0", result.out);
    REQUIRE_MESSAGE(first.size() >= 6, result);
    CHECK_MESSAGE((first[0] == "4" && first[1] == "8"), result);
    CHECK_MESSAGE(contains(result.out, "5. computation: 0B0, 0F4"), result);
    CHECK_MESSAGE(contains(result.out, "2. computation: 3B0, 3F1"), result);
}

TEST_CASE("diff sees times and storage options that differ in the same order") {
    const plans here{"problems/unit-p4-m8-mem100.json"};
    const auto plan = here.by("gpipe");
    auto later = json::parse(here.place.read("gpipe.json"));
    for (auto& entry : later["operations"])
        for (const auto* when : {"start", "end"})
            entry[when] = entry[when].get<double>() + 2.0;
    for (const auto* claim : {"objective", "bound", "gap", "bubble_rate"})
        later.erase(claim);
    const auto shifted = here.diff(plan, here.place.write("later.json", later.dump()));
    CHECK_MESSAGE(
        (shifted.status == 1 && contains(shifted.out, "the same order on every rank; starts differ by up to 2")),
        shifted);

    const plans stored{"stored.json"};
    const auto kept = stored.by("1f1b:storage=full");
    auto one_other = json::parse(stored.place.read("1f1b:storage=full.json"));
    for (auto& entry : one_other["operations"])
        if (entry["op"] == "0F0") entry["storage"] = "keep";
    for (auto& entry : one_other["operations"]) // without recomputation its backward is shorter
        if (entry["op"] == "0B0" || entry["op"] == "0I0") entry["end"] = entry["end"].get<double>() - 10.0;
    for (const auto* claim : {"objective", "bound", "gap", "bubble_rate", "peak_memory"})
        one_other.erase(claim);
    const auto storage = stored.diff(kept, stored.place.write("other.json", one_other.dump()));
    CHECK_MESSAGE((storage.status == 1 && contains(storage.out, "1 stash is stored otherwise")), storage);
    CHECK_MESSAGE(contains(storage.out, "storage keep"), storage);
}

TEST_CASE("diff refuses what isn't a plan of the problem, and a training step against forwards alone") {
    const plans here{"problems/unit-p4-m8-mem100.json"};
    const auto plan = here.by("gpipe");
    auto broken = json::parse(here.place.read("gpipe.json"));
    broken["operations"].erase(0);
    const auto refused = here.diff(plan, here.place.write("broken.json", broken.dump()));
    CHECK_MESSAGE((refused.status == 2 && refused.says({"broken.json"})), refused);
    REQUIRE(run({"plan", here.problem, "--forward-only", "--quiet", "--out", here.place / "f.json"}).status == 0);
    const auto forwards = here.place / "f.json";
    const auto mixed = here.diff(plan, forwards);
    CHECK_MESSAGE((mixed.status == 2 && mixed.says({"f.json", "forwards alone"})), mixed);
    CHECK(here.diff(forwards, forwards).status == 0);
}

TEST_CASE("diff as JSON has what the text says") {
    const plans here{"problems/unit-p4-m8-mem100.json"};
    const auto a = here.by("1f1b");
    const auto b = here.by("gpipe");
    const auto same = run({"diff", here.problem, a, a, "--json"});
    REQUIRE_MESSAGE((same.status == 0 && same.err.empty()), same);
    CHECK(json::parse(same.out)["same"] == true);
    const auto result = run({"diff", here.problem, a, b, "--json"});
    REQUIRE_MESSAGE((result.status == 1 && result.err.empty()), result);
    const auto told = json::parse(result.out);
    CHECK((told["format"] == "optpipe.diff-result/1" && told["same"] == false));
    CHECK(told["a"]["objective"] == json::parse(here.place.read("1f1b.json"))["objective"]);
    CHECK(told["b"]["peak_memory"] == json::parse(here.place.read("gpipe.json"))["peak_memory"]);
    REQUIRE(told["first_differences"].size() == 4);
    CHECK(told["first_differences"][3]["lane"] == "computation");
    CHECK(told["first_differences"][3]["position"] == 1); // after 3F0
    CHECK((told["first_differences"][3]["b"] == "3F1" && told["largest_shift"] > 0.0));
}

#endif
