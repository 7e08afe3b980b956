#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>

#include <string>

using namespace program;
using nlohmann::json;

TEST_CASE("a published schedule with a storage option for all microbatches") {
    const workplace place;
    for (const std::string option : {"full", "mlp-ahead", "offload-half"}) {
        CAPTURE(option);
        const auto method = "gpipe:storage=" + option;
        const auto built = run({"plan", data("stored.json"), "--method", "1f1b:storage=" + option, "--out",
                                place / "s.json", "--svg", place / "s.svg"});
        if (built.status == 3) {
            CHECK_MESSAGE(contains(built.err, "its limit is 1.4 GB"), built);
            continue;
        }
        CHECK_MESSAGE((built.status == 0 && built.err.empty()), built);
        const auto file = json::parse(place.read("s.json"));
        CHECK(file["format"] == "optpipe.schedule/2");
        CHECK(file["method"] == "1f1b:storage=" + option);
        for (const auto& op : file["operations"])
            if (op["op"].get<std::string>().find('F') == 1) CHECK(op.value("storage", option) == option);
        const auto checked = run({"check", data("stored.json"), place / "s.json"});
        CHECK_MESSAGE((checked.status == 0 && checked.err.empty()), checked);
        CHECK(contains(checked.out, " recompute_rate="));
        CHECK(contains(checked.out, "share  stage 0  stage 1\n"));
        CHECK(contains(checked.out, option));
        CHECK(contains(place.read("s.svg"), "C recompute") == (option == "mlp-ahead"));
    }
}

TEST_CASE("a method without a storage option takes the best") {
    const workplace place;
    const auto built = run({"plan", data("stored.json"), "--method", "1f1b", "--json"});
    REQUIRE_MESSAGE(built.status == 0, built);
    const auto best = json::parse(built.out);
    CHECK(best["method"].get<std::string>().starts_with("1f1b:storage="));
    CHECK(best["recompute_rate"].get<double>() >= 0.0);
    std::size_t cells = 0;
    for (const auto& [name, count] : best["storage"].items())
        cells += count.get<std::size_t>();
    CHECK(cells == 8);
    for (const auto* option : {"keep", "full", "mlp-ahead", "offload", "offload-half"}) {
        const auto other =
            run({"plan", data("stored.json"), "--method", std::string{"1f1b:storage="} + option, "--json"});
        if (other.status != 0) continue;
        CHECK(json::parse(other.out)["objective"].get<double>() >= best["objective"].get<double>() - 1e-9);
    }
}

TEST_CASE("a storage option that there isn't is refused, with those that there are") {
    const auto refused = run({"plan", data("stored.json"), "--method", "gpipe:storage=fulll"});
    CHECK(refused.status == 2);
    CHECK(contains(refused.err, "storage: every stage must have \"fulll\"; all stages have keep, full, mlp-ahead"));
    // Without a list there are keep and offload.
    CHECK(run({"plan", data("whole-backward.json"), "--method", "gpipe:storage=keep", "--quiet"}).status != 2);
    CHECK(run({"plan", data("whole-backward.json"), "--method", "gpipe:storage=full", "--quiet"}).status == 2);
}

TEST_CASE("an option's name may have commas and backslashes, written with a backslash before them") {
    const workplace place;
    auto text = content_of(data("stored.json"));
    for (const std::string what = "\"full\""; contains(text, what);)
        text.replace(text.find(what), what.size(), R"("fu,l\\l")");
    const auto problem = place.write("p.json", text);
    const std::string method = R"(1f1b:storage=fu\,l\\l)";
    const auto built = run({"plan", problem, "--method", method, "--json"});
    REQUIRE_MESSAGE((built.status == 0 && built.err.empty()), built);
    CHECK(json::parse(built.out)["method"] == method);
    const auto best = run({"plan", problem, "--method", "1f1b", "--json"});
    CHECK_MESSAGE((best.status == 0 && json::parse(best.out)["method"] == method), best);
    const auto unescaped = run({"plan", problem, "--method", R"(1f1b:storage=fu,l\l)"});
    CHECK_MESSAGE((unescaped.status == 2 && unescaped.says({"method 1f1b", "it has no parameters"})), unescaped);
}

TEST_CASE("compare lists each method with its best storage option") {
    const workplace place;
    const auto result = run({"compare", data("stored.json"), "--json", place / "table.json"});
    REQUIRE_MESSAGE(result.status == 0, result);
    CHECK(contains(result.out, "recompute rate"));
    CHECK(contains(result.out, "1f1b:storage="));
    const auto table = json::parse(place.read("table.json"));
    CHECK(table["methods"].size() == 20);
    for (const auto& row : table["methods"])
        if (row.contains("objective")) {
            CHECK(row["objective"].get<double>() >= table["bound"].get<double>() * (1.0 - 1e-6));
            const bool chooses = row["method"] == "adapipe" || row["method"] == "mario";
            CHECK(contains(row["method"], ":storage=") != chooses);
        }
}

TEST_CASE("check names a storage option that its stage doesn't have, or doesn't follow") {
    const workplace place;
    REQUIRE(run({"plan", data("stored.json"), "--method", "1f1b:storage=full", "--quiet", "--out", place / "s.json"})
                .status == 0);
    auto file = json::parse(place.read("s.json"));
    for (auto& op : file["operations"])
        if (op["op"] == "0F0") op["storage"] = "half";
    place.write("bad.json", file.dump());
    auto checked = run({"check", data("stored.json"), place / "bad.json"});
    CHECK(checked.status == 1);
    CHECK(contains(checked.out, "INVALID: 1 violation\n0F0: its stage has no storage option \"half\"\n"));
    for (auto& op : file["operations"])
        if (op["op"] == "0F0") op["storage"] = "mlp-ahead";
    place.write("bad.json", file.dump());
    checked = run({"check", data("stored.json"), place / "bad.json"});
    CHECK(checked.status == 1);
    CHECK(contains(checked.out, "0RECOMPUTE0 is missing: its storage option asks for it"));
}

TEST_CASE(
    "a schedule with a storage option that its stage doesn't have can't be drawn or run, one that breaks rules can") {
    const workplace place;
    const auto schedule = [&](const std::string& storage, const std::string& more) {
        return place.write("s.json", R"({"format": "optpipe.schedule/2", "problem": "stored", "operations": [
            {"op": "0F0", "start": 0, "end": 10)" +
                                         storage + "}" + more + "]}");
    };
    for (const auto* command : {"draw", "run"}) {
        const auto file = schedule(R"(, "storage": "none")", "");
        const auto refused = std::string{command} == "draw" ? run({"draw", file, "--problem", data("stored.json")})
                                                            : run({"run", data("stored.json"), file});
        CHECK_MESSAGE((refused.status == 2 && refused.out.empty()), refused);
        CHECK_MESSAGE(contains(refused.err, "0F0: its stage has no storage option \"none\""), refused);
    }
    const auto drawn = run({"draw", schedule("", R"(, {"op": "0RECOMPUTE0", "start": 12, "end": 15},
        {"op": "0RELOAD0", "start": 12, "end": 15})"),
                            "--problem", data("stored.json")});
    CHECK_MESSAGE((drawn.status == 0 && contains(drawn.err, "note: the schedule breaks")), drawn);
}

#endif
