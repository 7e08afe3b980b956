// Example 16: an engine that allocates its tensors itself, and moves them between ranks itself.
//
// ggml, libtorch and most engines can't write activations into memory of another library. Here the engine keeps its own
// tensors: a program tells when the life of a stash begins and ends, and the engine allocates and frees tensors at
// these times. The engine finds tensors by stage and microbatch, which are in every task and label; the library
// allocates no memory for them and passes no addresses. The order and the waits of the program keep the engine within
// the planned memory. Messages have no bytes: the program orders sends and receives, and the engine's transport moves
// the tensors that the labels name.

#include <optpipe/execution.hpp>
#include <optpipe/program/lower.hpp>
#include <optpipe/schedule.hpp>
#include <optpipe/testing/conformance.hpp>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <map>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace optpipe;

namespace engine {

constexpr std::size_t elements = 128;
using tensor = std::vector<double>;

/// The existing engine: tensors by name. There is one per rank and kind of memory; any lane may call it.
class allocator {
public:
    tensor& make(const operation& op) {
        const std::scoped_lock lock{mutex_};
        auto& made = tensors_[{op.stage, op.microbatch}];
        most = std::max(most, tensors_.size() * elements * sizeof(double));
        return made = tensor(elements);
    }
    tensor& at(const operation& op) {
        const std::scoped_lock lock{mutex_};
        return tensors_.at({op.stage, op.microbatch});
    }
    void free(const operation& op) {
        const std::scoped_lock lock{mutex_};
        tensors_.erase({op.stage, op.microbatch});
    }
    /// Largest number of bytes that were in use at once.
    std::size_t most = 0;

private:
    std::mutex mutex_;
    std::map<std::pair<stage, microbatch>, tensor> tensors_;
};
struct memory {
    allocator device, host;
    allocator messages; // activations to send, or received
};

} // namespace engine

namespace {

/// Moves the tensor of an operation from one memory to another.
struct moves {
    engine::allocator* from;
    engine::allocator* to;
    operation op;
    void operator()(auto&) const {
        to->make(op) = from->at(op);
        from->free(op);
    }
};
/// Copies by label. Copies with pieces use other memory: that of the conformance suite.
struct copy_engine {
    threads::copy_engine* plain;
    engine::memory* own;
    void copy(threads::lane& on, execution::copy_direction way, const task_label& what,
              execution::copy_pieces pieces) const {
        if (!pieces.empty()) return plain->copy(on, way, what, pieces);
        const bool leaves = way == execution::copy_direction::out;
        on.launch(what, leaves ? moves{&own->device, &own->host, what.op} : moves{&own->host, &own->device, what.op});
    }
};
/// Messages by label. The library's transport lets sender and receiver meet; then the receiver moves the tensor. An
/// engine with several processes would send the tensor. Messages with addresses are those of the conformance suite.
struct tensor_transport {
    threads::transport* plain;
    std::span<engine::memory> all;
    engine::memory* own;
    void exchange(threads::lane& on, execution::message_ends messages) const {
        plain->exchange(on, messages);
        for (const auto& each : messages)
            if (!each.sends && each.to == nullptr && direction_of(each.label.op) == message_direction::forward)
                on.launch(each.label, moves{&all[each.label.peer.position()].messages, &own->messages, each.label.op});
    }
};
/// An executor on threads, except for memory, copies and messages.
struct executor {
    using lane_type = threads::lane;
    threads::executor& by;
    std::span<engine::memory> all;
    engine::memory& tensors = all[by.self().position()];
    tensor_transport messages{&by.transport(), all, &tensors};
    [[nodiscard]] rank self() const { return by.self(); }
    [[nodiscard]] std::size_t ranks() const { return by.ranks(); }
    [[nodiscard]] threads::lane open_lane(lane_kind kind, std::size_t commands) {
        return by.open_lane(kind, 2 * commands); // a receive is two commands
    }
    [[nodiscard]] threads::marker make_marker() { return by.make_marker(); }
    [[nodiscard]] copy_engine copies() { return {&by.copies(), &tensors}; }
    [[nodiscard]] tensor_transport& transport() { return messages; }
    [[nodiscard]] threads::memory& memory() { return by.memory(); }
    void finish() { by.finish(); }
    void cancel(std::string_view what, std::string_view reason) { by.cancel(what, reason); }
};
static_assert(execution::check_executor<executor>());

/// Every stage doubles its input, and stashes it; every gradient is 1, and needs no tensor.
struct doubling_stage {
    engine::memory& tensors;
    bool is_last = false;
    double gradient_of_weight = 0.0;

    template <class Lane> void forward(Lane&, const execution::forward_task& t) {
        const operation op{.stage = t.stage, .microbatch = t.microbatch};
        auto& stash = tensors.device.make(op);
        if (t.stage == stage{0}) {
            std::fill(stash.begin(), stash.end(), t.microbatch.value() + 1.0);
        } else {
            const operation before{.stage = t.stage.previous(), .microbatch = t.microbatch};
            stash = tensors.messages.at(before);
            tensors.messages.free(before);
        }
        if (is_last) return;
        std::transform(stash.begin(), stash.end(), tensors.messages.make(op).begin(), [](double x) { return 2.0 * x; });
    }
    template <class Lane> void backward_input(Lane&, const execution::backward_task&) {}
    template <class Lane> void backward_weight(Lane&, const execution::weight_task& t) {
        const operation op{.stage = t.stage, .microbatch = t.microbatch};
        gradient_of_weight += tensors.device.at(op).back();
        tensors.device.free(op);
    }
};

} // namespace

int main() {
    // Four stages, each on a rank with room for two stashes, while 1F1B needs four; a unit of memory is a tensor.
    constexpr std::size_t ranks = 4;
    constexpr std::size_t bytes = engine::elements * sizeof(double);
    const duration one{1};
    const stage_costs each{one, one, one, memory_size{1}, memory_size{1}, transfer_times{0.5 * one, 0.5 * one}};
    const auto p = to_problem(make_problem(graph<ranks, 12>{}, uniform_memory{each}, memory_size{2}));
    const auto plan = *build_schedule(p, adaptive);
    const auto programs = *lower(p, plan, {.bytes_per_unit = bytes, .message_bytes = 0});

    threads::cluster cluster{ranks};
    std::vector<engine::memory> tensors(ranks);
    std::vector<doubling_stage> stages;
    for (auto& own : tensors)
        stages.push_back({own, &own == &tensors.back()});
    std::vector<std::size_t> faults(ranks);
    std::vector<std::jthread> hosts;
    for (const auto& program : programs)
        hosts.emplace_back([&] {
            const auto r = program.self.position();
            executor mine{cluster[program.self], tensors};
            constexpr auto by_engine = execution::buffer_owner::engine;
            runner<executor, doubling_stage>{
                program, mine, stages[r], {}, {.stashes = by_engine, .messages = by_engine}}
                .step();
            faults[r] = testing::check_executor(mine, {.bytes = 1 << 12}).size(); // the executor is unusable afterwards
        });
    hosts.clear();

    std::cout << measure(p, plan).offloads << " stashes went to the host and back\n";
    for (std::size_t r = 0; r < ranks; ++r) {
        const auto& planned = programs[rank{r}];
        const auto device = tensors[r].device.most;
        const auto host = tensors[r].host.most;
        std::cout << "rank " << r << ": " << device << " of " << planned.device_bytes << " planned bytes at once, "
                  << host << " of " << planned.host_bytes << " on the host, " << faults[r] << " faults\n";
        const double expected = 78.0 * static_cast<double>(1U << r); // 1 + 2 + … + 12, doubled by each stage before
        if (stages[r].gradient_of_weight != expected || device > planned.device_bytes || host > planned.host_bytes ||
            faults[r] > 0)
            return std::cout << "that is wrong\n", 1;
    }
}
