#include "optpipe/schedule/time/validate.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using optpipe::duration;
using optpipe::operation_kind;
using optpipe::rank;
using optpipe::stage;
using optpipe::transfer_times;
using oracle::spelled;
using oracle::spelled_schedule;
using namespace optpipe::literals;

constexpr auto static_problem =
    make_problem(optpipe::graph<2, 2>{}, optpipe::uniform_memory{{1_ms, 1_ms, 1_ms, 1_gb, 0.5_gb, {}}}, 2_gb);
constexpr bool is_valid_with(duration shift) {
    auto s = *simulate(static_problem, optpipe::one_forward_one_backward(static_problem.graph));
    s.operations[1].start += shift;
    s.operations[1].end += shift;
    return is_valid(static_problem, s);
}
static_assert(is_valid_with(0_ms));
static_assert(!is_valid_with(-0.25_ms));
constexpr auto static_gpipe = *simulate(static_problem, optpipe::gpipe(static_problem.graph));
static_assert(is_valid(static_problem, static_gpipe));

optpipe::problem linear(std::size_t ranks, std::size_t microbatches) {
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic> g{ranks, microbatches};
    const optpipe::stage_costs unit{1_ms, 1_ms, 1_ms, 1_gb, 0.5_gb, transfer_times{2_ms, 2_ms}};
    return make_problem(to_any_graph(g), optpipe::uniform_memory{unit});
}

std::string all_of(const std::vector<optpipe::violation>& found) {
    std::string text;
    for (const auto& v : found)
        text += v.text() + "\n";
    return text;
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Checks that one violation is found, and that its text names all of these.
void finds(const optpipe::problem& p, const optpipe::schedule& s, const std::vector<std::string>& parts) {
    const auto found = validate(p, s);
    INFO(all_of(found));
    REQUIRE(found.size() == 1);
    CHECK_FALSE(is_valid(p, s));
    CHECK_FALSE(oracle::judge(p, s).valid());
    for (const auto& part : parts) {
        CAPTURE(part);
        CHECK(contains(found[0].text(), part));
    }
}
void finds(const optpipe::problem& p, const std::string& text, const std::vector<std::string>& parts) {
    finds(p, spelled_schedule(p, text), parts);
}
void finds_nothing(const optpipe::problem& p, const optpipe::schedule& s) {
    CHECK(all_of(validate(p, s)) == "");
    CHECK(is_valid(p, s));
    CHECK(oracle::judge(p, s).text() == "");
}
void finds_nothing(const optpipe::problem& p, const std::string& text) { finds_nothing(p, spelled_schedule(p, text)); }

optpipe::timed_operation& at(optpipe::schedule& s, const std::string& op) {
    for (auto& timed : s.operations)
        if (timed.op == spelled(op)) return timed;
    throw std::invalid_argument{"not there: " + op};
}

const std::string sound = "0F0@0 1F0@1 1B0@2 0B0@4";

} // namespace

TEST_CASE("what is sound passes") {
    const auto p = linear(2, 1);
    finds_nothing(p, sound);
    finds_nothing(p, "0B0@14 1B0@10 1F0@5 0F0@0");
    finds_nothing(p, "0F0@0 0OFFLOAD0@1 1F0@1 1I0@2 1W0@7 0RELOAD0@3 0I0@5 0W0@6");
}

TEST_CASE("what the problem doesn't have") {
    const auto p = linear(2, 1);
    auto s = spelled_schedule(p, sound);
    s.operations.push_back({spelled("2F0"), 0_ms, 1_ms});
    finds(p, s, {"2F0"});
    s.operations.back() = {spelled("0F1"), 8_ms, 9_ms};
    finds(p, s, {"0F1"});
    auto q = p;
    s = spelled_schedule(p, sound + " 0OFFLOAD0@1");
    s.operations.push_back({spelled("0RELOAD0"), 3_ms, 4_ms});
    for (auto& timed : s.operations)
        timed.op.storage = 0;
    q.change_stage(stage{0}, [&](auto& c) { c.transfer = {}; });
    const auto found = validate(q, s);
    REQUIRE(found.size() == 2);
    CHECK(contains(found[0].text(), "rank 0: 0OFFLOAD0"));
    CHECK(contains(found[1].text(), "rank 0: 0RELOAD0"));
    CHECK_FALSE(oracle::judge(q, s).valid());
}

TEST_CASE("what appears twice") { finds(linear(2, 1), sound + " 1B0@9", {"rank 1", "1B0", "twice"}); }

TEST_CASE("what takes another time than it should") {
    const auto p = linear(2, 1);
    auto s = spelled_schedule(p, sound);
    at(s, "0B0").end = 5.25_ms;
    finds(p, s, {"rank 0", "0B0", "1.25", "2"});
    at(s, "0B0").end = 7.5_ms;
    finds(p, s, {"rank 0", "0B0", "3.5", "2"});
}

TEST_CASE("what starts before 0") {
    const auto p = linear(2, 1);
    auto s = spelled_schedule(p, sound);
    for (auto& timed : s.operations) {
        timed.start -= 0.5_ms;
        timed.end -= 0.5_ms;
    }
    finds(p, s, {"rank 0", "0F0", "-0.5"});
}

TEST_CASE("what is missing") {
    auto p = linear(2, 1);
    finds(p, "1F0@1 1B0@2 0B0@4", {"rank 0", "0F0", "missing"});
    finds(p, "0F0@0 1F0@1 1B0@2", {"rank 0", "stage 0", "microbatch 0", "B", "I and W"});
    finds(p, "0F0@0 1F0@1 1I0@2 0B0@3", {"rank 1", "stage 1", "microbatch 0"});
    finds(p, "0F0@0 1F0@1 1I0@2 1W0@3 0W0@5", {"rank 0", "stage 0", "microbatch 0"});
    finds(p, sound + " 1W0@7", {"rank 1", "stage 1", "microbatch 0"});
    finds(p, sound + " 1I0@7 1W0@8", {"rank 1", "stage 1", "microbatch 0"});
    p.split_backward = false;
    finds_nothing(p, sound);
    finds(p, "0F0@0 1F0@1 1I0@2 1W0@3 0B0@3", {"rank 1", "stage 1", "microbatch 0", "split_backward"});
}

TEST_CASE("a transfer alone") {
    const auto p = linear(2, 1);
    finds(p, "0F0@0 0OFFLOAD0@1 1F0@1 1B0@2 0B0@4", {"rank 0", "0RELOAD0 is missing"});
    finds(p, "0F0@0 1F0@1 1RELOAD0@2 1B0@4 0B0@6", {"rank 1", "1OFFLOAD0 is missing"});
}

TEST_CASE("what starts before its inputs are there") {
    auto p = linear(2, 1);
    finds(p, "0F0@0 1F0@0.75 1B0@2 0B0@4", {"rank 1", "1F0", "0.75", "0F0", "1"});
    finds(p, "0F0@0 1F0@1 1B0@2 0B0@3.5", {"rank 0", "0B0", "3.5", "1B0", "4"});
    finds(p, "0F0@0 1F0@1 1I0@3 1W0@4 0I0@3.5 0W0@5", {"rank 0", "0I0", "3.5", "1I0", "4"});
    p.p2p = optpipe::hop_times<>{0.375_ms};
    finds_nothing(p, "0F0@0 1F0@1.375 1B0@2.375 0B0@4.75");
    finds(p, "0F0@0 1F0@1.25 1B0@2.375 0B0@4.75", {"rank 1", "1F0", "1.25", "0F0", "1", "0.375"});
    finds(p, "0F0@0 1F0@1.375 1B0@2.375 0B0@4.625", {"rank 0", "0B0", "4.625", "1B0", "4.375", "0.375"});

    const auto one = linear(1, 1);
    auto found = all_of(validate(one, spelled_schedule(one, "0F0@0 0B0@0.25")));
    CHECK(contains(found, "rank 0: 0B0 starts at 0.25, before 0F0's end 1"));
    found = all_of(validate(one, spelled_schedule(one, "0F0@0 0I0@5 0W0@2")));
    CHECK(contains(found, "rank 0: 0W0 starts at 2, before 0I0's end 6"));
    finds(one, "0F0@0 0OFFLOAD0@0.5 0RELOAD0@3 0B0@5", {"rank 0", "0OFFLOAD0", "0.5", "0F0", "1"});
    finds(one, "0F0@0 0OFFLOAD0@1 0RELOAD0@3 0B0@4.5", {"rank 0", "0B0", "4.5", "0RELOAD0", "5"});
    auto two_engines = one;
    two_engines.transfer.engines = 2;
    finds(two_engines, "0F0@0 0OFFLOAD0@1 0RELOAD0@2.5 0B0@5", {"rank 0", "0RELOAD0", "2.5", "0OFFLOAD0", "3"});
}

TEST_CASE("two at once on a rank") {
    const auto p = linear(2, 2);
    finds(p, "0F0@0 0F1@0.5 1F0@1 1F1@2 1B0@3 1B1@5 0B0@5 0B1@7", {"rank 0", "0F1", "0.5", "0F0", "1"});
    finds(p, "0F0@0 0F1@1 1F0@1 1F1@2 1B0@3 1B1@4.5 0B0@5 0B1@7", {"rank 1", "1B1", "4.5", "1B0", "5"});
    // All overlaps are reported, including operations within a longer one.
    auto q = linear(1, 3);
    q.costs[stage{0}].forward = 8_ms;
    q.costs[stage{0}].backward_input = 0.25_ms;
    q.costs[stage{0}].backward_weight = 0.25_ms;
    const auto found = validate(q, spelled_schedule(q, "0F0@0 0F1@8 0B0@10 0F2@12 0B1@20 0B2@20.5"));
    CHECK(found.size() == 2);
    CHECK(contains(all_of(found), "rank 0: 0B0 starts at 10 while 0F1 runs until 16"));
    CHECK(contains(all_of(found), "rank 0: 0F2 starts at 12 while 0F1 runs until 16"));
}

TEST_CASE("two at once on a copy engine") {
    auto p = linear(1, 2);
    const std::string both_out = "0F0@0 0OFFLOAD0@1 0F1@1 0OFFLOAD1@2 0RELOAD0@10 0B0@12 0RELOAD1@14 0B1@16";
    finds(p, both_out, {"rank 0", "0OFFLOAD1", "2", "0OFFLOAD0", "3"});
    const std::string out_and_in = "0F0@0 0OFFLOAD0@1 0F1@1 0OFFLOAD1@3 0RELOAD0@4 0B0@6 0RELOAD1@8 0B1@10";
    finds(p, out_and_in, {"rank 0", "0RELOAD0", "4", "0OFFLOAD1", "5"});
    p.transfer.engines = 2;
    finds(p, both_out, {"rank 0", "0OFFLOAD1", "2", "0OFFLOAD0", "3"});
    finds_nothing(p, out_and_in);
    // Two engines, but a link that takes one transfer.
    p.transfer.duplex = optpipe::duplex_kind::half;
    finds(p, out_and_in, {"rank 0", "0RELOAD0", "4", "0OFFLOAD1", "5", "link"});
}

TEST_CASE("two at once on a link") {
    auto p = linear(3, 1);
    const std::string both_out =
        "0F0@0 0OFFLOAD0@1 1F0@1 1OFFLOAD0@2 2F0@2 2B0@3 1RELOAD0@10 1B0@12 0RELOAD0@12 0B0@14";
    const std::string out_and_in =
        "0F0@0 0OFFLOAD0@1 1F0@1 1OFFLOAD0@5 2F0@2 2B0@3 0RELOAD0@6 1RELOAD0@10 1B0@12 0B0@14";
    finds_nothing(p, both_out);
    p.transfer.share_link(rank{0}, rank{2});
    finds_nothing(p, both_out);
    p.transfer.share_link(rank{1}, rank{0});
    finds(p, both_out, {"rank 1", "1OFFLOAD0", "2", "0OFFLOAD0", "3"});
    finds_nothing(p, out_and_in);
    p.transfer.duplex = optpipe::duplex_kind::half;
    finds(p, out_and_in, {"rank 0", "0RELOAD0", "6", "1OFFLOAD0", "7"});
}

TEST_CASE("more memory than there is") {
    auto p = linear(1, 3);
    p.memory_limit[rank{0}] = 2.25_gb;
    finds(p, "0F0@0 0F1@1 0F2@2 0B0@3 0B1@5 0B2@7", {"rank 0", "0F2", "3", "2.25"});
    finds_nothing(p, "0F0@0 0F1@1 0B0@2 0F2@4 0B1@5 0B2@7");
    // W still holds half.
    finds(p, "0F0@0 0F1@1 0I0@2 0F2@3 0W0@4 0B1@5 0B2@7", {"rank 0", "0F2", "2.5", "2.25"});
    finds(p, "0F0@0 0F1@1 0OFFLOAD0@1 0F2@2 0B1@5 0RELOAD0@7 0B0@9 0B2@11", {"rank 0", "0F2", "3", "2.25"});
    finds_nothing(p, "0F0@0 0F1@1 0OFFLOAD0@1 0F2@3 0B1@5 0RELOAD0@7 0B0@9 0B2@11");
    finds(p, "0F0@0 0F1@1 0OFFLOAD0@1 0F2@3 0RELOAD0@4 0B1@5 0B0@9 0B2@11", {"rank 0", "3", "2.25"});
    p.costs[stage{0}].weight_stash = 1.5_gb;
    finds(p, "0F0@0 0F1@1 0I0@2 0W0@3 0F2@4 0B1@5 0B2@7", {"rank 0", "0I0", "2.5", "2.25"});
    finds_nothing(p, "0F0@0 0I0@2 0W0@3 0F1@4 0F2@5 0B1@6 0B2@8");
}

TEST_CASE("more on the host than it takes") {
    auto p = linear(1, 2);
    p.host_memory_limit[rank{0}] = 1.5_gb;
    finds(p, "0F0@0 0OFFLOAD0@1 0F1@1 0OFFLOAD1@3 0RELOAD0@5 0B0@7 0RELOAD1@9 0B1@11",
          {"rank 0", "0OFFLOAD1", "2", "1.5", "host"});
    finds_nothing(p, "0F0@0 0OFFLOAD0@1 0F1@1 0RELOAD0@3 0OFFLOAD1@5 0B0@7 0RELOAD1@9 0B1@11");
    p.transfer.engines = 2;
    finds(p, "0F0@0 0OFFLOAD0@1 0F1@1 0RELOAD0@3 0OFFLOAD1@4 0B0@7 0RELOAD1@9 0B1@11",
          {"rank 0", "0OFFLOAD1", "2", "1.5", "host"});
}

TEST_CASE("all violations are reported at once") {
    auto p = linear(2, 2);
    p.memory_limit[rank{1}] = 1_gb;
    p.p2p = optpipe::hop_times<>{0.5_ms};
    // 1F0 too early, 0F1 over 0F0, 1F1 beyond the memory, 0B0 too short, 1B1 missing.
    auto s = spelled_schedule(p, "0F0@0 0F1@0.5 1F0@1.25 1F1@2.25 1B0@3.5 0B0@6 0B1@9");
    at(s, "0B0").end = 7.5_ms;
    const auto found = validate(p, s);
    const auto text = all_of(found);
    INFO(text);
    CHECK(found.size() == 5);
    CHECK(contains(text, "rank 1: 1F0 starts at 1.25, before 0F0's end 1 plus 0.5"));
    CHECK(contains(text, "rank 0: 0F1 starts at 0.5 while 0F0 runs until 1"));
    CHECK(contains(text, "rank 1: holds 2"));
    CHECK(contains(text, "rank 0: 0B0 lasts 1.5, not 2"));
    CHECK(contains(text, "rank 1: stage 1, microbatch 1"));
}

TEST_CASE("what rounding does isn't wrong, a thousandth is") {
    auto p = linear(2, 1);
    p.memory_limit[rank{0}] = 1_gb;
    auto s = spelled_schedule(p, sound);
    at(s, "1B0").start -= 1e-7_ms;
    at(s, "0F0").start -= 1e-7_ms;
    finds_nothing(p, s);
    p.memory_limit[rank{0}] = (1.0 - 1e-8) * 1_gb;
    finds_nothing(p, s);
    p.memory_limit[rank{0}] = 0.999_gb;
    finds(p, s, {"rank 0", "0F0", "0.999"});
    s = spelled_schedule(p, "0F0@0 1F0@0.999 1B0@2 0B0@4");
    p.memory_limit[rank{0}] = 1_gb;
    finds(p, s, {"rank 1", "1F0", "0.999"});
    CHECK(is_valid(p, s, optpipe::tolerance{0.01}));
}

TEST_CASE("times that are no numbers, or beyond all measure, don't hide anything") {
    const auto p = linear(2, 1);
    constexpr double infinity = std::numeric_limits<double>::infinity();
    for (const double odd : {std::nan(""), infinity, -infinity, 1e300, -1e300}) {
        CAPTURE(odd);
        auto s = spelled_schedule(p, sound);
        at(s, "0B0").end = duration{odd};
        CHECK_FALSE(is_valid(p, s));
        at(s, "0B0").start = duration{odd};
        CHECK_FALSE(is_valid(p, s));
        s = spelled_schedule(p, sound);
        at(s, "1F0").start = duration{odd};
        CHECK_FALSE(is_valid(p, s));
    }
    for (const double odd : {std::nan(""), infinity, -infinity}) {
        auto s = spelled_schedule(p, sound);
        at(s, "1F0").start = duration{odd};
        finds(p, s, {"rank 1", "1F0", "is not a finite number"});
    }
    // Two at once, and another operation that is very late.
    const auto q = linear(1, 2);
    for (const double late : {1e7, 1e9, 1e12}) {
        CAPTURE(late);
        auto s = spelled_schedule(q, "0F0@0 0F1@0.5 0I0@2 0I1@3 0W0@4");
        s.operations.push_back({spelled("0W1"), duration{late}, duration{late + 1.0}});
        CHECK_FALSE(oracle::judge(q, s).valid());
        CHECK_FALSE(is_valid(q, s));
    }
}

TEST_CASE("a schedule with many starts that are no numbers is neither sorted nor measured") {
    auto p = linear(4, 8);
    for (auto& limit : p.memory_limit)
        limit = 8_gb;
    auto s = *simulate(p, optpipe::gpipe(p.graph));
    for (std::size_t i = 0; i < s.operations.size(); i += 2)
        s.operations[i].start = duration{std::nan("")};
    CHECK(validate(p, s).size() == s.operations.size() / 2);
    if (!optpipe::contracts_throw()) return;
    CHECK_THROWS_AS(static_cast<void>(measure(p, s)), optpipe::contract_error);
    CHECK_THROWS_AS(static_cast<void>(memory_curve(p, s, rank{0})), optpipe::contract_error);
    CHECK_THROWS_AS(static_cast<void>(retime(p, s)), optpipe::contract_error);
    CHECK_THROWS_AS(static_cast<void>(operations_by_rank(s)), optpipe::contract_error);
}

namespace {

/// Breaks a schedule in some way; the result may be valid by chance.
class corruption {
public:
    corruption(oracle::random_numbers& random, const oracle::random_problem& given)
        : random_{&random}, given_{&given} {}

    std::string apply(optpipe::schedule& s) {
        switch (random_->below(10)) {
        case 0: {
            auto& a = any(s);
            auto& b = any(s);
            std::swap(a.op, b.op);
            return "swap what runs";
        }
        case 1: {
            auto& a = any(s);
            auto& b = any(s);
            const auto [start_a, start_b] = std::pair{a.start, b.start};
            move(a, start_b);
            move(b, start_a);
            return "swap starts";
        }
        case 2: {
            auto& a = any(s);
            move(a, a.start + step());
            return "shift";
        }
        case 3: {
            const auto kept = random_->below(s.operations.size());
            s.operations[kept] = s.operations.back();
            s.operations.pop_back();
            return "drop";
        }
        case 4: s.operations.push_back(any(s)); return "duplicate";
        case 5: {
            auto& op = any(s).op;
            op.stage = stage{random_->below(given_->problem.graph.stages() + 1)};
            return "other stage";
        }
        case 6: {
            auto& op = any(s).op;
            op.microbatch = optpipe::microbatch{random_->below(given_->problem.graph.microbatches() + 1)};
            return "other microbatch";
        }
        case 7: any(s).op.kind = optpipe::all_operation_kinds[random_->below(7)]; return "other kind";
        case 8: any(s).op.storage = static_cast<optpipe::storage_index>(random_->below(4)); return "other storage";
        default: {
            auto& a = any(s);
            a.end -= 0.5 * (a.end - a.start);
            return "shorten";
        }
        }
    }

private:
    optpipe::timed_operation& any(optpipe::schedule& s) { return s.operations[random_->below(s.operations.size())]; }
    static void move(optpipe::timed_operation& timed, duration start) {
        const auto length = timed.end - timed.start;
        timed.start = start;
        timed.end = start + length;
    }
    duration step() {
        const auto length = given_->grid * static_cast<double>(random_->between(1, 8)) / 2.0;
        return duration{random_->chance(50) ? length : -length};
    }

    oracle::random_numbers* random_;
    const oracle::random_problem* given_;
};

} // namespace

TEST_CASE("of schedules broken at random, an independent checker refuses the same") {
    constexpr std::uint64_t seed = 51;
    std::uint64_t refused = 0;
    std::uint64_t accepted = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(2000); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(
            random, {.ranks = 4, .stages = 8, .microbatches = 6, .cells = 16, .storage_percent = 50});
        const auto& p = given.problem;
        auto s = oracle::random_schedule(random, given);
        REQUIRE(all_of(validate(p, s)) == "");
        REQUIRE(oracle::judge(p, s).text() == "");
        const auto before = oracle::spell(s);
        const auto how = corruption{random, given}.apply(s);
        CAPTURE(how);
        CAPTURE(before);
        const auto found = validate(p, s);
        INFO(all_of(found));
        CHECK(found.empty() == is_valid(p, s));
        CHECK(oracle::judge(p, s).valid() == found.empty());
        (found.empty() ? accepted : refused) += 1;
    }
    CHECK(refused >= oracle::random_cases(1000));
    CHECK(accepted >= oracle::random_cases(100));
}

namespace {

/// Options 0 to 4: kept, recomputed ahead, inside, offloaded by half, and all of it at once.
optpipe::problem with_storage_options(std::size_t ranks, std::size_t microbatches) {
    auto p = linear(ranks, microbatches);
    for (const stage s : p.graph.all_stages()) {
        p.change_stage(s, [&](auto& c) { c.transfer = std::nullopt; });
        p.storage[s].push_back({"ahead", 0.25_gb, 1_ms, {}, {}, {}});
        p.storage[s].push_back({"inside", 0.25_gb, {}, 2_ms, {}, {}});
        p.storage[s].push_back({"half", 1_gb, {}, {}, 0.5_gb, transfer_times{2_ms, 2_ms}});
        p.storage[s].push_back({"both", 0.5_gb, 1_ms, {}, 0.25_gb, transfer_times{2_ms, 2_ms}});
    }
    return p;
}

} // namespace

TEST_CASE("each storage option has its own operations and times") {
    const auto p = with_storage_options(1, 1);
    finds_nothing(p, "0F0:1@0 0RECOMPUTE0:1@1 0I0:1@2 0W0:1@3");
    finds_nothing(p, "0F0:2@0 0I0:2@1 0W0:2@4");
    finds_nothing(p, "0F0:3@0 0OFFLOAD0:3@1 0RELOAD0:3@3 0B0:3@5");
    finds_nothing(p, "0F0:4@0 0OFFLOAD0:4@1 0RELOAD0:4@3 0RECOMPUTE0:4@5 0B0:4@6");
}

TEST_CASE("what its storage option asks for is there, and nothing else") {
    const auto p = with_storage_options(1, 1);
    finds(p, "0F0:1@0 0B0:1@1", {"rank 0", "0RECOMPUTE0 is missing: its storage option asks for it"});
    finds(p, "0F0:4@0 0OFFLOAD0:4@1 0RELOAD0:4@3 0B0:4@6", {"0RECOMPUTE0 is missing"});
    auto found = all_of(validate(p, spelled_schedule(p, "0F0:3@0 0B0:3@1")));
    CHECK(found == "rank 0: 0OFFLOAD0 is missing: its storage option asks for it\n"
                   "rank 0: 0RELOAD0 is missing: its storage option asks for it\n");
    auto s = spelled_schedule(p, "0F0@0 0B0@3");
    s.operations.push_back({spelled("0RECOMPUTE0"), 1_ms, 2_ms});
    finds(p, s, {"0RECOMPUTE0: its storage option has no recomputation"});
    s = spelled_schedule(p, "0F0@0 0B0@9");
    s.operations.push_back({spelled("0OFFLOAD0"), 1_ms, 3_ms});
    s.operations.push_back({spelled("0RELOAD0"), 3_ms, 5_ms});
    CHECK(validate(p, s).size() == 2);
    CHECK_FALSE(oracle::judge(p, s).valid());
    s = spelled_schedule(linear(1, 1), "0F0@0 0B0@3");
    s.operations.push_back({spelled("0RECOMPUTE0"), 1_ms, 2_ms});
    finds(linear(1, 1), s, {"0RECOMPUTE0: its storage option has no recomputation"});
}

TEST_CASE("one (stage, microbatch) has one storage option") {
    const auto p = with_storage_options(1, 1);
    finds(p, "0F0:2@0 0I0:2@1 0W0@4", {"0W0 has another storage option than 0F0"});
    auto s = spelled_schedule(p, "0F0@0 0B0@1");
    for (auto& timed : s.operations)
        timed.op.storage = 5;
    const auto found = validate(p, s);
    REQUIRE(found.size() == 2);
    CHECK(contains(found[0].text(), "0F0: its stage has no such storage option"));
}

TEST_CASE("recomputation comes after the forward and the reload, before the gradient, alone on its rank") {
    const auto p = with_storage_options(1, 2);
    const std::string rest = " 0F1@20 0B1@21";
    finds(p, "0F0:1@1 0RECOMPUTE0:1@0 0B0:1@3" + rest, {"0RECOMPUTE0 starts at 0, before 0F0's end 2"});
    finds(p, "0F0:1@0 0B0:1@1 0RECOMPUTE0:1@3" + rest, {"0B0 starts at 1, before 0RECOMPUTE0's end 4"});
    finds(p, "0F0:4@0 0OFFLOAD0:4@1 0RELOAD0:4@3 0RECOMPUTE0:4@4 0B0:4@9" + rest,
          {"0RECOMPUTE0 starts at 4, before 0RELOAD0's end 5"});
    finds(p, "0F0:1@0 0RECOMPUTE0:1@1 0F1@1.5 0B0:1@3 0B1@5", {"0F1 starts at 1.5 while 0RECOMPUTE0 runs until 2"});
}

TEST_CASE("memory as the storage options say") {
    auto p = with_storage_options(1, 2);
    const std::string ahead = "0F0:1@0 0F1:1@1 0RECOMPUTE0:1@2 0I0:1@3 0W0:1@4 0RECOMPUTE1:1@5 0I1:1@6 0W1:1@7";
    p.memory_limit[rank{0}] = 1.25_gb;
    finds_nothing(p, ahead);
    p.memory_limit[rank{0}] = 1.2_gb;
    finds(p, ahead, {"rank 0", "holds 1.25 when 0RECOMPUTE0 starts at 2"});
    // W needs more than a gradient with piecewise recomputation holds; the difference is added when I starts.
    const std::string inside = "0F0:2@0 0F1:2@1 0I0:2@2 0W0:2@5 0B1:2@6";
    p.memory_limit[rank{0}] = 0.75_gb;
    finds_nothing(p, inside);
    p.memory_limit[rank{0}] = 0.7_gb;
    finds(p, inside, {"holds 0.75 when 0I0 starts at 2"});
    const std::string half = "0F0:3@0 0OFFLOAD0:3@1 0F1@3 0B1@4 0RELOAD0:3@6 0B0:3@8";
    p.memory_limit[rank{0}] = 1.5_gb;
    p.host_memory_limit[rank{0}] = 0.5_gb;
    finds_nothing(p, half);
    p.memory_limit[rank{0}] = 1.4_gb;
    finds(p, half, {"holds 1.5 when 0F1 starts at 3"});
    p.memory_limit[rank{0}] = 1.5_gb;
    p.host_memory_limit[rank{0}] = 0.4_gb;
    finds(p, half, {"keeps 0.5 on the host"});
}
