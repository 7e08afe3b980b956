#pragma once

#include "optpipe/core/compiled.hpp"

#include <stdexcept>

namespace optpipe {

/// A contract that was broken: a mistake in a program, which nobody has to handle. A search catches it from its
/// strategies, so that a mistake in one of them doesn't lose what the others have found.
class contract_error : public std::logic_error {
public:
    using std::logic_error::logic_error;
};

/// Whether a broken contract throws `contract_error`, or ends the program where it was broken. It throws where NDEBUG
/// is defined, or as OPTPIPE_CONTRACTS_THROW (0 or 1) says: in all files of a program alike, and with optpipe::compiled
/// as when that was built.
[[nodiscard]] bool contracts_throw() noexcept;

namespace detail {

// Not constexpr on purpose: reaching it in a constant expression is a compile error that shows the sentence.
[[noreturn]] void contract_violated(const char* sentence, const char* file, int line);

} // namespace detail
} // namespace optpipe

/// A caller's bug ends with a sentence. What users' data can cause is never checked with this.
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
