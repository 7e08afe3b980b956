#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_MILP)
TEST_CASE("not built: the solver is missing") {}
#else

#include "fuzz/iterations.hpp"
#include "oracle/milp_random.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/core/random.hpp>
#include <optpipe/milp/io/read_model.hpp>
#include <optpipe/milp/io/write_lp.hpp>
#include <optpipe/milp/io/write_mps.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

using namespace optpipe::milp;

namespace {

/// Pieces that have a meaning in either format.
constexpr std::string_view pieces[] = {
    " ",        "\n",           "\t",       "-",        "+ ",    "<=",    ">= 2",   "= ",      "1e400",
    "1e25",     "inf",          "-1e-300",  "0",        "[",     "^2",    "->",     "x0",      "free",
    ":",        "\\",           "$",        "st\n",     "end\n", "bin\n", "\nmax ", "bounds ", "RHS\n",
    "BOUNDS\n", " UP B x0 3\n", "'MARKER'", "ENDATA\n", "\xff"};

std::string changed(std::string text, optpipe::random_numbers& random) {
    for (auto changes = random.between(1, 3); changes > 0 && !text.empty(); --changes) {
        const auto at = random.below(text.size());
        const auto piece = pieces[random.below(std::size(pieces))];
        if (random.chance(30))
            text.erase(at, random.between(1, 20));
        else if (random.chance(60))
            text.insert(at, piece);
        else if (random.chance(50))
            text.insert(at, text.substr(random.below(text.size()), random.between(1, 30)));
        else
            text[at] = static_cast<char>(random.below(256));
    }
    return text;
}

std::optional<model> parsed(const std::string& text, const std::string& name) {
    try {
        return parse_model(text, name);
    } catch (const optpipe::input_error& e) {
        CHECK(std::string_view{e.what()}.starts_with(name + ": line "));
        CHECK(std::string{e.what()}.find('\n') == std::string::npos);
        return std::nullopt;
    }
}

/// Whether two models have the same sides and terms, as a file stores them.
bool same_rows(const model& a, const model& b) {
    if (a.rows() != b.rows() || a.nonzeros() != b.nonzeros()) return false;
    for (const row r : a.all_rows())
        if (a.row_lower(r) != b.row_lower(r) || a.row_upper(r) != b.row_upper(r)) return false;
    return true;
}

} // namespace

TEST_CASE("mutated models are refused with their line, or read and written as what they are") {
    std::size_t accepted = 0;
    const auto count = fuzz::iterations(6000);
    for (std::size_t i = 0; i < count; ++i) {
        const auto seed = fuzz::first_seed() + i;
        optpipe::random_numbers random{seed};
        const auto source = oracle::random_model(1 + random.below(50));
        const bool is_lp = random.chance(60);
        const auto text = changed(is_lp ? model_to_lp(source) : model_to_mps(source), random);
        INFO("seed " << seed << ", text:\n" << text);
        const auto m = parsed(text, is_lp ? "mutated.lp" : "mutated.mps");
        if (!m) continue;
        ++accepted;
        const auto again = parse_model(model_to_lp(*m), "again.lp");
        CHECK(same_rows(*m, again));
        CHECK(again.offset() == m->offset());
    }
    MESSAGE(accepted << " of " << count << " were accepted");
    if (count < 100) return;
    CHECK(accepted > count / 20);
    CHECK(accepted < count);
}

#endif
