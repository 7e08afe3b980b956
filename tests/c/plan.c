/* A plan: its numbers, its lists, its text, and its options. What is checked last is that results need nothing else. */
#include "check.h"

#include <string.h>

static void check_versions(void) {
    CHECK(optpipe_abi() == OPTPIPE_C_ABI);
    CHECK(strchr(optpipe_version(), '.') != NULL);
    CHECK(strcmp(optpipe_status_text(OPTPIPE_NO_SCHEDULE), "no schedule") == 0);
    CHECK(strcmp(optpipe_status_text(-1), "unknown status") == 0);
    CHECK(strcmp(optpipe_kind_text(OPTPIPE_KIND_RECOMPUTE), "RECOMPUTE") == 0);
    CHECK(optpipe_kind_text(99) == NULL);
}

/* Each list is ordered, and has every forward and backward of its stage. */
static void check_lists(const optpipe_result* result) {
    size_t rank;
    double last = 0.0;
    CHECK(optpipe_result_ranks(result) == 2);
    for (rank = 0; rank < optpipe_result_ranks(result); ++rank) {
        size_t count = 0;
        size_t of_kind[OPTPIPE_KIND_RECOMPUTE + 1] = {0};
        size_t i;
        const optpipe_operation* list = optpipe_result_operations(result, rank, &count);
        REQUIRE(list != NULL);
        for (i = 0; i < count; ++i) {
            ++of_kind[list[i].kind];
            CHECK(list[i].stage == rank);
            CHECK(list[i].microbatch < 4);
            CHECK(list[i].storage == 0 || rank == 0); /* the second stage has no transfers */
            CHECK(list[i].end >= list[i].start);
            CHECK(i == 0 || list[i].start >= list[i - 1].start);
            if (list[i].end > last) last = list[i].end;
        }
        CHECK(of_kind[OPTPIPE_KIND_FORWARD] == 4);
        CHECK(of_kind[OPTPIPE_KIND_BACKWARD] + of_kind[OPTPIPE_KIND_BACKWARD_INPUT] == 4);
        CHECK(of_kind[OPTPIPE_KIND_BACKWARD_WEIGHT] == of_kind[OPTPIPE_KIND_BACKWARD_INPUT]);
        CHECK(of_kind[OPTPIPE_KIND_OFFLOAD] == of_kind[OPTPIPE_KIND_RELOAD]);
    }
    CHECK(last == optpipe_result_objective(result));
}

static void check_no_list(const optpipe_result* result) {
    size_t count = 9;
    CHECK(optpipe_result_operations(result, 2, &count) == NULL);
    CHECK(count == 0);
}

static void count_call(const optpipe_progress* progress, void* context) {
    CHECK(progress->bound <= progress->objective);
    CHECK(progress->seconds >= 0.0);
    CHECK(progress->strategy[0] != '\0');
    ++*(int*)context;
}

/* The options reach the search. */
static void check_options(void) {
    int calls = 0;
    optpipe_result* result = NULL;
    optpipe_options* options = optpipe_options_new();
    REQUIRE(options != NULL);
    CHECK(optpipe_options_set_time_limit(options, 60.0) == OPTPIPE_OK);
    CHECK(optpipe_options_set_threads(options, 1) == OPTPIPE_OK);
    CHECK(optpipe_options_set_seed(options, 7) == OPTPIPE_OK);
    CHECK(optpipe_options_set_gap(options, 1.0) == OPTPIPE_OK);
    CHECK(optpipe_options_set_progress(options, count_call, &calls) == OPTPIPE_OK);
    REQUIRE(optpipe_plan(two_ranks, options, &result, NULL) == OPTPIPE_OK);
    CHECK(optpipe_result_end(result) == OPTPIPE_END_GAP || optpipe_result_end(result) == OPTPIPE_END_OPTIMAL);
    CHECK(calls > 0);
    optpipe_result_free(result);

    CHECK(optpipe_options_set_time_limit(options, 0.0) == OPTPIPE_OK);
    CHECK(optpipe_options_set_gap(options, 0.0) == OPTPIPE_OK);
    REQUIRE(optpipe_plan(two_ranks, options, &result, NULL) == OPTPIPE_OK);
    CHECK(optpipe_result_end(result) == OPTPIPE_END_TIME_LIMIT || optpipe_result_end(result) == OPTPIPE_END_OPTIMAL);
    optpipe_result_free(result);
    optpipe_options_free(options);
}

int main(void) {
    optpipe_result* result = NULL;
    optpipe_error* error = NULL;
    check_versions();
    REQUIRE(optpipe_plan(two_ranks, NULL, &result, &error) == OPTPIPE_OK);
    CHECK(error == NULL);
    CHECK(optpipe_result_end(result) == OPTPIPE_END_OPTIMAL);
    CHECK(optpipe_result_bound(result) > 0.0);
    CHECK(optpipe_result_bound(result) <= optpipe_result_objective(result));
    check_lists(result);
    check_no_list(result);
    CHECK(strstr(optpipe_result_schedule(result), "\"optpipe.schedule/") != NULL);
    CHECK(optpipe_validate(two_ranks, optpipe_result_schedule(result), &error) == OPTPIPE_OK);
    CHECK(error == NULL);
    check_options();
    check_lists(result);
    optpipe_result_free(result);
    return failures == 0 ? 0 : 1;
}
