#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/pipeline/partition_problem.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe {

/// A division of a model's layers among stages, by hand or by another program.
struct stage_layout {
    /// Number of layers of each stage.
    std::vector<std::size_t> layers{};
    /// Whether the stages must be in loop placement, as stages of Megatron always are.
    bool is_loop = false;
    friend bool operator==(const stage_layout&, const stage_layout&) = default;
};

/// Reads a layout of `layers` layers. The text lists layers per stage ("3,8,8,9"), or is Megatron-Core's
/// `pipeline_model_parallel_layout` ("Et*3|(tt|)*29,m|L"). In Megatron's text, each `t` and each `m` (multi-token
/// prediction) is a layer. The embedding E and the output layer L are layers if `layers` is the number of `t` and `m`
/// plus 2. If `layers` is the number of `t` and `m`, the first layer includes E and the last includes L. A stage must
/// hold at least one layer. If the text can't be parsed or doesn't fit `layers`, throws `input_error` with the place in
/// the text.
[[nodiscard]] stage_layout parse_layout(std::string_view text, const std::string& source_name, std::size_t layers);

/// The pipeline for a layout. Returns the first pipeline of `p` with as many stages as the layout. If the layout is in
/// loop placement, pipelines in other placements are skipped. If no pipeline of `p` fits the layout, returns a new
/// pipeline in loop placement. Throws `input_error` if a layer is pinned to a missing stage. Throws `input_error` if a
/// new pipeline would have too many stages, or stages that aren't a multiple of the ranks.
[[nodiscard]] problem pipeline_for(const partition_problem& p, const stage_layout& layout,
                                   const std::string& source_name);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/error.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/io/limits.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/schedule/builders/interleaved.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>
#include <variant>

namespace optpipe {
namespace detail {

[[noreturn]] inline void refuse_layout(const std::string& source, const std::string& place, const std::string& why) {
    throw input_error{source, {{place, why}}};
}

/// Reads a layout character by character.
class layout_reader {
public:
    layout_reader(std::string_view text, const std::string& source) : text_{text}, source_{source} {}

    [[nodiscard]] std::vector<std::size_t> counts() {
        std::vector<std::size_t> each{number("a number of layers")};
        while (at_ < text_.size()) {
            if (text_[at_] != ',') refuse("must be a comma, is " + shown());
            ++at_;
            each.push_back(number("a number of layers"));
        }
        return each;
    }
    /// Reads Megatron's text, and writes out all repetitions.
    [[nodiscard]] std::string symbols() { return sequence(false); }

private:
    [[noreturn]] void refuse(const std::string& why) const {
        refuse_layout(source_, "character " + std::to_string(at_ + 1), why);
    }
    [[nodiscard]] std::string shown() const {
        return at_ < text_.size() ? "\"" + printable(text_.substr(at_, utf8_length_here())) + "\"" : "the end";
    }
    [[nodiscard]] std::size_t utf8_length_here() const {
        return std::max<std::size_t>(1, utf8_length(text_.substr(at_)));
    }
    [[nodiscard]] bool skip(char c) {
        const bool is_there = at_ < text_.size() && text_[at_] == c;
        if (is_there) ++at_;
        return is_there;
    }

    std::size_t number(const std::string& what) {
        std::size_t value = 0;
        const auto* begin = text_.data() + at_;
        const auto [end, failure] = std::from_chars(begin, text_.data() + text_.size(), value);
        if (end == begin) refuse("must be " + what + ", is " + shown());
        if (failure != std::errc{} || value > most_symbols) refuse("is more than " + std::to_string(most_symbols));
        at_ += static_cast<std::size_t>(end - begin);
        return value;
    }

    std::string sequence(bool is_group) {
        constexpr std::string_view letters = "EtmL|";
        std::string found;
        while (at_ < text_.size() && !(is_group && text_[at_] == ')')) {
            if (skip(',')) continue; // commas have no meaning, as in Megatron
            const char here = text_[at_];
            if (here == '(') {
                if (is_group) refuse("is a group in a group, which Megatron doesn't read");
                append(found, group());
            } else if (letters.find(here) != std::string_view::npos) {
                ++at_;
                append(found, repeated(std::string(1, here), skip('*')));
            } else {
                refuse("must be E, t, m, L, |, a comma or a group in parentheses, is " + shown());
            }
        }
        return found;
    }
    std::string group() {
        ++at_;
        const auto inside = sequence(true);
        if (!skip(')')) refuse("must be ), is the end");
        if (!skip('*')) refuse("must be * and how often the group repeats, is " + shown());
        return repeated(inside, true);
    }
    std::string repeated(const std::string& each, bool has_number) {
        const auto times = has_number ? number("a number after *") : 1;
        std::string all;
        for (std::size_t i = 0; i < times; ++i)
            append(all, each);
        return all;
    }
    void append(std::string& to, const std::string& more) const {
        if (to.size() + more.size() > most_symbols)
            refuse("the layout has more than " + std::to_string(most_symbols) + " layers and stages");
        to += more;
    }

    /// Limit of the number of symbols. Each layer and each end of a stage is a symbol.
    static constexpr std::size_t most_symbols = 2 * most_stages;
    std::string_view text_;
    const std::string& source_;
    std::size_t at_ = 0;
};

/// Checks the order of embedding, layers and output layer that Megatron requires.
inline void check_megatron_order(const std::string& symbols, const std::string& source) {
    std::string layers = symbols;
    std::erase(layers, '|');
    if (!layers.starts_with('E') || std::count(layers.begin(), layers.end(), 'E') != 1)
        refuse_layout(source, "E", "must be there once, as the first layer");
    if (!layers.ends_with('L') || std::count(layers.begin(), layers.end(), 'L') != 1)
        refuse_layout(source, "L", "must be there once, as the last layer");
    const auto prediction = layers.find('m');
    if (prediction != std::string::npos && layers.find('t', prediction) != std::string::npos)
        refuse_layout(source, "m", "must come after every t");
}

/// Number of layers of each stage in Megatron's text. Contract: repetitions in the text are expanded.
inline std::vector<std::size_t> megatron_counts(const std::string& symbols, const std::string& source,
                                                std::size_t layers) {
    check_megatron_order(symbols, source);
    const auto ends = static_cast<std::size_t>(std::count(symbols.begin(), symbols.end(), '|'));
    const auto inner = symbols.size() - ends - 2;
    const bool are_own_layers = inner + 2 == layers;
    if (!are_own_layers && inner != layers)
        refuse_layout(source, "",
                      "has " + std::to_string(inner) + " layers between E and L; there are " + std::to_string(layers) +
                          ", so it must have as many, or two less with E and L as layers of their own");
    std::vector<std::size_t> counts{0};
    for (const char c : symbols) {
        if (c == '|')
            counts.push_back(0);
        else if (are_own_layers || c == 't' || c == 'm')
            ++counts.back();
    }
    return counts;
}

} // namespace detail

OPTPIPE_INLINE stage_layout parse_layout(std::string_view text, const std::string& source_name, std::size_t layers) {
    const bool is_megatron = text.find_first_not_of("0123456789, ") != std::string_view::npos;
    detail::layout_reader reader{text, source_name};
    stage_layout layout{is_megatron ? detail::megatron_counts(reader.symbols(), source_name, layers) : reader.counts(),
                        is_megatron};
    const auto sum = std::accumulate(layout.layers.begin(), layout.layers.end(), std::size_t{0});
    if (sum != layers)
        detail::refuse_layout(source_name, "",
                              "has " + std::to_string(sum) + " layers, there are " + std::to_string(layers));
    for (std::size_t s = 0; s < layout.layers.size(); ++s)
        if (layout.layers[s] == 0)
            detail::refuse_layout(source_name, "stage " + std::to_string(s), "must hold at least one layer");
    return layout;
}

OPTPIPE_INLINE problem pipeline_for(const partition_problem& p, const stage_layout& layout,
                                    const std::string& source_name) {
    const auto stages = layout.layers.size();
    for (const auto& pin : p.pins)
        if (const auto* s = std::get_if<stage>(&pin.where); s && s->position() >= stages)
            detail::refuse_layout(source_name, "",
                                  "has " + std::to_string(stages) + " stages, and layer " + std::to_string(pin.layer) +
                                      " is pinned to stage " + std::to_string(s->value()));
    for (const auto& each : p.pipelines)
        if (each.graph.stages() == stages && (!layout.is_loop || is_loop_placed(each.graph))) return each;
    const auto& first = p.pipelines.front();
    const auto ranks = first.graph.ranks();
    if (stages % ranks != 0)
        detail::refuse_layout(source_name, "",
                              "has " + std::to_string(stages) + " stages, which must be a multiple of the " +
                                  std::to_string(ranks) + " ranks");
    if (first.graph.microbatches() > detail::most_stage_microbatches / stages)
        detail::refuse_layout(source_name, "",
                              "has " + std::to_string(stages) + " stages; stages times microbatches must be at most " +
                                  std::to_string(detail::most_stage_microbatches));
    return with_placement(first, placement::loop<>{stages / ranks});
}

} // namespace optpipe
#endif
