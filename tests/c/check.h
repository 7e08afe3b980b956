/* The checks of the tests in C. */
#ifndef OPTPIPE_TESTS_CHECK_H
#define OPTPIPE_TESTS_CHECK_H

#include <optpipe_c.h>
#include <stdio.h>
#include <stdlib.h>

static int failures = 0;

#define CHECK(condition) ((condition) ? (void)0 : (void)(printf("line %d: %s\n", __LINE__, #condition), ++failures))
/* Ends the program, as what follows needs it. */
#define REQUIRE(condition) ((condition) ? (void)0 : (printf("line %d: %s\n", __LINE__, #condition), exit(1)))

/* Two ranks, with less memory than all microbatches need. */
static const char* const two_ranks =
    "{ \"format\": \"optpipe.problem/1\", \"name\": \"two ranks\", \"ranks\": 2, \"microbatches\": 4, \"p2p\": 0.4,"
    "  \"memory_limit\": 2, \"stages\": ["
    "    { \"rank\": 0, \"forward\": 10, \"backward_input\": 10.5, \"backward_weight\": 6, \"activation\": 1,"
    "      \"offload\": 8, \"reload\": 8 },"
    "    { \"rank\": 1, \"forward\": 10, \"backward_input\": 10.5, \"backward_weight\": 6, \"activation\": 1 } ] }";

#endif
