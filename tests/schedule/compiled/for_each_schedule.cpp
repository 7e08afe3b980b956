#include "schedule/compiled/for_each_schedule.hpp"

#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "schedule/quick_builders.hpp"

namespace compiled {

void for_each_schedule(const optpipe::problem& p, const visit_schedule& visit) {
    for_each_quick_builder([&](const auto& build) {
        if (const auto s = build_schedule(p, build)) visit(std::string{build.name}, *s);
    });
}

std::vector<std::string> all_methods() {
    std::vector<std::string> names;
    optpipe::for_each_builder([&](const auto& build) { names.emplace_back(build.name); });
    return names;
}

} // namespace compiled
