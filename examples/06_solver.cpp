// Example 6: the solver alone, for a model that has nothing to do with pipelines.

#include <optpipe/milp.hpp>

#include <iostream>
#include <variant>

int main() {
    using namespace optpipe::milp;

    model m;
    const auto x = m.add_binary();
    const auto y = m.add_variable(0.0, 4.0, domain::integer);
    m.add_row(3.0 * x + 2.0 * y <= 7.0);
    m.set_objective(2.0 * x + y, sense::maximize);

    // The result says separately why the solver stopped (`why`), and how good the result is (`objective`, `bound`,
    // `incumbent`).
    const auto r = solve(m, {.threads = 1});
    if (!std::holds_alternative<optimal>(r.why) || !r.incumbent) return 1;
    std::cout << "objective " << r.objective << ", x " << (*r.incumbent)[0] << ", y " << (*r.incumbent)[1] << '\n';
    return r.objective == 4.0 ? 0 : 1;
}
