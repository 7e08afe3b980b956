/* Failures: each has a status, and an error that says where and why. Nothing is stored but the error. */
#include "check.h"

#include <string.h>

/* Takes the error. */
static void check_error(optpipe_error* error, size_t count, const char* place, const char* reason) {
    REQUIRE(error != NULL);
    CHECK(optpipe_error_count(error) == count);
    if (strcmp(optpipe_error_place(error, 0), place) != 0 || strstr(optpipe_error_reason(error, 0), reason) == NULL) {
        printf("%s: %s; expected %s: %s\n", optpipe_error_place(error, 0), optpipe_error_reason(error, 0), place,
               reason);
        ++failures;
    }
    CHECK(strstr(optpipe_error_message(error), reason) != NULL);
    CHECK(optpipe_error_place(error, count) == NULL);
    CHECK(optpipe_error_reason(error, count) == NULL);
    optpipe_error_free(error);
}

static void check_refused(const char* problem, const optpipe_options* options, optpipe_status status, size_t count,
                          const char* place, const char* reason) {
    int anything = 0;
    optpipe_result* result = (optpipe_result*)&anything;
    optpipe_error* error = (optpipe_error*)&anything;
    CHECK(optpipe_plan(problem, options, &result, &error) == status);
    CHECK(result == NULL);
    check_error(error, count, place, reason);
    CHECK(optpipe_plan(problem, options, &result, NULL) == status);
    CHECK(result == NULL);
}

static void check_problems(void) {
    check_refused("no JSON", NULL, OPTPIPE_INVALID_INPUT, 1, "line 1, column 2", "JSON");
    check_refused("", NULL, OPTPIPE_INVALID_INPUT, 1, "", "is empty, not JSON");
    check_refused(
        "{ \"format\": \"optpipe.problem/1\", \"ranks\": 1, \"microbatches\": 1, \"stages\": "
        "[ { \"rank\": 1, \"forward\": -1, \"backward_input\": 1, \"backward_weight\": 1, \"activation\": 1 } ] }",
        NULL, OPTPIPE_INVALID_INPUT, 2, "stages[0].rank", "there");
    check_refused(
        "{ \"format\": \"optpipe.problem/1\", \"ranks\": 1, \"microbatches\": 2, \"memory_limit\": 2.5,"
        "  \"host_memory_limit\": 1, \"stages\": ["
        "    { \"rank\": 0, \"forward\": 1, \"backward_input\": 1, \"backward_weight\": 1, \"activation\": 2,"
        "      \"offload\": 1, \"reload\": 1 },"
        "    { \"rank\": 0, \"forward\": 1, \"backward_input\": 1, \"backward_weight\": 1, \"activation\": 2 } ] }",
        NULL, OPTPIPE_NO_SCHEDULE, 1, "memory_limit[0]", "rank 0 needs 4 GB of memory, its limit is 2.5 GB");
}

static void check_options(void) {
    optpipe_options* options = optpipe_options_new();
    REQUIRE(options != NULL);
    optpipe_options_set_time_limit(options, -1.0);
    check_refused(two_ranks, options, OPTPIPE_INVALID_INPUT, 1, "time_limit", "must not be negative");
    optpipe_options_set_gap(options, 2.0);
    check_refused(two_ranks, options, OPTPIPE_INVALID_INPUT, 2, "time_limit", "must not be negative");
    optpipe_options_free(options);
}

static void check_schedules(void) {
    optpipe_error* error = NULL;
    CHECK(optpipe_validate(two_ranks, "{}", &error) == OPTPIPE_INVALID_INPUT);
    check_error(error, 2, "format", "is missing");
    CHECK(optpipe_validate("{}", "{}", NULL) == OPTPIPE_INVALID_INPUT);
    CHECK(optpipe_validate(two_ranks,
                           "{ \"format\": \"optpipe.schedule/1\", \"operations\": ["
                           "  { \"op\": \"0F0\", \"start\": 0, \"end\": 11 } ] }",
                           &error) == OPTPIPE_INVALID_SCHEDULE);
    REQUIRE(error != NULL);
    CHECK(optpipe_error_count(error) > 1);
    CHECK(strcmp(optpipe_error_place(error, 0), "rank 0") == 0);
    CHECK(strstr(optpipe_error_reason(error, 0), "0F0 lasts 11, not 10") != NULL);
    optpipe_error_free(error);
}

/* NULL is refused wherever a comment doesn't allow it. */
static void check_null(void) {
    size_t count = 9;
    optpipe_error* error = NULL;
    optpipe_options* options = optpipe_options_new();
    REQUIRE(options != NULL);
    check_refused(NULL, NULL, OPTPIPE_INVALID_ARGUMENT, 1, "problem", "is NULL");
    CHECK(optpipe_plan(two_ranks, NULL, NULL, &error) == OPTPIPE_INVALID_ARGUMENT);
    check_error(error, 1, "result", "is NULL");
    CHECK(optpipe_plan(NULL, NULL, NULL, NULL) == OPTPIPE_INVALID_ARGUMENT);
    CHECK(optpipe_validate(NULL, "{}", &error) == OPTPIPE_INVALID_ARGUMENT);
    check_error(error, 1, "problem", "is NULL");
    CHECK(optpipe_validate(two_ranks, NULL, &error) == OPTPIPE_INVALID_ARGUMENT);
    check_error(error, 1, "schedule", "is NULL");

    CHECK(optpipe_options_set_time_limit(NULL, 1.0) == OPTPIPE_INVALID_ARGUMENT);
    CHECK(optpipe_options_set_threads(NULL, 1) == OPTPIPE_INVALID_ARGUMENT);
    CHECK(optpipe_options_set_gap(NULL, 0.0) == OPTPIPE_INVALID_ARGUMENT);
    CHECK(optpipe_options_set_seed(NULL, 1) == OPTPIPE_INVALID_ARGUMENT);
    CHECK(optpipe_options_set_stop(NULL, NULL) == OPTPIPE_INVALID_ARGUMENT);
    CHECK(optpipe_options_set_stop(options, NULL) == OPTPIPE_INVALID_ARGUMENT);
    CHECK(optpipe_options_set_progress(options, NULL, NULL) == OPTPIPE_INVALID_ARGUMENT);
    CHECK(optpipe_stop_request(NULL) == OPTPIPE_INVALID_ARGUMENT);

    CHECK(optpipe_result_end(NULL) == OPTPIPE_END_NONE);
    CHECK(optpipe_result_objective(NULL) != optpipe_result_objective(NULL)); /* NaN */
    CHECK(optpipe_result_bound(NULL) != optpipe_result_bound(NULL));
    CHECK(optpipe_result_schedule(NULL) == NULL);
    CHECK(optpipe_result_ranks(NULL) == 0);
    CHECK(optpipe_result_operations(NULL, 0, &count) == NULL && count == 0);
    CHECK(optpipe_result_operations(NULL, 0, NULL) == NULL);
    CHECK(optpipe_error_message(NULL) == NULL);
    CHECK(optpipe_error_count(NULL) == 0);
    CHECK(optpipe_error_place(NULL, 0) == NULL);
    CHECK(optpipe_error_reason(NULL, 0) == NULL);

    optpipe_result_free(NULL);
    optpipe_error_free(NULL);
    optpipe_options_free(NULL);
    optpipe_stop_free(NULL);
    optpipe_options_free(options);
}

int main(void) {
    check_problems();
    check_options();
    check_schedules();
    check_null();
    return failures == 0 ? 0 : 1;
}
