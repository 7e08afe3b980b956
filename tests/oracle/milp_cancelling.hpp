#pragma once

#include <optpipe/core/random.hpp>
#include <optpipe/milp/lp/double_double.hpp>
#include <optpipe/milp/model.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

/// Random models with an integer point that satisfies everything exactly, and with rows in which large terms cancel:
/// coefficients of 1e-6 to 1e9, some of which are nearly multiples of others. No result of a solver may contradict that
/// point.
namespace oracle {

struct cancelling_model {
    optpipe::milp::model m;
    std::vector<double> point;
};

namespace detail {

class cancelling_model_maker {
public:
    explicit cancelling_model_maker(std::uint64_t seed) : random_{seed} {}

    cancelling_model make() {
        const auto columns = random_.between(2, 6);
        const bool is_mixed = random_.chance(30);
        constexpr int reach[][2] = {{-6, 9}, {-3, 3}, {0, 9}, {0, 1}};
        const auto& style = reach[random_.below(4)];
        low_ = style[0];
        high_ = style[1];
        for (std::size_t j = 0; j < columns; ++j)
            add_column(is_mixed);
        const auto rows = random_.between(1, 6);
        while (m_.rows() < rows)
            m_.rows() > 0 && random_.chance(25) ? copy_row() : add_row();
        for (const auto x : m_.all_variables())
            if (random_.chance(80))
                m_.set_cost(x, random_.chance(60) ? sign() * digit(10) : number(low_ < -3 ? -3 : 0, 3));
        if (random_.chance(40)) m_.set_direction(optpipe::milp::sense::maximize);
        return {std::move(m_), std::move(point_)};
    }

private:
    using variable = optpipe::milp::variable;
    using term = optpipe::milp::term;
    using double_double = optpipe::milp::lp::double_double;
    static constexpr double infinity = optpipe::milp::infinity;

    double digit(std::size_t below) { return static_cast<double>(random_.below(below)); }
    double sign() { return random_.chance(50) ? -1.0 : 1.0; }
    double tiny(std::size_t least, std::size_t most) {
        return std::pow(10.0, -static_cast<double>(random_.between(least, most)));
    }
    /// A number of this many powers of ten: with one digit, with many, or nearly a power of ten.
    double number(int low, int high) {
        const double size = std::pow(10.0, low + digit(static_cast<std::size_t>(high - low + 1)));
        double front = 1.0;
        switch (random_.below(4)) {
        case 0: break;
        case 1: front += digit(9); break;
        case 2: front += 8e-6 * digit(1'000'001); break;
        default: front += tiny(0, 12);
        }
        return sign() * front * size;
    }

    void add_column(bool is_mixed) {
        const double span = random_.chance(50) ? 1.0 : 1.0 + digit(4);
        const double low = random_.chance(50) ? 0.0 : -digit(6);
        const bool is_real = is_mixed && random_.chance(40);
        m_.add_variable(low, low + span, is_real ? optpipe::milp::domain::continuous : optpipe::milp::domain::integer);
        point_.push_back(low + digit(static_cast<std::size_t>(span) + 1));
    }

    /// Adds nearly a multiple of another row.
    void copy_row() {
        const double factor = random_.chance(50) ? number(-3, 3) : 1.0;
        std::vector<term> terms;
        for (const auto& t : m_.terms(optpipe::milp::row{random_.below(m_.rows())}))
            terms.push_back({t.column, factor * t.coefficient});
        if (!terms.empty() && random_.chance(60)) terms[random_.below(terms.size())].coefficient *= 1.0 + tiny(4, 15);
        add(terms);
    }
    void add_row() {
        const bool cancels = random_.chance(40);
        const double large = number(std::max(low_, 3), std::max(high_, 3));
        std::vector<term> terms;
        for (const auto x : m_.all_variables()) {
            if (random_.chance(30)) continue;
            if (cancels && random_.chance(60))
                terms.push_back({x, sign() * large * (random_.chance(70) ? 1.0 : 1.0 + tiny(6, 15))});
            else
                terms.push_back({x, number(low_, high_)});
        }
        add(terms);
    }
    /// Adds a row whose sides are nearest to the activity at the point, or some distance away.
    void add(const std::vector<term>& terms) {
        double_double at;
        for (const auto& t : terms)
            at += double_double::product(t.coefficient, point_[t.column.position()]);
        const bool is_exact = at.low == 0.0;
        const double above = is_exact ? at.high : std::nextafter(at.high, infinity);
        const double below = is_exact ? at.high : std::nextafter(at.high, -infinity);
        const auto room = [&] { return random_.chance(60) ? 0.0 : std::abs(number(-9, 3)); };
        const auto kind = random_.below(100);
        if (kind < 40)
            m_.add_row(-infinity, terms, above + room());
        else if (kind < 75)
            m_.add_row(below - room(), terms, infinity);
        else
            m_.add_row(below, terms, above);
    }

    optpipe::random_numbers random_;
    int low_ = 0; ///< powers of ten
    int high_ = 0;
    optpipe::milp::model m_;
    std::vector<double> point_;
};

} // namespace detail

inline cancelling_model random_cancelling_model(std::uint64_t seed) {
    return detail::cancelling_model_maker{seed}.make();
}

} // namespace oracle
