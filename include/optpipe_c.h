/* Planning from C, and from every language that calls C.

   Texts are UTF-8 and end with a zero byte. An argument must not be NULL unless its comment allows it. If such an
   argument is NULL, a function that returns a status returns OPTPIPE_INVALID_ARGUMENT; a function that returns a
   pointer returns NULL; a function that returns a number returns NaN or 0. No C++ exception leaves a function.

   The caller owns results, errors, and everything that an `optpipe_..._new` returns. It frees each of them with the
   function `optpipe_..._free` of the same name, which also takes NULL. All other returned pointers belong to the handle
   that was asked, and are valid until the handle is freed. Texts from functions without a handle are valid as long as
   the program runs.

   Several threads may plan at once, also with the same options. `optpipe_stop_request` may be called while another
   thread uses the stop; any other handle must not be changed or freed while another thread uses it. */
#ifndef OPTPIPE_C_H
#define OPTPIPE_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) && !defined(_WIN32)
#define OPTPIPE_C_API __attribute__((visibility("default")))
#else
#define OPTPIPE_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Number of the binary interface. It changes when a program that was compiled with an older header could break. */
#define OPTPIPE_C_ABI 1

/* OPTPIPE_C_ABI of the library that runs. It must be that of the header. */
OPTPIPE_C_API int optpipe_abi(void);
/* Version of the library that runs, such as "1.2.0". */
OPTPIPE_C_API const char* optpipe_version(void);

typedef enum optpipe_status {
    OPTPIPE_OK = 0,
    OPTPIPE_INVALID_ARGUMENT = 1, /* an argument is NULL */
    OPTPIPE_INVALID_INPUT = 2,    /* a problem, a schedule or an option can't be used */
    OPTPIPE_NO_SCHEDULE = 3,      /* no schedule fits the memory */
    OPTPIPE_INVALID_SCHEDULE = 4, /* the schedule breaks rules of the problem, or its claims are false */
    OPTPIPE_OUT_OF_MEMORY = 5,    /* the library itself ran out of memory */
    OPTPIPE_INTERNAL_ERROR = 6    /* anything else, such as a defect of the library */
} optpipe_status;

/* The status in words; "unknown status" for a number that isn't listed above. */
OPTPIPE_C_API const char* optpipe_status_text(int status);

/* Errors. A function stores an error through its argument `error` if it fails, and NULL if it succeeds. If memory runs
   out, a function that fails may store NULL, too. The argument itself may be NULL. */
typedef struct optpipe_error optpipe_error;

OPTPIPE_C_API void optpipe_error_free(optpipe_error* error);
/* Everything that is wrong, in one text; only the first five violations if there are more. */
OPTPIPE_C_API const char* optpipe_error_message(const optpipe_error* error);
/* Number of violations, at least 1. */
OPTPIPE_C_API size_t optpipe_error_count(const optpipe_error* error);
/* Where violation `i` is, such as "stages[1].forward" or "rank 2"; empty if it has no place. NULL beyond the last. */
OPTPIPE_C_API const char* optpipe_error_place(const optpipe_error* error, size_t i);
/* What is wrong there. NULL beyond the last. */
OPTPIPE_C_API const char* optpipe_error_reason(const optpipe_error* error, size_t i);

/* A request to stop, for any number of plans. It stays requested. */
typedef struct optpipe_stop optpipe_stop;

/* NULL if memory ran out. */
OPTPIPE_C_API optpipe_stop* optpipe_stop_new(void);
/* Options that have this stop may still be used. */
OPTPIPE_C_API void optpipe_stop_free(optpipe_stop* stop);
/* Stops plans that run or begin with this stop; each returns the best schedule so far. May be called from any thread, a
   progress function included, but not from a signal handler. */
OPTPIPE_C_API optpipe_status optpipe_stop_request(optpipe_stop* stop);

typedef struct optpipe_progress {
    double seconds;       /* since the search began */
    double objective;     /* of the best schedule; infinite before the first */
    double bound;         /* no schedule has a smaller objective */
    const char* strategy; /* which found the schedule or the bound; valid during the call */
} optpipe_progress;

/* Called at every better schedule or bound, from any thread, one call at a time for each plan. Searches wait for it: it
   should return soon. */
typedef void (*optpipe_progress_function)(const optpipe_progress* progress, void* context);

/* Options of a plan. Values out of range are reported by `optpipe_plan`, with the name of the option as place. */
typedef struct optpipe_options optpipe_options;

/* The defaults. NULL if memory ran out. */
OPTPIPE_C_API optpipe_options* optpipe_options_new(void);
OPTPIPE_C_API void optpipe_options_free(optpipe_options* options);
/* Without a limit, the search does deterministic work of about a second to a few seconds. */
OPTPIPE_C_API optpipe_status optpipe_options_set_time_limit(optpipe_options* options, double seconds);
/* By default, and for 0, one thread per core. */
OPTPIPE_C_API optpipe_status optpipe_options_set_threads(optpipe_options* options, size_t threads);
/* (objective - bound) / objective at which the search stops, from 0 to 1. By default 0: at the proof. */
OPTPIPE_C_API optpipe_status optpipe_options_set_gap(optpipe_options* options, double gap);
/* By default 1. */
OPTPIPE_C_API optpipe_status optpipe_options_set_seed(optpipe_options* options, uint64_t seed);
OPTPIPE_C_API optpipe_status optpipe_options_set_stop(optpipe_options* options, const optpipe_stop* stop);
/* `context` is handed to the function; it may be NULL. */
OPTPIPE_C_API optpipe_status optpipe_options_set_progress(optpipe_options* options, optpipe_progress_function function,
                                                          void* context);

/* A plan. */
typedef struct optpipe_result optpipe_result;

/* Plans a problem: the text of an `optpipe.problem` file. `options` may be NULL, for the defaults. Unless the status is
   OPTPIPE_OK, `*result` becomes NULL. */
OPTPIPE_C_API optpipe_status optpipe_plan(const char* problem, const optpipe_options* options, optpipe_result** result,
                                          optpipe_error** error);
OPTPIPE_C_API void optpipe_result_free(optpipe_result* result);

/* Why the search ended. */
typedef enum optpipe_end {
    OPTPIPE_END_NONE = 0,         /* there is no result */
    OPTPIPE_END_OPTIMAL = 1,      /* no schedule is better, up to rounding */
    OPTPIPE_END_GAP = 2,          /* the requested gap is reached */
    OPTPIPE_END_EFFORT_SPENT = 3, /* without a time limit: the work is done */
    OPTPIPE_END_TIME_LIMIT = 4,
    OPTPIPE_END_STOP_REQUEST = 5
} optpipe_end;

OPTPIPE_C_API optpipe_end optpipe_result_end(const optpipe_result* result);
OPTPIPE_C_API double optpipe_result_objective(const optpipe_result* result);
/* No schedule of the problem has a smaller objective. */
OPTPIPE_C_API double optpipe_result_bound(const optpipe_result* result);
/* The text of an `optpipe.schedule` file. */
OPTPIPE_C_API const char* optpipe_result_schedule(const optpipe_result* result);

/* Kinds of operations, as the files spell them. */
typedef enum optpipe_kind {
    OPTPIPE_KIND_FORWARD = 0,         /* F */
    OPTPIPE_KIND_BACKWARD_INPUT = 1,  /* I */
    OPTPIPE_KIND_BACKWARD_WEIGHT = 2, /* W */
    OPTPIPE_KIND_BACKWARD = 3,        /* B: I and W in one operation */
    OPTPIPE_KIND_OFFLOAD = 4,         /* OFFLOAD: copies the stash to the host */
    OPTPIPE_KIND_RELOAD = 5,          /* RELOAD: copies it back */
    OPTPIPE_KIND_RECOMPUTE = 6        /* RECOMPUTE: restores the part of the stash that F didn't leave */
} optpipe_kind;

/* "F" and so on; NULL for a number that isn't listed above. */
OPTPIPE_C_API const char* optpipe_kind_text(int kind);

typedef struct optpipe_operation {
    uint32_t stage;
    uint32_t microbatch;
    optpipe_kind kind;
    uint32_t storage; /* of this stage and microbatch: position among the stage's storage options. A stage without a
                         list has two, keep and offload, or keep alone if it has no transfers */
    double start;
    double end;
} optpipe_operation;

/* Number of ranks. */
OPTPIPE_C_API size_t optpipe_result_ranks(const optpipe_result* result);
/* The operations of a rank, in the order in which they start, and their number. NULL and 0 if there is no such rank. */
OPTPIPE_C_API const optpipe_operation* optpipe_result_operations(const optpipe_result* result, size_t rank,
                                                                 size_t* count);

/* Checks a schedule against its problem; both are texts of files. OPTPIPE_INVALID_SCHEDULE lists all violations of the
   rules, and claims of the file that its operations contradict. */
OPTPIPE_C_API optpipe_status optpipe_validate(const char* problem, const char* schedule, optpipe_error** error);

#ifdef __cplusplus
}
#endif

#endif
