#include <optpipe/core/random.hpp>
#include <optpipe/milp/search/conflict/disjunctions.hpp>
#include <optpipe/milp/search/conflict/least_bound_queue.hpp>
#include <optpipe/milp/search/control.hpp>
#include <optpipe/milp/search/heuristics/rounding.hpp>
#include <optpipe/milp/search/incumbents.hpp>
#include <optpipe/milp/search/tree/node_queue.hpp>
#include <optpipe/milp/search/tree/proof_row.hpp>
#include <optpipe/milp/search/tree/pseudocosts.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

using namespace optpipe;
using namespace optpipe::milp;
using namespace optpipe::milp::search;

TEST_CASE("the queue gives the least bound first, then the later born") {
    node_queue queue;
    for (const double bound : {3.0, 1.0, 2.0, 1.0}) {
        node n;
        n.bound = bound;
        queue.push(std::move(n));
    }
    CHECK(queue.least_bound() == 1.0);
    CHECK(queue.pop().number == 4);
    CHECK(queue.pop().number == 2);
    queue.prune(2.5);
    CHECK(queue.size() == 1);
    const auto bytes_of_one = queue.bytes();
    CHECK(queue.pop().bound == 2.0);
    CHECK(queue.bytes() < bytes_of_one);
    CHECK(queue.least_bound() == std::numeric_limits<double>::infinity());
}

TEST_CASE("pseudocosts are means per unit, of others while there are no own") {
    pseudocosts history{3};
    CHECK(history.unit(0, true) == 1.0);
    history.add({0, true, 0.5, 2.0});
    history.add({0, true, 0.25, 0.5});
    CHECK(history.unit(0, true) == 3.0);
    CHECK(history.unit(1, true) == 3.0);
    CHECK(history.unit(1, false) == 1.0);
    CHECK(history.reliability(0) == 0);
    history.add({0, false, 0.5, 1.0});
    CHECK(history.reliability(0) == 1);
    CHECK(pseudocosts::score(1.0, 1.0) > pseudocosts::score(0.0, 2.0));
}

TEST_CASE("the rising order gives the least key of now, whatever the keys were") {
    constexpr std::size_t columns = 20;
    std::vector<double> keys(columns);
    std::vector<bool> done(columns, false);
    random_numbers random{3};
    least_bound_queue order;
    for (std::size_t j = 0; j < columns; ++j)
        order.insert(j, keys[j] = static_cast<double>(random.below(50)));
    const auto pop = [&] {
        return order.pop([&](std::size_t j) { return keys[j]; }, [&](std::size_t j) { return done[j]; });
    };
    done[4] = true;
    for (std::size_t left = columns - 1; left > 0; --left) {
        for (std::size_t j = 0; j < columns; ++j) // as bounds rise further down
            keys[j] += static_cast<double>(random.below(10));
        const auto next = pop();
        REQUIRE(next.has_value());
        CHECK(!done[*next]);
        for (std::size_t j = 0; j < columns; ++j)
            CHECK((done[j] || keys[*next] <= keys[j]));
        done[*next] = true;
    }
    CHECK(!pop().has_value());
}

TEST_CASE("a key that falls counts once it is told; what is cleared is gone") {
    std::vector<double> keys{5.0, 3.0};
    const auto never = [](std::size_t) { return false; };
    const auto key = [&](std::size_t j) { return keys[j]; };
    least_bound_queue order;
    order.insert(0, keys[0]);
    order.insert(1, keys[1]);
    keys[0] = 1.0;
    order.insert(0, keys[0]);
    CHECK(order.bytes() > 0);
    CHECK(order.pop(key, never) == 0U);
    CHECK(order.pop(key, never) == 1U);
    order.clear();
    CHECK(!order.pop(key, never).has_value());
}

TEST_CASE("a key that falls and rises again and again takes no more room for that") {
    double now = 0.0;
    least_bound_queue order;
    for (int k = 0; k < 1000; ++k) {
        now = 1.0 + static_cast<double>(k % 7);
        order.insert(0, now);
        order.insert(1, now);
    }
    CHECK(order.size() < 20);
    std::size_t looks = 0;
    const auto key = [&](std::size_t) {
        ++looks;
        return now;
    };
    CHECK(order.pop(key, [](std::size_t) { return false; }).has_value());
    CHECK(looks < 20);
}

TEST_CASE("disjunctions forget the least active half of the long ones") {
    disjunctions all{10};
    for (std::size_t k = 0; k < 8; ++k) {
        const std::vector<literal> two{at_least(k, 1.0), at_least(k + 1, 1.0)};
        all.add(two, true, k < 2 ? 2 : 5);
    }
    all.bump(7);
    CHECK(all.learned() == 8);
    all.forget_half();
    CHECK(all.learned() == 5);
    CHECK(all.literals(all.size() - 1)[0] == at_least(7, 1.0));
}

TEST_CASE("only solutions become incumbents, and only better ones") {
    model m;
    const auto x = m.add_variable(0.0, 4.0, domain::integer);
    m.add_row(1.0 * x >= 1.5);
    m.set_objective(2.0 * x + 10.0);
    shared_incumbent shared;
    incumbents best{m, {}, &shared};
    CHECK(!best.exists());
    CHECK(!best.offer({1.0}));
    CHECK(!best.offer({2.5}));
    CHECK(!best.offer({}));
    CHECK(best.offer({3.0 + 1e-9}));
    CHECK(best.objective() == 6.0);
    CHECK(best.values() == std::vector{3.0});
    CHECK(!best.offer({4.0}));
    CHECK(best.offer({2.0}));
    CHECK(best.found() == 2);
    REQUIRE(shared.read().has_value());
    CHECK(shared.read()->objective == 14.0);
}

TEST_CASE("rounding asks the rows") {
    model m;
    const auto x = m.add_variable(0.0, 4.0, domain::integer), y = m.add_variable(0.0, 4.0, domain::integer);
    m.add_row(x + y <= 5.5);
    m.add_row(x - y >= -1.0);
    const auto p = problem_of(m);
    const locks l{p};
    CHECK(l.up == std::vector<std::uint32_t>{1, 2});
    CHECK(l.down == std::vector<std::uint32_t>{1, 0});
    CHECK(round_by_locks(p, l, std::vector{3.0, 2.5}) == std::vector{3.0, 2.0});
    CHECK(!round_by_locks(p, l, std::vector{0.4, 3.4}).has_value());
}

TEST_CASE("a sum of rows proves what it proves, and nothing else") {
    // x + y >= 3 and x - y >= 1 give x >= 2
    model m;
    const auto x = m.add_variable(0.0, 1.5), y = m.add_variable(-10.0, 10.0);
    m.add_row(x + y >= 3.0);
    m.add_row(x - y >= 1.0);
    const auto p = problem_of(m);
    const domains d{p};
    const extra_rows none;
    proof_row proof{p, none};
    const auto proves = [&](const std::vector<double>& multipliers) {
        proof.build(multipliers, 0.0, infinity);
        proof.normalize(d);
        return proof.contradicts(d);
    };
    CHECK(proves({1.0, 1.0}));
    CHECK(proves({0.5, 0.5}));
    CHECK(!proves({1.0, 0.0}));
    CHECK(!proves({-1.0, -1.0}));
    CHECK(!proves({0.0, 0.0}));
}

TEST_CASE("limits are met once, and the first is kept") {
    solve_options options;
    options.node_limit = 2;
    control c{options};
    CHECK(!c.over());
    c.count_node();
    c.count_node();
    CHECK(c.over());
    CHECK(c.reason() == limit::nodes);
    c.end(limit::time);
    CHECK(c.reason() == limit::nodes);
    CHECK(c.token().stop_requested());
    CHECK(!c.finished());
}
