#pragma once

#include <optpipe/core/random.hpp>
#include <optpipe/milp/model.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

/// Random models that `exhaustive_optimum` can solve. Most are feasible, and all are small. Every structure that
/// presolve and cuts look for occurs: singletons, duplicates, set rows, big-M rows, doubletons, knapsacks, empty rows
/// and columns.
namespace oracle {

struct random_model_shape {
    std::size_t integers = 6;
    std::size_t reals = 2;
    std::size_t rows = 6;
    bool open_reals = true; ///< some reals without bounds
};

namespace detail {

class random_model_maker {
public:
    random_model_maker(std::uint64_t seed, const random_model_shape& shape) : random_{seed}, shape_{shape} {}

    optpipe::milp::model make() {
        add_variables();
        const auto rows = random_.between(1, shape_.rows);
        while (m_.rows() < rows)
            add_row();
        if (random_.chance(30)) copy_row();
        add_objective();
        return m_;
    }

private:
    using variable = optpipe::milp::variable;
    using term = optpipe::milp::term;

    double integer(int low, int high) {
        return static_cast<double>(low) + static_cast<double>(random_.below(static_cast<std::size_t>(high - low + 1)));
    }
    double coefficient() {
        const double sign = random_.chance(40) ? -1.0 : 1.0;
        if (random_.chance(50)) return sign;
        return sign * (random_.chance(15) ? integer(1, 7) / 2.0 : integer(1, 9));
    }

    void add_variables() {
        const auto integers = random_.between(shape_.integers == 0 ? 0 : 1, shape_.integers);
        const auto reals = random_.between(integers == 0 ? 1 : 0, shape_.reals);
        for (std::size_t i = 0; i < integers + reals; ++i) {
            if (random_.below(integers + reals) < integers && count_of_integers_ < integers)
                add_integer();
            else if (m_.variables() - count_of_integers_ < reals)
                add_real();
            else
                add_integer();
        }
    }
    void add_integer() {
        ++count_of_integers_;
        if (random_.chance(70)) {
            m_.add_binary();
        } else {
            const double low = integer(-2, 2);
            m_.add_variable(low, low + integer(0, 3), optpipe::milp::domain::integer);
        }
        point_.push_back(m_.lower(last()) + integer(0, static_cast<int>(m_.upper(last()) - m_.lower(last()))));
    }
    void add_real() {
        const double low = integer(-3, 2);
        const double high = low + integer(0, 12);
        const bool no_low = shape_.open_reals && random_.chance(15);
        const bool no_high = shape_.open_reals && random_.chance(30);
        m_.add_variable(no_low ? -optpipe::milp::infinity : low, no_high ? optpipe::milp::infinity : high);
        point_.push_back(low + (high - low) * integer(0, 4) / 4.0);
    }
    [[nodiscard]] variable last() const { return variable{m_.variables() - 1}; }

    std::vector<variable> some_variables(std::size_t count, bool only_binaries) {
        std::vector<variable> chosen;
        for (const auto x : m_.all_variables())
            if (!only_binaries || (m_.is_integer(x) && m_.lower(x) == 0.0 && m_.upper(x) == 1.0)) chosen.push_back(x);
        while (chosen.size() > count)
            chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(random_.below(chosen.size())));
        return chosen;
    }

    void add_row() {
        const auto kind = random_.below(100);
        if (kind < 3)
            add(std::vector<term>{});
        else if (kind < 12)
            add(with_coefficients(some_variables(1, false)));
        else if (kind < 27)
            add(with_coefficients(some_variables(2, false)));
        else if (kind < 45)
            add_set_row();
        else if (kind < 58)
            add_big_m_row();
        else if (kind < 70)
            add(knapsack());
        else
            add(with_coefficients(some_variables(random_.between(1, m_.variables()), false)));
    }

    std::vector<term> with_coefficients(const std::vector<variable>& columns) {
        std::vector<term> terms;
        for (const auto x : columns)
            terms.push_back({x, coefficient()});
        return terms;
    }
    std::vector<term> knapsack() {
        std::vector<term> terms;
        for (const auto x : some_variables(random_.between(2, 6), true))
            terms.push_back({x, integer(1, 9)});
        return terms;
    }
    void add_set_row() {
        std::vector<term> terms;
        double literals = 1.0;
        for (const auto x : some_variables(random_.between(2, 4), true)) {
            const bool negated = random_.chance(20);
            terms.push_back({x, negated ? -1.0 : 1.0});
            literals -= negated ? 1.0 : 0.0;
        }
        const auto kind = random_.below(3);
        m_.add_row(kind == 0 ? -optpipe::milp::infinity : literals, terms,
                   kind == 1 ? optpipe::milp::infinity : literals);
    }
    /// x - y + M b >= d, as in models of orders.
    void add_big_m_row() {
        auto columns = some_variables(2, false);
        const auto switches = some_variables(1, true);
        if (columns.size() < 2 || switches.empty()) return;
        const double large = integer(5, 40);
        std::vector<term> terms{{columns[0], 1.0}, {columns[1], -1.0}, {switches[0], large}};
        m_.add_row(integer(0, 3), terms, optpipe::milp::infinity);
    }

    /// Adds a row with bounds around its activity at a point, so that most models are feasible.
    void add(const std::vector<term>& terms) {
        double at = 0.0;
        for (const auto& t : terms)
            at += t.coefficient * point_[t.column.position()];
        if (random_.chance(5)) at += integer(-3, 3);
        const double below = at - (random_.chance(50) ? 0.0 : integer(0, 4));
        const double above = at + (random_.chance(50) ? 0.0 : integer(0, 4));
        const auto kind = random_.below(100);
        if (kind < 40)
            m_.add_row(-optpipe::milp::infinity, terms, above);
        else if (kind < 75)
            m_.add_row(below, terms, optpipe::milp::infinity);
        else if (kind < 90)
            m_.add_row(at, terms, at);
        else if (kind < 98)
            m_.add_row(below, terms, above);
        else
            m_.add_row(-optpipe::milp::infinity, terms, optpipe::milp::infinity);
    }

    /// Adds a multiple of another row's left-hand side, with bounds of its own.
    void copy_row() {
        const optpipe::milp::row r{random_.below(m_.rows())};
        const double factor = random_.chance(50) ? 1.0 : random_.chance(50) ? -2.0 : 3.0;
        std::vector<term> terms;
        for (const auto& t : m_.terms(r))
            terms.push_back({t.column, factor * t.coefficient});
        add(terms);
    }

    void add_objective() {
        for (const auto x : m_.all_variables())
            if (random_.chance(80)) m_.set_cost(x, random_.chance(30) ? integer(-1, 1) : integer(-9, 9));
        m_.set_offset(random_.chance(20) ? integer(-5, 5) : 0.0);
        if (random_.chance(40)) m_.set_direction(optpipe::milp::sense::maximize);
    }

    optpipe::random_numbers random_;
    random_model_shape shape_;
    optpipe::milp::model m_;
    std::size_t count_of_integers_ = 0;
    std::vector<double> point_;
};

} // namespace detail

inline optpipe::milp::model random_model(std::uint64_t seed, const random_model_shape& shape = {}) {
    return detail::random_model_maker{seed, shape}.make();
}

} // namespace oracle
