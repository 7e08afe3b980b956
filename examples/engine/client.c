/* The part of an engine in C that plans: it walks the list of each rank, and handles the failures. */
#include <optpipe_c.h>
#include <stdio.h>
#include <string.h>

static const char* const problem =
    "{ \"format\": \"optpipe.problem/1\", \"name\": \"two ranks\", \"ranks\": 2, \"microbatches\": 4, \"p2p\": 0.4,"
    "  \"memory_limit\": 2, \"stages\": ["
    "    { \"rank\": 0, \"forward\": 10, \"backward_input\": 10.5, \"backward_weight\": 6, \"activation\": 1 },"
    "    { \"rank\": 1, \"forward\": 10, \"backward_input\": 10.5, \"backward_weight\": 6, \"activation\": 1 } ] }";

static int failures = 0;

static void check(int holds, const char* what) {
    if (holds) return;
    printf("wrong: %s\n", what);
    ++failures;
}

/* What an engine would execute: here the operations are printed and counted. */
static void walk(const optpipe_result* plan, size_t rank) {
    size_t count = 0;
    size_t forwards = 0;
    size_t i;
    const optpipe_operation* list = optpipe_result_operations(plan, rank, &count);
    printf("rank %u:", (unsigned)rank);
    for (i = 0; i < count; ++i) {
        switch (list[i].kind) {
        case OPTPIPE_KIND_FORWARD: ++forwards; break;
        case OPTPIPE_KIND_BACKWARD_INPUT:
        case OPTPIPE_KIND_BACKWARD_WEIGHT:
        case OPTPIPE_KIND_BACKWARD:
        case OPTPIPE_KIND_OFFLOAD:
        case OPTPIPE_KIND_RELOAD:
        case OPTPIPE_KIND_RECOMPUTE: break;
        }
        printf(" %u%s%u", (unsigned)list[i].stage, optpipe_kind_text(list[i].kind), (unsigned)list[i].microbatch);
        check(i == 0 || list[i].start >= list[i - 1].start, "the order");
    }
    printf("\n");
    check(forwards == 4, "the number of forwards");
}

/* A problem that can't be planned: the error says where it is wrong, and why. */
static void explain(const char* text) {
    optpipe_result* plan = NULL;
    optpipe_error* error = NULL;
    size_t i;
    const optpipe_status status = optpipe_plan(text, NULL, &plan, &error);
    check(status == OPTPIPE_INVALID_INPUT && plan == NULL, "a problem that isn't one");
    printf("%s:\n", optpipe_status_text(status));
    for (i = 0; i < optpipe_error_count(error); ++i)
        printf("  %s: %s\n", optpipe_error_place(error, i), optpipe_error_reason(error, i));
    check(strstr(optpipe_error_message(error), "stages") != NULL, "the place");
    optpipe_error_free(error);
}

int main(void) {
    size_t rank;
    optpipe_result* plan = NULL;
    optpipe_error* error = NULL;
    if (optpipe_plan(problem, NULL, &plan, &error) != OPTPIPE_OK) {
        printf("wrong: no plan: %s\n", error ? optpipe_error_message(error) : "out of memory");
        optpipe_error_free(error);
        return 1;
    }
    printf("objective %g, bound %g\n", optpipe_result_objective(plan), optpipe_result_bound(plan));
    for (rank = 0; rank < optpipe_result_ranks(plan); ++rank)
        walk(plan, rank);
    optpipe_result_free(plan);
    explain("{ \"format\": \"optpipe.problem/1\" }");
    return failures == 0 ? 0 : 1;
}
