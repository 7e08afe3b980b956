#include "oracle/milp_models.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/core/random.hpp>
#include <optpipe/milp/io/read_mps.hpp>
#include <optpipe/milp/io/read_text.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

using namespace optpipe::milp;

namespace {

const std::string small = R"(* a comment
NAME          SMALL
ROWS
 N  COST
 L  LIM1
 G  LIM2
 E  MYEQN
COLUMNS
    X         COST         1.0   LIM1         1.0
    X         LIM2         1.0
    MARKER                 'MARKER'                 'INTORG'
    Y         COST         2.0   LIM1         1.0
    Y         MYEQN       -1.0
    MARKER                 'MARKER'                 'INTEND'
    Z         COST        -1.0   MYEQN        1.0
RHS
    RHS       LIM1         4.0   LIM2         1.0
    RHS       MYEQN        7.0
BOUNDS
 UP BND       X            4.0
ENDATA
)";

std::string with(const std::string& what, const std::string& instead) {
    auto text = small;
    const auto at = text.find(what);
    REQUIRE(at != std::string::npos);
    return text.replace(at, what.size(), instead);
}

model read(const std::string& text) { return parse_mps(text, "t.mps"); }

/// The message with which the reader refuses a text.
std::string refusal(const std::string& text, mps_format format = mps_format::automatic) {
    try {
        static_cast<void>(parse_mps(text, "t.mps", format));
    } catch (const optpipe::input_error& e) {
        CHECK(e.violations().size() == 1);
        return e.what();
    }
    return "read";
}

/// The bounds of X after these lines of BOUNDS.
struct bounds_of_x {
    double lower;
    double upper;
    bool is_integer;
    friend bool operator==(const bounds_of_x&, const bounds_of_x&) = default;
};
bounds_of_x bounds(const std::string& lines, const std::string& column = "X") {
    const auto m = read(with(" UP BND       X            4.0\n", lines));
    const variable x{column == "X" ? 0 : column == "Y" ? 1 : 2};
    return {m.lower(x), m.upper(x), m.is_integer(x)};
}

/// The bounds of a row of this type and right-hand side 10 under a range.
std::vector<double> range(const std::string& type, const std::string& number) {
    const auto m = read("NAME\nROWS\n N C\n " + type + " R\nCOLUMNS\n X C 1 R 1\nRHS\n RHS R 10\nRANGES\n RNG R " +
                        number + "\nENDATA\n");
    return {m.row_lower(row{0}), m.row_upper(row{0})};
}

} // namespace

TEST_CASE("a model is read with all that it says") {
    const auto m = read(small);
    CHECK(m.name() == "SMALL");
    CHECK((m.variables() == 3 && m.rows() == 3 && m.nonzeros() == 5));
    const variable x{0}, y{1}, z{2};
    CHECK((m.name(x) == "X" && m.name(y) == "Y" && m.name(z) == "Z"));
    CHECK((m.name(row{0}) == "LIM1" && m.name(row{2}) == "MYEQN"));
    CHECK((m.cost(x) == 1.0 && m.cost(y) == 2.0 && m.cost(z) == -1.0 && m.offset() == 0.0));
    CHECK((!m.is_integer(x) && m.is_integer(y) && !m.is_integer(z)));
    CHECK((m.lower(x) == 0.0 && m.upper(x) == 4.0));
    CHECK((m.lower(y) == 0.0 && m.upper(y) == 1.0));
    CHECK((m.lower(z) == 0.0 && m.upper(z) == infinity));
    CHECK((m.row_lower(row{0}) == -infinity && m.row_upper(row{0}) == 4.0));
    CHECK((m.row_lower(row{1}) == 1.0 && m.row_upper(row{1}) == infinity));
    CHECK((m.row_lower(row{2}) == 7.0 && m.row_upper(row{2}) == 7.0));
    CHECK(std::vector<term>(m.terms(row{2}).begin(), m.terms(row{2}).end()) == std::vector<term>{{y, -1.0}, {z, 1.0}});
}

TEST_CASE("every kind of bound means what it always meant") {
    CHECK(bounds(" UP BND X 3\n") == bounds_of_x{0.0, 3.0, false});
    CHECK(bounds(" UP BND X -3\n") == bounds_of_x{-infinity, -3.0, false});
    CHECK(bounds(" UP BND X 0\n") == bounds_of_x{0.0, 0.0, false});
    CHECK(bounds(" LO BND X -9\n UP BND X -3\n") == bounds_of_x{-9.0, -3.0, false});
    CHECK(bounds(" UP BND X -3\n LO BND X -9\n") == bounds_of_x{-9.0, -3.0, false});
    CHECK(bounds(" LO BND X 0\n UP BND X -3\n") == bounds_of_x{0.0, -3.0, false});
    CHECK(bounds(" LO BND X 2\n") == bounds_of_x{2.0, infinity, false});
    CHECK(bounds(" FX BND X 2.5\n") == bounds_of_x{2.5, 2.5, false});
    CHECK(bounds(" FR BND X\n") == bounds_of_x{-infinity, infinity, false});
    CHECK(bounds(" MI BND X\n") == bounds_of_x{-infinity, infinity, false});
    CHECK(bounds(" MI BND X\n UP BND X 4\n") == bounds_of_x{-infinity, 4.0, false});
    CHECK(bounds(" LO BND X 4\n PL BND X\n") == bounds_of_x{4.0, infinity, false});
    CHECK(bounds(" BV BND X\n") == bounds_of_x{0.0, 1.0, true});
    CHECK(bounds(" LI BND X 2\n") == bounds_of_x{2.0, infinity, true});
    CHECK(bounds(" UI BND X 7\n") == bounds_of_x{0.0, 7.0, true});
    CHECK(bounds(" UP BND X 1e30\n LO BND X -1e20\n") == bounds_of_x{-infinity, infinity, false});
    CHECK(bounds(" LO BND X -Inf\n UP BND X +infinity\n") == bounds_of_x{-infinity, infinity, false});
}

TEST_CASE("an integer between markers is binary until a bound is given") {
    CHECK(bounds("", "Y") == bounds_of_x{0.0, 1.0, true});
    CHECK(bounds(" PL BND Y\n", "Y") == bounds_of_x{0.0, infinity, true});
    CHECK(bounds(" LO BND Y 2\n", "Y") == bounds_of_x{2.0, infinity, true});
    CHECK(bounds(" UP BND Y 5\n", "Y") == bounds_of_x{0.0, 5.0, true});
}

TEST_CASE("the set of bounds may be left out, and a number where none is needed may be there") {
    CHECK(bounds(" UP X 3\n") == bounds_of_x{0.0, 3.0, false});
    CHECK(bounds(" FR X\n") == bounds_of_x{-infinity, infinity, false});
    CHECK(bounds(" BV X 1\n") == bounds_of_x{0.0, 1.0, true});
    CHECK(bounds(" FR BND X 0\n") == bounds_of_x{-infinity, infinity, false});
    const auto m = read("NAME\nROWS\n N C\n L R\nCOLUMNS\n X C 1 R 1\nRHS\n R 10\nENDATA\n");
    CHECK(m.row_upper(row{0}) == 10.0);
}

TEST_CASE("ranges widen each type of row in its direction") {
    CHECK(range("L", "4") == std::vector{6.0, 10.0});
    CHECK(range("L", "-4") == std::vector{6.0, 10.0});
    CHECK(range("G", "4") == std::vector{10.0, 14.0});
    CHECK(range("G", "-4") == std::vector{10.0, 14.0});
    CHECK(range("E", "4") == std::vector{10.0, 14.0});
    CHECK(range("E", "-4") == std::vector{6.0, 10.0});
    CHECK(range("E", "0") == std::vector{10.0, 10.0});
}

TEST_CASE("the objective: direction, name, right-hand side, further free rows") {
    CHECK(read(small).direction() == sense::minimize);
    CHECK(read(with("ROWS\n", "OBJSENSE\n    MAX\nROWS\n")).direction() == sense::maximize);
    CHECK(read(with("ROWS\n", "OBJSENSE MAXIMIZE\nROWS\n")).direction() == sense::maximize);
    CHECK(read(with("ROWS\n", "OBJSENSE\n    min\nROWS\n")).direction() == sense::minimize);
    CHECK(read(with("RHS       MYEQN        7.0", "RHS  MYEQN  7.0  COST  12.5")).offset() == -12.5);

    const auto two = with(" L  LIM1", " N  OTHER\n L  LIM1");
    CHECK(read(two).rows() == 4);
    CHECK((read(two).row_lower(row{0}) == -infinity && read(two).row_upper(row{0}) == infinity));
    CHECK(read(two).cost(variable{0}) == 1.0);
    const auto named = two.substr(0, two.find("ROWS")) + "OBJNAME\n OTHER\n" + two.substr(two.find("ROWS"));
    CHECK((read(named).name(row{0}) == "COST" && read(named).cost(variable{0}) == 0.0));
}

TEST_CASE("names with blanks are read by column, and only then") {
    const std::string fixed = "NAME          BLANKS\n"
                              "ROWS\n"
                              " N  MY COST\n"
                              " L  ROW 1\n"
                              "COLUMNS\n"
                              "    COL 1     MY COST            1.5   ROW 1              2.\n"
                              "    MARKER                 'MARKER'                 'INTORG'\n"
                              "    COL 2     ROW 1              3.\n"
                              "    MARKER                 'MARKER'                 'INTEND'\n"
                              "RHS\n"
                              "    RHS       ROW 1              9.\n"
                              "BOUNDS\n"
                              " UP BND       COL 1              4.\n"
                              "ENDATA\n";
    for (const auto format : {mps_format::automatic, mps_format::fixed}) {
        const auto m = parse_mps(fixed, "t.mps", format);
        CHECK((m.variables() == 2 && m.name(variable{0}) == "COL 1" && m.name(row{0}) == "ROW 1"));
        CHECK((m.cost(variable{0}) == 1.5 && m.upper(variable{0}) == 4.0 && m.row_upper(row{0}) == 9.0));
        CHECK((m.is_integer(variable{1}) && m.upper(variable{1}) == 1.0));
    }
    CHECK(refusal(fixed, mps_format::free) == "t.mps: line 3: a row has a type and a name");
}

TEST_CASE("the fixed format loses nothing: text outside of the fields is refused with its line") {
    const std::string head = "NAME\nROWS\n N  MY COST\n G  d\nCOLUMNS\n    x         MY COST           1.\n";
    const std::string tail =
        "RHS\n    rhs       d                 3.\nBOUNDS\n UP bnd       x                 9.\nENDATA\n";
    const auto with_line = [&](const std::string& line) { return refusal(head + line + "\n" + tail); };
    CHECK(with_line("    x         d                 1.") == "read");
    // Nothing is cut off from thirteen digits or from names of nine characters.
    CHECK(with_line("    x         d         1234567890123") ==
          "t.mps: line 7: has text in column 37, which is outside of the fields of the fixed format");
    CHECK(with_line("    MACHINE 1 d                 1.") ==
          "t.mps: line 7: has text in column 13, which is outside of the fields of the fixed format");
    CHECK(with_line("    x         d        2        1.") ==
          "t.mps: line 7: has text in column 24, which is outside of the fields of the fixed format");
    CHECK(with_line("    x         d                 1.   MY COST            2.  3").starts_with("t.mps: line 7: "));
    CHECK(with_line(" UP x         d                 1.") ==
          "t.mps: line 7: 'UP' is in columns 2 and 3, which only rows and bounds use");
    CHECK(with_line("    x\t       d                 1.").starts_with("t.mps: line 7: has a tab"));
    CHECK(with_line("    x         d                   ") == "t.mps: line 7: has the name 'd' without a number");
    CHECK(with_line("    x         d                 1.                      2.") ==
          "t.mps: line 7: has the number '2.' without a name");
    // A line that both readers refuse gets the message of the one that got further.
    CHECK(with_line("    x         d                one") == "t.mps: line 7: 'one' is not a number");
}

TEST_CASE("a free file with a word too many isn't read as a fixed one that has less") {
    const std::string text = "NAME\nROWS\n N  c\n G  d\nCOLUMNS\n    x         c                -1\n"
                             "    x         d                 1\nRHS\n    rhs       d                 2\nBOUNDS\n"
                             " UP bnd       x        5        8\nENDATA\n";
    CHECK(refusal(text) == "t.mps: line 11: a bound has a kind, a set, a column and a number; this has 5 words");
    auto column = text;
    column.replace(column.find(" UP bnd       x        5"), 24, " UP bnd       x         ");
    CHECK(refusal(column) == "read");
    column.replace(column.find("    x         c         "), 24, "    x         c        1");
    CHECK(refusal(column).starts_with("t.mps: line 6: "));
}

TEST_CASE("of several sets the first one counts") {
    CHECK(bounds(" UP BND X 3\n UP OTHER X 9\n LO OTHER X 1\n") == bounds_of_x{0.0, 3.0, false});
    CHECK(bounds(" UP BND X 3\n BV OTHER X\n") == bounds_of_x{0.0, 3.0, false});
    const auto m =
        read("NAME\nROWS\n N C\n L R\nCOLUMNS\n X C 1 R 1\nRHS\n A R 10\n B R 20 C 5\nRANGES\n A R 4\n B R 9\n"
             "ENDATA\n");
    CHECK((m.row_lower(row{0}) == 6.0 && m.row_upper(row{0}) == 10.0 && m.offset() == 0.0));
}

TEST_CASE("a bound that is stated again is no other") {
    CHECK(bounds(" UP BND X 3\n UP BND X 3.0\n LO BND X 0\n") == bounds_of_x{0.0, 3.0, false});
    CHECK(bounds(" BV BND X\n UP BND X 1\n") == bounds_of_x{0.0, 1.0, true});
}

TEST_CASE("lazy constraints and user cuts are rows") {
    const auto m =
        read("NAME\nROWS\n N C\n L R\nLAZYCONS\n L LAZY\nUSERCUTS\n G CUT\nCOLUMNS\n X C 1 R 1\n X LAZY 2 CUT 3\n"
             "RHS\n B R 10 LAZY 20\nENDATA\n");
    REQUIRE(m.rows() == 3);
    CHECK((m.name(row{1}) == "LAZY" && m.row_upper(row{1}) == 20.0 && m.row_lower(row{2}) == 0.0));
}

TEST_CASE("comments behind a dollar sign, and a byte order mark") {
    const auto m = read(with("LIM2         1.0", "LIM2 1.0 $ LIM1 7"));
    CHECK(m.nonzeros() == 5);
    CHECK(bounds(" UP BND X 3 $ the most\n LO BND X 1 $\n") == bounds_of_x{1.0, 3.0, false});
    CHECK(refusal(with("LIM2         1.0", "$LIM2        1.0")).starts_with("t.mps: line 10: "));
    const auto fixed = "NAME\nROWS\n N  MY COST\n G  d\nCOLUMNS\n    x         MY COST           1.     $ comment\n"
                       "    x         d                 2.\nENDATA\n";
    CHECK(parse_mps(fixed, "t.mps", mps_format::fixed).cost(variable{0}) == 1.0);
    CHECK(read("\xef\xbb\xbf" + small).name() == "SMALL");
    CHECK(read("\xef\xbb\xbf" + small.substr(small.find("NAME"))).rows() == 3);
}

TEST_CASE("line ends, tabs, signs and Fortran's exponents") {
    std::string windows;
    for (const char c : small)
        windows += c == '\n' ? std::string{"\r\n"} : std::string(1, c);
    CHECK(read(windows).nonzeros() == 5);
    CHECK(read(with("1.0   LIM1         1.0", "+1.0D+01\tLIM1\t1e0")).cost(variable{0}) == 10.0);
    CHECK(read(with("ENDATA\n", "ENDATA")).rows() == 3);
    CHECK(read(small + "what comes after the end").rows() == 3);
}

TEST_CASE("what is wrong is refused with the line and the reason") {
    const struct {
        std::string text;
        std::string message;
    } cases[] = {
        {"", "line 1: the file ends without ENDATA"},
        {with("ENDATA\n", ""), "line 21: the file ends without ENDATA"},
        {with("NAME          SMALL", " NAME"), "line 2: data before the section ROWS"},
        {with("ROWS\n", "LINES\n"), "line 3: the section 'LINES' is none of those"},
        {with("RHS\n", "QUADOBJ\n"), "line 16: the section 'QUADOBJ' is none of those"},
        {with(" L  LIM1", " X  LIM1"), "line 5: the type of a row must be N, L, G or E, is 'X'"},
        {with(" L  LIM1", " L"), "line 5: a row has a type and a name"},
        {with(" G  LIM2", " G  LIM1"), "line 6: there are two rows 'LIM1'"},
        {with("    X         LIM2         1.0", "    X         LIM3         1.0"), "line 10: there is no row 'LIM3'"},
        {with("    X         LIM2         1.0", "    X         LIM1         1.0"),
         "line 10: row 'LIM1' is there twice in column 'X'"},
        {with("    X         LIM2         1.0", "    X         LIM2         one"), "line 10: 'one' is not a number"},
        {with("    X         LIM2         1.0", "    X         LIM2         1e999"),
         "line 10: '1e999' is out of the range"},
        {with("    X         LIM2         1.0", "    X         LIM2         1e25"), "line 10: '1e25' is too large"},
        {with("    X         LIM2         1.0", "    X         LIM2         nan"), "line 10: 'nan' is not a number"},
        {with("    X         LIM2         1.0", "    X         LIM2"), "line 10: a column has a name, and then rows"},
        {with("    X         LIM2         1.0", "    X"), "line 10: has 1 fields"},
        {with("    Y         MYEQN", "    X         MYEQN"), "line 13: column 'X' is there already"},
        {with("'INTORG'", "'ORG'"), "line 11: a marker must be 'INTORG' or 'INTEND', is ''ORG''"},
        {with("RHS       MYEQN        7.0", "          MYEQN        7.0"),
         "line 18: either all right-hand sides are in a set that has a name, or none"},
        {with("RHS       MYEQN        7.0", "RHS2      MYEQN        7,0"), "line 18: '7,0' is not a number"},
        {with("RHS\n", "RHS       MYEQN 3\n"), "line 16: the header 'RHS' is followed by other words"},
        {with("ROWS\n", "OBJSENSE\n MAX\n MIN\nROWS\n"), "line 5: the file says both MIN and MAX"},
        {with("RHS       MYEQN        7.0", "RHS       LIM1         7.0"),
         "line 18: row 'LIM1' has a right-hand side already"},
        {with(" UP BND       X            4.0", " SC BND       X            4.0"),
         "line 20: semicontinuous variables can't be solved"},
        {with(" UP BND       X            4.0", " UX BND       X            4.0"),
         "line 20: there is no kind of bound 'UX'"},
        {with(" UP BND       X            4.0", " UX X"), "line 20: there is no kind of bound 'UX'"},
        {with(" UP BND       X            4.0", " UP X"), "line 20: the bound has no number"},
        {with(" UP BND       X            4.0", " FR BND  X  four"), "line 20: 'four' is not a number"},
        {with(" UP BND       X            4.0", " UP BND  X  4  5"),
         "line 20: a bound has a kind, a set, a column and a number; this has 5 words"},
        {with(" UP BND       X            4.0", " UP BND X 4\n UP BND X 5"),
         "line 21: column 'X' has another upper bound already"},
        {with(" UP BND       X            4.0", " MI BND X\n LO BND X 5"),
         "line 21: column 'X' has another lower bound already"},
        {with(" L  LIM1", " L  $LIM1"), "line 5: a row has a type and a name"},
        {with("    X         COST", "    $X        COST"), "line 9: the name '$X' is a comment elsewhere"},
        {"\xff\xfeN", "line 1: is encoded in UTF-16; save it as UTF-8"},
        {with(" UP BND       X            4.0", " UP BND       W            4.0"), "line 20: there is no column 'W'"},
        {with(" UP BND       X            4.0", " UP BND       X"), "line 20: there is no column 'BND'"},
        {with(" UP BND       X            4.0", " LO BND       X            inf"),
         "line 20: column 'X' has an infinite bound on the wrong side"},
        {with("RHS       MYEQN        7.0", "RHS       MYEQN        1e30"),
         "line 18: row 'MYEQN' has an infinite side on the wrong side"},
        {with("RHS       MYEQN        7.0", "RHS       MYEQN        -inf"),
         "line 18: row 'MYEQN' has an infinite side on the wrong side"},
        {with("    X         LIM2         1.0", "    X         LIM2         +-1"), "line 10: '+-1' is not a number"},
        {with("ROWS\n", "OBJNAME\n    NOPE\nROWS\n"), "line 23: there is no free row 'NOPE', which OBJNAME names"},
        {with("ROWS\n", "OBJNAME\n    LIM1\nROWS\n"), "line 23: there is no free row 'LIM1', which OBJNAME names"},
        {with("ROWS\n", "OBJSENSE\n    UP\nROWS\n"), "line 4: OBJSENSE must be MIN or MAX, is 'UP'"},
        {with("NAME          SMALL\n", "NAME\nRANGES\n RNG COST 4\n"), "line 4: there is no row 'COST'"},
        {with("RHS\n", "RANGES\n RNG COST 4\nRHS\n"), "line 17: row 'COST' is free, a range means nothing"},
    };
    for (const auto& c : cases)
        CHECK_MESSAGE(refusal(c.text).starts_with("t.mps: " + c.message), c.message << "\n" << refusal(c.text));
}

TEST_CASE("messages show no control characters, and not all of a long name") {
    CHECK(refusal(with(" L  LIM1", " \x1b[31m  LIM1")) ==
          "t.mps: line 5: the type of a row must be N, L, G or E, is '?[31m'");
    CHECK(refusal(with(" L  LIM1", " " + std::string(100000, 'x') + " LIM1")).size() < 200);
}

TEST_CASE("files that can't be read are an error of the file system") {
    CHECK_THROWS_AS(static_cast<void>(read_mps("/no/such/file.mps")), optpipe::file_error);
    CHECK_THROWS_AS(static_cast<void>(read_mps("/")), optpipe::file_error);
}

TEST_CASE("the models of the tests are all read") {
    if (!oracle::can_read_known_models()) return;
    const auto models = oracle::known_models("");
    CHECK(models.size() == 72);
    for (const auto& known : models)
        CHECK_MESSAGE(known.read().variables() > 0, known.name);
    const auto seba = oracle::known_models("lp/seba").front().read();
    CHECK((seba.rows() == 515 && seba.variables() == 1028 && seba.nonzeros() == 4352));
    const auto bell5 = oracle::known_models("mip/bell5").front().read();
    CHECK((bell5.rows() == 91 && bell5.variables() == 104 && bell5.nonzeros() == 266));
}

#if defined(OPTPIPE_HAS_ZLIB)
TEST_CASE("compressed files that are damaged are refused") {
    const auto whole = detail::read_bytes(oracle::known_models("lp/afiro").front().path(), 1U << 20U);
    const auto text = detail::inflated("afiro", whole, 1U << 20U);
    CHECK(text.starts_with("NAME"));
    CHECK(detail::inflated("two", whole + whole, 1U << 20U) == text + text);
    CHECK_THROWS_AS(static_cast<void>(detail::inflated("large", whole, 1000)), optpipe::file_error);
    CHECK_THROWS_AS(static_cast<void>(detail::inflated("cut", whole.substr(0, 300), 1U << 20U)), optpipe::file_error);
    CHECK_THROWS_AS(static_cast<void>(detail::inflated("head", whole.substr(0, 4), 1U << 20U)), optpipe::file_error);
    auto damaged = whole;
    damaged[200] = static_cast<char>(damaged[200] ^ 0x55);
    CHECK_THROWS_AS(static_cast<void>(detail::inflated("damaged", damaged, 1U << 20U)), optpipe::file_error);
}
#endif

TEST_CASE("texts that were changed at random are read or refused, and nothing else") {
    constexpr std::uint64_t seed = 1;
    constexpr int tries = 20000;
    MESSAGE("seed " << seed);
    optpipe::random_numbers random{seed};
    const std::string pieces[] = {" ", "\n", "\t", "1e400", "-", "X", "RHS\n", "'MARKER'", "NAME", "\0x"};
    int read_count = 0;
    for (int i = 0; i < tries; ++i) {
        auto text = small;
        for (auto changes = random.between(1, 3); changes > 0; --changes) {
            const auto at = random.below(text.size());
            const auto& piece = pieces[random.below(std::size(pieces))];
            if (random.chance(30))
                text.erase(at, random.between(1, 30));
            else if (random.chance(50))
                text.insert(at, piece);
            else
                text[at] = static_cast<char>(random.below(256));
        }
        const auto said = refusal(text);
        read_count += said == "read" ? 1 : 0;
        CHECK((said == "read" || said.starts_with("t.mps: line ")));
    }
    CHECK(read_count > tries / 20);
    CHECK(read_count < tries / 2);
}
