// Trains the language model on virtual ranks of one GPU without a barrier at the optimizer's step, and with one. The
// parameters must be equal bit for bit, whether gradients are scaled down or not.
//
//     gpu_post_validation [--ranks N] [--on streams|green-contexts] [--steps N] [--text FILE] [--out PREFIX]
#include "arguments.hpp"
#include "costs.hpp"
#include "report.hpp"
#include "trainer.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/core/format.hpp>
#include <optpipe/execution/cuda/device.hpp>
#include <optpipe/execution/post_validation.hpp>
#include <optpipe/io/file.hpp>
#include <optpipe/program/lower.hpp>
#include <optpipe/schedule/builders/one_forward_one_backward.hpp>
#include <optpipe/schedule/builders/zero_bubble_h2.hpp>
#include <optpipe/schedule/time/evaluate.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <iostream>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace optpipe;

constexpr double no_limit = std::numeric_limits<double>::infinity();

class experiment {
public:
    experiment(const gpu_bench::training_setup& how, std::size_t steps, const std::string& out)
        : steps_{steps}, model_{how}, p_{gpu_bench::first_guess(model_, how)}, out_{out} {}

    /// Whether all comparisons succeeded.
    bool run() {
        out_.table("Without a barrier at the optimizer's step, and with one: " + p_.name,
                   {"schedule", "norm at most", "barrier", "steps", "void", "step [ms]", "first loss", "last loss",
                    "same parameters"});
        const bool plain = compare(one_forward_one_backward);
        return compare(zero_bubble_h2) && plain;
    }

private:
    /// Compares without scaling down, then with all steps scaled down except the half with the smallest gradients.
    template <class Builder> bool compare(const Builder& build) {
        const auto s = build_schedule(p_, build);
        if (!s) throw error{"no schedule: " + describe(s.why())};
        const auto programs = lower(p_, *s,
                                    {.bytes_per_unit = 1.0,
                                     .alignment = gpu_bench::alignment,
                                     .message_bytes = model_.message_bytes(),
                                     .lanes = message_lanes::per_direction,
                                     .placement = part_placement::contiguous,
                                     .update = true});
        if (!programs) throw error{"can't be lowered: " + describe(programs.why())};
        bool is_well = true;
        double max_norm = no_limit;
        for (int i = 0; i < 2; ++i) {
            const auto order = execution::order_of_ends(*s);
            const auto with = model_.train_validated(*programs, {max_norm, order, true}, steps_);
            const auto without = model_.train_validated(*programs, {max_norm, order, false}, steps_);
            const bool is_same = without.parameters == with.parameters && without.losses == with.losses;
            tell(build.name, max_norm, true, with, "");
            tell(build.name, max_norm, false, without, is_same ? "yes" : "no");
            is_well = is_well && is_same && with.losses.back() < with.losses.front();
            auto norms = with.norms;
            std::sort(norms.begin(), norms.end());
            max_norm = norms[norms.size() / 2];
        }
        return is_well;
    }
    void tell(std::string_view name, double max_norm, bool barrier, const gpu_bench::validated_result& r,
              const std::string& is_same) {
        auto times = r.milliseconds;
        std::sort(times.begin(), times.end());
        out_.row({std::string{name}, max_norm == no_limit ? "none" : format_number(max_norm), barrier ? "yes" : "no",
                  static_cast<double>(r.losses.size()), static_cast<double>(r.voids), times[times.size() / 2],
                  r.losses.front(), r.losses.back(), is_same});
    }

    std::size_t steps_;
    gpu_bench::trainer model_;
    problem p_;
    gpu_bench::report out_;
};

} // namespace

int main(int count, char** given) try {
    const gpu_bench::arguments options{count,
                                       given,
                                       {{"--ranks", "4"},
                                        {"--on", "green-contexts"},
                                        {"--steps", "12"},
                                        {"--text", "README.md"},
                                        {"--out", "gpu_post_validation"}}};
    if (cuda::device_count() == 0) throw error{"no GPU"};
    gpu_bench::training_setup how;
    how.shape = {.hidden = 512, .heads = 8, .sequence = 256, .sequences = 2};
    how.ranks = options.number("--ranks");
    how.layers_per_stage = 1;
    how.is_divided = options["--on"] == "green-contexts";
    how.text = read_file(options["--text"]);
    if (how.text.size() <= how.shape.sequence) throw error{"--text: the file is shorter than a sequence"};
    return experiment{how, options.number("--steps"), options["--out"]}.run() ? 0 : 1;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
