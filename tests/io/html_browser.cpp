// The page in a headless Chromium, driven by events; skipped if there is none. OPTPIPE_CHROMIUM sets another program.
#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "io/sample.hpp"
#include "optpipe/io/file.hpp"
#include "optpipe/io/html.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

using namespace optpipe;
using json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::optional<std::string> chromium() {
    if (const char* named = std::getenv("OPTPIPE_CHROMIUM")) return named;
    const char* path = std::getenv("PATH");
    std::istringstream folders{path ? path : ""};
    for (std::string folder; std::getline(folders, folder, ':');)
        for (const auto* name : {"chromium", "chromium-browser", "google-chrome"})
            if (fs::exists(fs::path{folder} / name)) return (fs::path{folder} / name).string();
    return std::nullopt;
}

/// The actions of a person on the page, and what is then on the screen.
constexpr const char* visit = R"js(<script>
(() => {
const rows = document.getElementById("rows");
const result = {};
const page = () => { optpipe.draw(); return optpipe.view(); };
const send = (type, x, y) => rows.dispatchEvent(
    new PointerEvent(type, { clientX: x, clientY: y, pointerId: 1, bubbles: true, cancelable: true }));
const middle = (r) => [r.x + r.w / 2, r.y + r.h / 2];
const click = (x, y) => { send("pointerdown", x, y); send("pointerup", x, y); };
const touch = (type, pointerId, x, y) => rows.dispatchEvent(
    new PointerEvent(type, { clientX: x, clientY: y, pointerId, pointerType: "touch", bubbles: true }));
const key = (name) => document.getElementById("chart").dispatchEvent(
    new KeyboardEvent("keydown", { key: name, bubbles: true }));
const colour = (r) => {
  const at = rows.getBoundingClientRect();
  const ratio = rows.width / at.width;
  const [x, y] = [(r.x - at.left + r.w / 2) * ratio, (r.y - at.top + r.h - 3) * ratio];
  return [...rows.getContext("2d").getImageData(x, y, 1, 1).data];
};
const look = () => Object.fromEntries(operations.map((name) => {
  const r = optpipe.find(name);
  return [name, { x: r.x, w: r.w, y: r.y, colour: colour(r) }];
}));
const operations = OPERATIONS;
result.first = { view: page(), drawn: look() };
result.idle = [...document.querySelectorAll("#idle tr")].map((line) => line.children.length);

const gradient = optpipe.find("0I0");
send("pointermove", ...middle(gradient));
result.tip = document.getElementById("tip").hidden ? null : document.getElementById("tip").textContent;
const weight = optpipe.find("0W0"); // nothing is computed after it
send("pointermove", weight.x + weight.w + 4, middle(weight)[1]);
result.tipBeside = document.getElementById("tip").hidden;

click(...middle(optpipe.find("1F1")));
result.chosen = { view: page(), drawn: look() };
key("Escape");
result.forgotten = page();

const [x, y] = middle(gradient);
rows.dispatchEvent(new WheelEvent("wheel", { clientX: x, clientY: y, deltaY: -400, bubbles: true, cancelable: true }));
result.zoomed = { view: page(), drawn: look() };
send("pointerdown", x, y); send("pointermove", x + 50, y); send("pointerup", x + 50, y);
result.dragged = { view: page(), x: optpipe.find("0I0").x };
key("0");
result.whole = page();
key("+");
result.keyed = page();
key("0"); page();

// A tap, then two fingers apart, then both to the right.
const tap = middle(gradient);
touch("pointerdown", 7, ...tap); touch("pointerup", 7, ...tap); touch("pointerleave", 7, ...tap);
result.tapped = { view: page(), tip: document.getElementById("tip").hidden };
key("Escape"); page();
touch("pointerdown", 7, x, y); touch("pointerdown", 8, x + 100, y);
touch("pointermove", 8, x + 200, y);
result.pinched = { view: page(), drawn: look() };
touch("pointermove", 7, x + 30, y); page();
touch("pointermove", 8, x + 230, y);
result.moved = { view: page(), drawn: look() };
touch("pointerup", 7, x + 30, y); touch("pointerup", 8, x + 230, y);
result.lifted = page();
key("0"); page();

click(rows.getBoundingClientRect().left + 20, optpipe.find("0F0").y + 4);
result.closed = page();
document.querySelectorAll("#which button")[2].click();
result.both = { view: page(), other: optpipe.find("0F0", 1).y - optpipe.find("0F0").y };
document.querySelectorAll("#which button")[0].click();
page();
const before = document.documentElement.dataset.theme;
document.getElementById("theme").click();
page();
result.theme = [before, document.documentElement.dataset.theme];
result.otherTheme = look();
const pre = document.createElement("pre");
pre.textContent = "RESULT" + JSON.stringify(result) + "END";
document.body.append(pre);
})();
</script></body>)js";

/// The text that a script at the end of a page leaves there between RESULT and END.
json result_of(const std::string& program, std::string page, const std::string& script) {
    const std::string end = "</body>";
    page.replace(page.find(end), end.size(), script);
    std::string name = (fs::temp_directory_path() / "optpipe-page-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    const fs::path folder{name};
    write_file((folder / "page.html").string(), page);
    const auto command =
        "'" + program + "' --headless --no-sandbox --disable-gpu --window-size=1200,900 --user-data-dir='" + name +
        "/profile' --dump-dom 'file://" + name + "/page.html' > '" + name + "/dom' 2> '" + name + "/err'";
    const int status = std::system(command.c_str());
    const auto dom = read_file((folder / "dom").string());
    INFO(read_file((folder / "err").string()));
    fs::remove_all(folder);
    REQUIRE(status == 0);
    const auto from = dom.find("<pre>RESULT");
    REQUIRE(from != std::string::npos);
    const auto begin = from + std::string{"<pre>RESULT"}.size();
    return json::parse(dom.substr(begin, dom.find("END</pre>", begin) - begin));
}

/// Runs `visit` on a page, with the names of the operations to look at.
json visited(const std::string& program, const std::string& page, const json& operations) {
    std::string script = visit;
    script.replace(script.find("OPERATIONS"), std::string{"OPERATIONS"}.size(), operations.dump());
    return result_of(program, page, script);
}

/// The painted legend of the storage options, and whether their grid is within the page.
constexpr const char* look_at_options = R"js(<script>
(() => {
const painted = [...document.querySelectorAll("#options canvas")].map((each) => each.toDataURL());
const grid = document.getElementById("grid").getBoundingClientRect();
const pre = document.createElement("pre");
pre.textContent = "RESULT" + JSON.stringify({ painted, within: grid.width > 0 && grid.right <= innerWidth }) + "END";
document.body.append(pre);
})();
</script></body>)js";

/// The tooltips of operations, and the text beside the buttons when an operation is clicked.
constexpr const char* read_tips = R"js(<script>
(() => {
optpipe.draw();
const rows = document.getElementById("rows");
const send = (type, r) => rows.dispatchEvent(new PointerEvent(type,
    { clientX: r.x + r.w / 2, clientY: r.y + r.h / 2, pointerId: 1, bubbles: true, cancelable: true }));
const result = {};
for (const name of ["1F1", "2F1", "2F2", "1B1", "0B0"]) {
  send("pointermove", optpipe.find(name));
  result[name] = document.getElementById("tip").textContent;
}
const place = optpipe.find("1F1");
send("pointerdown", place); send("pointerup", place);
optpipe.draw();
result.chosen = document.getElementById("chosen").textContent;
result.facts = document.getElementById("facts").textContent;
result.legend = document.getElementById("legend").textContent;
result.hidden = ["idle", "storage", "search"].filter((name) => document.getElementById(name).hidden);
const pre = document.createElement("pre");
pre.textContent = "RESULT" + JSON.stringify(result) + "END";
document.body.append(pre);
})();
</script></body>)js";

/// The position of a time on the screen.
struct time_scale {
    double origin = 0.0;
    double per_unit = 0.0;
    [[nodiscard]] double operator()(duration t) const { return origin + per_unit * t.value(); }
};

constexpr double pixel = 1.0;

/// Checks that the positions of all operations match their times, on one scale.
time_scale check_places(const schedule& s, const json& drawn) {
    const auto at = [&](const char* op) { return drawn[op]["x"].get<double>(); };
    time_scale scale; // 0F0 starts at 0, 0I0 at 8
    scale.per_unit = (at("0I0") - at("0F0")) / 8.0;
    scale.origin = at("0F0");
    for (const auto& timed : s.operations) {
        const auto name = to_string(timed.op);
        INFO(name);
        CHECK(std::abs(at(name.c_str()) - scale(timed.start)) < pixel);
        CHECK(std::abs(drawn[name]["w"].get<double>() - scale.per_unit * (timed.end - timed.start).value()) < pixel);
    }
    return scale;
}

} // namespace

TEST_CASE("the page shows the schedule, and answers wheel, keys, clicks and drags") {
    const auto program = chromium();
    if (!program) {
        MESSAGE("skipped: no Chromium");
        return;
    }
    const auto p = sample::two_ranks();
    const auto report = sample::report_of(p);
    html_options options;
    options.shows_idle = true;
    options.beside = {"measured", report};
    auto operations = json::array();
    for (const auto& timed : report.schedule.operations)
        operations.push_back(to_string(timed.op));
    const auto seen = visited(*program, schedule_to_html(p, report, options), operations);

    const auto& first = seen["first"];
    CHECK(first["view"] == json::parse(R"({"from": 0, "to": 17, "chosen": null, "shown": 0, "open": 2})"));
    const auto scale = check_places(report.schedule, first["drawn"]);
    CHECK(scale.per_unit > 10.0);
    CHECK(seen["idle"].size() == 1 + p.graph.ranks()); // a heading, and a line of each rank
    for (const auto& cells : seen["idle"])
        CHECK((cells == seen["idle"][0] && cells > 3));
    // One colour per kind, different for each kind; ranks are stacked.
    const auto colour = [&](const json& drawn, const char* op) { return drawn[op]["colour"]; };
    CHECK(colour(first["drawn"], "0F0") == colour(first["drawn"], "1F1"));
    for (const auto* other : {"0I0", "0W0", "0B1", "0OFFLOAD0", "0RELOAD0"})
        CHECK(colour(first["drawn"], "0F0") != colour(first["drawn"], other));
    CHECK(first["drawn"]["1F0"]["y"] > first["drawn"]["0F0"]["y"]);

    const auto tip = seen["tip"].get<std::string>();
    for (const auto* part : {"0I0: backward for the input", "rank 0, stage 0, microbatch 0", "8 to 10 ms, takes 2 ms",
                             "frees 1 GB of device memory at its end", "storage: offload",
                             "waits for 1I0, there at 8 ms", "waits for 0RELOAD0, done at 7 ms"})
        CHECK_MESSAGE(tip.find(part) != std::string::npos, part << " in " << tip);
    CHECK(seen["tipBeside"] == true);

    CHECK(seen["chosen"]["view"]["chosen"] == 1);
    CHECK(colour(seen["chosen"]["drawn"], "0B1") == colour(first["drawn"], "0B1"));
    CHECK(colour(seen["chosen"]["drawn"], "0W0") != colour(first["drawn"], "0W0"));
    CHECK(seen["forgotten"]["chosen"].is_null());

    // The wheel keeps the time under the pointer: the middle of 0I0, at 9.
    const auto zoomed = check_places(report.schedule, seen["zoomed"]["drawn"]);
    CHECK(std::abs(zoomed.per_unit / scale.per_unit - std::exp(1.0)) < 0.01);
    CHECK(std::abs(zoomed(duration{9}) - scale(duration{9})) < pixel);
    CHECK(std::abs(seen["dragged"]["x"].get<double>() - (zoomed(duration{8}) + 50)) < pixel);
    CHECK(seen["whole"] == seen["forgotten"]);
    CHECK(std::abs(seen["keyed"]["to"].get<double>() - seen["keyed"]["from"].get<double>() - 17 / 1.5) < 1e-6);

    // A tap marks the microbatch, and its tooltip stays. Two fingers keep the times under them.
    CHECK(seen["tapped"]["view"]["chosen"] == 0);
    CHECK(seen["tapped"]["tip"] == false);
    const auto pinched = check_places(report.schedule, seen["pinched"]["drawn"]);
    CHECK(std::abs(pinched.per_unit / scale.per_unit - 2.0) < 0.01);
    CHECK(std::abs(pinched(duration{9}) - scale(duration{9})) < pixel);
    const auto moved = check_places(report.schedule, seen["moved"]["drawn"]);
    CHECK(std::abs(moved.per_unit / pinched.per_unit - 1.0) < 0.01);
    CHECK(std::abs(moved(duration{9}) - (pinched(duration{9}) + 30)) < pixel);
    CHECK(seen["lifted"] == seen["moved"]["view"]);

    CHECK(seen["closed"]["open"] == 1);
    CHECK(seen["both"]["view"]["shown"] == 2);
    CHECK(seen["both"]["other"] > 0);
    CHECK(seen["theme"][0] != seen["theme"][1]);
    CHECK(colour(seen["otherTheme"], "0F0") != colour(first["drawn"], "0F0"));
}

TEST_CASE("the page of a graph names the edges, the group and the slices that an operation waits for") {
    const auto program = chromium();
    if (!program) {
        MESSAGE("skipped: no Chromium");
        return;
    }
    const auto p = sample::branching();
    const auto seen = result_of(*program, schedule_to_html(p, sample::branching_report(p)), read_tips);
    const auto says = [&](const char* name, const char* part) {
        const auto text = seen[name].get<std::string>();
        CHECK_MESSAGE(sample::contains(text, part), part << " in " << text);
    };
    says("1F1", "rank 0, stage 1, microbatch 1, slice 1 of sequence 0");
    says("1F1", "waits for 0F1, done at");
    says("1F1", "waits for 1F0, the slice before, done at");
    says("2F2", "microbatch 2, slice 0 of sequence 1");
    says("2F2", "waits for 0F2, there at");
    says("2F2", "frees 1 of device memory of rank 0 at its end");
    says("1B1", "waits for 2F1, of the group, there at");
    says("0B0", "waits for 2B0, there at");
    says("0B0", "waits for 1B0, done at");
    says("0B0", "waits for 0B1, the slice after, done at");
    CHECK(seen["chosen"] == "microbatch 1, slice 1 of sequence 0");
    says("facts", "2 × 3 × 3, slices of 2 sequences");
    says("legend", "2.1: slice 1 of sequence 2");
    CHECK(seen["hidden"] == json::parse(R"(["idle", "storage", "search"])"));
}

TEST_CASE("every storage option is painted in its own way, however many there are") {
    const auto program = chromium();
    if (!program) {
        MESSAGE("skipped: no Chromium");
        return;
    }
    auto p = sample::recomputing();
    const auto report = sample::recomputing_report(p);
    for (int i = 0; i < 60; ++i)
        p.storage[stage{0}].push_back({bounded_text<32>{"option", i}, memory_size{0.5}, duration{2}, {}, {}, {}});
    const auto seen = result_of(*program, schedule_to_html(p, report), look_at_options);
    const auto painted = seen["painted"].get<std::vector<std::string>>();
    CHECK(painted.size() == 63);
    CHECK(std::set<std::string>(painted.begin(), painted.end()).size() == painted.size());
    CHECK(seen["within"] == true);
}

#endif
