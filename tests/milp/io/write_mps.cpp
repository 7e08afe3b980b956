#include "oracle/milp_models.hpp"
#include "oracle/milp_random.hpp"
#include <optpipe/milp/io/read_mps.hpp>
#include <optpipe/milp/io/write_lp.hpp>
#include <optpipe/milp/io/write_mps.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>

using namespace optpipe::milp;

namespace {

bool same_columns(const model& a, const model& b, bool with_names) {
    for (const variable x : a.all_variables())
        if (a.lower(x) != b.lower(x) || a.upper(x) != b.upper(x) || a.cost(x) != b.cost(x) ||
            a.domain_of(x) != b.domain_of(x) || (with_names && name_of(a, x) != name_of(b, x)))
            return false;
    return true;
}

bool same_rows(const model& a, const model& b, bool with_names) {
    for (const row r : a.all_rows()) {
        const auto s = a.terms(r);
        const auto t = b.terms(r);
        if (a.row_lower(r) != b.row_lower(r) || a.row_upper(r) != b.row_upper(r) ||
            !std::equal(s.begin(), s.end(), t.begin(), t.end()) || (with_names && name_of(a, r) != name_of(b, r)))
            return false;
    }
    return true;
}

bool same(const model& a, const model& b, bool with_names = true) {
    return a.variables() == b.variables() && a.rows() == b.rows() && a.offset() == b.offset() &&
           a.direction() == b.direction() && same_columns(a, b, with_names) && same_rows(a, b, with_names);
}

model again(const model& m) { return parse_mps(model_to_mps(m), "again.mps"); }

bool has_line(const std::string& text, const std::string& line) {
    return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

} // namespace

TEST_CASE("what was written is read as the same model") {
    if (!oracle::can_read_known_models()) return;
    for (const auto& known : oracle::known_models("")) {
        const auto m = known.read();
        CHECK_MESSAGE(same(m, again(m)), known.name);
        CHECK(again(m).name() == m.name());
    }
}

TEST_CASE("random models are read back as they were") {
    constexpr std::uint64_t seeds = 500;
    MESSAGE("seeds 1 to " << seeds);
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        const auto m = oracle::random_model(seed);
        CHECK_MESSAGE(same(m, again(m)), "seed " << seed);
    }
}

TEST_CASE("all bounds survive, those of infeasible models as well") {
    const double ends[] = {-infinity, -3.0, -0.5, 0.0, 1.0, 2.0, infinity};
    model m;
    const auto x = m.add_binary();
    for (const double lower : ends)
        for (const double upper : ends) {
            if (lower == infinity || upper == -infinity) continue;
            for (const auto kind : {domain::continuous, domain::integer})
                m.add_variable(lower, upper, kind);
            if (lower <= upper) m.add_row(lower, {{x, 1.0}}, upper);
        }
    CHECK(same(m, again(m)));
}

TEST_CASE("a row that can't be met is written as two") {
    model m;
    const auto x = m.add_binary("x");
    m.add_row(3.0, {{x, 1.0}}, 1.0, "no");
    const auto read = again(m);
    REQUIRE(read.rows() == 2);
    CHECK((read.row_lower(row{0}) == 3.0 && read.row_upper(row{0}) == infinity));
    CHECK((read.row_lower(row{1}) == -infinity && read.row_upper(row{1}) == 1.0));
}

TEST_CASE("names that can't be written are replaced, all of a kind") {
    model m;
    const auto x = m.add_binary("my x");
    m.add_binary("y");
    m.add_row(0.0, {{x, 1.0}}, 1.0, "COST");
    const auto read = again(m);
    CHECK(same(m, read, false));
    CHECK((read.name(variable{0}) == "x0" && read.name(variable{1}) == "x1" && read.name(row{0}) == "COST"));

    model twins;
    twins.add_binary("x1");
    twins.add_binary();
    CHECK((again(twins).name(variable{0}) == "x0" && again(twins).name(variable{1}) == "x1"));
}

TEST_CASE("direction, offset and columns without rows are written") {
    model m;
    const auto x = m.add_variable(0.0, infinity, domain::integer);
    m.add_variable(0.0, 4.0);
    m.set_objective(2.5 * x - 7.25, sense::maximize);
    m.set_name("has blanks");
    CHECK(same(m, again(m)));
    CHECK(again(m).name().empty());
    CHECK(same(model{}, again(model{})));
}

TEST_CASE("the LP format names all parts of a model") {
    model m;
    const auto x = m.add_variable(-infinity, infinity, domain::continuous, "x");
    const auto y = m.add_variable(-2.0, 5.5, domain::continuous, "y");
    const auto n = m.add_variable(0.0, 9.0, domain::integer, "n");
    const auto b = m.add_binary("b");
    const auto f = m.add_variable(3.0, 3.0, domain::continuous, "f");
    m.add_variable(-infinity, 1.0, domain::continuous, "u");
    m.add_row(x - 2.5 * y <= 4, "most");
    m.add_row(1 <= x + n <= 3, "range");
    m.add_row(b + f == 1, "equal");
    m.add_row(-infinity, {{x, 1.0}}, infinity, "loose");
    m.add_row(1.0, {}, infinity, "none");
    m.set_objective(x - 3 * n + 1.5, sense::maximize);
    const auto text = model_to_lp(m);
    for (const auto* line : {"Maximize", " COST: + 1 x - 3 n + 0 u + 1.5", "Subject To", " most: + 1 x - 2.5 y <= 4",
                             " range: 1 <= + 1 x + 1 n <= 3", " equal: + 1 b + 1 f = 1", " loose: + 1 x >= -inf",
                             " none: 0 x >= 1", "Bounds", " x free", " -2 <= y <= 5.5", " 0 <= n <= 9", " f = 3",
                             " -inf <= u <= 1", "General", " n", "Binary", " b", "End"}) {
        const std::string wanted{line};
        CHECK_MESSAGE(has_line(text, wanted), wanted << "\nin\n" << text);
    }
}
