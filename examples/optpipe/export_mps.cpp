#include "commands.hpp"
#include "files.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/formulation/formulate.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/milp/io/write_mps.hpp>
#include <optpipe/schedule/bounds/structural_bounds.hpp>
#include <optpipe/schedule/builders/adaptive.hpp>
#include <optpipe/schedule/time/evaluate.hpp>

#include <cstddef>
#include <iomanip>
#include <iostream>
#include <string>
#include <string_view>

#if defined(OPTPIPE_HAS_ZLIB)
#include <zlib.h>
#endif

namespace program {
namespace {

namespace formulation = optpipe::formulation;

#if defined(OPTPIPE_HAS_ZLIB)
std::string compressed(std::string text) {
    constexpr int gzip_window = 16 + MAX_WBITS;
    constexpr int memory_level = 8;
    z_stream stream{};
    if (::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip_window, memory_level, Z_DEFAULT_STRATEGY) !=
        Z_OK)
        throw optpipe::error{"cannot compress the model"};
    std::string result(::deflateBound(&stream, static_cast<uLong>(text.size())), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(text.data());
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(result.data());
    stream.avail_out = static_cast<uInt>(result.size());
    const int status = ::deflate(&stream, Z_FINISH);
    result.resize(stream.total_out);
    ::deflateEnd(&stream);
    if (status != Z_STREAM_END) throw optpipe::error{"cannot compress the model"};
    return result;
}
#else
std::string compressed(const std::string&) {
    throw optpipe::error{"a compressed model can't be written: this was built without zlib"};
}
#endif

/// The requested horizon, or else the objective of a quick builder; a model without a horizon is much weaker.
optpipe::duration horizon_of(const optpipe::problem& p, const export_mps_options& options) {
    if (options.horizon) return optpipe::duration{*options.horizon};
    const auto built = optpipe::build_schedule(p, optpipe::adaptive);
    return built ? optpipe::objective_of(p, *built) : optpipe::duration::unlimited();
}

formulation::options options_for(const optpipe::problem& p, const export_mps_options& given) {
    formulation::options o;
    o.horizon = horizon_of(p, given);
    o.bound = std::min(optpipe::bounds_of(p).best(), o.horizon);
    if (given.in_order) o.overtaking = formulation::overtaking::forbidden;
    if (given.plain) {
        o.with = {false, false, false, false, false};
        o.bound = {};
    }
    constexpr std::size_t most_rows = 1'000'000;
    o.most_rows = most_rows;
    return o;
}

void print_line(std::ostream& out, std::string_view name, const optpipe::milp::model_size& s) {
    out << std::left << std::setw(18) << name << std::right << std::setw(10) << s.variables << std::setw(10)
        << s.integers << std::setw(10) << s.rows << std::setw(10) << s.nonzeros << '\n';
}

void print_sizes(std::ostream& out, const formulation::formulated& f) {
    out << std::left << std::setw(18) << "family" << std::right << std::setw(10) << "variables" << std::setw(10)
        << "integers" << std::setw(10) << "rows" << std::setw(10) << "nonzeros" << '\n';
    for (std::size_t k = 0; k < formulation::families; ++k)
        if (const auto& s = f.sizes[k]; s.variables + s.rows > 0)
            print_line(out, formulation::name_of(static_cast<formulation::family>(k)), s);
    print_line(out, "all", f.size());
    out << "horizon " << optpipe::format_number(f.horizon)
        << (f.is_exact ? "" : "; microbatches keep their order, so its optimum need not be that of the problem")
        << '\n';
}

} // namespace

int export_mps(const export_mps_options& options) {
    outputs files{{{"PROBLEM", options.problem.path}}, {{"--out", options.out}}};
    const auto p = read_problem(options.problem);
    const auto f = formulation::formulate(p, options_for(p, options));
    if (!f) {
        std::cerr << "optpipe: " << name_of(options.problem.path) << ": " << optpipe::reason_text(p, f.why()) << '\n';
        return bad_input;
    }
    files.write("--out", [&] {
        auto text = optpipe::milp::model_to_mps((*f)->model);
        return options.out.ends_with(".gz") ? compressed(std::move(text)) : text;
    });
    print_sizes(files.text(), **f);
    return files.status(success);
}

} // namespace program
