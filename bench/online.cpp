// Training that replans while it runs: its plans, their gain, and their cost. The language model is trained on four
// ranks that are threads; operations sleep for their planned time, and host links have a limited rate. Writes
// FOLDER/online.md and a picture for each run; progress on standard error.
//
//     bench_online [--out FOLDER] [--unit MS] [--only SECTION] [--share SHARE] [--offline SECONDS]
//
// A unit of the problem's time, about a forward, is 2 ms, so a step takes about 70 ms and all runs about seven minutes.
// Sections: train, link, rank, probe, noise, profile. `--share` shortens all runs to a share of their steps, for
// trials: 1 is all.
#include "online_picture.hpp"
#include "online_training.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/io/file.hpp>
#include <optpipe/schedule/builders/adaptive.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace online_bench;

struct settings {
    std::string out = ".";
    double unit_ms = 2.0;
    std::string only{};
    double share = 1.0;
    double offline_seconds = 10.0;
    std::string text{};

    [[nodiscard]] std::size_t steps(std::size_t all) const {
        return std::max<std::size_t>(1, static_cast<std::size_t>(share * static_cast<double>(all)));
    }
};

settings parse(int count, char** arguments) {
    settings s;
    for (int i = 1; i < count; i += 2) {
        const std::string name = arguments[i];
        const std::string value = i + 1 < count ? arguments[i + 1] : "";
        const double number = std::strtod(value.c_str(), nullptr);
        if (name == "--out")
            s.out = value;
        else if (name == "--unit")
            s.unit_ms = number;
        else if (name == "--only")
            s.only = value;
        else if (name == "--share")
            s.share = number;
        else if (name == "--offline")
            s.offline_seconds = number;
        else
            throw error{name + ": there is no such option"};
    }
    s.text = read_file(OPTPIPE_SOURCE_DIR "/README.md");
    return s;
}

// The problem: four ranks, eight microbatches, memory for two stashes of each stage, and host links on which a stash
// takes as long as two forwards.

constexpr double transfer_time = 2.0;
/// A link that is this factor slower than the others isn't worth any transfer.
constexpr double avoided_link = 8.0;

/// The costs assumed before the first step: all operations take equally long.
problem guess() {
    const auto stages = language_model::make_stages<float>(model_shape, 4, 4, 1);
    auto p = language_model::problem_of(stages, to_any_graph(graph<4, 8>{}), duration{transfer_time});
    for (const stage s : p.graph.all_stages())
        p.memory_limit[p.rank_of(s)] = 2.0 * p.costs[s].activation;
    return p;
}
/// The real costs: rank 2 takes `rank_factor` times as long, and transfers of rank 1 take `link_factor` times as long.
phase real_costs(std::string name, std::size_t from, double link_factor = 1.0, double rank_factor = 1.0) {
    phase made{std::move(name), from, guess(), {}};
    auto& p = made.costs;
    memory_size largest{};
    for (const auto& c : p.costs)
        largest = std::max(largest, c.activation);
    made.link_bytes = per_rank<double>(p.graph.ranks(), largest.value() / transfer_time);
    made.link_bytes[rank{1}] /= link_factor;
    for (const stage s : p.graph.all_stages()) {
        const double factor = p.rank_of(s) == rank{2} ? rank_factor : 1.0;
        p.change_stage(s, [&](auto& c) {
            c.forward = duration{factor};
            c.backward_input = duration{1.1 * factor};
            c.backward_weight = duration{0.9 * factor};
            const duration transfer{c.activation.value() / made.link_bytes[p.rank_of(s)]};
            c.transfer = transfer_times{transfer, transfer};
        });
    }
    return made;
}

online_options online(std::size_t steps) {
    online_options made;
    // This search finds the offline plan; it may use half of one processor.
    made.planning.how.time_limit = std::chrono::duration<double>{10.0};
    made.planning.threads = 1;
    made.planning.share = 0.5;
    made.steps = steps;
    return made;
}

plan_result offline_plan(const problem& p, const settings& s) {
    plan_options how;
    how.time_limit = std::chrono::duration<double>{s.offline_seconds};
    how.threads = 2;
    return plan(p, how).value();
}

double median(std::vector<double> of) { return of.empty() ? 0.0 : optpipe::detail::median_of(std::move(of)); }
std::vector<double> part(const std::vector<double>& of, std::size_t from, std::size_t to) {
    to = std::min(to, of.size());
    from = std::min(from, to);
    return {of.begin() + static_cast<std::ptrdiff_t>(from), of.begin() + static_cast<std::ptrdiff_t>(to)};
}
std::string ms(double seconds) { return format_number(1e3 * seconds, 4) + " ms"; }
std::string us(double seconds) { return format_number(1e6 * seconds, 3) + " µs"; }
std::string percent(double share) { return format_number(100.0 * share, 3) + " %"; }
double excess(double value, double of) { return value / of - 1.0; }

class page {
public:
    explicit page(const settings& s) : settings_{s} {}
    template <class... Parts> void say(const Parts&... parts) {
        std::ostringstream line;
        (line << ... << parts);
        text_ += line.str() + '\n';
        std::cerr << line.str() << std::endl;
    }
    void picture(const std::string& name, const record& seen, const std::vector<offline_step>& offline) {
        write_text_file(settings_.out + "/online_" + name + ".svg", step_picture{seen, offline}.draw());
        say("\n![step time over steps](online_", name, ".svg)\n");
    }
    void log(const record& seen) {
        say("```");
        for (const auto& event : seen.log)
            say("step ", event.step, ", ", spelling(event.kind), ": ", event.text);
        say("```\n");
    }
    void write() {
        write_text_file(settings_.out + "/online.md", text_);
        std::cout
            << "Step times over steps, switches and what they cost: [Planning again while it trains](online.md).\n";
    }

private:
    static void write_text_file(const std::string& path, const std::string& text) {
        std::ofstream file{path, std::ios::binary};
        if (!(file << text) || !file.flush()) throw error{path + ": can't be written"};
    }
    const settings& settings_;
    std::string text_{};
};

/// Reports the delay with which a thread wakes up, which shows other load on the machine.
void describe_machine(page& to, const settings& s) {
    std::vector<double> late;
    threads::sleep_precisely();
    for (int i = 0; i < 500; ++i) {
        const auto until = clock::now() + on_clock(duration{1.0}, std::chrono::duration<double, std::milli>{s.unit_ms});
        std::this_thread::sleep_until(until);
        late.push_back(std::chrono::duration<double>{clock::now() - until}.count());
    }
    to.say("# Planning again while it trains\n");
    to.say("For those who ask what planning while training goes on costs, and what it gains. [Planning while training "
           "goes on](../../include/optpipe/online/README.md) has a summary.\n");
    to.say("`bench_online --unit ", format_number(s.unit_ms), "`, ", std::thread::hardware_concurrency(),
           " processors, compiler ", __VERSION__,
           ". To show how busy the machine was: before the runs, a thread that slept for ", format_number(s.unit_ms),
           " ms woke up ", us(median(late)), " late in the median, and ", us(step_picture::percentile(late, 0.99)),
           " late at the 99th percentile.\n");
    to.say(
        "The language model of `examples/language_model` trains on 4 ranks that are threads, with 8 microbatches. Each "
        "rank has memory for two stashes of each of its stages. A forward takes 1 unit, an input gradient 1.1, a "
        "weight gradient 0.9, and a transfer of a stash up to 2. Operations sleep until their time is over. Plans are "
        "made for measured costs. Rank 0 plans on one thread with half of a processor. The offline plan is the best "
        "of ",
        format_number(s.offline_seconds), " s with two threads, for the true costs.\n");
}

/// The step time of a plan on these ranks without planning at the same time.
double measured_step(const training& how, const phase& costs, const schedule& plan, std::size_t steps) {
    auto alone = how;
    alone.phases = {costs};
    alone.phases.front().from = 0;
    alone.steps = steps;
    const auto timed = retime(costs.costs, plan).value();
    return median(train_fixed(alone, programs_of(costs.costs, timed)).seconds);
}

// Sections.

struct switch_cost {
    std::uint64_t step = 0;
    /// In seconds, on the worst rank. The first is the time outside the program of all steps from publication to
    /// exchange, less the usual time of these steps. The second is the time of the exchange alone.
    double all = 0.0;
    double exchange = 0.0;
};

std::vector<switch_cost> costs_of_switches(const record& seen) {
    std::vector<switch_cost> found;
    std::uint64_t published = 0;
    for (const auto& event : seen.log) {
        if (event.kind == online_event::kind_type::publish) published = event.step;
        if (event.kind != online_event::kind_type::accepted) continue;
        switch_cost cost{event.step, 0.0, 0.0};
        for (const auto& own : seen.beside) {
            std::vector<double> usual;
            for (const auto& each : own)
                usual.push_back(each.sum());
            const double normal = median(usual);
            double sum = 0.0;
            for (auto step = published - 1; step < event.step; ++step)
                sum += usual[step] - normal;
            cost.all = std::max(cost.all, sum);
            const auto& last = own[event.step - 1];
            cost.exchange = std::max(cost.exchange, last.wait + last.after);
        }
        found.push_back(cost);
    }
    return found;
}

void say_switches(page& to, const record& seen) {
    const double step = median(seen.seconds);
    to.say(
        "| switch at step | beside the program, worst rank | of a step | at the exchange alone |\n|---|---|---|---|");
    for (const auto& cost : costs_of_switches(seen))
        to.say("| ", cost.step, " | ", us(cost.all), " | ", percent(cost.all / step), " | ", us(cost.exchange), " |");
    std::vector<double> rank_0;
    std::vector<double> others;
    for (std::size_t r = 0; r < seen.beside.size(); ++r)
        for (const auto& each : seen.beside[r])
            (r == 0 ? rank_0 : others).push_back(each.sum());
    to.say("\nThe time of a step outside of the program: on rank 0 ", us(median(rank_0)), " in the median, ",
           us(step_picture::percentile(rank_0, 0.99)), " at the 99th percentile; on other ranks ", us(median(others)),
           " and ", us(step_picture::percentile(others, 0.99)), ".\n");
}

void say_planner(page& to, const record& seen, const plan_result& offline) {
    double all = 0.0;
    for (const double each : seen.seconds)
        all += each;
    const duration near = 1.01 * offline.objective;
    const auto first = std::find_if(seen.planning.begin(), seen.planning.end(),
                                    [&](const planner_step& at) { return at.objective <= near; });
    to.say("The planner took ", percent(seen.planner_seconds / all),
           " of one processor over the run. Planning with the last measured costs, it came within 1 % of the offline "
           "plan ",
           first == seen.planning.end()
               ? "never (within " + percent(excess(seen.planning.back().objective.value(), offline.objective.value())) +
                     ")"
               : "after " + format_number(first->seconds, 3) + " s",
           ". The offline plan has the objective ", format_number(offline.objective, 4), ", and the bound is ",
           format_number(offline.bound, 4), ".\n");
}

void train_section(page& to, const settings& s) {
    const auto first = build_schedule(guess(), adaptive).value();
    training how{
        {real_costs("as they are", 0)}, s.steps(400), {}, std::chrono::duration<double, std::milli>{s.unit_ms}, s.text};
    to.say(
        "## A training run\n\n", how.steps,
        " steps, begun with `adaptive` for guessed costs: all operations take 1 unit. The run only switches to "
        "plans that add up weight gradients in the same order (`keep_accumulation_order`). The offline plan may have "
        "another order.");
    auto options = online(how.steps);
    options.keep_accumulation_order = true;
    const auto seen = train_online(how, guess(), first, options);
    const auto offline = offline_plan(seen.planned, s);
    const auto& costs = how.phases.front();
    const double best = measured_step(how, costs, offline.schedule, s.steps(60));
    to.picture("train", seen, {{0, how.steps, best}});
    to.say("| steps | median | 10th to 90th percentile |\n|---|---|---|");
    std::size_t from = 0;
    const auto row = [&](std::size_t until) {
        if (until > from)
            to.say("| ", from, " to ", until - 1, " | ", ms(median(part(seen.seconds, from, until))), " | ",
                   ms(step_picture::percentile(part(seen.seconds, from, until), 0.1)), " to ",
                   ms(step_picture::percentile(part(seen.seconds, from, until), 0.9)), " |");
        from = until;
    };
    for (const auto& event : seen.log)
        if (event.kind == online_event::kind_type::accepted) row(event.step);
    row(seen.seconds.size());
    to.say("| offline plan, alone | ", ms(best), " | |\n");
    say_switches(to, seen);
    say_planner(to, seen, offline);
    auto unpaced = how;
    unpaced.unit = {};
    const auto same = train_fixed(unpaced, programs_of(guess(), first));
    to.say("The loss goes from ", format_number(seen.losses.front(), 6), " to ", format_number(seen.losses.back(), 6),
           " nats per byte. The losses ", seen.losses == same.losses ? "equal bit for bit" : "DON'T equal",
           " those of a run that never switches.\n");
    to.log(seen);
}

/// The number of transfers of this rank in a schedule.
std::size_t transfers_of(const problem& p, const schedule& plan, rank r) {
    std::size_t count = 0;
    for (const auto& each : plan.operations)
        if (is_transfer(each.op.kind) && p.rank_of(each.op.stage) == r) ++count;
    return count;
}

void drift_section(page& to, const settings& s, const std::string& name, const std::string& title,
                   std::vector<phase> phases, std::size_t steps) {
    training how{std::move(phases), steps, {}, std::chrono::duration<double, std::milli>{s.unit_ms}, s.text};
    to.say("## ", title, "\n");
    for (std::size_t i = 0; i < how.phases.size(); ++i)
        to.say("- Steps ", how.phases[i].from, " to ", how.end_of(i) - 1, ": ", how.phases[i].name);
    std::vector<plan_result> offline;
    std::vector<offline_step> alone;
    for (std::size_t i = 0; i < how.phases.size(); ++i) {
        offline.push_back(offline_plan(how.phases[i].costs, s));
        alone.push_back({how.phases[i].from, how.end_of(i),
                         measured_step(how, how.phases[i], offline.back().schedule, s.steps(60))});
    }
    const auto seen = train_online(how, how.phases[0].costs, offline[0].schedule, online(how.steps));
    to.say("\nThe plan at the beginning has ", transfers_of(how.phases[0].costs, offline[0].schedule, rank{1}),
           " transfers on rank 1.");
    to.picture(name, seen, alone);
    to.say("| costs | found after | last switch after | step | offline plan, alone | above it | as planned | offline "
           "plan | above it |\n"
           "|---|---|---|---|---|---|---|---|---|");
    for (std::size_t i = 0; i < how.phases.size(); ++i) {
        const auto& phase = how.phases[i];
        std::string found = "–", taken = "–";
        for (const auto& event : seen.log) {
            if (event.step <= phase.from || event.step > how.end_of(i)) continue;
            const auto after = std::to_string(event.step - phase.from) + " steps";
            if (event.kind == online_event::kind_type::drift && found == "–") found = after;
            if (event.kind == online_event::kind_type::accepted) taken = after;
        }
        constexpr std::size_t last_steps = 50;
        const auto end = how.end_of(i);
        const double step = median(part(seen.seconds, end - std::min(s.steps(last_steps), end), end));
        const auto timed = retime(phase.costs, seen.in_use[i]);
        const auto planned = timed ? objective_of(phase.costs, *timed) : duration::unlimited();
        to.say("| ", phase.name, " | ", found, " | ", taken, " | ", ms(step), " | ", ms(alone[i].seconds), " | ",
               percent(excess(step, alone[i].seconds)), " | ", format_number(planned, 4), " | ",
               format_number(offline[i].objective, 4), " | ",
               percent(excess(planned.value(), offline[i].objective.value())), " |");
    }
    to.say("");
    say_switches(to, seen);
    to.log(seen);
}

void noise_section(page& to, const settings& s) {
    training how{{real_costs("as they are", 0)},
                 s.steps(1000),
                 {.spread = 0.1},
                 std::chrono::duration<double, std::milli>{s.unit_ms},
                 s.text};
    to.say("## Noise without drift\n\n", how.steps,
           " steps, begun with the offline plan. Each operation and transfer varies by 10 % (standard deviation).");
    const auto& costs = how.phases.front();
    const auto offline = offline_plan(costs.costs, s);
    const auto seen = train_online(how, costs.costs, offline.schedule, online(how.steps));
    to.picture("noise", seen, {});
    std::map<online_event::kind_type, std::size_t> count;
    for (const auto& event : seen.log)
        ++count[event.kind];
    to.say(count[online_event::kind_type::accepted], " switches; drift was found ",
           count[online_event::kind_type::drift], " times; the median step takes ", ms(median(seen.seconds)), ".\n");
    to.log(seen);
}

/// The largest and the median relative error of the medians of one profile against another. Errors of messages are
/// relative to a forward, which is 1.
struct profile_error {
    double most = 0.0;
    double median = 0.0;
    std::string which{};
};
profile_error error_of(const problem& p, const cost_profile& few, const cost_profile& many) {
    std::vector<double> all;
    profile_error result;
    const auto add = [&](double error, const std::string& name) {
        all.push_back(error);
        if (error > result.most) result.most = error, result.which = name;
    };
    const auto compare = [&](const auto& some, const auto& reference, bool relative) {
        for (const auto& [key, expected] : reference)
            for (const auto& [other, found] : some)
                if (other == key)
                    add(std::abs((found.median.value() - expected.median.value()) /
                                 (relative ? expected.median.value() : 1.0)),
                        to_string(p, key));
    };
    compare(few.operations(), many.operations(), true);
    compare(few.messages(), many.messages(), false);
    result.median = ::median(all);
    return result;
}

void profile_section(page& to, const settings& s) {
    to.say("## The profile\n\nOn threads, medians of the first steps are compared with medians of 100 steps after the "
           "tenth. The table has the largest and the median error over all operations and messages; errors of messages "
           "are relative to a forward. The profile itself leaves out steps in which something warms up.\n");
    to.say("| steps | no noise: largest | of | median | 10 % noise: largest | of | median "
           "|\n|---|---|---|---|---|---|---|");
    const auto costs = real_costs("as they are", 0);
    const auto plan = offline_plan(costs.costs, s);
    const auto programs = programs_of(costs.costs, plan.schedule);
    const auto run = [&](double spread) {
        return train_fixed(
            {{costs}, 110, {.spread = spread}, std::chrono::duration<double, std::milli>{s.unit_ms}, s.text}, programs);
    };
    const auto calm = run(0.0);
    const auto noisy = run(0.1);
    const auto profile_of = [&](const fixed_record& seen, std::size_t from, std::size_t until) {
        cost_profile made;
        for (auto step = from; step < until; ++step)
            add_step(made, costs.costs, step, seen.times[step], std::chrono::duration<double, std::milli>{s.unit_ms},
                     1.0);
        return made;
    };
    const auto calm_reference = profile_of(calm, 10, 110);
    const auto noisy_reference = profile_of(noisy, 10, 110);
    for (const std::size_t steps : {1U, 2U, 3U, 5U, 10U, 20U, 50U}) {
        const auto a = error_of(costs.costs, profile_of(calm, 0, steps), calm_reference);
        const auto b = error_of(costs.costs, profile_of(noisy, 0, steps), noisy_reference);
        to.say("| ", steps, " | ", percent(a.most), " | ", a.which, " | ", percent(a.median), " | ", percent(b.most),
               " | ", b.which, " | ", percent(b.median), " |");
    }
    to.say("");
}

} // namespace

int main(int count, char** arguments) try {
    const auto s = parse(count, arguments);
    page to{s};
    describe_machine(to, s);
    const auto wanted = [&](const std::string& name) { return s.only.empty() || s.only == name; };
    if (wanted("train")) train_section(to, s);
    const auto drift = [&](const std::string& name, const std::string& title, double link_factor, double rank_factor) {
        if (!wanted(name)) return;
        drift_section(to, s, name, title,
                      {real_costs("before", 0), real_costs("slow", s.steps(150), link_factor, rank_factor),
                       real_costs("restored", s.steps(350))},
                      s.steps(550));
    };
    drift("link", "A host link at half its speed", 2.0, 1.0);
    drift("rank", "A rank that is 30 % slower", 1.0, 1.3);
    if (wanted("probe"))
        drift_section(to, s, "probe", "A host link that the plan avoids becomes faster",
                      {real_costs("slow", 0, avoided_link, 1.0), real_costs("fast", s.steps(150))}, s.steps(350));
    if (wanted("noise")) noise_section(to, s);
    if (wanted("profile")) profile_section(to, s);
    to.write();
} catch (const error& e) {
    std::cerr << "bench_online: " << e.what() << '\n';
    return 2;
}
