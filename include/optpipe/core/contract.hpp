#pragma once

#include "optpipe/core/standard.hpp"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

/// Whether a broken contract throws `contract_error`, or ends the program where it was broken. By default it throws
/// where NDEBUG is defined; the same in all files of a program.
#if !defined(OPTPIPE_CONTRACTS_THROW)
#if defined(NDEBUG)
#define OPTPIPE_CONTRACTS_THROW 1
#else
#define OPTPIPE_CONTRACTS_THROW 0
#endif
#endif

namespace optpipe {

/// A contract that was broken: a mistake in a program, which nobody has to handle. A search catches it from its
/// strategies, so that a mistake in one of them doesn't lose what the others have found.
class contract_error : public std::logic_error {
public:
    using std::logic_error::logic_error;
};

namespace detail {

inline std::string contract_text(const char* sentence, const char* file, int line) {
    return "contract violated at " + (file + (":" + std::to_string(line))) + ": " + sentence;
}

// Not constexpr on purpose: reaching them in a constant expression is a compile error that shows the sentence.
[[noreturn]] inline void contract_violated_abort(const char* sentence, const char* file, int line) {
    std::fprintf(stderr, "optpipe: %s\n", contract_text(sentence, file, line).c_str());
    std::abort();
}
[[noreturn]] inline void contract_violated_throw(const char* sentence, const char* file, int line) {
    throw contract_error{contract_text(sentence, file, line)};
}

} // namespace detail
} // namespace optpipe

#if OPTPIPE_CONTRACTS_THROW
#define OPTPIPE_CONTRACT_VIOLATED ::optpipe::detail::contract_violated_throw
#else
#define OPTPIPE_CONTRACT_VIOLATED ::optpipe::detail::contract_violated_abort
#endif

/// A caller's bug ends with a sentence. What users' data can cause is never checked with this.
#define OPTPIPE_EXPECT(condition, sentence)                                                                            \
    ((condition) ? static_cast<void>(0) : OPTPIPE_CONTRACT_VIOLATED((sentence), __FILE__, __LINE__))
