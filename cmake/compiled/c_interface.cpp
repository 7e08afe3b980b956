#include "optpipe_c.h"
#include <optpipe/core/caught_reason.hpp>
#include <optpipe/core/error.hpp>
#include <optpipe/io/json_problem.hpp>
#include <optpipe/io/json_schedule.hpp>
#include <optpipe/io/schedule_document.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/io/write_json.hpp>
#include <optpipe/planner/plan.hpp>
#include <optpipe/schedule/schedule.hpp>
#include <optpipe/version.hpp>

#include <optpipe_c.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

struct optpipe_error {
    std::string message;
    std::vector<optpipe::violation> violations;
};

struct optpipe_stop {
    std::stop_source source;
};

struct optpipe_options {
    optpipe::plan_options value;
};

struct optpipe_result {
    optpipe_end end = OPTPIPE_END_NONE;
    double objective = 0.0;
    double bound = 0.0;
    std::string schedule;
    std::vector<std::vector<optpipe_operation>> ranks;
};

namespace {

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

/// Stores an error, if the caller wants one.
optpipe_status fail(optpipe_error** error, optpipe_status status, std::string message,
                    std::vector<optpipe::violation> violations) {
    if (error) *error = new optpipe_error{std::move(message), std::move(violations)};
    return status;
}

optpipe_status fail_at(optpipe_error** error, optpipe_status status, std::string place, std::string reason) {
    optpipe::violation found{std::move(place), std::move(reason)};
    auto message = found.text();
    return fail(error, status, std::move(message), {std::move(found)});
}

/// The status of the exception that is being handled, with its error.
optpipe_status fail_caught(optpipe_error** error) {
    try {
        throw;
    } catch (const optpipe::input_error& e) {
        return fail(error, OPTPIPE_INVALID_INPUT, e.what(), e.violations());
    } catch (const std::bad_alloc&) {
        return fail_at(error, OPTPIPE_OUT_OF_MEMORY, "", "out of memory");
    } catch (...) {
        return fail_at(error, OPTPIPE_INTERNAL_ERROR, "", optpipe::caught_reason());
    }
}

/// Calls a function that returns a status. What it throws becomes a status and an error.
template <class Call> optpipe_status guarded(optpipe_error** error, const Call& call) noexcept {
    if (error) *error = nullptr;
    try {
        try {
            return call();
        } catch (...) {
            return fail_caught(error);
        }
    } catch (...) {
        return OPTPIPE_OUT_OF_MEMORY; // not even enough for the error
    }
}

optpipe_status fail_null(optpipe_error** error, const char* argument) {
    return fail_at(error, OPTPIPE_INVALID_ARGUMENT, argument, "is NULL");
}

/// Changes options that may be NULL.
template <class Change> optpipe_status change(optpipe_options* options, const Change& how) noexcept {
    return guarded(nullptr, [&] {
        if (!options) return OPTPIPE_INVALID_ARGUMENT;
        how(options->value);
        return OPTPIPE_OK;
    });
}

optpipe_end end_of(optpipe::plan_end why) {
    switch (why) {
    case optpipe::plan_end::optimal: return OPTPIPE_END_OPTIMAL;
    case optpipe::plan_end::gap: return OPTPIPE_END_GAP;
    case optpipe::plan_end::effort_spent: return OPTPIPE_END_EFFORT_SPENT;
    case optpipe::plan_end::time_limit: return OPTPIPE_END_TIME_LIMIT;
    case optpipe::plan_end::stop_request: return OPTPIPE_END_STOP_REQUEST;
    }
    return OPTPIPE_END_NONE;
}

optpipe_kind kind_of(optpipe::operation_kind kind) {
    switch (kind) {
    case optpipe::operation_kind::forward: return OPTPIPE_KIND_FORWARD;
    case optpipe::operation_kind::backward_input: return OPTPIPE_KIND_BACKWARD_INPUT;
    case optpipe::operation_kind::backward_weight: return OPTPIPE_KIND_BACKWARD_WEIGHT;
    case optpipe::operation_kind::backward: return OPTPIPE_KIND_BACKWARD;
    case optpipe::operation_kind::offload: return OPTPIPE_KIND_OFFLOAD;
    case optpipe::operation_kind::reload: return OPTPIPE_KIND_RELOAD;
    case optpipe::operation_kind::recompute: return OPTPIPE_KIND_RECOMPUTE;
    }
    return OPTPIPE_KIND_FORWARD;
}

std::vector<std::vector<optpipe_operation>> lists_of(const optpipe::schedule& s) {
    std::vector<std::vector<optpipe_operation>> lists;
    for (const auto& own : optpipe::operations_by_rank(s)) {
        auto& list = lists.emplace_back();
        list.reserve(own.size());
        for (const auto& [op, start, end] : own)
            list.push_back(
                {op.stage.value(), op.microbatch.value(), kind_of(op.kind), op.storage, start.value(), end.value()});
    }
    return lists;
}

std::unique_ptr<optpipe_result> make_result(const optpipe::problem& p, const optpipe::plan_result& planned) {
    auto made = std::make_unique<optpipe_result>();
    made->end = end_of(planned.why);
    made->objective = planned.objective.value();
    made->bound = planned.bound.value();
    made->schedule = optpipe::schedule_to_json(p, optpipe::report_of(p, planned));
    made->ranks = lists_of(planned.schedule);
    return made;
}

/// The limit that a schedule would have to break, as a field of the problem; empty for other reasons.
std::string place_of(const optpipe::refusal& why) {
    const auto of_rank = "[" + std::to_string(why.rank.value()) + "]";
    switch (why.reason) {
    case optpipe::refusal_reason::over_memory: return "memory_limit" + of_rank;
    case optpipe::refusal_reason::over_host_memory: return "host_memory_limit" + of_rank;
    case optpipe::refusal_reason::does_not_apply:
    case optpipe::refusal_reason::not_executable: break;
    }
    return "";
}

optpipe_status plan(const char* problem, const optpipe_options* options, optpipe_result*& result,
                    optpipe_error** error) {
    const auto p = optpipe::parse_problem(problem, "problem");
    const auto planned = optpipe::plan(p, options ? options->value : optpipe::plan_options{});
    if (!planned)
        return fail_at(error, OPTPIPE_NO_SCHEDULE, place_of(planned.why()), optpipe::reason_text(p, planned.why()));
    result = make_result(p, *planned).release();
    return OPTPIPE_OK;
}

optpipe_status validate(const char* problem, const char* schedule, optpipe_error** error) {
    const auto p = optpipe::parse_problem(problem, "problem");
    auto found = optpipe::document_violations(p, optpipe::parse_schedule(schedule, "schedule"));
    if (found.empty()) return OPTPIPE_OK;
    const optpipe::input_error all{"schedule", std::move(found)}; // has the message
    return fail(error, OPTPIPE_INVALID_SCHEDULE, all.what(), all.violations());
}

} // namespace

int optpipe_abi(void) { return OPTPIPE_C_ABI; }
const char* optpipe_version(void) { return optpipe::version_string; }

const char* optpipe_status_text(int status) {
    switch (status) {
    case OPTPIPE_OK: return "ok";
    case OPTPIPE_INVALID_ARGUMENT: return "invalid argument";
    case OPTPIPE_INVALID_INPUT: return "invalid input";
    case OPTPIPE_NO_SCHEDULE: return "no schedule";
    case OPTPIPE_INVALID_SCHEDULE: return "invalid schedule";
    case OPTPIPE_OUT_OF_MEMORY: return "out of memory";
    case OPTPIPE_INTERNAL_ERROR: return "internal error";
    }
    return "unknown status";
}

void optpipe_error_free(optpipe_error* error) { delete error; }
const char* optpipe_error_message(const optpipe_error* error) { return error ? error->message.c_str() : nullptr; }
size_t optpipe_error_count(const optpipe_error* error) { return error ? error->violations.size() : 0; }

const char* optpipe_error_place(const optpipe_error* error, size_t i) {
    return error && i < error->violations.size() ? error->violations[i].place.c_str() : nullptr;
}

const char* optpipe_error_reason(const optpipe_error* error, size_t i) {
    return error && i < error->violations.size() ? error->violations[i].reason.c_str() : nullptr;
}

optpipe_stop* optpipe_stop_new(void) {
    optpipe_stop* made = nullptr;
    guarded(nullptr, [&] {
        made = new optpipe_stop{};
        return OPTPIPE_OK;
    });
    return made;
}

void optpipe_stop_free(optpipe_stop* stop) { delete stop; }

optpipe_status optpipe_stop_request(optpipe_stop* stop) {
    return guarded(nullptr, [&] {
        if (!stop) return OPTPIPE_INVALID_ARGUMENT;
        stop->source.request_stop();
        return OPTPIPE_OK;
    });
}

optpipe_options* optpipe_options_new(void) {
    optpipe_options* made = nullptr;
    guarded(nullptr, [&] {
        made = new optpipe_options{};
        return OPTPIPE_OK;
    });
    return made;
}

void optpipe_options_free(optpipe_options* options) { delete options; }

optpipe_status optpipe_options_set_time_limit(optpipe_options* options, double seconds) {
    return change(options, [&](auto& value) { value.time_limit = std::chrono::duration<double>{seconds}; });
}

optpipe_status optpipe_options_set_threads(optpipe_options* options, size_t threads) {
    return change(options, [&](auto& value) { value.threads = threads; });
}

optpipe_status optpipe_options_set_gap(optpipe_options* options, double gap) {
    return change(options, [&](auto& value) { value.gap = gap; });
}

optpipe_status optpipe_options_set_seed(optpipe_options* options, uint64_t seed) {
    return change(options, [&](auto& value) { value.seed = seed; });
}

optpipe_status optpipe_options_set_stop(optpipe_options* options, const optpipe_stop* stop) {
    if (!stop) return OPTPIPE_INVALID_ARGUMENT;
    return change(options, [&](auto& value) { value.stop = stop->source.get_token(); });
}

optpipe_status optpipe_options_set_progress(optpipe_options* options, optpipe_progress_function function,
                                            void* context) {
    if (!function) return OPTPIPE_INVALID_ARGUMENT;
    return change(options, [&](auto& value) {
        value.progress = [function, context](const optpipe::search_progress& made) {
            const optpipe_progress shown{made.seconds, made.objective.value(), made.bound.value(),
                                         made.strategy.c_str()};
            function(&shown, context);
        };
    });
}

optpipe_status optpipe_plan(const char* problem, const optpipe_options* options, optpipe_result** result,
                            optpipe_error** error) {
    return guarded(error, [&] {
        if (!result) return fail_null(error, "result");
        *result = nullptr;
        if (!problem) return fail_null(error, "problem");
        return plan(problem, options, *result, error);
    });
}

void optpipe_result_free(optpipe_result* result) { delete result; }
optpipe_end optpipe_result_end(const optpipe_result* result) { return result ? result->end : OPTPIPE_END_NONE; }
double optpipe_result_objective(const optpipe_result* result) { return result ? result->objective : no_number; }
double optpipe_result_bound(const optpipe_result* result) { return result ? result->bound : no_number; }
const char* optpipe_result_schedule(const optpipe_result* result) {
    return result ? result->schedule.c_str() : nullptr;
}
size_t optpipe_result_ranks(const optpipe_result* result) { return result ? result->ranks.size() : 0; }

const char* optpipe_kind_text(int kind) {
    for (const auto each : optpipe::all_operation_kinds)
        if (kind_of(each) == kind) return optpipe::spelling(each).data(); // a string literal
    return nullptr;
}

const optpipe_operation* optpipe_result_operations(const optpipe_result* result, size_t rank, size_t* count) {
    if (count) *count = 0;
    if (!result || !count || rank >= result->ranks.size()) return nullptr;
    *count = result->ranks[rank].size();
    return result->ranks[rank].data();
}

optpipe_status optpipe_validate(const char* problem, const char* schedule, optpipe_error** error) {
    return guarded(error, [&] {
        if (!problem) return fail_null(error, "problem");
        if (!schedule) return fail_null(error, "schedule");
        return validate(problem, schedule, error);
    });
}
