/* Where no memory is left, that is a status, and the library goes on once there is some. */
#include "check.h"

#include <string.h>
#include <sys/resource.h>

/* A schedule of one operation, many times. */
static char* large_schedule(size_t count) {
    static const char head[] = "{ \"format\": \"optpipe.schedule/1\", \"operations\": [";
    static const char each[] = "{ \"op\": \"0F0\", \"start\": 0, \"end\": 10 },";
    const size_t length = sizeof each - 1;
    char* text = malloc(sizeof head + count * length + sizeof "] }");
    char* at = text;
    size_t i;
    REQUIRE(text != NULL);
    memcpy(at, head, sizeof head - 1);
    at += sizeof head - 1;
    for (i = 0; i < count; ++i, at += length)
        memcpy(at, each, length);
    strcpy(at - 1, "] }"); /* over the last comma */
    return text;
}

int main(void) {
    struct rlimit before;
    struct rlimit none;
    optpipe_error* error = NULL;
    char* schedule = large_schedule(200000);
    REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
    none = before;
    none.rlim_cur = 1; /* what the process has stays its own */
    REQUIRE(setrlimit(RLIMIT_AS, &none) == 0);
    CHECK(optpipe_validate(two_ranks, schedule, &error) == OPTPIPE_OUT_OF_MEMORY);
    if (error) CHECK(strcmp(optpipe_error_reason(error, 0), "out of memory") == 0);
    optpipe_error_free(error);
    REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
    CHECK(optpipe_validate(two_ranks, schedule, &error) == OPTPIPE_INVALID_SCHEDULE);
    optpipe_error_free(error);
    free(schedule);
    return failures == 0 ? 0 : 1;
}
