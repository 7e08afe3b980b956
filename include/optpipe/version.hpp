#pragma once

// The version is written only here: the build system reads these three lines.
#define OPTPIPE_VERSION_MAJOR 0
#define OPTPIPE_VERSION_MINOR 1
#define OPTPIPE_VERSION_PATCH 0

/// For comparisons in `#if`: `OPTPIPE_VERSION >= 10200` means 1.2.0 or later.
#define OPTPIPE_VERSION (OPTPIPE_VERSION_MAJOR * 10000 + OPTPIPE_VERSION_MINOR * 100 + OPTPIPE_VERSION_PATCH)

#define OPTPIPE_SPELL_VALUE(text) #text
#define OPTPIPE_SPELL(macro) OPTPIPE_SPELL_VALUE(macro)

namespace optpipe {

inline constexpr int version = OPTPIPE_VERSION;

inline constexpr const char* version_string = OPTPIPE_SPELL(OPTPIPE_VERSION_MAJOR) "." OPTPIPE_SPELL(
    OPTPIPE_VERSION_MINOR) "." OPTPIPE_SPELL(OPTPIPE_VERSION_PATCH);

} // namespace optpipe

#undef OPTPIPE_SPELL
#undef OPTPIPE_SPELL_VALUE
