#include "methods.hpp"

#include "commands.hpp"
#include <optpipe/io/text.hpp>
#include <optpipe/schedule.hpp>
#include <optpipe/schedule/builders/builder_parameters.hpp>

#include <chrono>
#include <string>
#include <type_traits>
#include <vector>

namespace program {
namespace {

template <class Builder> attempt run(const optpipe::problem& p, Builder builder, const method_options& options) {
    if (options.settings) optpipe::set_parameters(builder, *options.settings);
    if constexpr (requires { builder.seed; }) builder.seed = options.seed;
    using clock = std::chrono::steady_clock;
    const auto start = clock::now();
    const auto elapsed = [&] { return std::chrono::duration<double>(clock::now() - start).count(); };
    attempt done{std::string{Builder::name}, {}, 0.0};
    if constexpr (std::is_same_v<Builder, optpipe::adaptive_builder<>>) {
        if (options.time_limit) builder.effort = optpipe::dynamic;
        const auto built = builder(p, [&] {
            return options.stop.stop_requested() || (options.time_limit && elapsed() >= *options.time_limit);
        });
        done.result = built ? optpipe::time_order(p, *built) : built.why();
    } else {
        done.result = optpipe::build_schedule(p, builder);
    }
    done.seconds = elapsed();
    return done;
}

} // namespace

std::vector<attempt> run_methods(const optpipe::problem& p, const wanted_method& wanted,
                                 const method_options& options) {
    std::vector<attempt> attempts;
    optpipe::for_each_builder([&](const auto& builder) {
        if (wanted(builder.name) && !options.stop.stop_requested()) attempts.push_back(run(p, builder, options));
    });
    return attempts;
}

bool is_constructive(const attempt& a) { return a.method == optpipe::adaptive.name; }

optpipe::comparison_row row_of(const optpipe::problem& p, const attempt& a) {
    if (!a.result) return optpipe::make_comparison_row(p, a.method, a.result.why(), a.seconds);
    return optpipe::make_comparison_row(optpipe::make_report(p, a.method, *a.result), a.seconds);
}

std::string method_names() {
    std::string names;
    optpipe::for_each_builder(
        [&](const auto& builder) { names += (names.empty() ? "" : ", ") + std::string{builder.name}; });
    return names;
}

} // namespace program
