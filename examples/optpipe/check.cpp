#include "commands.hpp"
#include <optpipe/optpipe.hpp>

#include <algorithm>
#include <iostream>
#include <vector>

namespace program {
namespace {

std::vector<optpipe::violation> violations_of(const optpipe::problem& p, const optpipe::schedule_document& document) {
    const auto timed = optpipe::to_schedule(p, document);
    auto found = document.unreadable;
    for (auto& v : optpipe::validate(p, timed))
        found.push_back(std::move(v));
    // What a file claims is only compared with operations that make sense.
    if (found.empty())
        for (auto& v :
             optpipe::claims_violations(document, optpipe::measure(p, timed), optpipe::claim_slacks_of(p, timed)))
            found.push_back(std::move(v));
    return found;
}

} // namespace

int check(const check_options& options) {
    const auto p = optpipe::read_problem(options.problem);
    const auto document = optpipe::read_schedule(options.schedule);
    if (document.problem_name != p.name)
        std::cerr << "optpipe: note: the schedule is for problem \"" << optpipe::printable(document.problem_name)
                  << "\", this one is \"" << optpipe::printable(p.name) << "\"\n";
    const auto violations = violations_of(p, document);
    if (!violations.empty()) {
        constexpr std::size_t most_shown = 20;
        std::cout << "INVALID: " << violations.size() << (violations.size() == 1 ? " violation\n" : " violations\n");
        for (std::size_t i = 0; i < std::min(violations.size(), most_shown); ++i)
            std::cout << violations[i].text() << '\n';
        if (violations.size() > most_shown) std::cout << "and " << violations.size() - most_shown << " more\n";
        return invalid_schedule;
    }
    const auto m = optpipe::measure(p, optpipe::to_schedule(p, document));
    std::cout << "valid objective=" << optpipe::format_number(m.objective)
              << " bubble_rate=" << optpipe::format_number(m.bubble_rate, 4) << " offloads=" << m.offloads
              << " peak_memory=[";
    for (const auto r : p.graph.all_ranks())
        std::cout << (r.value() == 0 ? "" : ", ") << optpipe::format_number(m.peak_memory[r]);
    std::cout << "]\n";
    return success;
}

} // namespace program
