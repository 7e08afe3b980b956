/* stop <problem file>: a plan that takes long ends where another thread stops it, with a schedule. */
#include "check.h"

#include <pthread.h>

/* Of the thread that plans, which says when the search has begun. */
typedef struct search {
    const char* problem;
    const optpipe_options* options;
    optpipe_status status;
    optpipe_result* result;
    pthread_mutex_t mutex;
    pthread_cond_t has_begun;
    int calls;
} search;

static void note_call(const optpipe_progress* progress, void* context) {
    search* own = context;
    (void)progress;
    pthread_mutex_lock(&own->mutex);
    ++own->calls;
    pthread_cond_signal(&own->has_begun);
    pthread_mutex_unlock(&own->mutex);
}

static void stop_from_call(const optpipe_progress* progress, void* context) {
    (void)progress;
    CHECK(optpipe_stop_request(context) == OPTPIPE_OK);
}

static void* run(void* context) {
    search* own = context;
    own->status = optpipe_plan(own->problem, own->options, &own->result, NULL);
    return NULL;
}

static char* read_text(const char* path) {
    const size_t room = 1 << 20;
    char* text = malloc(room);
    FILE* file = fopen(path, "rb");
    size_t length;
    REQUIRE(text != NULL && file != NULL);
    length = fread(text, 1, room - 1, file);
    text[length] = '\0';
    fclose(file);
    return text;
}

static void check_stopped(const optpipe_result* result) {
    CHECK(optpipe_result_end(result) == OPTPIPE_END_STOP_REQUEST);
    CHECK(optpipe_result_bound(result) < optpipe_result_objective(result));
    CHECK(optpipe_result_ranks(result) > 0);
}

/* The stop may be freed before the plan ends. */
static void check_other_thread(const char* problem, optpipe_options* options, optpipe_stop* stop) {
    pthread_t thread;
    search own = {0};
    own.problem = problem;
    own.options = options;
    pthread_mutex_init(&own.mutex, NULL);
    pthread_cond_init(&own.has_begun, NULL);
    CHECK(optpipe_options_set_progress(options, note_call, &own) == OPTPIPE_OK);
    REQUIRE(pthread_create(&thread, NULL, run, &own) == 0);
    pthread_mutex_lock(&own.mutex);
    while (own.calls == 0)
        pthread_cond_wait(&own.has_begun, &own.mutex);
    pthread_mutex_unlock(&own.mutex);
    CHECK(optpipe_stop_request(stop) == OPTPIPE_OK);
    optpipe_stop_free(stop);
    pthread_join(thread, NULL);
    CHECK(own.status == OPTPIPE_OK);
    check_stopped(own.result);
    optpipe_result_free(own.result);
    pthread_cond_destroy(&own.has_begun);
    pthread_mutex_destroy(&own.mutex);
}

/* A stop that is requested already ends the next plan as well, which still has a schedule. */
static void check_progress_function(const char* problem, optpipe_options* options) {
    int i;
    optpipe_stop* stop = optpipe_stop_new();
    REQUIRE(stop != NULL);
    CHECK(optpipe_options_set_stop(options, stop) == OPTPIPE_OK);
    CHECK(optpipe_options_set_progress(options, stop_from_call, stop) == OPTPIPE_OK);
    for (i = 0; i < 2; ++i) {
        optpipe_result* result = NULL;
        CHECK(optpipe_plan(problem, options, &result, NULL) == OPTPIPE_OK);
        check_stopped(result);
        optpipe_result_free(result);
    }
    optpipe_stop_free(stop);
}

int main(int argc, char** argv) {
    char* problem;
    optpipe_options* options = optpipe_options_new();
    optpipe_stop* stop = optpipe_stop_new();
    REQUIRE(argc == 2 && options != NULL && stop != NULL);
    problem = read_text(argv[1]);
    CHECK(optpipe_options_set_time_limit(options, 3600.0) == OPTPIPE_OK);
    CHECK(optpipe_options_set_stop(options, stop) == OPTPIPE_OK);
    check_other_thread(problem, options, stop);
    check_progress_function(problem, options);
    optpipe_options_free(options);
    free(problem);
    return failures == 0 ? 0 : 1;
}
