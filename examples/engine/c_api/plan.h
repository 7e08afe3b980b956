/* Planning for programs in C. No call throws: each call that can fail returns a status, and writes a message. */
#ifndef ENGINE_PLAN_H
#define ENGINE_PLAN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define ENGINE_API
#else
#define ENGINE_API __attribute__((visibility("default")))
#endif

typedef enum {
    ENGINE_OK = 0,
    ENGINE_BAD_INPUT = 1,     /* not a problem file, or a contradictory one */
    ENGINE_NO_SCHEDULE = 2,   /* nothing fits the memory */
    ENGINE_OUT_OF_MEMORY = 3, /* the planner itself ran out of memory */
    ENGINE_INTERNAL = 4       /* a defect of the planner */
} engine_status;

/* An operation, as in its name: stage, kind and microbatch. Times are in the problem's unit. */
typedef struct {
    uint32_t stage;
    const char* kind; /* "F", "I", "W", "B", "OFFLOAD", "RELOAD", "RECOMPUTE"; never freed */
    uint32_t microbatch;
    double start;
    double end;
} engine_operation;

typedef struct engine_plan engine_plan;

/* Plans a problem, given as the text of an optpipe.problem file. `seconds` is the time limit of the search; 0 means a
   fixed effort of about one second. If the status isn't ENGINE_OK, `*plan` is null and `message` holds the reason, cut
   to `message_size` bytes including its final zero; `message` may be null. */
ENGINE_API engine_status engine_plan_create(const char* problem, double seconds, engine_plan** plan, char* message,
                                            size_t message_size);
/* The plan may be null. */
ENGINE_API void engine_plan_destroy(engine_plan* plan);

ENGINE_API double engine_plan_objective(const engine_plan* plan);
/* No schedule of the problem has a smaller objective. */
ENGINE_API double engine_plan_bound(const engine_plan* plan);
ENGINE_API uint32_t engine_plan_ranks(const engine_plan* plan);
/* The operations of a rank, in order; they belong to the plan. `*count` is 0 if there is no such rank. */
ENGINE_API const engine_operation* engine_plan_operations(const engine_plan* plan, uint32_t rank, size_t* count);

#ifdef __cplusplus
}
#endif

#endif
