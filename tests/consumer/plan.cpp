#include <optpipe/optpipe.hpp>

#include <iostream>

using namespace optpipe;

int main() {
    const auto p = make_problem(graph<2, 4>{}, unit_memory{});
    const auto built = build_schedule(to_problem(p), one_forward_one_backward);
    const auto found = plan(p);
    if (!built || !found || found->why != plan_end::optimal) return 1;
    std::cout << "planned\n";
    return measure(to_problem(p), *built).objective >= found->objective ? 0 : 1;
}
