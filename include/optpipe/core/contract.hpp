#pragma once

#include "optpipe/core/compiled.hpp"

#include <stdexcept>

namespace optpipe {

/// Thrown when a contract is broken. A broken contract is a mistake in the program. Callers don't have to handle this
/// exception.
class contract_error : public std::logic_error {
public:
    using std::logic_error::logic_error;
};

/// Whether a broken contract throws `contract_error` instead of ending the program immediately. The macro
/// OPTPIPE_CONTRACTS_THROW (0 or 1) selects the behaviour. The macro must have the same value in all files of a program
/// and in `optpipe::compiled`. The default is 1 where NDEBUG is defined, else 0.
[[nodiscard]] bool contracts_throw() noexcept;

namespace detail {

// Not constexpr: in a constant expression, a broken contract becomes a compile error that shows the sentence.
[[noreturn]] void contract_violated(const char* sentence, const char* file, int line);

} // namespace detail
} // namespace optpipe

/// Reports a caller's bug, described by `sentence`, if the condition is false. Errors in users' data are reported by
/// other means.
#define OPTPIPE_EXPECT(condition, sentence)                                                                            \
    ((condition) ? static_cast<void>(0) : ::optpipe::detail::contract_violated((sentence), __FILE__, __LINE__))

#if OPTPIPE_DEFINES(core)
#include <cstdio>
#include <cstdlib>
#include <string>

#if !defined(OPTPIPE_CONTRACTS_THROW)
#if defined(NDEBUG)
#define OPTPIPE_CONTRACTS_THROW 1
#else
#define OPTPIPE_CONTRACTS_THROW 0
#endif
#endif

namespace optpipe {

OPTPIPE_INLINE bool contracts_throw() noexcept { return OPTPIPE_CONTRACTS_THROW != 0; }

namespace detail {

OPTPIPE_INLINE void contract_violated(const char* sentence, const char* file, int line) {
    const auto text = "contract violated at " + (file + (":" + std::to_string(line))) + ": " + sentence;
    if (contracts_throw()) throw contract_error{text};
    std::fprintf(stderr, "optpipe: %s\n", text.c_str());
    std::abort();
}

} // namespace detail
} // namespace optpipe
#endif
