#pragma once

#include "../gelu.hpp"
#include "../host_device.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>

/// The work of the kernels, one element or one row at a time, so that loops on the host can do the same.
///
/// The body for a row is called with a team that shares the work. `sum` and `largest` go over all positions, `each`
/// distributes them, and `once` runs on one member. After `synchronize`, data read before may be overwritten. A member
/// sees its own writes at the positions it was given.
namespace language_model::kernels {

// Bodies for one element.

struct add {
    const float* from;
    float* to;
    OPTPIPE_KERNEL void operator()(std::size_t i) const { to[i] += from[i]; }
};
/// Copies `row` to each row of `to`.
struct repeat_row {
    const float* row;
    std::size_t width;
    float* to;
    OPTPIPE_KERNEL void operator()(std::size_t i) const { to[i] = row[i % width]; }
};
struct activate {
    const float* in;
    float* out;
    OPTPIPE_KERNEL void operator()(std::size_t i) const { out[i] = gelu<float>::value(in[i]); }
};
struct activate_back {
    const float* gradient;
    float* in;
    OPTPIPE_KERNEL void operator()(std::size_t i) const { in[i] = gradient[i] * gelu<float>::slope(in[i]); }
};
struct scale_and_shift {
    const float* normalized;
    const float* scale;
    const float* shift;
    std::size_t width;
    float* out;
    OPTPIPE_KERNEL void operator()(std::size_t i) const {
        out[i] = normalized[i] * scale[i % width] + shift[i % width];
    }
};
struct embed {
    const std::uint8_t* tokens;
    const float* table;
    const float* positions;
    std::size_t sequence;
    std::size_t hidden;
    float* out;
    OPTPIPE_KERNEL void operator()(std::size_t i) const {
        const auto token = i / hidden;
        const auto j = i % hidden;
        out[i] = table[tokens[token] * hidden + j] + positions[token % sequence * hidden + j];
    }
};
/// Writes a row per token: 1 at its number, 0 elsewhere.
struct one_hot {
    const std::uint8_t* tokens;
    std::size_t width;
    float* out;
    OPTPIPE_KERNEL void operator()(std::size_t i) const { out[i] = tokens[i / width] == i % width ? 1.0F : 0.0F; }
};
/// For each position and element of `to`, adds the sum over all sequences.
struct add_sequences {
    const float* from;
    std::size_t sequences;
    std::size_t stride;
    float* to;
    OPTPIPE_KERNEL void operator()(std::size_t i) const {
        float sum = 0.0F;
        for (std::size_t s = 0; s < sequences; ++s)
            sum += from[s * stride + i];
        to[i] += sum;
    }
};
struct cross_entropy_back {
    const std::uint8_t* targets;
    float share;
    std::size_t width;
    float* probabilities;
    OPTPIPE_KERNEL void operator()(std::size_t i) const {
        probabilities[i] = (probabilities[i] - (targets[i / width] == i % width ? 1.0F : 0.0F)) * share;
    }
};

// The optimizer (AdamW, Loshchilov and Hutter 2019, algorithm 2).

/// For a single element: multiplies the powers of the decays. A kernel counts the steps, because the numbers in a graph
/// can't change.
struct count_step {
    double first_decay;
    double second_decay;
    double* powers;
    OPTPIPE_KERNEL void operator()(std::size_t) const {
        powers[0] *= first_decay;
        powers[1] *= second_decay;
    }
};
struct adamw_step {
    float learning_rate;
    float first_decay;
    float second_decay;
    float weight_decay;
    float epsilon;
    const double* powers;
    const float* gradients;
    float scale;
    float* mean;
    float* square;
    float* parameters;
    OPTPIPE_KERNEL void operator()(std::size_t i) const {
        const float g = scale * gradients[i];
        mean[i] = first_decay * mean[i] + (1.0F - first_decay) * g;
        square[i] = second_decay * square[i] + (1.0F - second_decay) * g * g;
        const auto first = static_cast<float>(1.0 - powers[0]);
        const auto second = static_cast<float>(1.0 - powers[1]);
        const float direction = mean[i] / first / (std::sqrt(square[i] / second) + epsilon);
        parameters[i] -= learning_rate * (direction + weight_decay * parameters[i]);
    }
};
struct copy_doubles {
    const double* from;
    double* to;
    OPTPIPE_KERNEL void operator()(std::size_t i) const { to[i] = from[i]; }
};

// Bodies for one row.

struct layer_norm {
    const float* in;
    const float* scale;
    const float* shift;
    std::size_t width;
    float* normalized;
    float* inverse_deviation;
    float* out;
    template <class Team> OPTPIPE_KERNEL void operator()(std::size_t row, const Team& team) const {
        const float* const x = in + row * width;
        const auto count = static_cast<float>(width);
        const float mean = team.sum(width, [=](std::size_t j) { return x[j]; }) / count;
        const float squares = team.sum(width, [=](std::size_t j) { return (x[j] - mean) * (x[j] - mean); });
        const float inverse = 1.0F / std::sqrt(squares / count + 1e-5F);
        team.once([&] { inverse_deviation[row] = inverse; });
        team.each(width, [&](std::size_t j) {
            const float n = (x[j] - mean) * inverse;
            normalized[row * width + j] = n;
            out[row * width + j] = n * scale[j] + shift[j];
        });
    }
};
/// Adds the gradient at the input to `out`.
struct layer_norm_back {
    const float* gradient;
    const float* scale;
    const float* normalized;
    const float* inverse_deviation;
    std::size_t width;
    float* out;
    template <class Team> OPTPIPE_KERNEL void operator()(std::size_t row, const Team& team) const {
        const float* const g = gradient + row * width;
        const float* const n = normalized + row * width;
        const auto count = static_cast<float>(width);
        const float mean = team.sum(width, [&](std::size_t j) { return g[j] * scale[j]; }) / count;
        const float slope = team.sum(width, [&](std::size_t j) { return g[j] * scale[j] * n[j]; }) / count;
        team.each(width, [&](std::size_t j) {
            out[row * width + j] += inverse_deviation[row] * (g[j] * scale[j] - mean - n[j] * slope);
        });
    }
};
/// Turns the scores of all tokens into weights. Tokens that the row's token doesn't see get the weight 0.
struct causal_softmax {
    std::size_t sequence;
    float* scores;
    template <class Team> OPTPIPE_KERNEL void operator()(std::size_t row, const Team& team) const {
        float* const x = scores + row * sequence;
        const auto seen = row % sequence + 1;
        const float most = team.largest(seen, [=](std::size_t j) { return x[j]; });
        team.each(seen, [=](std::size_t j) { x[j] = std::exp(x[j] - most); });
        const float sum = team.sum(seen, [=](std::size_t j) { return x[j]; });
        team.each(sequence, [=](std::size_t j) { x[j] = j < seen ? x[j] / sum : 0.0F; });
    }
};
/// Turns gradients at the weights into gradients at the products of queries and keys.
struct softmax_back {
    const float* weights;
    std::size_t sequence;
    float scale;
    float* gradient;
    template <class Team> OPTPIPE_KERNEL void operator()(std::size_t row, const Team& team) const {
        const float* const w = weights + row * sequence;
        float* const g = gradient + row * sequence;
        const float mean = team.sum(sequence, [=](std::size_t j) { return w[j] * g[j]; });
        team.each(sequence, [&](std::size_t j) { g[j] = w[j] * (g[j] - mean) * scale; });
    }
};
/// Sums of squares of `width` numbers each; the last row may have fewer.
struct sums_of_squares {
    const float* from;
    std::size_t count;
    std::size_t width;
    float* sums;
    template <class Team> OPTPIPE_KERNEL void operator()(std::size_t row, const Team& team) const {
        const float* const x = from + row * width;
        const auto left = count - row * width;
        const float sum = team.sum(left < width ? left : width, [=](std::size_t j) { return x[j] * x[j]; });
        team.once([&] { sums[row] = sum; });
    }
};
/// Turns logits into probabilities.
struct cross_entropy {
    const std::uint8_t* targets;
    std::size_t width;
    float* logits;
    float* losses;
    template <class Team> OPTPIPE_KERNEL void operator()(std::size_t row, const Team& team) const {
        float* const x = logits + row * width;
        const float of_target = x[targets[row]];
        const float most = team.largest(width, [=](std::size_t j) { return x[j]; });
        team.synchronize();
        team.each(width, [=](std::size_t j) { x[j] = std::exp(x[j] - most); });
        const float sum = team.sum(width, [=](std::size_t j) { return x[j]; });
        team.each(width, [=](std::size_t j) { x[j] /= sum; });
        team.once([&] { losses[row] += std::log(sum) + most - of_target; });
    }
};

// Terms of a sum over the rows of a column.

struct element {
    const float* from;
    std::size_t width;
    OPTPIPE_KERNEL float operator()(std::size_t i, std::size_t j) const { return from[i * width + j]; }
};
struct product_of_elements {
    const float* a;
    const float* b;
    std::size_t width;
    OPTPIPE_KERNEL float operator()(std::size_t i, std::size_t j) const { return a[i * width + j] * b[i * width + j]; }
};

} // namespace language_model::kernels
