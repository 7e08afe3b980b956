#include "optpipe/pipeline/layer_divisions.hpp"

#include "optpipe/core/random.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/layer_graph.hpp"
#include "optpipe/pipeline/placement.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

using namespace optpipe;
using counts = detail::layer_counts;

namespace {

struct rules {
    std::size_t layers = 0;
    std::vector<layer_pin> pins{};
    std::vector<std::vector<std::size_t>> together{};
};

/// Whether the division meets the rules, found layer by layer.
bool meets(const rules& given, const any_graph& g, const counts& each) {
    std::vector<stage> stage_of;
    for (const stage s : g.all_stages())
        stage_of.insert(stage_of.end(), each[s.position()], s);
    const auto is_met = [&](const layer_pin& pin) {
        const auto at = stage_of[pin.layer];
        const auto* const s = std::get_if<stage>(&pin.where);
        return s ? at == *s : g.rank_of(at) == std::get<rank>(pin.where);
    };
    const auto is_one = [&](const std::vector<std::size_t>& list) {
        return std::all_of(list.begin(), list.end(), [&](auto l) { return stage_of[l] == stage_of[list.front()]; });
    };
    return std::all_of(given.pins.begin(), given.pins.end(), is_met) &&
           std::all_of(given.together.begin(), given.together.end(), is_one);
}

/// All divisions without rules, in lexicographic order.
void divide(std::size_t layers, std::size_t stages, const counts& begin, std::vector<counts>& all) {
    for (std::size_t here = stages == 1 ? layers : 1; here + stages <= layers + 1; ++here) {
        auto each = begin;
        each.push_back(here);
        if (stages == 1)
            all.push_back(each);
        else
            divide(layers - here, stages - 1, each, all);
    }
}

rules random_rules(random_numbers& random, std::size_t ranks, std::size_t stages) {
    rules given{random.between(stages, stages + 4)};
    for (auto i = random.below(3); i > 0; --i) {
        const auto layer = random.below(given.layers);
        if (random.chance(50))
            given.pins.push_back({layer, stage{random.below(stages)}});
        else
            given.pins.push_back({layer, rank{random.below(ranks)}});
    }
    for (auto i = random.below(3); i > 0; --i)
        given.together.push_back({random.below(given.layers), random.below(given.layers)});
    return given;
}

} // namespace

TEST_CASE("divisions under random pins and layers that belong together, against all divisions") {
    random_numbers random{20261129};
    std::size_t with_some = 0;
    for (int i = 0; i < 500; ++i) {
        CAPTURE(i);
        const auto ranks = random.between(1, 3);
        const auto g = random.chance(50) ? to_any_graph(graph<dynamic, dynamic>{ranks, 1})
                                         : to_any_graph(graph<dynamic, dynamic, placement::v>{ranks, 1});
        const auto given = random_rules(random, ranks, g.stages());
        const detail::layer_divisions divisions{given.layers, given.pins, given.together, g};
        std::vector<counts> all;
        divide(given.layers, g.stages(), {}, all);
        std::vector<counts> expected;
        for (const auto& each : all) {
            CHECK(divisions.allow(each) == meets(given, g, each));
            if (meets(given, g, each)) expected.push_back(each);
        }
        std::vector<counts> listed;
        divisions.for_each({}, [&](const counts& each) { listed.push_back(each); });
        CHECK(listed == expected);
        CHECK(divisions.count(1000) == expected.size());
        CHECK(divisions.exist() == !expected.empty());
        if (expected.empty()) continue;
        ++with_some;
        CHECK(divisions.count(0) > 0);
        for (const auto& each : expected)
            CHECK(divisions.close_to(each) == each);
        CHECK(meets(given, g, divisions.close_to(all.front())));
        divisions.for_each_neighbour(expected.front(), {}, [&](const counts& each) {
            CHECK(each != expected.front());
            CHECK(std::find(expected.begin(), expected.end(), each) != expected.end());
        });
    }
    CHECK(with_some > 200);
}

TEST_CASE("neighbours move one layer, or all that belong together with it") {
    const auto g = to_any_graph(graph<dynamic, dynamic>{3, 1});
    const auto neighbours_of = [&](const detail::layer_divisions& divisions, const counts& of) {
        std::vector<counts> all;
        divisions.for_each_neighbour(of, {}, [&](const counts& each) { all.push_back(each); });
        std::sort(all.begin(), all.end());
        return all;
    };
    const detail::layer_divisions free{6, {}, {}, g};
    CHECK(free.pieces() == 6);
    CHECK(neighbours_of(free, {1, 2, 3}) == std::vector<counts>{{1, 1, 4}, {1, 3, 2}, {2, 1, 3}, {2, 2, 2}});
    const std::vector<std::vector<std::size_t>> together{{2, 4}};
    const detail::layer_divisions whole{6, {}, together, g};
    CHECK(whole.pieces() == 4);
    CHECK(neighbours_of(whole, {1, 1, 4}) == std::vector<counts>{{1, 4, 1}, {2, 3, 1}});
    const std::vector<layer_pin> pins{{1, stage{1}}};
    const detail::layer_divisions pinned{6, pins, together, g};
    CHECK(neighbours_of(pinned, {1, 1, 4}) == std::vector<counts>{{1, 4, 1}});
}

TEST_CASE("large models are counted without being listed, and a stop ends the list") {
    const auto g = to_any_graph(graph<dynamic, dynamic>{64, 1});
    const std::vector<layer_pin> pins{{0, stage{0}}, {4000, rank{63}}};
    const detail::layer_divisions divisions{4096, pins, {}, g};
    CHECK(divisions.exist());
    CHECK(divisions.count(256) > 256);
    std::size_t seen = 0;
    const stop_when enough{[&] { return seen >= 10; }};
    divisions.for_each(enough, [&](const counts&) { ++seen; });
    CHECK(seen == 10);
}
