#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM) || !defined(OPTPIPE_HAS_MILP)
TEST_CASE("not built: the program is missing, or has no solver") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>

#include <string>

using namespace program;
using nlohmann::json;

namespace {

const std::string offloading = data("problems/offload-p4-m8-mem050-k100.json");

json data_of(const std::string& page) {
    const std::string begin = "id=\"data\">";
    const auto from = page.find(begin) + begin.size();
    return json::parse(page.substr(from, page.find("</script>", from) - from));
}

} // namespace

TEST_CASE("a page of a plan has the search, and the best published schedule beside it") {
    const workplace place;
    const auto planned = run(
        {"plan", offloading, "--gap", "0.03", "--quiet", "--html", place / "plan.html", "--out", place / "plan.json"});
    REQUIRE_MESSAGE((planned.status == 0 && planned.err.empty()), planned);
    const auto page = data_of(place.read("plan.html"));
    const auto plan = json::parse(place.read("plan.json"));
    REQUIRE(page["schedules"].size() == 2);
    CHECK(page["schedules"][0]["objective"] == plan["objective"]);
    CHECK(page["schedules"][0]["title"] == "plan");
    CHECK(page["schedules"][1]["objective"] >= plan["objective"]);
    CHECK(page["bound"] == plan["bound"]);
    REQUIRE_FALSE(page["history"].empty());
    CHECK(page["history"].back()[1] == plan["objective"]);
    CHECK(page["strategies"].size() >= 1);
}

TEST_CASE("a page of a valid schedule has the idle time of each rank, which adds up to the step") {
    const workplace place;
    REQUIRE(run({"plan", offloading, "--gap", "0.1", "--quiet", "--html", place / "plan.html", "--out",
                 place / "plan.json"})
                .status == 0);
    const auto page = data_of(place.read("plan.html"));
    CHECK(page["causes"].size() == 6);
    REQUIRE(page["idle"].size() == 4);
    for (const auto& times : page["idle"]) {
        double sum = 0.0;
        for (const auto& each : times)
            sum += each.get<double>();
        CHECK(times.size() == 1 + page["causes"].size());
        CHECK(sum == doctest::Approx(page["schedules"][0]["end"].get<double>()));
    }
    REQUIRE(run({"draw", offloading, place / "plan.json", "--html", place / "drawn.html"}).status == 0);
    CHECK(data_of(place.read("drawn.html"))["idle"] == page["idle"]);
    REQUIRE(run({"plan", offloading, "--forward-only", "--quiet", "--html", place / "f.html"}).status == 0);
    CHECK(data_of(place.read("f.html"))["idle"].empty());

    auto broken = json::parse(place.read("plan.json"));
    broken["operations"].erase(0);
    const auto drawn =
        run({"draw", offloading, place.write("broken.json", broken.dump()), "--html", place / "broken.html"});
    REQUIRE_MESSAGE((drawn.status == 0 && contains(drawn.err, "breaks")), drawn);
    CHECK(data_of(place.read("broken.html"))["idle"].empty());
}

TEST_CASE("where stages list storage options, the best published schedule is beside the plan with its option") {
    const workplace place;
    // The plan must be better than any published schedule to end.
    const auto planned =
        run({"plan", data("storage/store-p3-m6-k150.json"), "--gap", "0.25", "--quiet", "--html", place / "plan.html"});
    REQUIRE_MESSAGE((planned.status == 0 && planned.err.empty()), planned);
    const auto page = data_of(place.read("plan.html"));
    REQUIRE(page["schedules"].size() == 2);
    CHECK(page["schedules"][1]["title"] == "zb-auto:storage=full");
    CHECK(page["schedules"][1]["objective"] == 280);
}

TEST_CASE("a page of a schedule, alone and with a measurement") {
    const workplace place;
    REQUIRE(run({"plan", offloading, "--gap", "0.1", "--quiet", "--out", place / "plan.json"}).status == 0);
    const auto alone = run({"draw", place / "plan.json", "--problem", offloading, "--html", place / "alone.html"});
    CHECK_MESSAGE((alone.status == 0 && alone.out.empty() && alone.err.empty()), alone);
    CHECK(data_of(place.read("alone.html"))["schedules"].size() == 1);
    const auto both = run({"draw", place / "plan.json", "--problem", offloading, "--measured", place / "plan.json",
                           "--html", place / "both.html"});
    CHECK_MESSAGE(both.status == 0, both);
    CHECK(data_of(place.read("both.html"))["schedules"][1]["title"] == "measured");
}

TEST_CASE("a page that can't be written is refused before the search") {
    const auto refused = run({"plan", offloading, "--html", "/nowhere/plan.html"});
    CHECK(refused.status == 2);
    CHECK_MESSAGE(refused.says({"/nowhere/plan.html"}), refused);
}

#endif
