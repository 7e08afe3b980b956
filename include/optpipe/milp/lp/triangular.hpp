#pragma once

#include "optpipe/milp/lp/compressed.hpp"
#include "optpipe/milp/lp/growing_lists.hpp"
#include "optpipe/milp/lp/parameters.hpp"
#include "optpipe/milp/lp/work_vector.hpp"

#include <cstddef>
#include <vector>

namespace optpipe::milp::lp {

/// Recent densities of the vectors of one kind of solve. Each solve records the density after its first triangular
/// matrix, and at its end. The recent densities decide whether the next solve begins with a symbolic pass.
class density_history {
public:
    explicit density_history(double expected = 0.0) : first_{expected}, second_{expected} {}
    [[nodiscard]] double first() const { return first_; }
    [[nodiscard]] double second() const { return second_; }
    void note_first(double density) { first_ = memory * first_ + (1.0 - memory) * density; }
    void note_second(double density) { second_ = memory * second_ + (1.0 - memory) * density; }

private:
    static constexpr double memory = parameters.density_memory;
    double first_;
    double second_;
};

/// The symbolic pass of Gilbert and Peierls (1988). A depth-first search finds the entries that a sparse right-hand
/// side can fill in.
class reach {
public:
    void resize(std::size_t size) {
        marked_.assign(size, 0);
        order_.reserve(size);
        stack_.reserve(size);
    }
    /// All entries that can be reached from the seeds along the lists. The last entry of the result must be eliminated
    /// first.
    const std::vector<int>& from(const std::vector<int>& seeds, const growing_lists& lists) {
        order_.clear();
        for (const int s : seeds)
            if (marked_[at(s)] == 0) visit(s, lists);
        for (const int i : order_)
            marked_[at(i)] = 0;
        return order_;
    }

private:
    struct frame {
        int node;
        int next;
    };
    void visit(int seed, const growing_lists& lists) {
        marked_[at(seed)] = 1;
        stack_.push_back({seed, 0});
        while (!stack_.empty()) {
            auto& [node, next] = stack_.back();
            const int size = lists.size(node);
            const int* const entries = lists.index(node);
            while (next < size && marked_[at(entries[next])] != 0)
                ++next;
            if (next == size) {
                order_.push_back(node);
                stack_.pop_back();
                continue;
            }
            const int child = entries[next++];
            marked_[at(child)] = 1;
            stack_.push_back({child, 0});
        }
    }

    std::vector<char> marked_;
    std::vector<int> order_;
    std::vector<frame> stack_;
};

/// Whether the result is expected to be sparse enough to find its nonzeros first.
[[nodiscard]] inline bool is_hyper_sparse(const work_vector& x, double expected) {
    return expected < parameters.sparse_result && x.density() < parameters.sparse_input;
}

inline void eliminate(double* x, double pivot_value, int size, const int* index, const double* value) {
    for (int k = 0; k < size; ++k)
        x[index[k]] -= pivot_value * value[k];
}

/// Solves with a triangular matrix that has a unit diagonal or the given inverse pivots. Each row from `first` to
/// `last` comes before the rows in its list. Rows with an empty list and a unit diagonal may be left out. If `listed`
/// is false, the list of the result's nonzeros may be missing.
template <class Iterator>
void solve_triangular(const growing_lists& lists, const double* inverse_pivots, Iterator first, Iterator last,
                      work_vector& x, reach& r, double expected, bool listed = true) {
    if (first == last) return;
    double* const values = x.value.data();
    const auto step = [&](int p) {
        double v = values[p];
        if (v == 0.0) return;
        if (inverse_pivots != nullptr) values[p] = v *= inverse_pivots[p];
        eliminate(values, v, lists.size(p), lists.index(p), lists.value(p));
    };
    if (is_hyper_sparse(x, expected)) {
        const auto& reached = r.from(x.index, lists);
        for (auto i = reached.size(); i-- > 0;)
            step(reached[i]);
        x.index.assign(reached.begin(), reached.end());
        x.drop_tiny();
        return;
    }
    for (; first != last; ++first)
        if (*first >= 0) step(*first);
    if (listed)
        x.list_all();
    else
        x.leave_unlisted();
}

} // namespace optpipe::milp::lp
