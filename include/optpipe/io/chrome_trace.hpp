#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/io/view_window.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/time/report.hpp"

#include <string>

namespace optpipe {

/// The schedule as Chrome trace events, for Perfetto and chrome://tracing. Each rank is a process with threads for
/// compute, offloads and reloads. Arrows follow microbatches through the stages, and stashes to the host and back.
/// Counters show device and host memory. If the time unit is unknown, times are shown as milliseconds.
[[nodiscard]] std::string schedule_to_chrome_trace(const problem& p, const schedule_report& report,
                                                   const view_window& window = {});

/// A measurement and its plan as Chrome trace events. Each rank has two processes: first the plan, then the
/// measurement.
[[nodiscard]] std::string overlay_to_chrome_trace(const problem& p, const schedule_report& planned,
                                                  const schedule_report& measured, const view_window& window = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/format.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/io/timeline.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/report.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

[[nodiscard]] inline double microseconds_per(std::string_view time_unit) {
    if (time_unit == "ns") return 1e-3;
    if (time_unit == "us" || time_unit == "µs" || time_unit == "μs") return 1.0;
    if (time_unit == "s") return 1e6;
    return 1e3;
}

/// The events of a trace that shows one or more schedules.
class trace_events {
public:
    void add(const std::string& fields) {
        if (!text_.empty()) text_ += ',';
        text_ += "\n  {" + fields + "}";
    }
    [[nodiscard]] std::string next_flow() { return std::to_string(++flows_); }
    [[nodiscard]] std::string document(const problem& p, const schedule_report& report) const {
        return "{\"displayTimeUnit\": \"ms\",\n \"otherData\": {\"problem\": " + json_quoted(p.name) +
               ", \"method\": " + json_quoted(report.method) + "},\n \"traceEvents\": [" + text_ + "\n]}\n";
    }

private:
    std::string text_;
    std::size_t flows_ = 0;
};

/// `number` is the index of a schedule in a trace that shows `count` schedules. Each rank has one process per schedule,
/// in order.
struct trace_place {
    std::size_t number = 0;
    std::size_t count = 1;
    std::string_view suffix;
};

class chrome_trace {
public:
    chrome_trace(const problem& p, const schedule& s, trace_events& events, const view_window& window,
                 trace_place place = {})
        : p_{&p}, window_{window}, timeline_{timeline_of(p, s, window)}, microseconds_{microseconds_per(p.time_unit)},
          numbering_{p.graph}, timed_(numbering_.size()), events_{&events}, place_{place} {
        for (const auto& lists : timeline_.ranks)
            for (const auto* list : {&lists.compute, &lists.offloads, &lists.reloads})
                for (const auto& timed : *list)
                    timed_[numbering_(timed.op)] = timed;
    }

    void write() {
        for (const rank r : p_->graph.all_ranks())
            if (window_.shows(r)) rank_events(r);
        for (const microbatch m : p_->graph.all_microbatches())
            for (const stage s : p_->graph.all_stages())
                flows_of(s, m);
    }

private:
    enum class lane { compute = 1, offload = 2, reload = 3 };

    static lane lane_of(operation_kind kind) {
        switch (kind) {
        case operation_kind::offload: return lane::offload;
        case operation_kind::reload: return lane::reload;
        case operation_kind::forward:
        case operation_kind::backward_input:
        case operation_kind::backward_weight:
        case operation_kind::backward:
        case operation_kind::recompute: return lane::compute;
        }
        return lane::compute;
    }

    void event(const std::string& fields) { events_->add(fields); }

    /// The process number of a rank. Viewers reserve process 0. Some viewers need thread numbers that are unique across
    /// processes.
    [[nodiscard]] std::size_t process_of(rank r) const { return r.position() * place_.count + place_.number + 1; }
    [[nodiscard]] std::string where(rank r, lane l) const {
        const auto process = process_of(r);
        return "\"pid\": " + std::to_string(process) +
               ", \"tid\": " + std::to_string(10 * process + static_cast<std::size_t>(l));
    }
    [[nodiscard]] std::string at(duration t) const { return "\"ts\": " + exact_number(t.value() * microseconds_); }

    void rank_events(rank r) {
        const auto& lists = timeline_.ranks[r];
        const auto process = "\"ph\": \"M\", \"pid\": " + std::to_string(process_of(r));
        event(process + ", \"name\": \"process_name\", \"args\": {\"name\": \"rank " + std::to_string(r.value()) +
              std::string{place_.suffix} + "\"}");
        event(process + ", \"name\": \"process_sort_index\", \"args\": {\"sort_index\": " +
              std::to_string(process_of(r) - 1) + "}");
        name_lane(r, lane::compute, "compute");
        if (timeline_.has_transfers()) {
            name_lane(r, lane::offload, "offload");
            name_lane(r, lane::reload, "reload");
        }
        for (const auto* list : {&lists.compute, &lists.offloads, &lists.reloads})
            for (std::size_t i = 0; i < list->size(); ++i) {
                const auto& timed = (*list)[i];
                if (timed.op.is_paired && i + 1 < list->size() && is_second_part((*list)[i + 1].op))
                    pair_slice(r, timed, (*list)[i + 1].op);
                else if (!is_second_part(timed.op))
                    slice(r, timed);
            }
        counter(r, "device memory", lists.device_memory);
        counter(r, "host memory", lists.host_memory);
    }

    void name_lane(rank r, lane l, const char* name) {
        const auto head = "\"ph\": \"M\", " + where(r, l);
        event(head + ", \"name\": \"thread_name\", \"args\": {\"name\": \"" + name + "\"}");
        event(head + ", \"name\": \"thread_sort_index\", \"args\": {\"sort_index\": " +
              std::to_string(static_cast<int>(l)) + "}");
    }

    void slice(rank r, const timed_operation& timed) {
        const auto& op = timed.op;
        const auto length = exact_number((timed.end - timed.start).value() * microseconds_);
        event("\"ph\": \"X\", \"name\": \"PP:" + to_string(op) + "\", \"cat\": \"" + std::string{spelling(op.kind)} +
              "\", " + where(r, lane_of(op.kind)) + ", " + at(timed.start) + ", \"dur\": " + length +
              ", \"args\": {\"stage\": " + std::to_string(op.stage.value()) + ", \"microbatch\": " +
              std::to_string(op.microbatch.value()) + ", \"kind\": \"" + std::string{spelling(op.kind)} + "\"}");
    }

    /// Adds one slice for a pair's forward and backward together.
    void pair_slice(rank r, const timed_operation& timed, const operation& second) {
        const auto length = exact_number((timed.end - timed.start).value() * microseconds_);
        event("\"ph\": \"X\", \"name\": \"PP:" + to_string(operation_pair{timed.op, second}) + "\", \"cat\": \"" +
              std::string{pair_suffix} + "\", " + where(r, lane::compute) + ", " + at(timed.start) +
              ", \"dur\": " + length + ", \"args\": {\"forward\": \"" + to_string(timed.op) + "\", \"backward\": \"" +
              to_string(second) + "\", \"kind\": \"" + std::string{pair_suffix} + "\"}");
    }

    void counter(rank r, const std::string& name, const std::vector<memory_point>& curve) {
        const auto title = json_quoted(name + in_brackets(p_->memory_unit));
        for (const auto& point : curve)
            event("\"ph\": \"C\", \"name\": " + title + ", \"pid\": " + std::to_string(process_of(r)) + ", " +
                  at(point.time) + ", \"args\": {\"in use\": " + exact_number(point.level.value()) + "}");
    }

    [[nodiscard]] const std::optional<timed_operation>& find(const operation& op) const {
        return timed_[numbering_(op)];
    }
    [[nodiscard]] const std::optional<timed_operation>& gradient(stage s, microbatch m) const {
        const auto& whole = find(backward(s, m));
        return whole ? whole : find(backward_input(s, m));
    }

    void flows_of(stage s, microbatch m) {
        p_->graph.for_each_edge_out_of(s, [&](const edge& e) {
            if (p_->rank_of(s) == p_->rank_of(e.to)) return;
            flow("forward", find(forward(s, m)), find(forward(e.to, m)));
            flow("gradient", gradient(e.to, m), gradient(s, m));
        });
        flow("offload", find(forward(s, m)), find(offload_of(s, m)));
        flow("offload", find(offload_of(s, m)), find(reload_of(s, m)));
        flow("offload", find(reload_of(s, m)), gradient(s, m));
    }

    void flow(const char* name, const std::optional<timed_operation>& from, const std::optional<timed_operation>& to) {
        if (!from || !to || from->end <= from->start || to->end <= to->start) return;
        // Arrows start and end slightly inside their slices. A viewer could attach an arrow at the very end of a slice
        // to the neighbouring slice.
        constexpr double margin = 1.0 / 16.0;
        const auto leaves = from->end - margin * (from->end - from->start);
        const auto arrives = to->start + margin * (to->end - to->start);
        const auto head = "\"name\": \"" + std::string{name} + "\", \"cat\": \"flow\", \"id\": " + events_->next_flow();
        event("\"ph\": \"s\", " + head + ", " + place_of(*from) + ", " + at(leaves));
        event("\"ph\": \"f\", \"bp\": \"e\", " + head + ", " + place_of(*to) + ", " + at(arrives));
    }

    [[nodiscard]] std::string place_of(const timed_operation& timed) const {
        return where(p_->rank_of(timed.op.stage), lane_of(timed.op.kind));
    }

    const problem* p_;
    view_window window_;
    timeline timeline_;
    double microseconds_;
    operation_numbering<any_graph> numbering_;
    std::vector<std::optional<timed_operation>> timed_;
    trace_events* events_;
    trace_place place_;
};

} // namespace detail

OPTPIPE_INLINE std::string schedule_to_chrome_trace(const problem& p, const schedule_report& report,
                                                    const view_window& window) {
    detail::trace_events events;
    detail::chrome_trace{p, report.schedule, events, window}.write();
    return events.document(p, report);
}

OPTPIPE_INLINE std::string overlay_to_chrome_trace(const problem& p, const schedule_report& planned,
                                                   const schedule_report& measured, const view_window& window) {
    detail::trace_events events;
    detail::chrome_trace{p, planned.schedule, events, window, {0, 2, " plan"}}.write();
    detail::chrome_trace{p, measured.schedule, events, window, {1, 2, " measured"}}.write();
    return events.document(p, measured);
}

} // namespace optpipe
#endif
