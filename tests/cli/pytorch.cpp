#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"

#include <string>

using namespace program;

namespace {

const std::string offloading = data("problems/offload-p2-m4-mem050-k050.json");
const std::string virtual_stages = data("problems/v-unit-p4-m12-k8.json");

} // namespace

TEST_CASE("out for PyTorch and back is the same schedule, in both formats") {
    const workplace place;
    REQUIRE(run({"plan", virtual_stages, "--method", "zb-v", "--quiet", "--out", place / "plan.json"}).status == 0);
    const auto drawn = run({"draw", place / "plan.json", "--problem", virtual_stages});
    for (const std::string format : {"compute_only", "compute_comms"}) {
        INFO(format);
        const auto written =
            run({"export-csv", virtual_stages, place / "plan.json", "--format", format, "--out", place / "plan.csv"});
        CHECK_MESSAGE((written.status == 0 && written.out.empty() && written.err.empty()), written);
        CHECK(contains(place.read("plan.csv"), "SEND_F") == (format == "compute_comms"));
        const auto read = run({"import-csv", virtual_stages, place / "plan.csv", "--out", place / "again.json"});
        REQUIRE_MESSAGE((read.status == 0 && read.err.empty()), read);
        CHECK(read.out.starts_with("objective="));
        CHECK(run({"check", virtual_stages, place / "again.json"}).status == 0);
        const auto again = run({"draw", place / "again.json", "--problem", virtual_stages});
        // The first line names the method.
        CHECK(again.out.substr(again.out.find('\n')) == drawn.out.substr(drawn.out.find('\n')));
    }
}

TEST_CASE("parameters are gathered in compute_comms, and the other format refuses it") {
    const workplace place;
    REQUIRE(run({"plan", virtual_stages, "--method", "zb-v", "--quiet", "--out", place / "plan.json"}).status == 0);
    const auto written = run({"export-csv", virtual_stages, place / "plan.json", "--format", "compute_comms",
                              "--unshard", "2", "--out", place / "plan.csv"});
    CHECK_MESSAGE((written.status == 0 && written.err.empty()), written);
    CHECK(place.read("plan.csv").starts_with("0UNSHARD,"));
    const auto refused =
        run({"export-csv", virtual_stages, place / "plan.json", "--unshard", "2", "--out", place / "other.csv"});
    CHECK(refused.status == 2);
    CHECK_MESSAGE(refused.says({"--unshard", "compute_comms"}), refused);
    CHECK_FALSE(place.has("other.csv"));
}

TEST_CASE("a schedule of PyTorch's is timed on a problem, beyond its memory with a note") {
    const workplace place;
    const auto csv = place.write("gpipe.csv", "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3\n");
    const auto read = run({"import-csv", offloading, csv, "--out", place / "gpipe.json"});
    CHECK_MESSAGE(read.status == 0, read);
    CHECK(contains(read.err, "optpipe: note: "));
    CHECK_MESSAGE(contains(read.err, "rank 0 needs 4 activation of memory, its limit is 1 activation"), read);
    CHECK(run({"check", offloading, place / "gpipe.json"}).status == 1);
}

TEST_CASE("compute_comms that can't run isn't timed; what may deadlock is, with a note") {
    const workplace place;
    const std::string rows = "{\"format\": \"optpipe.problem/1\", \"ranks\": 2, \"microbatches\": 2, \"stages\": [";
    const std::string costs = ", \"forward\": 1, \"backward_input\": 1, \"backward_weight\": 1, \"activation\": 1}";
    const auto problem = place.write("p.json", rows + "{\"rank\": 0" + costs + ", {\"rank\": 1" + costs + "]}");
    const auto import = [&](const std::string& text) {
        return run({"import-csv", problem, place.write("plan.csv", text), "--out", place / "plan.json"});
    };
    const auto late = import("0F0,0RECV_B0,0B0,0SEND_F0,0F1,0SEND_F1,0RECV_B1,0B1\n"
                             "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
    CHECK_MESSAGE((late.status == 3 && late.says({"plan.csv", "wait for each other: row 1 stops at 0B0"})), late);
    CHECK_FALSE(place.has("plan.json"));
    const auto early = import("0F0,0SEND_F0,0RECV_B0,0F1,0SEND_F1,0B0,0RECV_B1,0B1\n"
                              "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n");
    CHECK_MESSAGE((early.status == 0 && early.says({"note: ", "plan.csv", "may deadlock"})), early);
}

TEST_CASE("a file of another program is read: quotes, a byte order mark, the letters of the papers") {
    const workplace place;
    const auto of_today = place.write("today.csv", "0F0,0F1,0F2,0F3,0I0,0W0,0I1,0W1,0I2,0W2,0I3,0W3\n"
                                                   "1F0,1I0,1W0,1F1,1I1,1W1,1F2,1I2,1W2,1F3,1I3,1W3\n");
    const auto expected = run({"import-csv", offloading, of_today, "--out", place / "plan.json"});
    REQUIRE_MESSAGE(expected.status == 0, expected);
    std::string text = "\xef\xbb\xbf";
    for (const char c : place.read("today.csv"))
        text += c == 'I'                                   ? "B"
                : c == ','                                 ? "\",\""
                : c == '\n'                                ? "\"\r\n"
                : text.ends_with('\n') || text.size() == 3 ? std::string{'"', c}
                                                           : std::string{c};
    const auto read = run({"import-csv", offloading, place.write("today.csv", text), "--out", place / "again.json"});
    CHECK_MESSAGE((read.status == 0 && read.out == expected.out), read);
}

TEST_CASE("offloading is refused with the way out") {
    const workplace place;
    REQUIRE(run({"plan", offloading, "--method", "adaptive", "--quiet", "--out", place / "plan.json"}).status == 0);
    const auto refused = run({"export-csv", offloading, place / "plan.json", "--out", place / "plan.csv"});
    CHECK(refused.status == 2);
    CHECK_MESSAGE(refused.says({"plan.json", "can't express", "--without-storage"}), refused);
    CHECK_FALSE(place.has("plan.csv"));
    const auto written =
        run({"export-csv", offloading, place / "plan.json", "--without-storage", "--out", place / "plan.csv"});
    CHECK_MESSAGE((written.status == 0 && written.err.empty()), written);
    CHECK_FALSE(contains(place.read("plan.csv"), "OFFLOAD"));
}

TEST_CASE("bad files and options are refused with one line") {
    const workplace place;
    const auto csv = place.write("bad.csv", "0F0,0OFFLOAD0\n1F0\n");
    const auto import = [&](const std::string& file) {
        return run({"import-csv", offloading, file, "--out", place / "plan.json"});
    };
    CHECK(import(csv).status == 2);
    CHECK(import(csv).says({"bad.csv", "row 1, cell 2", "0OFFLOAD0"}));
    CHECK(import(place.write("three.csv", "0F0\n1F0\n2F0\n")).says({"three.csv", "3 rows", "2 ranks"}));
    CHECK(import(place / "nowhere.csv").status == 2);
    const auto stuck = import(place.write("stuck.csv", "0F0,0B0\n1B0,1F0\n"));
    CHECK(stuck.status == 3);
    CHECK(stuck.says({"stuck.csv", "wait for each other"}));
    const auto lacking = import(place.write("lacking.csv", "0F0,0SEND_F0,0B0\n1F0,1B0,1SEND_B0\n"));
    CHECK_MESSAGE((lacking.status == 2 && lacking.says({"lacking.csv", "0SEND_F0 has no 1RECV_F0"})), lacking);
    const auto format = run({"export-csv", offloading, csv, "--format", "comms", "--out", place / "plan.csv"});
    CHECK(format.status == 2);
    CHECK(format.says({"--format", "comms"}));
}

#endif
