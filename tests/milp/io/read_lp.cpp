#include "oracle/milp_models.hpp"
#include "oracle/milp_random.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/milp/io/read_lp.hpp>
#include <optpipe/milp/io/read_model.hpp>
#include <optpipe/milp/io/write_lp.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe::milp;

namespace {

const std::string small = R"(\ a comment
Maximize
 obj: 2 x + 3y - z
      + 1.5 n + 10
Subject To
 c1: x + y + 2 z <= 10 \ the rest of the line
 c2: -2 <= x - y <= 8
 -x + n >= -3
 c4: x + z = 4
Bounds
 x <= 4
 -1 <= y <= 6
 z free
 n >= 1
General
 n
Binary
 b
End
)";

std::string with(const std::string& what, const std::string& instead) {
    auto text = small;
    const auto at = text.find(what);
    REQUIRE(at != std::string::npos);
    return text.replace(at, what.size(), instead);
}

model read(const std::string& text) { return parse_lp(text, "t.lp"); }

std::string refusal(const std::string& text) {
    try {
        static_cast<void>(read(text));
    } catch (const optpipe::input_error& e) {
        CHECK(e.violations().size() == 1);
        return e.what();
    }
    return "read";
}

/// The columns by name, because their order isn't kept.
std::map<std::string, variable> columns_of(const model& m) {
    std::map<std::string, variable> columns;
    for (const variable x : m.all_variables())
        columns.emplace(name_of(m, x), x);
    return columns;
}

bool same_row(const model& a, const model& b, row r) {
    std::map<std::string, double> of_a, of_b;
    for (const auto& t : a.terms(r))
        of_a[name_of(a, t.column)] = t.coefficient;
    for (const auto& t : b.terms(r))
        of_b[name_of(b, t.column)] = t.coefficient;
    return of_a == of_b && a.row_lower(r) == b.row_lower(r) && a.row_upper(r) == b.row_upper(r) &&
           name_of(a, r) == name_of(b, r);
}

/// Whether two models are the same except for the order of columns. Contract: the format can represent the names.
bool same(const model& a, const model& b) {
    const auto in_a = columns_of(a);
    const auto in_b = columns_of(b);
    if (in_a.size() != in_b.size() || a.rows() != b.rows()) return false;
    if (a.offset() != b.offset() || a.direction() != b.direction()) return false;
    const bool same_columns = std::all_of(in_a.begin(), in_a.end(), [&](const auto& column) {
        const auto x = column.second;
        const auto found = in_b.find(column.first);
        if (found == in_b.end()) return false;
        const auto y = found->second;
        return a.lower(x) == b.lower(y) && a.upper(x) == b.upper(y) && a.cost(x) == b.cost(y) &&
               a.domain_of(x) == b.domain_of(y);
    });
    for (const row r : a.all_rows())
        if (!same_row(a, b, r)) return false;
    return same_columns;
}

/// The one row of a model with x and y.
std::string row_text(const std::string& line) {
    const auto m = read("min\n x\nst\n " + line + "\nend\n");
    REQUIRE(m.rows() == 1);
    auto text = std::to_string(static_cast<int>(std::max(m.row_lower(row{0}), -99.0))) + " <=";
    for (const auto& t : m.terms(row{0}))
        text += " " + std::to_string(static_cast<int>(t.coefficient)) + name_of(m, t.column);
    return text + " <= " + std::to_string(static_cast<int>(std::min(m.row_upper(row{0}), 99.0)));
}

/// The bounds of x after these lines of Bounds.
std::pair<double, double> bounds(const std::string& lines) {
    const auto m = read("min\n x\nst\n x >= -9\nbounds\n" + lines + "end\n");
    return {m.lower(variable{0}), m.upper(variable{0})};
}

} // namespace

TEST_CASE("a model is read with all that it says") {
    const auto m = read(small);
    REQUIRE((m.variables() == 5 && m.rows() == 4));
    const variable x{0}, y{1}, z{2}, n{3}, b{4};
    CHECK((m.name(x) == "x" && m.name(y) == "y" && m.name(z) == "z" && m.name(n) == "n" && m.name(b) == "b"));
    CHECK(m.direction() == sense::maximize);
    CHECK((m.cost(x) == 2.0 && m.cost(y) == 3.0 && m.cost(z) == -1.0 && m.cost(n) == 1.5 && m.offset() == 10.0));
    CHECK((m.name(row{0}) == "c1" && m.name(row{1}) == "c2" && m.name(row{2}).empty() && m.name(row{3}) == "c4"));
    CHECK((m.row_lower(row{0}) == -infinity && m.row_upper(row{0}) == 10.0));
    CHECK((m.row_lower(row{1}) == -2.0 && m.row_upper(row{1}) == 8.0));
    CHECK((m.row_lower(row{2}) == -3.0 && m.row_upper(row{2}) == infinity));
    CHECK((m.row_lower(row{3}) == 4.0 && m.row_upper(row{3}) == 4.0));
    CHECK(std::vector<term>(m.terms(row{2}).begin(), m.terms(row{2}).end()) == std::vector<term>{{x, -1.0}, {n, 1.0}});
    CHECK((m.lower(x) == 0.0 && m.upper(x) == 4.0 && m.lower(y) == -1.0 && m.upper(y) == 6.0));
    CHECK((m.lower(z) == -infinity && m.upper(z) == infinity && m.lower(n) == 1.0 && m.upper(n) == infinity));
    CHECK((!m.is_integer(x) && m.is_integer(n) && m.is_integer(b) && m.lower(b) == 0.0 && m.upper(b) == 1.0));
}

TEST_CASE("rows in every form") {
    CHECK(row_text("x + 2 y <= 8") == "-99 <= 1x 2y <= 8");
    CHECK(row_text("c: x+2y<8") == "-99 <= 1x 2y <= 8");
    CHECK(row_text("c: 2 y - x =>-8") == "-8 <= -1x 2y <= 99");
    CHECK(row_text("c: 3 * x\n + y\n =< \n - 8") == "-99 <= 3x 1y <= -8");
    CHECK(row_text("c: x + x - y + 3 x = 8") == "8 <= 5x -1y <= 8");
    CHECK(row_text("c: x - x >= -8") == "-8 <= <= 99");
    CHECK(row_text("c: 8 >= x") == "-99 <= 1x <= 8");
    CHECK(row_text("c: 2 = x") == "2 <= 1x <= 2");
    CHECK(row_text("c: -2 <= x + y") == "-2 <= 1x 1y <= 99");
    CHECK(row_text("c: 2 <= x\n + y <= 8") == "2 <= 1x 1y <= 8");
    CHECK(row_text("c: 8 >= x + y >= 2") == "2 <= 1x 1y <= 8");
    CHECK(row_text("c: - inf <= x + y <= 8") == "-99 <= 1x 1y <= 8");
    CHECK(row_text("c: x + y >= -1e30") == "-99 <= 1x 1y <= 99");
    CHECK(row_text("c: + - x - - 2 y <= - -8") == "-99 <= -1x 2y <= 8");
    CHECK(row_text("c: x[1,2] + 2e1y >= .5e1") == "5 <= 1x[1,2] 20y <= 99");
    CHECK(row_text("st: x >= 1") == "1 <= 1x <= 99");
}

TEST_CASE("rows that begin where another ends") {
    const auto m = read("min x\nsubject to c1: 2 <= x + z\nc2: y >= 2\n- x + y <= 3\n3 x <= 9\nend\n");
    REQUIRE(m.rows() == 4);
    CHECK((m.row_lower(row{0}) == 2.0 && m.row_upper(row{0}) == infinity && m.terms(row{0}).size() == 2));
    CHECK((m.name(row{1}) == "c2" && m.row_upper(row{2}) == 3.0 && m.terms(row{3}).front().coefficient == 3.0));
}

TEST_CASE("bounds in every form") {
    using pair = std::pair<double, double>;
    CHECK(bounds("") == pair{0.0, infinity});
    CHECK(bounds(" x <= 4\n") == pair{0.0, 4.0});
    CHECK(bounds(" x >= -4\n") == pair{-4.0, infinity});
    CHECK(bounds(" 4 >= x\n") == pair{0.0, 4.0});
    CHECK(bounds(" -4 <= x\n") == pair{-4.0, infinity});
    CHECK(bounds(" -4 <= x <= +4\n") == pair{-4.0, 4.0});
    CHECK(bounds(" 4 >= x >= -4\n") == pair{-4.0, 4.0});
    CHECK(bounds(" x = 4\n") == pair{4.0, 4.0});
    CHECK(bounds(" x free\n") == pair{-infinity, infinity});
    CHECK(bounds(" x FREE\n") == pair{-infinity, infinity});
    CHECK(bounds(" -inf <= x <= 4\n") == pair{-infinity, 4.0});
    CHECK(bounds(" -Infinity <= x <= +INF\n") == pair{-infinity, infinity});
    CHECK(bounds(" x >= -1e30\n") == pair{-infinity, infinity});
    CHECK(bounds(" x <= 9\n x >= 2\n x <= 9\n") == pair{2.0, 9.0});
    CHECK(bounds(" x <= -3\n") == pair{0.0, -3.0}); // unlike in MPS
}

TEST_CASE("a binary may be fixed") {
    const auto binary = [](const std::string& lines) {
        const auto m = read("max\n x\nst\n x <= 9\nbounds\n" + lines + "bin\n x\nend\n");
        return std::pair{m.lower(variable{0}), m.upper(variable{0})};
    };
    CHECK(binary("") == std::pair{0.0, 1.0});
    CHECK(binary(" 0 <= x <= 1\n") == std::pair{0.0, 1.0});
    CHECK(binary(" x = 1\n") == std::pair{1.0, 1.0});
    CHECK(binary(" x <= 0\n") == std::pair{0.0, 0.0});
}

TEST_CASE("keywords in every spelling, empty sections, one line") {
    for (const std::string rows : {"SUBJECT TO", "such  that", "st", "s.t.", "ST.", "Lazy Constraints", "User Cuts"})
        for (const std::string integers : {"general", "Generals", "gen", "INTEGER", "integers", "int"}) {
            const auto m = read("minimise\n obj:\n" + rows + "\n x >= 1.5\n" + integers + " x\nsemi\nsos\nEND");
            CHECK((m.rows() == 1 && m.is_integer(variable{0})));
        }
    for (const std::string binaries : {"binary", "Binaries", "BIN"})
        CHECK(read("MAX x\nst x <= 1\n" + binaries + "\nx\nend").upper(variable{0}) == 1.0);
    CHECK(read("max\nend\nwhat comes after").variables() == 0);
    CHECK(read("\xef\xbb\xbfmax\r\n 3 x\r\nst\r\nx <= 2\r\nend\r\n").cost(variable{0}) == 3.0);
    CHECK(read("max\n cost: x\nst\n lazy: x <= 1\n user: x <= 2\n general: x <= 3\nend\n").rows() == 3);
}

TEST_CASE("what isn't linear, and what is wrong, is refused with its line") {
    const struct {
        std::string text;
        std::string message;
    } cases[] = {
        {"", "line 1: the file must begin with Minimize or Maximize, begins with the end of the file"},
        {with("Maximize", "Maxim"), "line 2: the file must begin with Minimize or Maximize, begins with 'Maxim'"},
        {with("End\n", ""), "line 19: the file ends without End"},
        {with("- z", "- z y"), "line 3: the objective has 'y' where a sign"},
        {with("- z", "- z + [ x ^ 2 ] / 2"), "line 3: has '[' where a linear expression can't"},
        {with("- z", "- z * y"), "line 3: has '*' where a linear expression can't"},
        {with("- z", "- z ^ 2"), "line 3: has '^' where a linear expression can't"},
        {with("- z", "- 2 / 3 z"), "line 3: has '/' where a linear expression can't"},
        {with("- z", "- 1e25 z"), "line 3: '1e25' is too large"},
        {with("2 x", "1e25 x"), "line 3: the coefficient of 'x' is too large"},
        {with("2 x", "1e999 x"), "line 3: '1e999' is out of the range of numbers"},
        {with("2 x", "2 \xc2\xa0x"), "line 3: '?' is no character of an LP file"},
        {with("2 x", "inf"), "line 3: the objective has an infinite constant"},
        {with("+ 10", "+ inf"), "line 4: a sum has an infinite constant"},
        {with("Subject To", "Subjectto"), "line 6: the objective has 'c1' where a sign or a section must be"},
        {with("Subject To\n", "Subject To\n i: b = 1 -> x + z <= 3\n"),
         "line 6: indicator constraints can't be solved"},
        {with("c2:", "c1:"), "line 7: there are two rows 'c1'"},
        {with("<= 8", ">= 8"), "line 7: the two relations of a row must be alike"},
        {with("<= 8", "<= 8 - z"), "line 7: a row ends before '-', which must begin a line"},
        {with("<= 8", "<= z"), "line 7: the right-hand side must be a number, is 'z'"},
        {with("<= 8", "<= -inf"), "line 7: the row has an infinite side on the wrong side"},
        {with("<= 10", "10"), "line 6: a row has '10' where <=, >= or = must be"},
        {with("2 z <= 10", "2\n z <= 10"), "read"},
        {with("x + z = 4", "x + int = 4"), "line 9: the keyword 'int' can't be the name of a variable"},
        {with("Binary\n b", "Binary\n b End"), "line 18: the keyword 'End' can't be the name of a variable"},
        {with("x + z = 4", "x + z + 3 = 4"), "line 9: the body of a row must be a sum of variables"},
        {with("x + z = 4", "3 = 4"), "line 9: the body of a row must be a sum of variables"},
        {with("-2 <= x - y", "-2 <= x - 1"), "line 7: the body of a row must be a sum of variables"},
        {with("-2 <= x - y", "inf + x"), "line 7: the body of a row must be a sum of variables"},
        {with(" z free", " z free\n b <= 2"), "line 19: variable 'b' is binary and has bounds other than 0 and 1"},
        {with("Binary\n b", "Binary\n b\nBounds\n b >= -1"), "line 20: variable 'b' is binary and has bounds"},
        {with("x <= 4", "2 x <= 4"), "line 11: a bound has 'x' where <=, >= or = must be"},
        {with("x <= 4", "x <= 4 <= 5"), "line 11: a bound ends before '<=', which must begin a line"},
        {with("x <= 4", "x <= y"), "line 11: a bound must be a number, is 'y'"},
        {with("x <= 4", "x <= 4\n x <= 5"), "line 12: variable 'x' has another upper bound already"},
        {with("z free", "z free\n z >= 0"), "line 14: variable 'z' has another lower bound already"},
        {with("x <= 4", "x >= inf"), "line 11: variable 'x' has an infinite bound on the wrong side"},
        {with("x <= 4", "1 <= x >= 4"), "line 11: the two relations of a bound must be alike"},
        {with(" n\nBinary", " n + x\nBinary"), "line 16: a list of variables has '+'"},
        {with("Binary", "Semi-continuous\n x\nBinary"), "line 18: semicontinuous variables can't be solved"},
        {with("Binary", "SOS1\n s1: x:1 y:2\nBinary"), "line 18: special ordered sets can't be solved"},
        {with("Binary", "General Constraints\n g: r = MAX ( x , y )\nBinary"),
         "line 18: general constraints can't be solved"},
        {with("Binary", "PWLObj\n x: (1, 1)\nBinary"), "line 18: piecewise linear objectives can't be solved"},
        {with("Binary", "Minimize\nBinary"), "line 18: there is a second objective"},
        {"\xff\xfem", "line 1: is encoded in UTF-16; save it as UTF-8"},
    };
    for (const auto& c : cases) {
        const auto expected = c.message == "read" ? c.message : "t.lp: " + c.message;
        CHECK_MESSAGE(refusal(c.text).starts_with(expected), expected << "\n" << refusal(c.text));
    }
}

TEST_CASE("what HiGHS and SCIP write of one model is read as one model") {
    const std::string highs = "\\ File written by HiGHS .lp file handler\nmax\n obj: +1 c0 -2.5 c1 +1 c5  +7\nst\n"
                              " rnglo: +1 c0 +1 c1 +1 c2 >= +3\n rngup: +1 c0 +1 c1 +1 c2 <= +8\n"
                              " g: +1 c0 +1 c5 >= -1\n h: +1 c0 +1 c4 +3 c6 +1 c7 +1 c8 +1 c9 = +4\nbounds\n"
                              " -inf <= c1 <= 5\n c2 free\n 2 <= c3 <= 9\n c5 <= 1\n c6 <= 7\n c7 = 3\n c8 = 1\n"
                              " -inf <= c9 <= -4\nbin\n c5\ngen\n c4\n c6\n c8\nsemi\nend\n";
    const std::string scip =
        "\\ SCIP STATISTICS\n\\   Problem name     : _MPS_\nMaximize\n Obj: +1 c5 +1 c0 -2.5 c1 +7\n"
        "Subject to\n rnglo: +1 c0 +1 c1 +1 c2 >= +3\n rngup: +1 c0 +1 c1 +1 c2 <= +8\n"
        " g: +1 c0 +1 c5 >= -1\n h: +1 c0 +1 c4 +3 c6 +1 c7 +1 c8 +1 c9 = +4\nBounds\n"
        " 0 <= c5 <= 1\n 1 <= c8 <= 1\n 0 <= c6 <= 7\n -inf <= c1 <= 5\n c2 free\n"
        " 3 <= c7 <= 3\n 2 <= c3 <= 9\n -inf <= c9 <= -4\nBinaries\n c5 c8\nGenerals\n c4 c6\n"
        "End\n";
    CHECK(same(read(highs), read(scip)));
    CHECK((read(highs).variables() == 10 && read(highs).offset() == 7.0));
}

TEST_CASE("what was written is read as the same model") {
    constexpr std::uint64_t seeds = 500;
    MESSAGE("seeds 1 to " << seeds);
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        const auto m = oracle::random_model(seed);
        CHECK_MESSAGE(same(m, read(model_to_lp(m))), "seed " << seed);
    }
    const std::string words[] = {"free", "Inf", "st", "Bounds", "END", "max", "gen", "int", "s.t.", "sos2", "e", "E5x"};
    for (const auto& word : words) {
        model m;
        m.add_variable(-infinity, 4.0, domain::integer, word);
        CHECK(read(model_to_lp(m)).upper(variable{0}) == 4.0);
    }
    if (!oracle::can_read_known_models()) return;
    for (const auto& known : oracle::known_models("")) {
        const auto m = known.read();
        const auto again = read(model_to_lp(m));
        CHECK_MESSAGE((again.rows() == m.rows() && again.variables() == m.variables()), known.name);
        CHECK_MESSAGE(model_to_lp(read(model_to_lp(again))).size() == model_to_lp(again).size(), known.name);
    }
}

TEST_CASE("a file's format is that of its name, or of its first words") {
    const std::string mps = "NAME\nROWS\n N C\nENDATA\n";
    const auto format = [](const std::string& text, const std::string& name) -> std::string {
        try {
            return std::to_string(parse_model(text, name).variables()) + " read";
        } catch (const optpipe::input_error& e) {
            return e.what();
        }
    };
    CHECK(format(small, "m.lp") == "5 read");
    CHECK(format(small, "standard input") == "5 read");
    CHECK(format("\n\\ a comment\n" + small, "-") == "5 read");
    CHECK(format("\xef\xbb\xbfmin\n x\nend\n", "-") == "1 read");
    CHECK(format(mps, "-") == "0 read");
    CHECK(format(mps, "m.MPS.GZ") == "0 read");
    CHECK(format(mps, "m.LP.gz").find("must begin with Minimize or Maximize, begins with 'NAME'") != std::string::npos);
    CHECK(format(small, "m.mps").find("none of those of a linear problem") != std::string::npos);
    CHECK_THROWS_AS(static_cast<void>(read_lp("/no/such/file.lp")), optpipe::file_error);
    CHECK_THROWS_AS(static_cast<void>(read_model("/no/such/file")), optpipe::file_error);
}
