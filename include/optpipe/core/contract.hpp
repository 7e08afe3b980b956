#pragma once

#include <cstdio>
#include <cstdlib>

namespace optpipe::detail {

/// Not constexpr on purpose: reaching it in a constant expression is a compile error that shows the sentence.
[[noreturn]] inline void contract_violated(const char* sentence, const char* file, int line) {
    std::fprintf(stderr, "optpipe: contract violated at %s:%d: %s\n", file, line, sentence);
    std::abort();
}

} // namespace optpipe::detail

/// A caller's bug ends the program with a sentence. What users' data can cause is never checked with this.
#define OPTPIPE_EXPECT(condition, sentence)                                                                            \
    ((condition) ? static_cast<void>(0) : ::optpipe::detail::contract_violated((sentence), __FILE__, __LINE__))
