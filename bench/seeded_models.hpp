// Sixty mixed-integer models made from seeds, for comparisons with other solvers: networks with fixed charges, facility
// location, lot sizing, set covering, knapsacks with side rows.
#pragma once

#include "hard_models.hpp"
#include <optpipe/core/random.hpp>
#include <optpipe/milp/model.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace bench {

/// Goods from one source to some of the nodes, over arcs that cost money to open, between points of the plane that are
/// near each other. Either flow is free and every arc can carry all of it (a Steiner tree in a directed network), or
/// flow costs money and all arcs except those of one tree are narrow (Magnanti and Wong 1984).
inline milp::model make_network(std::uint64_t seed, std::size_t nodes, std::size_t neighbours, bool is_steiner) {
    optpipe::random_numbers random{seed};
    std::vector<std::pair<double, double>> at(nodes);
    for (auto& [x, y] : at) {
        x = draw(random, 0, 1000);
        y = draw(random, 0, 1000);
    }
    const auto distance = [&](std::size_t a, std::size_t b) {
        return std::hypot(at[a].first - at[b].first, at[a].second - at[b].second);
    };
    std::vector<double> demand(nodes, 0.0);
    double sum = 0.0;
    for (std::size_t v = 1; v < nodes; ++v)
        if (v == 1 || random.chance(40)) sum += demand[v] = is_steiner ? 1.0 : draw(random, 5, 40);
    milp::model m;
    std::vector<std::vector<milp::term>> balance(nodes);
    const auto add_arc = [&](std::size_t from, std::size_t to, double capacity) {
        const auto flow = m.add_variable(0.0, capacity), is_open = m.add_binary();
        m.set_cost(is_open, std::round(10.0 + distance(from, to) * (is_steiner ? 1.0 : 5.0)));
        if (!is_steiner) m.set_cost(flow, std::round(1.0 + distance(from, to) / 50.0));
        m.add_row(-milp::infinity, {{flow, 1.0}, {is_open, -capacity}}, 0.0);
        balance[to].push_back({flow, 1.0});
        balance[from].push_back({flow, -1.0});
    };
    std::set<std::pair<std::size_t, std::size_t>> joined;
    const auto join = [&](std::size_t a, std::size_t b, bool is_wide) {
        if (!joined.insert(std::minmax(a, b)).second) return;
        for (const bool back : {false, true})
            add_arc(back ? b : a, back ? a : b,
                    is_wide || is_steiner ? sum : std::round(sum * draw(random, 10, 40) / 100.0));
    };
    std::vector<std::size_t> others(nodes);
    for (std::size_t v = 1; v < nodes; ++v) { // each to the nearest before it: a tree
        std::size_t nearest = 0;
        for (std::size_t w = 1; w < v; ++w)
            if (distance(v, w) < distance(v, nearest)) nearest = w;
        join(v, nearest, true);
    }
    for (std::size_t v = 0; v < nodes; ++v) {
        std::iota(others.begin(), others.end(), std::size_t{0});
        std::stable_sort(others.begin(), others.end(),
                         [&](std::size_t a, std::size_t b) { return distance(v, a) < distance(v, b); });
        for (std::size_t k = 1; k <= std::min(neighbours, nodes - 1); ++k)
            join(v, others[k], false);
    }
    for (std::size_t v = 0; v < nodes; ++v)
        m.add_row(v == 0 ? -sum : demand[v], balance[v], v == 0 ? -sum : demand[v]);
    return m;
}

/// Items for one knapsack; some exclude each other, some need another one, and of some groups only a few may be taken.
inline milp::model make_knapsack_with_sides(std::uint64_t seed, std::size_t items) {
    optpipe::random_numbers random{seed};
    milp::model m;
    m.set_direction(milp::sense::maximize);
    std::vector<milp::variable> taken;
    std::vector<milp::term> load;
    double sum = 0.0;
    for (std::size_t j = 0; j < items; ++j) {
        const double weight = draw(random, 20, 500);
        taken.push_back(m.add_binary());
        m.set_cost(taken.back(), std::round(weight * draw(random, 80, 120) / 100.0) + 20.0);
        load.push_back({taken.back(), weight});
        sum += weight;
    }
    m.add_row(-milp::infinity, load, std::floor(sum / 3.0));
    const auto any = [&] { return taken[random.below(items)]; };
    for (std::size_t k = 0; k < items; ++k) {
        const auto a = any(), b = any();
        if (a == b) continue;
        const bool exclude = random.chance(50);
        m.add_row(-milp::infinity, {{a, 1.0}, {b, exclude ? 1.0 : -1.0}}, exclude ? 1.0 : 0.0);
    }
    for (std::size_t k = 0; k < items / 10; ++k) {
        std::vector<milp::term> group;
        for (const auto x : taken)
            if (random.below(items) < 12) group.push_back({x, draw(random, 1, 20)});
        double most = 0.0;
        for (const auto& t : group)
            most += t.coefficient;
        if (group.size() > 1) m.add_row(-milp::infinity, group, std::floor(most / 3.0));
    }
    return m;
}

/// Each customer is served by only one depot (Holmberg, Rönnqvist and Yuan 1999): only binaries.
inline milp::model make_single_source(std::uint64_t seed, std::size_t depots, std::size_t customers) {
    optpipe::random_numbers random{seed};
    milp::model m;
    std::vector<double> demand(customers);
    double sum = 0.0;
    for (auto& d : demand)
        sum += d = draw(random, 5, 35);
    std::vector<std::vector<milp::term>> served(customers);
    for (std::size_t i = 0; i < depots; ++i) {
        const auto is_open = m.add_binary();
        const double room = std::round(draw(random, 200, 400) * sum / (100.0 * static_cast<double>(depots))) + 35.0;
        m.set_cost(is_open, draw(random, 100, 200) + room);
        std::vector<milp::term> load{{is_open, -room}};
        for (std::size_t k = 0; k < customers; ++k) {
            const auto x = m.add_binary();
            m.set_cost(x, draw(random, 5, 100));
            served[k].push_back({x, 1.0});
            load.push_back({x, demand[k]});
        }
        m.add_row(-milp::infinity, load, 0.0);
    }
    for (const auto& row : served)
        m.add_row(1.0, row, 1.0);
    return m;
}

struct named_model {
    std::string name;
    milp::model model;
};

/// Twelve of each of five families, with about 50 to 1,000 binaries in a geometric sequence.
inline std::vector<named_model> seeded_models() {
    std::vector<named_model> all;
    constexpr std::size_t sizes = 12;
    for (std::uint64_t seed = 1; seed <= sizes; ++seed) {
        const double share = static_cast<double>(seed - 1) / static_cast<double>(sizes - 1);
        const auto binaries = static_cast<std::size_t>(std::round(50.0 * std::pow(20.0, share)));
        const auto root = static_cast<std::size_t>(std::sqrt(static_cast<double>(binaries)));
        const auto add = [&](const std::string& family, milp::model m) {
            all.push_back({family + (seed < 10 ? "-0" : "-") + std::to_string(seed), std::move(m)});
        };
        const bool odd = seed % 2 == 1;
        add("network", make_network(seed, binaries / 5, 3, odd));
        add("facility", odd ? make_facilities(seed, 50 + binaries / 20, 20 + binaries / 20)
                            : make_single_source(seed, root / 2, 2 * root));
        add("lots", make_lot_sizing(seed, root * 3 / 4, root * 4 / 3, odd ? 1.2 : 2.0));
        add("cover", make_covering(seed, binaries / 5, binaries, 3 + 300 / binaries));
        add("knapsack", make_knapsack_with_sides(seed, binaries));
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const named_model& a, const named_model& b) { return a.name < b.name; });
    return all;
}

} // namespace bench
