/* A client in C: makes a plan, and handles the failures. */
#include "plan.h"

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

static void refuses(const char* text, double seconds, engine_status expected, const char* part) {
    char message[200];
    engine_plan* plan = NULL;
    check(engine_plan_create(text, seconds, &plan, message, sizeof message) == expected, part);
    check(plan == NULL, "a plan after a failure");
    check(strstr(message, part) != NULL, message);
}

int main(void) {
    char message[200];
    char little[8];
    size_t count = 0;
    uint32_t rank;
    engine_plan* plan = NULL;
    if (engine_plan_create(problem, 0.0, &plan, message, sizeof message) != ENGINE_OK) {
        printf("wrong: no plan: %s\n", message);
        return 1;
    }
    printf("objective %g, bound %g\n", engine_plan_objective(plan), engine_plan_bound(plan));
    check(engine_plan_bound(plan) > 0.0 && engine_plan_bound(plan) <= engine_plan_objective(plan), "the bound");
    check(engine_plan_ranks(plan) == 2, "the number of ranks");
    for (rank = 0; rank < engine_plan_ranks(plan); ++rank) {
        const engine_operation* list = engine_plan_operations(plan, rank, &count);
        size_t i;
        size_t forwards = 0;
        printf("rank %u:", (unsigned)rank);
        for (i = 0; i < count; ++i) {
            printf(" %u%s%u", (unsigned)list[i].stage, list[i].kind, (unsigned)list[i].microbatch);
            forwards += strcmp(list[i].kind, "F") == 0;
            check(i == 0 || list[i].start >= list[i - 1].start, "the order");
        }
        printf("\n");
        check(forwards == 4, "the number of forwards");
    }
    check(engine_plan_operations(plan, 2, &count) == NULL && count == 0, "a rank that there isn't");
    engine_plan_destroy(plan);
    engine_plan_destroy(NULL);

    refuses("no JSON", 0.0, ENGINE_BAD_INPUT, "problem");
    refuses("{ \"format\": \"optpipe.problem/1\" }", 0.0, ENGINE_BAD_INPUT, "stages");
    refuses(NULL, 0.0, ENGINE_BAD_INPUT, "null");
    refuses(problem, -1.0, ENGINE_BAD_INPUT, "time");
    check(engine_plan_create(problem, 0.0, NULL, message, sizeof message) == ENGINE_BAD_INPUT, "nowhere for a plan");
    check(engine_plan_create("no JSON", 0.0, &plan, NULL, 0) == ENGINE_BAD_INPUT, "no room for a message");
    check(engine_plan_create("no JSON", 0.0, &plan, little, sizeof little) == ENGINE_BAD_INPUT && strlen(little) == 7,
          "little room for a message");
    return failures == 0 ? 0 : 1;
}
