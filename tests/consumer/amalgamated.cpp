// A project that uses the single header and nothing else: no JSON, no solver.
#include "optpipe.hpp"

#include <iostream>

int main() {
    using namespace optpipe;
    per_stage<rank> where(2);
    where[stage{1}] = rank{1};
    const stage_costs unit{duration{1}, duration{1}, duration{1}, memory_size{1}, memory_size{0.5}, {}};
    problem p{any_graph{2, 4, placement::map<>{where}}, per_stage<stage_costs>(2, unit)};
    const auto built = build_schedule(p, zero_bubble_h1);
    if (!built || !validate(p, *built).empty()) return 1;
    std::cout << schedule_to_json(p, make_report(p, "zb-h1", *built));
    const auto programs = lower(p, *built);
    return programs && check_programs({programs->begin(), programs->end()}).empty() ? 0 : 1;
}
