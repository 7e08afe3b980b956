#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

using namespace program;
using nlohmann::json;

namespace {

/// The program while it runs. Nothing here waits for a time: a line on standard error shows its progress.
class running {
public:
    /// `ignoring`: a signal that it ignores from the start, as after nohup.
    running(std::vector<std::string> arguments, std::string out, int ignoring = 0) : out_{std::move(out)} {
        arguments.insert(arguments.begin(), OPTPIPE_PROGRAM);
        auto pointers = pointers_to(arguments);
        std::array<int, 2> ends{};
        REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
        err_ = ends[0];
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
        posix_spawnattr_t attributes;
        ::posix_spawnattr_init(&attributes);
        sigset_t defaults;
        ::sigemptyset(&defaults);
        for (const int signal : {SIGINT, SIGTERM})
            if (signal != ignoring) ::sigaddset(&defaults, signal);
        ::posix_spawnattr_setsigdefault(&attributes, &defaults);
        ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
        auto* const before = ignoring != 0 ? std::signal(ignoring, SIG_IGN) : SIG_DFL;
        const int spawned = ::posix_spawn(&child_, OPTPIPE_PROGRAM, &actions, &attributes, pointers.data(), environ);
        if (ignoring != 0) std::signal(ignoring, before);
        ::posix_spawnattr_destroy(&attributes);
        ::posix_spawn_file_actions_destroy(&actions);
        ::close(ends[1]);
        REQUIRE(spawned == 0);
    }
    running(const running&) = delete;
    running& operator=(const running&) = delete;
    ~running() {
        if (child_ != 0) {
            ::kill(child_, SIGKILL);
            ::waitpid(child_, nullptr, 0);
        }
        ::close(err_);
    }

    /// Waits until it has written this to standard error.
    void wait_for(const std::string& text) {
        while (!contains(said_, text))
            REQUIRE_MESSAGE(read_more(), "it ended without saying \"" << text << "\": " << said_);
    }
    void send(int signal) const { REQUIRE(::kill(child_, signal) == 0); }
    finished wait() {
        while (read_more()) {
        }
        int status = 0;
        REQUIRE(::waitpid(child_, &status, 0) == child_);
        child_ = 0;
        return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), content_of(out_), said_};
    }

private:
    bool read_more() {
        std::array<char, 4096> block{};
        ssize_t count = -1;
        do
            count = ::read(err_, block.data(), block.size());
        while (count < 0 && errno == EINTR);
        if (count > 0) said_.append(block.data(), static_cast<std::size_t>(count));
        return count > 0;
    }

    std::string out_;
    std::string said_;
    int err_ = -1;
    pid_t child_ = 0;
};

constexpr int stopped = 4;

/// Longer than a test may take: a run that ends earlier was stopped.
const char* const long_time = "100000";

/// Minimizes the distance of three random knapsacks from their targets: every point is a solution, and bounds stay at 0
/// for long.
std::string market_split() {
    constexpr int rows = 3;
    constexpr int items = 40;
    std::string text = "NAME market\nROWS\n N COST\n";
    std::string columns = "COLUMNS\n M 'MARKER' 'INTORG'\n";
    std::string sides = "RHS\n";
    for (int r = 0; r < rows; ++r)
        text += " E R" + std::to_string(r) + "\n";
    unsigned state = 12345;
    std::array<unsigned, rows> sums{};
    for (int i = 0; i < items; ++i)
        for (int r = 0; r < rows; ++r) {
            state = state * 1103515245U + 12345U;
            const unsigned weight = state / 65536U % 1000U;
            sums[static_cast<std::size_t>(r)] += weight;
            columns += " x" + std::to_string(i) + " R" + std::to_string(r) + " " + std::to_string(weight) + "\n";
        }
    columns += " M 'MARKER' 'INTEND'\n";
    std::string bounds = "BOUNDS\n";
    for (int i = 0; i < items; ++i)
        bounds += " UP B x" + std::to_string(i) + " 1\n";
    for (int r = 0; r < rows; ++r) {
        const auto name = std::to_string(r);
        columns += " over" + name + " R" + name + " 1 COST 1\n under" + name + " R" + name + " -1 COST 1\n";
        sides += " RHS R" + name + " " + std::to_string(sums[static_cast<std::size_t>(r)] / 2) + ".5\n";
    }
    return text + columns + sides + bounds + "ENDATA\n";
}

} // namespace

TEST_CASE("a signal stops the search for a plan, and what was found is written and printed") {
    for (const int signal : {SIGINT, SIGTERM}) {
        const workplace place;
        const auto problem = example("llama2-7b-4k-p4.json");
        running plan{{"plan", problem, "--time-limit", long_time, "--progress", "--out", place / "s.json", "--svg",
                      place / "s.svg", "--trace", place / "s.trace"},
                     place / "out"};
        plan.wait_for("incumbent ");
        plan.send(signal);
        const auto result = plan.wait();
        CHECK_MESSAGE(result.status == stopped, result);
        CHECK_MESSAGE(contains(result.err, "optpipe: note: stopping"), result);
        CHECK_MESSAGE(contains(result.out, "stop request after "), result);
        CHECK_MESSAGE(contains(result.out, "above the lower bound"), result);
        const auto checked = program::run({"check", problem, place / "s.json"});
        CHECK_MESSAGE(checked.status == 0, checked);
        CHECK(place.read("s.svg").ends_with("</svg>\n"));
        CHECK_FALSE(json::parse(place.read("s.trace"))["traceEvents"].empty());
    }
}

TEST_CASE("a second signal ends the program at once") {
    const workplace place;
    // Nobody reads from it, so the output is never completely written.
    REQUIRE(::mkfifo((place / "pipe").c_str(), 0600) == 0);
    running plan{
        {"plan", example("llama2-7b-4k-p4.json"), "--time-limit", long_time, "--progress", "--out", place / "pipe"},
        place / "out"};
    plan.wait_for("incumbent ");
    plan.send(SIGTERM);
    plan.wait_for("optpipe: note: stopping");
    plan.send(SIGINT);
    const auto result = plan.wait();
    CHECK_MESSAGE(result.status == 128 + SIGINT, result);
}

TEST_CASE("a signal that is ignored stays ignored") {
    const workplace place;
    running plan{
        {"plan", example("llama2-7b-4k-p4.json"), "--time-limit", long_time, "--progress"}, place / "out", SIGINT};
    plan.wait_for("incumbent ");
    for (int i = 0; i < 3; ++i)
        plan.send(SIGINT);
    plan.send(SIGTERM);
    const auto result = plan.wait();
    CHECK_MESSAGE(result.status == stopped, result);
}

TEST_CASE("a signal ends a run after the step that is under way, and the steps so far are what was measured") {
    const workplace place;
    REQUIRE(program::run({"plan", data("two-ranks.json"), "--quiet", "--out", place / "s.json"}).status == 0);
    running steps{{"run", data("two-ranks.json"), place / "s.json", "--steps", "1000000", "--scale", "0.0001",
                   "--progress", "--out", place / "m.json"},
                  place / "out"};
    steps.wait_for("step 2 of 1000000: ");
    steps.send(SIGINT);
    const auto result = steps.wait();
    CHECK_MESSAGE(result.status == stopped, result);
    CHECK_MESSAGE((contains(result.out, "stopped after ") && contains(result.out, "high-water mark")), result);
    CHECK(json::parse(place.read("m-0000001.json"))["operations"].size() > 0);
}

TEST_CASE("a signal in the last step of a run shows in the exit status") {
    const workplace place;
    REQUIRE(program::run({"plan", data("two-ranks.json"), "--quiet", "--out", place / "s.json"}).status == 0);
    running steps{{"run", data("two-ranks.json"), place / "s.json", "--steps", "2", "--scale", "0.01", "--progress"},
                  place / "out"};
    steps.wait_for("step 1 of 2: ");
    steps.send(SIGINT); // the second step takes more than a second
    const auto result = steps.wait();
    CHECK_MESSAGE(result.status == stopped, result);
    CHECK_MESSAGE((contains(result.out, "stopped after ") && contains(result.out, "high-water mark")), result);
}

#if defined(OPTPIPE_HAS_MILP)
TEST_CASE("a signal ends a run with a planner after the step that is under way") {
    const workplace place;
    const auto problem = place.write("one.json", R"({"format": "optpipe.problem/1", "ranks": 1, "microbatches": 2,
        "stages": [{"rank": 0, "forward": 1, "backward_input": 1, "backward_weight": 1, "activation": 1}]})");
    REQUIRE(program::run({"plan", problem, "--quiet", "--out", place / "s.json"}).status == 0);
    running steps{
        {"run", problem, place / "s.json", "--online", "--steps", "1000000", "--scale", "0.001", "--progress"},
        place / "out"};
    steps.wait_for("step 2 of 1000000: ");
    steps.send(SIGINT);
    const auto result = steps.wait();
    CHECK_MESSAGE(result.status == stopped, result);
    const auto note = result.err.find("optpipe: note: stopping");
    REQUIRE(note != std::string::npos);
    const auto later = result.err.find("step ", note);
    CHECK_MESSAGE((later == std::string::npos || result.err.find("step ", later + 1) == std::string::npos), result);
}

TEST_CASE("a signal stops the solver, and what it knows is written and printed") {
    const workplace place;
    const auto model = place.write("market.mps", market_split());
    running solve{{"solve", model, "--threads", "1", "--log", "--out", place / "out.json"}, place / "out"};
    solve.wait_for("\n");
    solve.send(SIGTERM);
    const auto result = solve.wait();
    CHECK_MESSAGE(result.status == stopped, result);
    CHECK_MESSAGE(result.out.starts_with("stopped (asked to stop)"), result);
    const auto written = json::parse(place.read("out.json"));
    CHECK((written["status"] == "stopped" && written["stopped_by"] == "asked to stop"));
}

TEST_CASE("a sweep that is killed or stopped keeps the rows that were planned") {
    for (const int signal : {SIGKILL, SIGTERM}) {
        CAPTURE(signal);
        const workplace place;
        // One microbatch is proven at once, many aren't within the limit.
        const auto arguments = [&](const std::string& microbatches) {
            return std::vector<std::string>{"sweep",
                                            data("problems/llama2-13b-4k-p8-tight.json"),
                                            "--set",
                                            "microbatches=" + microbatches,
                                            "--time-limit",
                                            long_time,
                                            "--threads",
                                            "1",
                                            "--progress",
                                            "--resume",
                                            place / "rows.json",
                                            "--csv",
                                            place / "t.csv"};
        };
        running sweep{arguments("1,64"), place / "out"};
        sweep.wait_for("microbatches 1, plan: ");
        sweep.send(signal);
        const auto ended = sweep.wait();
        CHECK_MESSAGE(ended.status == (signal == SIGKILL ? 128 + SIGKILL : stopped), ended);
        CHECK(place.has("t.csv") == (signal == SIGTERM));
        if (signal == SIGTERM) CHECK_MESSAGE(contains(ended.out, "stopped: 1 of 2 rows are planned"), ended);
        const auto kept = place.read("rows.json");
        REQUIRE(json::parse(kept)["rows"].size() == 1);
        const auto again = program::run(arguments("1,1"));
        CHECK_MESSAGE((again.status == 0 && again.err.empty()), again); // nothing was planned
        CHECK(place.read("rows.json") == kept);
    }
}
#endif

TEST_CASE("the help lists every exit status") {
    for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"}, {"plan", "--help"}}) {
        const auto help = program::run(arguments);
        for (const auto* line : {"\n  0  done", "\n  1  check", "\n  2  bad input", "\n  3  there is no schedule",
                                 "\n  4  stopped by SIGINT"})
            CHECK_MESSAGE(contains(help.out, line), help);
    }
}

#endif
