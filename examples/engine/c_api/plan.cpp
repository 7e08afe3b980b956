#include "plan.h"

#include <optpipe/io/json_problem.hpp>
#include <optpipe/planner.hpp>
#include <optpipe/schedule/schedule.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

struct engine_plan {
    double objective = 0.0;
    double bound = 0.0;
    std::vector<std::vector<engine_operation>> ranks;
};

namespace {

/// The spelling of a kind, valid for the whole life of the program.
const char* name_of(optpipe::operation_kind kind) {
    return optpipe::spelling(kind).data(); // a string literal
}

std::unique_ptr<engine_plan> make_plan(const optpipe::plan_result& found) {
    auto made = std::make_unique<engine_plan>();
    made->objective = found.objective.value();
    made->bound = found.bound.value();
    for (const auto& own : optpipe::operations_by_rank(found.schedule)) {
        auto& list = made->ranks.emplace_back();
        for (const auto& [op, start, end] : own)
            list.push_back({op.stage.value(), name_of(op.kind), op.microbatch.value(), start.value(), end.value()});
    }
    return made;
}

/// Writes a message for the caller, cut to the room that it has.
class answer {
public:
    answer(char* text, std::size_t size) : text_{text}, size_{size} { write(""); }
    engine_status operator()(engine_status status, std::string_view why) const noexcept {
        write(why);
        return status;
    }

private:
    void write(std::string_view why) const noexcept {
        if (!text_ || size_ == 0) return;
        const auto length = std::min(why.size(), size_ - 1);
        std::memcpy(text_, why.data(), length);
        text_[length] = '\0';
    }

    char* text_;
    std::size_t size_;
};

engine_status create(const char* problem, double seconds, engine_plan** plan, const answer& say) {
    if (!problem) return say(ENGINE_BAD_INPUT, "the problem is null");
    if (!std::isfinite(seconds) || seconds < 0.0)
        return say(ENGINE_BAD_INPUT, "the time must be finite and not negative");
    optpipe::plan_options options;
    if (seconds > 0.0) options.time_limit = std::chrono::duration<double>{seconds};
    // A strategy that breaks a contract is dropped, so that it doesn't end the program.
    options.drop_failures = true;
    const auto found = optpipe::plan(optpipe::parse_problem(problem, "problem"), options);
    if (!found) return say(ENGINE_NO_SCHEDULE, optpipe::describe(found.why()));
    *plan = make_plan(*found).release();
    return ENGINE_OK;
}

} // namespace

engine_status engine_plan_create(const char* problem, double seconds, engine_plan** plan, char* message,
                                 size_t message_size) {
    const answer say{message, message_size};
    if (!plan) return say(ENGINE_BAD_INPUT, "there is nowhere to put the plan");
    *plan = nullptr;
    try {
        return create(problem, seconds, plan, say);
    } catch (const optpipe::error& e) {
        return say(ENGINE_BAD_INPUT, e.what());
    } catch (const std::bad_alloc&) {
        return say(ENGINE_OUT_OF_MEMORY, "out of memory");
    } catch (const std::exception& e) {
        return say(ENGINE_INTERNAL, e.what());
    } catch (...) {
        return say(ENGINE_INTERNAL, "unknown");
    }
}

void engine_plan_destroy(engine_plan* plan) { delete plan; }

double engine_plan_objective(const engine_plan* plan) { return plan->objective; }
double engine_plan_bound(const engine_plan* plan) { return plan->bound; }
uint32_t engine_plan_ranks(const engine_plan* plan) { return static_cast<uint32_t>(plan->ranks.size()); }

const engine_operation* engine_plan_operations(const engine_plan* plan, uint32_t rank, size_t* count) {
    const bool exists = rank < plan->ranks.size();
    *count = exists ? plan->ranks[rank].size() : 0;
    return exists ? plan->ranks[rank].data() : nullptr;
}
