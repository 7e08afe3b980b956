// expect: (contract_violated|must be initialized by a constant expression)
#include "optpipe/core/container.hpp"

constexpr auto filled(int count) {
    optpipe::bounded_vector<int, 2> numbers;
    for (int i = 0; i < count; ++i)
        numbers.push_back(i);
    return numbers;
}
#ifdef OPTPIPE_CONTROL
constexpr auto numbers = filled(2);
#else
constexpr auto numbers = filled(3);
#endif
