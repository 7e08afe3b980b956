#include "optpipe/pipeline/paths.hpp"

#include "optpipe/core/format.hpp"
#include "optpipe/pipeline/make_problem.hpp"

#include <doctest/doctest.h>

#include <string>

namespace {

using optpipe::duration;
using optpipe::graph;
using optpipe::memory_size;
using optpipe::stage;
namespace placement = optpipe::placement;

template <class Table> std::string numbers(const Table& durations) {
    std::string text;
    for (const auto d : durations)
        text += (text.empty() ? "" : " ") + optpipe::format_number(d);
    return text;
}

/// Stage s takes 1 + s for F, 10 + s for the input gradient, 100 + s for the weight gradient.
struct rising {
    static constexpr optpipe::stage_costs costs(stage s, std::size_t) {
        const double more = s.value();
        return {duration{1 + more}, duration{10 + more}, duration{100 + more}, memory_size{1}, memory_size{1}, {}};
    }
};

} // namespace

TEST_CASE("a line, with time between ranks") {
    auto p = make_problem(graph<3, 1>{}, rising{});
    p.p2p = optpipe::hop_times<3>{duration{0.5}};
    const auto paths = paths_of(p);
    // F: 1, 2, 3. I: 12, 11, 10.
    CHECK(numbers(paths.forward_start) == "0 1.5 4");
    CHECK(numbers(paths.gradient_start) == "31 19.5 7");
    CHECK(numbers(paths.lifespan) == "41 29 15");
    // After I of 2: hop, I of 1, hop, I of 0, W of 0. After I of 1: hop, I of 0, W of 0.
    CHECK(numbers(paths.after_gradient) == "100 110.5 122");
}

TEST_CASE("a line whose weight gradient is the longest of all") {
    auto p = make_problem(graph<3, 1>{}, rising{});
    p.costs[stage{2}].backward_weight = duration{500};
    CHECK(numbers(paths_of(p).after_gradient) == "100 110 500");
}

TEST_CASE("a line where only full backwards may be used") {
    auto p = make_problem(graph<3, 1>{}, rising{});
    p.p2p = optpipe::hop_times<3>{duration{0.5}};
    p.split_backward = false;
    const auto paths = paths_of(p);
    // B: 110, 112, 114.
    CHECK(numbers(paths.forward_start) == "0 1.5 4");
    CHECK(numbers(paths.gradient_start) == "234 121.5 7");
    CHECK(numbers(paths.lifespan) == "344 232 117");
    CHECK(numbers(paths.after_gradient) == "0 110.5 223");
}

TEST_CASE("a v: no time within a rank") {
    auto p = make_problem(graph<2, 1, placement::v>{}, rising{});
    p.p2p = optpipe::hop_times<2>{duration{0.5}};
    const auto paths = paths_of(p);
    // Ranks 0, 1, 1, 0. F: 1, 2, 3, 4. I: 13, 12, 11, 10.
    CHECK(numbers(paths.forward_start) == "0 1.5 3.5 7");
    CHECK(numbers(paths.gradient_start) == "48 36.5 24.5 11");
    CHECK(numbers(paths.lifespan) == "58 46 33 17");
    CHECK(numbers(paths.after_gradient) == "100 110.5 121.5 134");
}

TEST_CASE("the way there and the way back may take different times") {
    auto p = make_problem(graph<2, 1>{}, rising{});
    optpipe::bounded_vector<duration, 4> matrix;
    for (const double hop : {9.0, 0.25, 4.0, 9.0})
        matrix.push_back(duration{hop});
    p.p2p = optpipe::hop_times<2>{2, matrix};
    const auto paths = paths_of(p);
    CHECK(numbers(paths.forward_start) == "0 1.25");
    CHECK(numbers(paths.gradient_start) == "18.25 3.25");
    CHECK(numbers(paths.after_gradient) == "100 114");
}

TEST_CASE("paths don't depend on whether extents are static") {
    auto p = make_problem(graph<2, 1, placement::v>{}, rising{});
    p.p2p = optpipe::hop_times<2>{duration{0.5}};
    const auto a = paths_of(p);
    const auto b = paths_of(to_problem(p));
    CHECK(numbers(a.forward_start) == numbers(b.forward_start));
    CHECK(numbers(a.gradient_start) == numbers(b.gradient_start));
    CHECK(numbers(a.lifespan) == numbers(b.lifespan));
    CHECK(numbers(a.after_gradient) == numbers(b.after_gradient));
}
