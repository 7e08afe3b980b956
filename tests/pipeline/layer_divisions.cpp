#include "optpipe/pipeline/layer_divisions.hpp"

#include "optpipe/core/random.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/layer_cuts.hpp"
#include "optpipe/pipeline/layer_graph.hpp"
#include "optpipe/pipeline/placement.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

using namespace optpipe;
using counts = std::vector<std::size_t>;
using division = std::vector<stage>;

namespace {

struct rules {
    std::size_t layers = 0;
    std::size_t without_backward = 0;
    std::optional<std::vector<layer_edge>> edges{};
    std::vector<layer_pin> pins{};
    std::vector<std::vector<std::size_t>> together{};

    [[nodiscard]] detail::layer_cuts cuts(std::size_t most = detail::layer_cuts::most_cuts) const {
        return {layers, edges, together, without_backward, most};
    }
};

bool meets_pins(const rules& given, const any_graph& g, const division& each) {
    return std::all_of(given.pins.begin(), given.pins.end(), [&](const layer_pin& pin) {
        const auto at = each[pin.layer];
        const auto* const s = std::get_if<stage>(&pin.where);
        return s ? at == *s : g.rank_of(at) == std::get<rank>(pin.where);
    });
}
/// Whether the division meets the rules but for pins, found layer by layer.
bool meets_others(const rules& given, const any_graph& g, const division& each) {
    const auto goes_back = [&](std::size_t from, std::size_t to) { return each[to] < each[from]; };
    for (const stage s : g.all_stages())
        if (std::find(each.begin(), each.end(), s) == each.end()) return false;
    for (const auto& list : given.together)
        for (const auto layer : list)
            if (each[layer] != each[list.front()]) return false;
    for (const auto& edge : given.edges.value_or(std::vector<layer_edge>{}))
        if (goes_back(edge.from, edge.to)) return false;
    for (std::size_t layer = 0; !given.edges && layer + 1 < given.layers; ++layer)
        if (goes_back(layer, layer + 1)) return false;
    for (std::size_t from = 0; from < given.without_backward; ++from)
        for (auto to = given.without_backward; to < given.layers; ++to)
            if (goes_back(from, to)) return false;
    return true;
}

/// Calls `look` for every way to give each layer a stage.
template <class Look> void for_each_assignment(std::size_t layers, std::size_t stages, division begin, Look look) {
    if (begin.size() == layers) return look(begin);
    begin.emplace_back(std::size_t{0});
    for (std::size_t s = 0; s < stages; ++s) {
        begin.back() = stage{s};
        for_each_assignment(layers, stages, begin, look);
    }
}

rules random_rules(random_numbers& random, std::size_t ranks, std::size_t stages) {
    rules given{random.between(stages, 7)};
    if (random.chance(30)) given.without_backward = random.below(given.layers + 1);
    if (random.chance(70)) {
        given.edges.emplace();
        for (std::size_t from = 0; from < given.layers; ++from)
            for (auto to = from + 1; to < given.layers; ++to)
                if (random.chance(to == from + 1 ? 60 : 25)) given.edges->push_back({from, to});
    }
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

any_graph random_placement(random_numbers& random) {
    if (random.chance(50)) return to_any_graph(graph<dynamic, dynamic>{random.between(1, 4), 1});
    return to_any_graph(graph<dynamic, dynamic, placement::v>{random.between(1, 2), 1});
}

} // namespace

TEST_CASE("divisions under random rules, against all ways to give each layer a stage") {
    constexpr std::uint64_t seed = 20261129;
    random_numbers random{seed};
    std::size_t with_some = 0;
    for (int i = 0; i < 500; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        const auto g = random_placement(random);
        const auto given = random_rules(random, g.ranks(), g.stages());
        const auto cuts = given.cuts();
        CHECK(cuts.are_all());
        const detail::layer_divisions divisions{cuts, given.pins, g};
        std::vector<division> expected;
        for_each_assignment(given.layers, g.stages(), {}, [&](const division& each) {
            if (meets_others(given, g, each) && meets_pins(given, g, each)) expected.push_back(each);
        });
        std::vector<division> listed;
        divisions.for_each({},
                           [&](const detail::layer_division& each) { listed.push_back(divisions.stages_of(each)); });
        std::sort(listed.begin(), listed.end());
        CHECK(listed == expected);
        CHECK(divisions.count(1000) == std::min<std::size_t>(expected.size(), 1001));
        CHECK(divisions.exist() == !expected.empty());
        const detail::layer_divisions without_pins{cuts, {}, g};
        without_pins.for_each({}, [&](const detail::layer_division& each) {
            CHECK(divisions.allow(each) == meets_pins(given, g, divisions.stages_of(each)));
        });
        if (expected.empty()) continue;
        ++with_some;
        const auto close = divisions.close_to(counts(g.stages(), given.layers / g.stages()));
        CHECK(std::binary_search(expected.begin(), expected.end(), divisions.stages_of(close)));
        divisions.for_each_neighbour(close, {}, [&](const detail::layer_division& each) {
            CHECK(each != close);
            CHECK(std::binary_search(expected.begin(), expected.end(), divisions.stages_of(each)));
        });
    }
    CHECK(with_some > 200);
}

TEST_CASE("in a chain, neighbours move one layer, or all that belong together with it") {
    const auto g = to_any_graph(graph<dynamic, dynamic>{3, 1});
    const auto neighbours_of = [&](const rules& given, const counts& of) {
        const auto cuts = given.cuts();
        const detail::layer_divisions divisions{cuts, given.pins, g};
        const auto begin = divisions.close_to(of);
        std::vector<counts> all;
        divisions.for_each_neighbour(begin, {}, [&](const detail::layer_division& each) {
            auto& counted = all.emplace_back(g.stages(), std::size_t{0});
            for (const stage s : divisions.stages_of(each))
                ++counted[s.position()];
        });
        std::sort(all.begin(), all.end());
        return all;
    };
    rules given{6};
    CHECK(given.cuts().pieces() == 6);
    CHECK(neighbours_of(given, {1, 2, 3}) == std::vector<counts>{{1, 1, 4}, {1, 3, 2}, {2, 1, 3}, {2, 2, 2}});
    given.together = {{2, 4}};
    CHECK(given.cuts().pieces() == 4);
    CHECK(neighbours_of(given, {1, 1, 4}) == std::vector<counts>{{1, 4, 1}, {2, 3, 1}});
    given.pins = {{1, stage{1}}};
    CHECK(neighbours_of(given, {1, 1, 4}) == std::vector<counts>{{1, 4, 1}});
}

TEST_CASE("layers of different branches may share a stage") {
    // Two branches of three layers meet in layer 6.
    rules given{7, 0, {{{0, 1}, {1, 2}, {2, 6}, {3, 4}, {4, 5}, {5, 6}}}};
    const auto g = to_any_graph(graph<dynamic, dynamic>{3, 1});
    CHECK(given.cuts().size() == 4 * 4 + 1);
    const auto may_hold = [&](const division& wanted) {
        const auto cuts = given.cuts();
        const detail::layer_divisions divisions{cuts, given.pins, g};
        bool found = false;
        divisions.for_each({}, [&](const auto& each) { found = found || divisions.stages_of(each) == wanted; });
        return found;
    };
    const auto on = [](std::initializer_list<std::size_t> stages) {
        division each;
        for (const auto s : stages)
            each.emplace_back(s);
        return each;
    };
    CHECK(may_hold(on({0, 1, 2, 0, 1, 2, 2})));
    CHECK(may_hold(on({1, 1, 2, 0, 0, 0, 2})));
    CHECK_FALSE(may_hold(on({1, 0, 2, 0, 0, 0, 2})));
    // What belongs together is one piece, with all between; what is beside it isn't.
    given.together = {{0, 5}, {1, 6}};
    CHECK(given.cuts().pieces() == 4); // 3, 4, 0 with 5, and 1, 2 and 6
    CHECK(may_hold(on({2, 2, 2, 0, 1, 2, 2})));
    CHECK_FALSE(may_hold(on({1, 2, 2, 0, 0, 2, 2})));
    // If the layers of the first branch have no backward, they precede those of the other branch.
    given.together.clear();
    given.without_backward = 3;
    CHECK(given.cuts().size() == 4 + 4);
    CHECK(may_hold(on({0, 0, 1, 1, 1, 2, 2})));
    CHECK_FALSE(may_hold(on({0, 0, 1, 0, 1, 2, 2})));
}

TEST_CASE("of too many branches, only divisions in the order of the layers are known") {
    rules given{6, 0, std::vector<layer_edge>{}};
    CHECK(given.cuts().size() == 64);
    CHECK(given.cuts(64).are_all());
    const auto few = given.cuts(63);
    CHECK_FALSE(few.are_all());
    CHECK(few.size() == 7);
    const auto g = to_any_graph(graph<dynamic, dynamic>{3, 1});
    const detail::layer_divisions divisions{few, {}, g};
    CHECK(divisions.count(100) == 10);
    divisions.for_each({}, [&](const auto& each) {
        const auto stage_of = divisions.stages_of(each);
        CHECK(std::is_sorted(stage_of.begin(), stage_of.end()));
    });
}

TEST_CASE("large models are counted without being listed, and a stop ends the list") {
    const auto g = to_any_graph(graph<dynamic, dynamic>{64, 1});
    const rules given{4096};
    const std::vector<layer_pin> pins{{0, stage{0}}, {4000, rank{63}}};
    const auto cuts = given.cuts();
    CHECK(cuts.size() == 4097);
    const detail::layer_divisions divisions{cuts, pins, g};
    CHECK(divisions.exist());
    CHECK(divisions.count(256) > 256);
    std::size_t seen = 0;
    const stop_when enough{[&] { return seen >= 10; }};
    divisions.for_each(enough, [&](const detail::layer_division&) { ++seen; });
    CHECK(seen == 10);
}
