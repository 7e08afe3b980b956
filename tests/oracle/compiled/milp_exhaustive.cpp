#include "oracle/milp_exhaustive.hpp"

#include <optpipe/core/contract.hpp>
#include <optpipe/milp/check.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace oracle {

namespace {

namespace milp = optpipe::milp;

struct half_space_row {
    std::vector<double> coefficients;
    double lower;
    double upper;
};

/// minimize over the box and the rows; both finite in number and dimension, the box finite in size.
class vertex_search {
public:
    vertex_search(std::vector<half_space_row> rows, std::vector<double> cost, double slack)
        : rows_{std::move(rows)}, cost_{std::move(cost)}, slack_{slack} {}

    /// Whether there is a vertex; then `best` is the one with the least cost.
    bool search(std::vector<double>& best, double& least) {
        best_ = &best;
        least_ = &least;
        found_ = false;
        choose(0);
        return found_;
    }

private:
    void choose(std::size_t next) {
        if (chosen_.size() == cost_.size()) return meet();
        for (std::size_t i = next; i < rows_.size(); ++i)
            for (const bool at_lower : {true, false}) {
                const double side = at_lower ? rows_[i].lower : rows_[i].upper;
                if (!std::isfinite(side) || (!at_lower && rows_[i].lower == rows_[i].upper)) continue;
                chosen_.push_back({&rows_[i], side});
                choose(i + 1);
                chosen_.pop_back();
            }
    }

    /// Computes the point on all chosen planes, by elimination.
    void meet() {
        const auto n = cost_.size();
        std::vector<std::vector<double>> a(n);
        for (std::size_t i = 0; i < n; ++i) {
            a[i] = chosen_[i].first->coefficients;
            a[i].push_back(chosen_[i].second);
        }
        constexpr double singular = 1e-9;
        for (std::size_t k = 0; k < n; ++k) {
            const auto larger = [k](const auto& r, const auto& s) { return std::abs(r[k]) < std::abs(s[k]); };
            std::swap(a[k], *std::max_element(a.begin() + static_cast<std::ptrdiff_t>(k), a.end(), larger));
            if (std::abs(a[k][k]) < singular) return;
            for (std::size_t i = 0; i < n; ++i) {
                if (i == k) continue;
                const double factor = a[i][k] / a[k][k];
                for (std::size_t j = k; j <= n; ++j)
                    a[i][j] -= factor * a[k][j];
            }
        }
        std::vector<double> point(n);
        for (std::size_t k = 0; k < n; ++k)
            point[k] = a[k][n] / a[k][k];
        consider(point);
    }

    void consider(const std::vector<double>& point) {
        for (const auto& r : rows_) {
            double sum = 0.0;
            double size = 1.0;
            for (std::size_t j = 0; j < point.size(); ++j) {
                sum += r.coefficients[j] * point[j];
                size = std::max(size, std::abs(r.coefficients[j] * point[j]));
            }
            if (sum < r.lower - slack_ * size || sum > r.upper + slack_ * size) return;
        }
        double value = 0.0;
        for (std::size_t j = 0; j < point.size(); ++j)
            value += cost_[j] * point[j];
        if (found_ && value >= *least_) return;
        found_ = true;
        *least_ = value;
        *best_ = point;
    }

    std::vector<half_space_row> rows_;
    std::vector<double> cost_;
    double slack_;
    std::vector<std::pair<const half_space_row*, double>> chosen_;
    std::vector<double>* best_ = nullptr;
    double* least_ = nullptr;
    bool found_ = false;
};

class exhaustive_search {
public:
    exhaustive_search(const milp::model& m, double box, double slack)
        : m_{&m}, box_{box}, slack_{slack}, values_(m.variables(), 0.0) {
        for (const auto x : m.all_variables())
            (m.is_integer(x) ? integers_ : reals_).push_back(x);
    }

    exhaustive_result search() {
        assign(0);
        if (found_) result_.objective = milp::objective_value(*m_, result_.values);
        result_.status = found_ ? exhaustive_status::optimal : exhaustive_status::infeasible;
        return result_;
    }

private:
    [[nodiscard]] double lower(milp::variable x) const { return std::max(m_->lower(x), -box_); }
    [[nodiscard]] double upper(milp::variable x) const { return std::min(m_->upper(x), box_); }

    void assign(std::size_t next) {
        if (!may_be_feasible(next)) return;
        if (next == integers_.size()) return complete();
        const auto x = integers_[next];
        OPTPIPE_EXPECT(std::isfinite(m_->lower(x)) && std::isfinite(m_->upper(x)),
                       "exhaustive: integers must be bounded");
        for (double v = std::ceil(m_->lower(x) - slack_); v <= m_->upper(x) + slack_; v += 1.0) {
            values_[x.position()] = v;
            assign(next + 1);
        }
    }

    /// Checks the least and greatest values that each row can still reach.
    [[nodiscard]] bool may_be_feasible(std::size_t assigned) const {
        std::vector<bool> is_fixed(m_->variables(), false);
        for (std::size_t i = 0; i < assigned; ++i)
            is_fixed[integers_[i].position()] = true;
        for (const auto r : m_->all_rows()) {
            double least = 0.0;
            double greatest = 0.0;
            for (const auto& t : m_->terms(r)) {
                const auto at = t.column.position();
                const double low = t.coefficient * (is_fixed[at] ? values_[at] : lower(t.column));
                const double high = t.coefficient * (is_fixed[at] ? values_[at] : upper(t.column));
                least += std::min(low, high);
                greatest += std::max(low, high);
            }
            const double slack = slack_ * std::max({1.0, std::abs(least), std::abs(greatest)});
            if (least > m_->row_upper(r) + slack || greatest < m_->row_lower(r) - slack) return false;
        }
        return true;
    }

    void complete() {
        std::vector<half_space_row> rows;
        for (const auto r : m_->all_rows()) {
            half_space_row left{std::vector<double>(reals_.size(), 0.0), m_->row_lower(r), m_->row_upper(r)};
            for (const auto& t : m_->terms(r)) {
                const auto found = std::find(reals_.begin(), reals_.end(), t.column);
                if (found != reals_.end()) {
                    left.coefficients[static_cast<std::size_t>(found - reals_.begin())] = t.coefficient;
                } else {
                    left.lower -= t.coefficient * values_[t.column.position()];
                    left.upper -= t.coefficient * values_[t.column.position()];
                }
            }
            rows.push_back(std::move(left));
        }
        std::vector<double> cost;
        for (std::size_t j = 0; j < reals_.size(); ++j) {
            half_space_row unit{std::vector<double>(reals_.size(), 0.0), lower(reals_[j]), upper(reals_[j])};
            unit.coefficients[j] = 1.0;
            rows.push_back(std::move(unit));
            cost.push_back(sign() * m_->cost(reals_[j]));
        }
        std::vector<double> point;
        double ignored = 0.0;
        if (!vertex_search{std::move(rows), cost, slack_}.search(point, ignored)) return;
        for (std::size_t j = 0; j < reals_.size(); ++j)
            values_[reals_[j].position()] = point[j];
        keep_if_better();
    }

    [[nodiscard]] double sign() const { return m_->direction() == milp::sense::minimize ? 1.0 : -1.0; }

    void keep_if_better() {
        const double value = sign() * milp::objective_value(*m_, values_);
        if (found_ && value >= least_) return;
        found_ = true;
        least_ = value;
        result_.values = values_;
    }

    const milp::model* m_;
    double box_;
    double slack_;
    std::vector<double> values_;
    std::vector<milp::variable> integers_;
    std::vector<milp::variable> reals_;
    exhaustive_result result_;
    bool found_ = false;
    double least_ = 0.0;
};

} // namespace

exhaustive_result exhaustive_optimum(const optpipe::milp::model& m, double box, double slack) {
    auto result = exhaustive_search{m, box, slack}.search();
    if (result.status != exhaustive_status::optimal) return result;
    bool is_open = false;
    for (const auto x : m.all_variables())
        is_open = is_open || !std::isfinite(m.lower(x)) || !std::isfinite(m.upper(x));
    if (!is_open) return result;
    const auto wider = exhaustive_search{m, 2.0 * box, slack}.search();
    if (std::abs(wider.objective - result.objective) > 1.0) result.status = exhaustive_status::unbounded;
    return result;
}

} // namespace oracle
