// Writes a Trace as Chrome trace JSON, one event on each line. Everything that it draws is also exact in the args. Read
// next: models/trace/trace_read.cpp, its inverse.
#include <fmt/compile.h>
#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "models/base/refusal.hpp"
#include "models/trace/trace_forms.hpp"

namespace motley {
namespace {

template <class Format, class... Values>
void append(fmt::memory_buffer& text, const Format& format, const Values&... values) {
  fmt::format_to(std::back_inserter(text), format, values...);
}

// The elements of traceEvents.
class EventLines {
 public:
  explicit EventLines(TraceFile& file) : file_(file) {}
  // Begins the next element, and returns the buffer to append it to.
  fmt::memory_buffer& next() {
    file_.write_full();
    file_.text().append(std::string_view(is_first_ ? "\n" : ",\n"));
    is_first_ = false;
    return file_.text();
  }

 private:
  TraceFile& file_;
  bool is_first_ = true;
};

// Chrome's times are microseconds; these have whole nanoseconds.
void append_time(fmt::memory_buffer& text, const char* key, std::int64_t ns) {
  append(text, FMT_COMPILE(",\"{}\":{}.{:03}"), key, ns / 1000, ns % 1000);
}

// Writes every field of the event, except those whose absence means their value; the reader's table is in
// trace_read.cpp.
void append_args(fmt::memory_buffer& text, const TraceEvent& event) {
  MOTLEY_CHECK(std::isfinite(event.free_s) && std::isfinite(event.begin_s) &&
               std::isfinite(event.matched_s) && std::isfinite(event.end_s) && std::isfinite(event.flops));
  append(text, FMT_COMPILE("{{\"index\":{},\"free_s\":{},\"begin_s\":{},\"matched_s\":{},\"end_s\":{}"),
         event.step.index, event.free_s, event.begin_s, event.matched_s, event.end_s);
  if (event.waited != Waited::no)
    append(text, FMT_COMPILE(",\"waited\":\"{}\""), event.waited == Waited::step ? "step" : "peer");
  if (event.waited_for != Step{})
    append(text, FMT_COMPILE(",\"waited_for\":[{},{},{}]"), event.waited_for.rank, event.waited_for.stream,
           event.waited_for.index);
  if (event.waited_rank) append(text, FMT_COMPILE(",\"waited_rank\":{}"), *event.waited_rank);
  if (event.bytes != 0) append(text, FMT_COMPILE(",\"bytes\":{}"), event.bytes);
  if (event.flops != 0) append(text, FMT_COMPILE(",\"flops\":{}"), event.flops);
  if (event.allocated != 0) append(text, FMT_COMPILE(",\"allocated\":{}"), event.allocated);
  if (event.freed != 0) append(text, FMT_COMPILE(",\"freed\":{}"), event.freed);
  if (event.peak != 0) append(text, FMT_COMPILE(",\"peak\":{}"), event.peak);
  if (!event.paths.empty()) append(text, FMT_COMPILE(",\"paths\":\"{}\""), print(event.paths));
  append(text, FMT_COMPILE("}}"));
}

// The shape is written, too, so that other tools need not read the Program.
void append_kernel_args(fmt::memory_buffer& text, const Program& program, const KernelEvent& event) {
  const Kernel* const known = find_kernel(program, event.step, event.kernel);
  MOTLEY_CHECK(known != nullptr);
  const Kernel& kernel = *known;
  MOTLEY_CHECK(std::isfinite(event.begin_s) && std::isfinite(event.end_s) && std::isfinite(event.flops));
  append(text, FMT_COMPILE("{{\"index\":{},\"kernel\":{},\"begin_s\":{},\"end_s\":{}"), event.step.index,
         event.kernel, event.begin_s, event.end_s);
  if (event.bytes != 0) append(text, FMT_COMPILE(",\"bytes\":{}"), event.bytes);
  if (event.flops != 0) append(text, FMT_COMPILE(",\"flops\":{}"), event.flops);
  append(text, FMT_COMPILE(",\"shape\":[{},{},{}],\"format\":\"{}\",\"layer\":{}"), kernel.m, kernel.n,
         kernel.k, name_of(kernel.format.value_or(program.precision)), kernel.layer);
  if (kernel.recompute) append(text, FMT_COMPILE(",\"recompute\":1"));
  append(text, FMT_COMPILE("}}"));
}

void write_slices(EventLines& lines, const Program& program, const std::vector<ViewSlice>& slices) {
  for (const ViewSlice& slice : slices) {
    const Step& step = slice.step();
    fmt::memory_buffer& text = lines.next();
    append(text, FMT_COMPILE("{{\"ph\":\"X\",\"pid\":{},\"tid\":{}"), step.rank, step.stream);
    append_time(text, "ts", slice.begin_ns);
    append_time(text, "dur", slice.end_ns - slice.begin_ns);
    append(text, FMT_COMPILE(",\"cat\":\"{}\",\"name\":\"{}\",\"args\":"), category_of_slice(program, slice),
           name_of_slice(program, slice));
    if (slice.kernel != nullptr)
      append_kernel_args(text, program, *slice.kernel);
    else
      append_args(text, *slice.event);
    append(text, FMT_COMPILE("}}"));
  }
}

void write_names(EventLines& lines, const Program& program, const Trace& trace,
                 const std::vector<Rank>& ranks) {
  for (const Rank rank : ranks) {
    append(lines.next(),
           FMT_COMPILE("{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_name\",\"args\":{{\"name\":\"{}\"}}}}"),
           rank, name_of_rank(program, trace, rank));
    append(lines.next(),
           FMT_COMPILE(
               "{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{}}}}}"),
           rank, rank);
    const auto& streams = program.program_of(rank).streams;
    for (StreamId stream : streams.ids()) {
      append(
          lines.next(),
          FMT_COMPILE(
              "{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":\"{}\"}}}}"),
          rank, stream, name_of(streams[stream].kind));
      append(lines.next(),
             FMT_COMPILE("{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_sort_index\",\"args\":{{"
                         "\"sort_index\":{}}}}}"),
             rank, stream, stream);
    }
  }
}

void write_flows(EventLines& lines, const TraceView& view) {
  std::int64_t id = 0;
  for (const ViewFlow& flow : view.flows) {
    const Step& send = view.slices[flow.send].step();
    const Step& recv = view.slices[flow.recv].step();
    fmt::memory_buffer& start = lines.next();
    append(start, FMT_COMPILE("{{\"ph\":\"s\",\"id\":{},\"pid\":{},\"tid\":{}"), ++id, send.rank,
           send.stream);
    append_time(start, "ts", flow.leaves_ns);
    append(start, FMT_COMPILE(",\"cat\":\"transfer\",\"name\":\"transfer\"}}"));
    fmt::memory_buffer& finish = lines.next();
    append(finish, FMT_COMPILE("{{\"ph\":\"f\",\"bp\":\"e\",\"id\":{},\"pid\":{},\"tid\":{}"), id, recv.rank,
           recv.stream);
    append_time(finish, "ts", flow.arrives_ns);
    append(finish, FMT_COMPILE(",\"cat\":\"transfer\",\"name\":\"transfer\"}}"));
  }
}

void write_memory(EventLines& lines, const std::vector<ViewMemory>& memory) {
  for (const ViewMemory& each : memory) {
    fmt::memory_buffer& text = lines.next();
    append(text, FMT_COMPILE("{{\"ph\":\"C\",\"pid\":{},\"name\":\"memory\""), each.rank);
    append_time(text, "ts", each.at_ns);
    append(text, FMT_COMPILE(",\"args\":{{\"bytes\":{}}}}}"), each.bytes);
  }
}

void write_head(TraceFile& file, const Program& program, const Trace& trace, const std::string& left_out) {
  std::string stand_ins;  // [rank, count, rank, count, ...]
  for (const StandIn& each : trace.stand_ins)
    stand_ins += fmt::format("{}{},{}", stand_ins.empty() ? "\"stand_ins\":[" : ",", each.rank, each.count);
  if (!stand_ins.empty()) stand_ins += "],";
  append(file.text(),
         FMT_COMPILE(
             "{{\"motley\":{{\"schema\":\"motley.trace/1\",\"strategy_hash\":\"{}\",\"program_hash\":\"{}\","
             "\"world\":\"{}\",\"measured_ranks\":[{}],{}{}{}{}{}{}\"program\":{}}},\n\"displayTimeUnit\":"
             "\"ms\",\n"
             "\"traceEvents\":["),
         trace.strategy_hash, trace.program_hash, trace.world, fmt::join(trace.measured_ranks, ","),
         trace.measured_for_class ? "\"measured_for\":\"class\"," : "",
         trace.measured_transfers ? "\"transfers\":\"measured\"," : "",
         trace.period_s > 0 ? fmt::format("\"period_s\":{},", trace.period_s) : "",
         trace.clock_uncertainty_s > 0 ? fmt::format("\"clock_uncertainty_s\":{},", trace.clock_uncertainty_s)
                                       : "",
         left_out.empty() ? "" : fmt::format("\"left_out\":\"{}\",", left_out), stand_ins,
         nlohmann::json(print(program)).dump());
}

}  // namespace

void write_chrome_trace(const Trace& trace, const Program& program, const TraceView& view, TraceFile& file) {
  write_head(file, program, trace, left_out_of_view(program, trace, view));
  EventLines lines(file);
  write_names(lines, program, trace, view.ranks);
  write_slices(lines, program, view.slices);
  write_flows(lines, view);  // after the slices: at one instant Perfetto takes file order
  write_memory(lines, view.memory);
  append(file.text(), FMT_COMPILE("\n]}}\n"));
}

}  // namespace motley
