// Example 8: a plan that runs.
//
// A schedule is lowered to one program per rank: the order of each lane (compute, copies, sends, receives), the waits,
// and the place of everything in memory. Here the ranks are threads of this process, with exactly the memory that the
// plan needs, and with links that take the planned times. The model is yours; this one passes numbers on, to show that
// they arrive.

#include <optpipe/execution.hpp>
#include <optpipe/program/lower.hpp>
#include <optpipe/schedule.hpp>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <iostream>
#include <span>
#include <thread>
#include <vector>

namespace {

using namespace optpipe;
using namespace optpipe::literals;
using namespace std::chrono_literals;

/// A stage of a "model": its forward adds the number of the stage to the input, and stashes it.
struct adding_stage {
    std::chrono::microseconds unit{2000};
    double sum = 0.0;

    template <class Lane> void forward(Lane&, const execution::forward_task& t) {
        std::this_thread::sleep_for(unit);
        const double in = t.input.empty() ? 100.0 * t.microbatch.value() : read(t.input);
        write(execution::contiguous(t.kept), in);
        if (!t.output.empty()) write(t.output, in + t.stage.value());
    }
    template <class Lane> void backward_input(Lane&, const execution::backward_task& t) {
        std::this_thread::sleep_for(unit);
        const double gradient = t.input.empty() ? 1.0 : read(t.input);
        // Stores the value for the weight gradient: the gradient times the stashed input, which may have been to the
        // host.
        write(execution::contiguous(t.kept), gradient * read(execution::contiguous(t.kept)));
        if (!t.output.empty()) write(t.output, 2.0 * gradient);
    }
    template <class Lane> void backward_weight(Lane&, const execution::weight_task& t) {
        std::this_thread::sleep_for(unit);
        sum += read(execution::contiguous(t.kept));
    }

private:
    static double read(std::span<const std::byte> from) {
        double value = 0.0;
        std::memcpy(&value, from.data(), sizeof value);
        return value;
    }
    static void write(std::span<std::byte> to, double value) { std::memcpy(to.data(), &value, sizeof value); }
};
static_assert(execution::check_stage_model<adding_stage, threads::lane>());

} // namespace

int main() {
    // Four stages on four ranks. A stash takes 1 KB; a rank has room for 2, while 1F1B would need 4.
    stage_costs costs{2_ms, 2_ms, 2_ms, memory_size{1}, memory_size{0.5}, transfer_times{1.5_ms, 1.5_ms}};
    auto p = to_problem(make_problem(graph<4, 12>{}, uniform_memory{costs}, memory_size{2}));
    p.name = "four threads";
    p.time_unit = "ms";
    p.memory_unit = "KB";
    p.p2p = hop_times<>{0.2_ms};
    p.transfer.engines = 2;

    const auto plan = build_schedule(p, adaptive);
    if (!plan) return std::cout << describe(plan.why()) << '\n', 1;
    const auto programs = lower(p, *plan, {.bytes_per_unit = 1024, .message_bytes = sizeof(double)});
    if (!programs) return std::cout << describe(programs.why()) << '\n', 1;

    threads::options how;
    how.copies = threads::planned_copies(p, 1ms);
    how.messages = threads::planned_messages(p, 1ms);
    how.record_times = true;
    how.device_memory = per_rank<std::size_t>(4);
    for (const auto& program : *programs)
        how.device_memory[program.self] = program.device_bytes + program.message_bytes;
    threads::cluster cluster{4, how};
    std::vector<adding_stage> stages(4);
    const auto times = threads::run(
        *programs, cluster, [&](rank r) -> auto& { return stages[r.position()]; });

    const auto measured = measured_schedule(p.graph, times, 1ms);
    std::cout << "planned:  " << objective_of(p, *plan).value()
              << " ms, measured: " << objective_of(p, measured).value() << " ms\n";
    for (const auto& each : times)
        std::cout << "rank " << each.program->self.value() << ": " << high_water(each, memory_arena::device) << " of "
                  << each.program->device_bytes << " bytes of stashes held at once, "
                  << high_water(each, memory_arena::host) << " on the host, sum of gradients "
                  << stages[each.program->self.position()].sum << '\n';
    for (const auto& kind : compare_kinds(*plan, measured))
        std::cout << kind.count << " x " << spelling(kind.kind) << ": planned " << kind.planned.value()
                  << " ms, measured " << kind.measured.value() << " ms\n";

    // The same sums, computed without a pipeline.
    for (std::size_t s = 0; s < 4; ++s) {
        double expected = 0.0;
        for (std::size_t m = 0; m < 12; ++m)
            expected +=
                (100.0 * static_cast<double>(m) + static_cast<double>(s * (s - 1) / 2)) * static_cast<double>(8U >> s);
        if (stages[s].sum != expected) return std::cout << "stage " << s << " should have " << expected << '\n', 1;
    }
}
