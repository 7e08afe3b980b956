#pragma once

#include <optpipe/core/random.hpp>
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/model.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

/// Random models with a point that satisfies everything to the last bit, and coefficients from 1e-6 to 1e6. No result
/// of a solver for such a model may contradict that point.
namespace oracle {

struct planted_model {
    optpipe::milp::model m;
    std::vector<double> point;
};

namespace detail {

class planted_model_maker {
public:
    explicit planted_model_maker(std::uint64_t seed)
        : random_{seed}, decades_{random_.below(7)}, digits_{random_.chance(50)} {}

    planted_model make() {
        const auto columns = random_.between(1, 12);
        for (std::size_t j = 0; j < columns; ++j)
            add_column();
        const auto rows = random_.between(0, 12);
        while (m_.rows() < rows)
            m_.rows() > 0 && random_.chance(15) ? copy_row() : add_row();
        add_objective();
        return {std::move(m_), std::move(point_)};
    }

private:
    using variable = optpipe::milp::variable;
    using term = optpipe::milp::term;
    static constexpr double infinity = optpipe::milp::infinity;

    double integer(int low, int high) {
        return static_cast<double>(low) + static_cast<double>(random_.below(static_cast<std::size_t>(high - low + 1)));
    }
    double between(double low, double high) { return low + (high - low) * integer(0, 1'000'000) / 1e6; }
    double sign() { return random_.chance(40) ? -1.0 : 1.0; }
    /// A coefficient of one size, or of up to 13 powers of ten; with one digit, or with many.
    double coefficient() {
        const int reach = static_cast<int>(decades_);
        const double size = std::pow(10.0, integer(-reach, reach));
        const double front = random_.chance(60) ? 1.0 : digits_ ? integer(1, 9) : between(1.0, 9.0);
        return sign() * std::min(front * size, 1e6);
    }

    void add_column() {
        switch (random_.below(8)) {
        case 0:
        case 1: return add(0.0, 1.0, integer(0, 1), true);
        case 2: return add_integer(10);
        case 3: return add_integer(1'000'000);
        case 4: return add_real(10.0);
        case 5: return add_real(1e6);
        case 6: return add(0.0, 1.0, between(0.0, 1.0), false);
        default: return add_narrow();
        }
    }
    void add(double low, double high, double value, bool is_integer) {
        const bool open_low = !(is_integer && high - low <= 1.0) && random_.chance(15);
        const bool open_high = !(is_integer && high - low <= 1.0) && random_.chance(20);
        m_.add_variable(open_low ? -infinity : low, open_high ? infinity : high,
                        is_integer ? optpipe::milp::domain::integer : optpipe::milp::domain::continuous);
        point_.push_back(value);
    }
    void add_integer(int size) {
        const double value = integer(-size, size);
        add(value - integer(0, size), value + integer(0, size), value, true);
    }
    void add_real(double size) {
        const double value = random_.chance(30) ? integer(-9, 9) : between(-size, size);
        add(random_.chance(30) ? value : value - between(0.0, size),
            random_.chance(30) ? value : value + between(0.0, size), value, false);
    }
    /// Adds a variable that is fixed, or nearly.
    void add_narrow() {
        const double value = between(-9.0, 9.0);
        const double width = random_.chance(50) ? 0.0 : std::pow(10.0, integer(-12, -3));
        add(value - width, value + width, value, false);
    }

    std::vector<term> some_terms() {
        std::vector<term> terms;
        const auto percent = random_.between(20, 100);
        for (const auto x : m_.all_variables())
            if (random_.chance(percent)) terms.push_back({x, coefficient()});
        return terms;
    }
    void add_row() { add(some_terms()); }
    /// Adds a multiple of another row, with sides of its own; one coefficient in ten of such rows is slightly wrong.
    void copy_row() {
        const optpipe::milp::row r{random_.below(m_.rows())};
        const double factor = sign() * (random_.chance(50) ? std::pow(10.0, integer(-2, 2)) : between(0.1, 9.0));
        std::vector<term> terms;
        for (const auto& t : m_.terms(r))
            terms.push_back({t.column, factor * t.coefficient});
        if (!terms.empty() && random_.chance(10)) {
            auto& off = terms[random_.below(terms.size())].coefficient;
            off *= 1.0 + std::pow(10.0, integer(-14, -4));
        }
        for (auto& t : terms)
            t.coefficient = std::clamp(t.coefficient, -1e6, 1e6);
        add(terms);
    }
    /// Adds a row whose sides are equal to its activity at the point, or some distance away; most rows are tight to the
    /// last bit.
    void add(const std::vector<term>& terms) {
        const double at = optpipe::milp::activity(terms, point_);
        const auto room = [&] {
            if (random_.chance(60)) return 0.0;
            return random_.chance(20) ? std::abs(at) * std::pow(10.0, integer(-14, -6)) : integer(0, 9);
        };
        const double below = at - room();
        const double above = at + room();
        const auto kind = random_.below(100);
        if (kind < 40)
            m_.add_row(-infinity, terms, above);
        else if (kind < 70)
            m_.add_row(below, terms, infinity);
        else if (kind < 85)
            m_.add_row(at, terms, at);
        else
            m_.add_row(below, terms, above);
    }

    void add_objective() {
        const bool is_flat = random_.chance(10);
        for (const auto x : m_.all_variables())
            if (!is_flat && random_.chance(70))
                m_.set_cost(x, random_.chance(70) ? sign() * integer(0, 9) : coefficient());
        m_.set_offset(random_.chance(20) ? integer(-1000, 1000) : 0.0);
        if (random_.chance(40)) m_.set_direction(optpipe::milp::sense::maximize);
    }

    optpipe::random_numbers random_;
    std::size_t decades_; ///< coefficients reach this number of decades up and down
    bool digits_;
    optpipe::milp::model m_;
    std::vector<double> point_;
};

} // namespace detail

inline planted_model random_planted_model(std::uint64_t seed) { return detail::planted_model_maker{seed}.make(); }

} // namespace oracle
