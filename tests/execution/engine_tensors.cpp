// Programs whose buffers are an engine's own tensors. The engine gets no addresses; it makes and frees tensors while
// the program runs, and never has more of them at once than the program specifies.
#include "execution/quick_adaptive.hpp"
#include "execution/random_programs.hpp"
#include "optpipe/execution/run.hpp"
#include "optpipe/execution/threads/executor.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/construct/forward_only.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using optpipe::buffer_role;
using optpipe::operation;
using optpipe::operation_kind;
using optpipe::per_rank;
using optpipe::rank;
using optpipe::rank_program;
using optpipe::task_label;
namespace ex = optpipe::execution;
namespace threads = optpipe::threads;
using ex::buffer_owner;
using ex::buffer_owners;

/// Activations and gradients between stages, by the operation that makes them.
class message_table {
public:
    void add(const operation& made_by, std::size_t bytes) { table_[key(made_by)].resize(bytes); }
    [[nodiscard]] std::span<std::byte> of(const operation& made_by) { return table_.at(key(made_by)); }

private:
    static std::tuple<std::size_t, optpipe::message_direction, std::size_t> key(const operation& made_by) {
        return {made_by.stage.position(), direction_of(made_by), made_by.microbatch.position()};
    }
    std::map<std::tuple<std::size_t, optpipe::message_direction, std::size_t>, std::vector<std::byte>> table_;
};

/// One rank's tensors of stashes. Its lanes call it.
class allocator {
public:
    explicit allocator(const rank_program& p) : program_{&p} {
        for (const auto& i : p.instructions)
            if (i.kind == optpipe::instruction_kind::compute || i.kind == optpipe::instruction_kind::copy)
                instructions_[i.op] = &i;
    }
    /// Makes the tensor if it doesn't exist.
    std::span<std::byte> at(const operation& op, buffer_role role) {
        const auto id = instructions_.at(op)->buffer(role);
        if (id == optpipe::no_buffer) return {};
        const std::scoped_lock lock{mutex_};
        const auto [tensor, is_new] = tensors_.try_emplace({op.stage, op.microbatch, role});
        if (is_new) {
            tensor->second.resize(program_->buffers[id.position()].bytes);
            auto& live = role == buffer_role::host ? host_ : device_;
            live.first += tensor->second.size();
            live.second = std::max(live.first, live.second);
        }
        return tensor->second;
    }
    void free(const operation& op, std::initializer_list<buffer_role> roles) {
        const std::scoped_lock lock{mutex_};
        for (const auto role : roles) {
            const auto tensor = tensors_.find({op.stage, op.microbatch, role});
            if (tensor == tensors_.end()) continue;
            (role == buffer_role::host ? host_ : device_).first -= tensor->second.size();
            tensors_.erase(tensor);
        }
    }
    /// Current bytes, and their peak.
    [[nodiscard]] std::pair<std::size_t, std::size_t> device() const { return device_; }
    [[nodiscard]] std::pair<std::size_t, std::size_t> host() const { return host_; }

private:
    const rank_program* program_;
    std::map<operation, const optpipe::instruction*> instructions_;
    std::mutex mutex_;
    std::map<std::tuple<optpipe::stage, optpipe::microbatch, buffer_role>, std::vector<std::byte>> tensors_;
    std::pair<std::size_t, std::size_t> device_, host_;
};

/// Passes tensors of the engine to the tracing model, which checks every byte.
class engine_model {
public:
    engine_model(std::size_t stages, allocator& stashes, message_table& messages)
        : stages_{stages}, stashes_{stashes}, messages_{messages}, inner_{stages} {}

    template <class Lane> void forward(Lane& on, ex::forward_task t) {
        using enum buffer_role;
        const operation op{t.stage, operation_kind::forward, t.microbatch, t.storage};
        expect_none(t.input, t.output, t.kept, t.freed);
        const auto held = parts(op, {kept, resident_kept});
        const auto gone = parts(op, {freed, resident_freed});
        t.kept = held;
        t.freed = gone;
        if (t.stage.position() > 0) t.input = messages_.of(optpipe::forward(t.stage.previous(), t.microbatch));
        if (t.stage.position() + 1 < stages_) t.output = messages_.of(op);
        inner_.forward(on, t);
    }
    template <class Lane> void recompute(Lane& on, ex::recompute_task t) {
        using enum buffer_role;
        const operation op{t.stage, operation_kind::recompute, t.microbatch, t.storage};
        const auto held = parts(op, {kept, resident_kept});
        const auto gone = parts(op, {freed, resident_freed});
        const auto again = parts(op, {restored_kept});
        const auto again_gone = parts(op, {restored_freed});
        inner_.recompute(on, {t.stage, t.microbatch, held, gone, again, again_gone, t.storage});
    }
    template <class Lane> void backward_input(Lane& on, ex::backward_task t) {
        backward_half(on, operation{t.stage, operation_kind::backward_input, t.microbatch, t.storage}, t);
    }
    template <class Lane> void backward_weight(Lane& on, const ex::weight_task& t) {
        weight_half(on, operation{t.stage, operation_kind::backward_weight, t.microbatch, t.storage}, t);
    }
    template <class Lane> void backward(Lane& on, const ex::backward_task& t) {
        const operation op{t.stage, operation_kind::backward, t.microbatch, t.storage};
        backward_half(on, op, t);
        weight_half(on, op, {t.stage, t.microbatch, {}, {}, {}, t.storage});
    }
    template <class Lane> void update(Lane&, optpipe::stage) {}
    [[nodiscard]] std::size_t weights() const { return inner_.weights(); }

private:
    using pieces = std::vector<std::span<std::byte>>;

    pieces parts(const operation& op, std::initializer_list<buffer_role> roles) {
        pieces all;
        for (const auto role : roles)
            if (const auto tensor = stashes_.at(op, role); !tensor.empty()) all.push_back(tensor);
        return all;
    }
    template <class... Parts> static void expect_none(const Parts&... all) {
        if (!(all.empty() && ...)) throw optpipe::error{"memory that isn't the engine's"};
    }
    template <class Lane> void backward_half(Lane& on, const operation& op, ex::backward_task t) {
        using enum buffer_role;
        expect_none(t.input, t.output, t.kept, t.freed, t.added, t.restored_kept, t.restored_freed);
        const auto held = parts(op, {kept, resident_kept});
        const auto gone = parts(op, {freed, resident_freed});
        const auto more = parts(op, {added});
        const auto again = parts(op, {restored_kept});
        const auto again_gone = parts(op, {restored_freed});
        t = {t.stage, t.microbatch, {}, {}, held, gone, more, again, again_gone, t.storage};
        if (t.stage.position() + 1 < stages_)
            t.input = messages_.of(optpipe::backward_input(t.stage.next(), t.microbatch));
        if (t.stage.position() > 0) t.output = messages_.of(op);
        inner_.backward_input(on, t);
        stashes_.free(op, {freed, resident_freed, restored_freed});
    }
    template <class Lane> void weight_half(Lane& on, const operation& op, const ex::weight_task& t) {
        using enum buffer_role;
        expect_none(t.kept, t.added, t.restored_kept);
        const auto held = parts(op, {kept, resident_kept});
        const auto more = parts(op, {added});
        const auto again = parts(op, {restored_kept});
        inner_.backward_weight(on, {t.stage, t.microbatch, held, more, again, t.storage});
        stashes_.free(op, {kept, resident_kept, restored_kept, added});
    }

    std::size_t stages_;
    allocator& stashes_;
    message_table& messages_;
    optpipe::testing::tracing_model inner_;
};
/// A model for a transport that needs addresses.
struct addressing_model : engine_model {
    addressing_model(std::size_t stages, allocator& stashes, message_table& messages)
        : engine_model{stages, stashes, messages}, table{messages} {}
    [[nodiscard]] std::span<std::byte> message(const task_label& what) { return table.of(what.op); }
    message_table& table;
};
static_assert(!ex::has_message<engine_model> && ex::has_message<addressing_model>);

/// Copies by label: OFFLOAD makes its tensors on the host and frees them on the device; RELOAD does the opposite.
struct labelled_copies {
    struct moves {
        allocator* of;
        operation op;
        void operator()(auto&) const {
            using enum buffer_role;
            const bool leaves = op.kind == operation_kind::offload;
            const auto host_tensor = of->at(op, host);
            auto rest = host_tensor;
            for (const auto role : {kept, freed}) {
                const auto tensor = of->at(op, role);
                const auto there = rest.first(tensor.size());
                rest = rest.subspan(tensor.size());
                std::copy_n((leaves ? tensor : there).begin(), tensor.size(), (leaves ? there : tensor).begin());
            }
            leaves ? of->free(op, {kept, freed}) : of->free(op, {host});
        }
    };
    allocator* of;
    void copy(threads::lane& on, ex::copy_direction, const task_label& label, ex::copy_pieces pieces) const {
        if (!pieces.empty()) throw optpipe::error{"pieces that aren't the engine's"};
        on.launch(label, moves{of, label.op});
    }
};
struct engine_executor {
    using lane_type = threads::lane;
    threads::executor& by;
    allocator& stashes;

    [[nodiscard]] rank self() const { return by.self(); }
    [[nodiscard]] std::size_t ranks() const { return by.ranks(); }
    threads::lane open_lane(optpipe::lane_kind kind, std::size_t commands) { return by.open_lane(kind, commands); }
    threads::marker make_marker() { return by.make_marker(); }
    labelled_copies copies() { return {&stashes}; }
    threads::transport& transport() { return by.transport(); }
    threads::memory& memory() { return by.memory(); }
    void finish() { by.finish(); }
    void cancel(std::string_view what, std::string_view reason) { by.cancel(what, reason); }
};
static_assert(ex::check_executor<engine_executor>());

constexpr buffer_owners all_the_engines{.stashes = buffer_owner::engine, .messages = buffer_owner::engine};

/// If ranks have separate tables, the transport copies; otherwise it only signals.
template <class Model> void run_steps(const per_rank<rank_program>& programs, bool own_tables) {
    threads::options how{.patience = 20s};
    // The library may have no memory at all.
    how.device_memory = how.host_memory = per_rank<std::size_t>(programs.size(), 0);
    threads::cluster cluster{programs.size(), how};
    std::vector<message_table> tables(own_tables ? programs.size() : 1);
    for (const auto& p : programs)
        for (auto& table : tables)
            for (const auto& i : p.instructions)
                for (std::size_t k = 0; k < i.links; ++k)
                    if (const auto& link = p.links[i.first_link + k]; link.way == optpipe::link_way::output)
                        table.add(i.op, p.buffers[link.buffer.position()].bytes);
    std::vector<std::string> errors(programs.size());
    std::vector<std::jthread> hosts;
    constexpr std::size_t steps = 2;
    for (const auto& p : programs)
        hosts.emplace_back([&] {
            allocator stashes{p};
            Model model{p.stages, stashes, tables[own_tables ? p.self.position() : 0]};
            engine_executor on{cluster[p.self], stashes};
            auto& error = errors[p.self.position()];
            try {
                optpipe::runner<engine_executor, Model> mine{p, on, model, {}, all_the_engines};
                for (std::size_t k = 0; k < steps; ++k)
                    mine.step();
                if (stashes.device().first + stashes.host().first > 0) error = "tensors are left";
                if (stashes.device().second > p.device_bytes || stashes.host().second > p.host_bytes)
                    error = "more memory at once than planned";
                std::size_t cells = 0;
                for (const auto& i : p.instructions)
                    cells += i.op.kind == operation_kind::forward && i.kind == optpipe::instruction_kind::compute;
                if (model.weights() != steps * cells) error = "weight gradients are missing";
            } catch (const std::exception& e) {
                error = e.what();
            }
        });
    hosts.clear();
    for (const auto& error : errors)
        CHECK(error == "");
}

TEST_CASE("an engine's own tensors go through the same programs, within the memory that these plan") {
    std::size_t runs = 0;
    std::size_t offloads = 0;
    for (std::uint64_t seed = 9700; seed < 9712; ++seed) {
        CAPTURE(seed);
        const auto p = random_programs::problem(seed, 3);
        const auto run = [&](const auto& builder) {
            const auto s = build_schedule(p, builder);
            if (!s) return;
            const auto programs = random_programs::lowered(p, *s, seed);
            if (!programs) return;
            offloads += measure(p, *s).offloads;
            run_steps<addressing_model>(*programs, true);
            run_steps<engine_model>(*programs, false);
            ++runs;
        };
        run(quick_adaptive);
        run(optpipe::one_forward_one_backward);
        run(optpipe::gpipe);
    }
    MESSAGE(runs << " programs, " << offloads << " offloads");
    CHECK(runs > 12);
    CHECK(offloads > 12);
}

TEST_CASE("what the engine may use is a limit for the programs that come later") {
    const auto programs = *random_programs::lowered(
        random_programs::problem(9700, 3), *build_schedule(random_programs::problem(9700, 3), quick_adaptive), 9700);
    const auto& p = programs[rank{0}];
    REQUIRE(p.device_bytes > 0);
    threads::cluster cluster{programs.size(), {.patience = 20s}};
    allocator stashes{p};
    message_table table;
    engine_model model{p.stages, stashes, table};
    engine_executor on{cluster[rank{0}], stashes};
    optpipe::runner<engine_executor, engine_model> mine{p, on, model, {}, all_the_engines};
    auto larger = p;
    ++larger.device_bytes;
    CHECK_THROWS_WITH(static_cast<void>(mine.bind(larger)),
                      ("the program needs " + std::to_string(larger.device_bytes) + " bytes in an arena of " +
                       std::to_string(p.device_bytes) + " (device)")
                          .c_str());
}

/// A model for inference.
struct adding_model {
    static constexpr bool forward_only = true;
    optpipe::testing::tracing_model inner;
    std::size_t forwards = 0;
    template <class Lane> void forward(Lane& on, const ex::forward_task& t) {
        inner.forward(on, t);
        ++forwards;
    }
};
static_assert(ex::check_stage_model<adding_model, threads::lane>());

TEST_CASE("a model for inference runs programs of forwards alone, and no others") {
    for (std::uint64_t seed = 9700; seed < 9706; ++seed) {
        CAPTURE(seed);
        const auto p = random_programs::problem(seed, 3);
        const auto programs = *lower(p, forward_schedule(p), {.message_bytes = 24, .forward_only = true});
        threads::cluster cluster{programs.size(), {.patience = 20s}};
        std::vector<adding_model> models(programs.size(),
                                         adding_model{optpipe::testing::tracing_model{p.graph.stages()}});
        std::vector<std::string> errors(programs.size());
        std::vector<std::jthread> hosts;
        for (const auto& each : programs)
            hosts.emplace_back([&] {
                const auto r = each.self.position();
                try {
                    optpipe::runner<threads::executor, adding_model> mine{each, cluster[each.self], models[r]};
                    mine.step();
                    mine.step();
                } catch (const std::exception& e) {
                    errors[r] = e.what();
                }
            });
        hosts.clear();
        std::size_t forwards = 0;
        for (const auto& each : programs) {
            CHECK(errors[each.self.position()] == "");
            forwards += models[each.self.position()].forwards;
        }
        CHECK(forwards == 2 * p.graph.cells());
    }
    const optpipe::duration unit{1.0};
    const optpipe::problem p{to_any_graph(optpipe::graph<1, 2>{}),
                             optpipe::per_stage<optpipe::stage_costs>(1, {unit, unit, unit})};
    const auto training = *lower(p, *build_schedule(p, optpipe::gpipe));
    threads::cluster one{1, {.patience = 20s}};
    adding_model model{optpipe::testing::tracing_model{p.graph.stages()}};
    CHECK_THROWS_WITH((optpipe::runner<threads::executor, adding_model>{training[rank{0}], one[rank{0}], model}),
                      "rank 0, loading its program: a program with backwards, and a model of forwards alone");
}

} // namespace
