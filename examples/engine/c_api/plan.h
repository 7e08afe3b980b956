/* Plans for programs that speak C. No exception leaves: each call that can fail returns a status, and writes a
 * sentence. */
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
    ENGINE_BAD_INPUT = 1,     /* no problem file, or one that contradicts itself */
    ENGINE_NO_SCHEDULE = 2,   /* nothing fits the memory */
    ENGINE_OUT_OF_MEMORY = 3, /* the planner's own */
    ENGINE_INTERNAL = 4       /* a defect of the planner */
} engine_status;

/* As in operation names: the stage, what it does, the microbatch; times in the problem's unit. */
typedef struct {
    uint32_t stage;
    const char* kind; /* "F", "I", "W", "B", "OFFLOAD", "RELOAD", "RECOMPUTE"; never freed */
    uint32_t microbatch;
    double start;
    double end;
} engine_operation;

typedef struct engine_plan engine_plan;

/* Plans a problem, the text of an optpipe.problem file. `seconds`: time to search; 0: a fixed effort of about a second.
   Where the status isn't ENGINE_OK, `*plan` is null and `message` holds why, cut to `message_size` bytes with its final
   zero; `message` may be null. */
ENGINE_API engine_status engine_plan_create(const char* problem, double seconds, engine_plan** plan, char* message,
                                            size_t message_size);
/* Null is allowed. */
ENGINE_API void engine_plan_destroy(engine_plan* plan);

ENGINE_API double engine_plan_objective(const engine_plan* plan);
/* No schedule of the problem has a smaller objective. */
ENGINE_API double engine_plan_bound(const engine_plan* plan);
ENGINE_API uint32_t engine_plan_ranks(const engine_plan* plan);
/* What a rank does, in its order; they belong to the plan. `*count` is 0 for a rank that there isn't. */
ENGINE_API const engine_operation* engine_plan_operations(const engine_plan* plan, uint32_t rank, size_t* count);

#ifdef __cplusplus
}
#endif

#endif
