#include <optpipe_c.h>
#include <stdio.h>

static const char* const problem =
    "{ \"format\": \"optpipe.problem/1\", \"ranks\": 1, \"microbatches\": 2, \"stages\": ["
    "    { \"rank\": 0, \"forward\": 1, \"backward_input\": 1, \"backward_weight\": 1, \"activation\": 1 } ] }";

int main(void) {
    optpipe_result* result = NULL;
    optpipe_error* error = NULL;
    double objective;
    if (optpipe_abi() != OPTPIPE_C_ABI) return 1;
    if (optpipe_plan("{}", NULL, &result, &error) != OPTPIPE_INVALID_INPUT || optpipe_error_count(error) == 0) return 1;
    optpipe_error_free(error);
    if (optpipe_plan(problem, NULL, &result, NULL) != OPTPIPE_OK) return 1;
    objective = optpipe_result_objective(result);
    optpipe_result_free(result);
    printf("planned\n");
    return objective == 6.0 ? 0 : 1;
}
