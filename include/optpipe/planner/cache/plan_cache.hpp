#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cache/canonical.hpp"
#include "optpipe/planner/cache/entry.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {

/// The entries of a cache that help with a problem.
struct cache_hits {
    /// A plan of the same problem, with numbers in canonical units.
    std::optional<cache_entry> exact{};
    /// Plans of similar problems, the nearest first.
    std::vector<cache_entry> near{};
    /// A lower bound on the objective, in canonical units. No entry of the cache implies a higher bound.
    double bound = 0.0;
};

/// Plans in a folder, grouped by the shapes of their problems. Several processes may use one folder at once. Files that
/// can't be read or written are skipped, with a sentence to `warn`.
class plan_cache {
public:
    using warning = std::function<void(std::string_view)>;

    explicit plan_cache(std::string folder, warning warn = {}) : folder_{std::move(folder)}, warn_{std::move(warn)} {}

    [[nodiscard]] cache_hits find(const canonical_problem& asked) const;

    /// Stores the entry unless the stored entry is at least as good in objective, bound and budget.
    void store(const cache_entry& entry) const;

private:
    std::string folder_;
    warning warn_;
};

/// The entry that stores a plan. `budget` is the time in seconds given to the search for the plan.
[[nodiscard]] cache_entry make_cache_entry(const problem& p, const schedule& found, duration objective, duration bound,
                                           double budget, std::string method);

} // namespace optpipe

#if OPTPIPE_DEFINES(planner)
#include "optpipe/planner/cache/adapt.hpp"
#include "optpipe/planner/cache/carried_bound.hpp"
#include "optpipe/planner/cache/files.hpp"
#include "optpipe/planner/cache/fingerprint.hpp"
#include "optpipe/planner/cache/text.hpp"
#include "optpipe/schedule/time/report.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <span>
#include <system_error>

namespace optpipe {
namespace detail {

/// The files of a `plan_cache`.
class plan_folder {
public:
    plan_folder(std::filesystem::path folder, const plan_cache::warning& warn)
        : folder_{std::move(folder)}, warn_{warn} {}

    [[nodiscard]] cache_hits find(const canonical_problem& asked) const {
        cache_hits hits;
        struct candidate {
            double distance;
            std::filesystem::path path;
        };
        std::vector<candidate> candidates;
        for (const auto& path : cached_plans(folder_of(asked))) {
            const auto head = read_head(path);
            if (!head || !same_shape(head->of, asked)) continue;
            hits.bound = std::max(hits.bound, carried_bound(head->of, head->bound, asked));
            const double far = is_same(head->of, asked) ? 0.0 : distance(head->of, asked) + loss(*head);
            candidates.push_back({far, path});
        }
        std::sort(candidates.begin(), candidates.end(), [](const candidate& a, const candidate& b) {
            return a.distance != b.distance ? a.distance < b.distance : a.path < b.path;
        });
        for (std::size_t i = 0; i < std::min(candidates.size(), most_near); ++i) {
            auto entry = read(candidates[i].path);
            if (!entry || !same_shape(entry->of, asked)) continue;
            if (!hits.exact && is_same(entry->of, asked))
                hits.exact = std::move(entry);
            else
                hits.near.push_back(*std::move(entry));
        }
        return hits;
    }

    void store(const cache_entry& entry) const {
        const auto path = path_of(entry.of);
        std::error_code failure;
        std::filesystem::create_directories(path.parent_path(), failure);
        if (failure) return complain(path.parent_path(), "can't be created: " + failure.message());
        // A damaged entry is overwritten without a warning, because `find` has given one.
        if (const auto text = read_cache_file(path, most_bytes)) {
            const auto there = parse_cache_entry(*text);
            if (there && is_same(there->of, entry.of) && there->objective <= entry.objective &&
                there->bound >= entry.bound && there->budget >= entry.budget)
                return;
        }
        if (!write_cache_file(path, to_text(entry))) return complain(path, "can't be written");
        prune_cache_folder(path.parent_path(), most_entries);
    }

private:
    /// Number of similar entries that are adapted. Adapting an entry takes as long as simulating a few orders. None of
    /// the limits here is tuned.
    static constexpr std::size_t most_near = 4;
    /// Number of entries per folder. The oldest entries above this number are removed.
    static constexpr std::size_t most_entries = 256;
    /// Largest size of a file's head, and largest size of a file, in bytes. Larger heads and files aren't read, because
    /// no search wrote them.
    static constexpr std::size_t most_head_bytes = std::size_t{1} << 22U;
    static constexpr std::size_t most_bytes = std::size_t{1} << 28U;

    [[nodiscard]] std::filesystem::path folder_of(const canonical_problem& form) const {
        fingerprint print;
        print.add(form.shape);
        return folder_ / print.text();
    }
    [[nodiscard]] std::filesystem::path path_of(const canonical_problem& form) const {
        return folder_of(form) / (fingerprint_of(form) + ".plan");
    }

    /// The text of a file, at most `most` bytes. Empty if the file can't be read or its entry has another version.
    [[nodiscard]] std::optional<std::string> read_text(const std::filesystem::path& path, std::size_t most) const {
        auto text = read_cache_file(path, most);
        if (!text) {
            std::error_code failure;
            if (std::filesystem::exists(path, failure)) complain(path, "can't be read");
            return std::nullopt;
        }
        constexpr std::string_view any_version = "optpipe.plan/";
        const auto format = std::string_view{*text}.substr(0, text->find('\n'));
        const bool other = format.size() < text->size() && format.starts_with(any_version) && format != cache_format;
        if (other) return std::nullopt;
        return text;
    }
    [[nodiscard]] std::optional<cache_entry> read_head(const std::filesystem::path& path) const {
        const auto text = read_text(path, most_head_bytes);
        if (!text) return std::nullopt;
        auto head = parse_cache_head(*text);
        if (!head) complain(path, "is damaged");
        return head ? std::optional{std::move(head->entry)} : std::nullopt;
    }
    [[nodiscard]] std::optional<cache_entry> read(const std::filesystem::path& path) const {
        const auto text = read_text(path, most_bytes);
        if (!text) return std::nullopt;
        auto entry = parse_cache_entry(*text);
        if (!entry) complain(path, "is damaged");
        return entry;
    }
    void complain(const std::filesystem::path& path, const std::string& what) const {
        if (warn_) warn_("plan cache: " + path.string() + " " + what + "; skipped");
    }

    /// The relative gap of the entry's plan. 0 if the entry's microbatches are equal and aren't slices. A good plan for
    /// different microbatches may be better than a hasty plan for similar microbatches.
    static double loss(const cache_entry& head) {
        return head.of.has_draw() ? relative_gap(duration{head.objective}, duration{head.bound}) : 0.0;
    }
    /// The distance between two problems of one shape, as a sum of logarithms.
    static double distance(const canonical_problem& a, const canonical_problem& b) {
        const double microbatches = std::log(static_cast<double>(a.microbatches) / static_cast<double>(b.microbatches));
        return std::abs(microbatches) + mean_distance(a.times, b.times) + mean_distance(a.stashes, b.stashes) +
               mean_distance(a.limits, b.limits) + mean_distance(a.host_limits, b.host_limits) +
               storage_distance(a.storage, b.storage) + draw_distance(a, b);
    }
    /// The mean distance of corresponding microbatches. The microbatches of each problem are sorted by work. The k-th
    /// microbatches of `a` and `b` correspond.
    static double draw_distance(const canonical_problem& a, const canonical_problem& b) {
        if (!a.has_draw() || a.microbatches != b.microbatches) return 0.0;
        auto x = canonical_work(a);
        auto y = canonical_work(b);
        std::sort(x.begin(), x.end());
        std::sort(y.begin(), y.end());
        return mean_distance(x, y);
    }
    /// The mean distance from each option of `b` to the most similar option of `a`.
    static double storage_distance(const std::vector<canonical_options>& a, const std::vector<canonical_options>& b) {
        double sum = 0.0;
        double options = 0.0;
        for (std::size_t s = 0; s < b.size(); ++s)
            for (const auto& option : b[s]) {
                sum += mean_distance(a[s][most_similar(a[s], option)].numbers(), option.numbers());
                options += 1.0;
            }
        return options > 0.0 ? sum / options : 0.0;
    }
    static double mean_distance(std::span<const double> a, std::span<const double> b) {
        double sum = 0.0;
        for (std::size_t i = 0; i < a.size(); ++i)
            sum += ratio(a[i], b[i]);
        return a.empty() ? 0.0 : sum / static_cast<double>(a.size());
    }
    static double ratio(double a, double b) {
        constexpr double most = 3.0; // the largest logarithm of a ratio, for ratios of about 20 and more
        if (a == b) return 0.0;
        if (!(a > 0.0) || !(b > 0.0) || std::isinf(a) || std::isinf(b)) return most;
        return std::min(most, std::abs(std::log(a / b)));
    }

    std::filesystem::path folder_;
    const plan_cache::warning& warn_;
};

} // namespace detail

OPTPIPE_INLINE cache_hits plan_cache::find(const canonical_problem& asked) const {
    return detail::plan_folder{folder_, warn_}.find(asked);
}
OPTPIPE_INLINE void plan_cache::store(const cache_entry& entry) const {
    detail::plan_folder{folder_, warn_}.store(entry);
}

OPTPIPE_INLINE cache_entry make_cache_entry(const problem& p, const schedule& found, duration objective, duration bound,
                                            double budget, std::string method) {
    const auto units = canonical_units_of(p);
    // The text after the colon is the name of a storage option, with any characters.
    if (!detail::is_printable(method)) method.resize(std::min(method.size(), method.find(':')));
    cache_entry entry{canonical_form(p), objective / units.time, bound / units.time, budget, std::move(method), {}};
    const auto sorted = order_of(found);
    entry.operations.assign(sorted.operations.begin(), sorted.operations.end());
    entry.operations = translate_storage(std::move(entry.operations), canonical_storage(p), entry.of.storage);
    return entry;
}

} // namespace optpipe
#endif
