#pragma once

namespace language_model {

/// How matrix products are computed on a GPU. Sums are in float, and so is what is stored.
enum class precision {
    single,
    tf32, ///< of factors with 10 bits
};

} // namespace language_model
