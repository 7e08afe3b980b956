#pragma once

namespace language_model {

/// The precision of matrix products on a GPU. Sums and stored values are always in float.
enum class precision {
    single,
    tf32, ///< factors have 10 bits
};

} // namespace language_model
