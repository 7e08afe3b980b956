// Mixed-integer models of the kinds used to measure solvers, made from seeds. They are hard enough for a second thread
// to have an effect.
#pragma once

#include <optpipe/core/random.hpp>
#include <optpipe/milp/model.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

namespace milp = optpipe::milp;

/// A random integer in [low, high].
inline double draw(optpipe::random_numbers& random, std::size_t low, std::size_t high) {
    return static_cast<double>(random.between(low, high));
}

/// Items of correlated worth into several knapsacks at once, each of half the weight of all (Chu and Beasley 1998).
inline milp::model make_knapsacks(std::uint64_t seed, std::size_t items, std::size_t knapsacks) {
    optpipe::random_numbers random{seed};
    milp::model m;
    m.set_direction(milp::sense::maximize);
    std::vector<milp::variable> taken;
    for (std::size_t j = 0; j < items; ++j)
        taken.push_back(m.add_binary());
    std::vector<double> worth(items, 0.0);
    for (std::size_t i = 0; i < knapsacks; ++i) {
        std::vector<milp::term> row;
        double sum = 0.0;
        for (std::size_t j = 0; j < items; ++j) {
            const double weight = draw(random, 1, 1000);
            row.push_back({taken[j], weight});
            worth[j] += weight / static_cast<double>(knapsacks);
            sum += weight;
        }
        m.add_row(-milp::infinity, row, static_cast<double>(static_cast<std::size_t>(sum) / 2));
    }
    for (std::size_t j = 0; j < items; ++j)
        m.set_cost(taken[j], static_cast<double>(static_cast<std::size_t>(worth[j])) + draw(random, 0, 500));
    return m;
}

/// Each row needs one of the columns that cover it, at costs from 1 to 100 (Balas and Ho 1980).
inline milp::model make_covering(std::uint64_t seed, std::size_t rows, std::size_t columns, std::size_t percent) {
    optpipe::random_numbers random{seed};
    milp::model m;
    std::vector<milp::variable> chosen;
    for (std::size_t j = 0; j < columns; ++j) {
        chosen.push_back(m.add_binary());
        m.set_cost(chosen.back(), draw(random, 1, 100));
    }
    for (std::size_t i = 0; i < rows; ++i) {
        std::vector<milp::term> row;
        for (const auto x : chosen)
            if (random.chance(percent)) row.push_back({x, 1.0});
        if (row.empty()) row.push_back({chosen[random.below(columns)], 1.0});
        m.add_row(1.0, row, milp::infinity);
    }
    return m;
}

/// Products made in periods on one machine: setups cost money and time, and early products are stored (Trigeiro, Thomas
/// and McClain 1989). The machine has `capacity` times the least time that it needs.
inline milp::model make_lot_sizing(std::uint64_t seed, std::size_t products, std::size_t periods,
                                   double capacity = 1.02) {
    optpipe::random_numbers random{seed};
    milp::model m;
    std::vector<std::vector<milp::term>> time(periods);
    std::vector<double> needed(periods, 0.0);
    for (std::size_t p = 0; p < products; ++p) {
        const double setup_cost = draw(random, 200, 600), storing = draw(random, 1, 5),
                     setup_time = draw(random, 5, 15);
        std::vector<double> demand(periods);
        double rest = 0.0;
        for (auto& d : demand)
            rest += d = draw(random, 20, 80);
        milp::variable stored{};
        for (std::size_t t = 0; t < periods; ++t) {
            const auto made = m.add_variable(0.0, rest), set_up = m.add_binary();
            const auto kept = m.add_variable(0.0, t + 1 < periods ? rest : 0.0);
            m.set_cost(set_up, setup_cost);
            m.set_cost(kept, storing);
            std::vector<milp::term> balance{{made, 1.0}, {kept, -1.0}};
            if (t > 0) balance.push_back({stored, 1.0});
            m.add_row(demand[t], balance, demand[t]);
            m.add_row(-milp::infinity, {{made, 1.0}, {set_up, -rest}}, 0.0);
            time[t].push_back({made, 1.0});
            time[t].push_back({set_up, setup_time});
            needed[t] += demand[t] + setup_time;
            rest -= demand[t];
            stored = kept;
        }
    }
    double most = 0.0, sum = 0.0;
    for (std::size_t t = 0; t < periods; ++t) {
        sum += needed[t];
        most = std::max(most, sum / static_cast<double>(t + 1)); // enough to make everything in time
    }
    for (const auto& row : time)
        m.add_row(-milp::infinity, row, capacity * most);
    return m;
}

/// Customers served by depots that cost money to open and have a capacity (Cornuéjols, Sridharan and Thizy 1991).
inline milp::model make_facilities(std::uint64_t seed, std::size_t depots, std::size_t customers) {
    optpipe::random_numbers random{seed};
    milp::model m;
    std::vector<double> demand(customers);
    double sum = 0.0;
    for (auto& d : demand)
        sum += d = draw(random, 5, 35);
    std::vector<std::vector<milp::term>> served(customers);
    std::vector<milp::term> open;
    for (std::size_t i = 0; i < depots; ++i) {
        const auto is_open = m.add_binary();
        const double room = draw(random, 10, 160) * 1.5 * sum / (85.0 * static_cast<double>(depots));
        m.set_cost(is_open, draw(random, 100, 200) * 1.5 + room);
        open.push_back({is_open, room});
        std::vector<milp::term> load{{is_open, -room}};
        for (std::size_t k = 0; k < customers; ++k) {
            const auto share = m.add_variable(0.0, 1.0);
            m.set_cost(share, demand[k] * draw(random, 1, 100) / 10.0);
            served[k].push_back({share, 1.0});
            load.push_back({share, demand[k]});
            m.add_row(-milp::infinity, {{share, 1.0}, {is_open, -1.0}}, 0.0);
        }
        m.add_row(-milp::infinity, load, 0.0);
    }
    for (const auto& row : served)
        m.add_row(1.0, row, 1.0);
    m.add_row(sum, open, milp::infinity);
    return m;
}

/// Jobs for agents with limited time; long jobs cost little (type D; Chu and Beasley 1997).
inline milp::model make_assignment(std::uint64_t seed, std::size_t agents, std::size_t jobs) {
    optpipe::random_numbers random{seed};
    milp::model m;
    std::vector<std::vector<milp::term>> done(jobs);
    for (std::size_t i = 0; i < agents; ++i) {
        std::vector<milp::term> load;
        double sum = 0.0;
        for (auto& row : done) {
            const double time = draw(random, 1, 100);
            const auto x = m.add_binary();
            m.set_cost(x, 111.0 - time + draw(random, 0, 20) - 10.0);
            load.push_back({x, time});
            row.push_back({x, 1.0});
            sum += time;
        }
        m.add_row(-milp::infinity, load, static_cast<double>(static_cast<std::size_t>(0.8 * sum) / agents));
    }
    for (const auto& row : done)
        m.add_row(1.0, row, 1.0);
    return m;
}

} // namespace bench
