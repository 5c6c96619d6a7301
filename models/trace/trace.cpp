// Writes a Trace as Chrome trace JSON, one event on each line. It is streamed, because the file may have hundreds of
// megabytes. Everything that it draws is also exact in the args. Read next: models/trace/trace_read.cpp, its inverse.
#include "models/trace/trace.hpp"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Collects text and writes it a megabyte at a time to a file beside `path`, which is renamed at the end: a reader
// never sees half a trace. A device (/dev/stdout) is written directly.
class TraceFile {
 public:
  explicit TraceFile(std::string path) : path_(std::move(path)) {
    std::error_code unknown;
    const auto status = std::filesystem::status(path_, unknown);
    written_ = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)
                   ? path_
                   : path_ + ".partial";
    file_ = std::fopen(written_.c_str(), "wb");
    if (file_ == nullptr) refuse();
  }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  ~TraceFile() {
    if (file_ != nullptr) std::fclose(file_);
  }

  // Begins the next element of traceEvents, and returns the buffer to append it to.
  fmt::memory_buffer& next_line() {
    text_.append(std::string_view(first_line_ ? "\n" : ",\n"));
    first_line_ = false;
    if (text_.size() > 1'000'000) flush();
    return text_;
  }
  fmt::memory_buffer& text() { return text_; }

  void close() {
    flush();
    const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
    std::error_code error;
    if (closed && written_ != path_) std::filesystem::rename(written_, path_, error);
    if (!closed || error) refuse();
  }

 private:
  void flush() {
    if (std::fwrite(text_.data(), 1, text_.size(), file_) != text_.size()) refuse();
    text_.clear();
  }
  [[noreturn]] void refuse() const {
    throw Refusal(Exit::usage, "unwritable-file", {.file = path_}, "cannot be written",
                  "does its folder exist, and may you write there?");
  }

  std::string path_, written_;
  std::FILE* file_ = nullptr;
  fmt::memory_buffer text_;
  bool first_line_ = true;
};

template <class Format, class... Values>
void append(fmt::memory_buffer& text, const Format& format, const Values&... values) {
  fmt::format_to(std::back_inserter(text), format, values...);
}

// Chrome's times are microseconds. They are written in whole nanoseconds, rounded once for each instant, so that a
// slice ends exactly where the next begins and none overlaps its neighbour.
std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }
void append_time(fmt::memory_buffer& text, const char* key, std::int64_t ns) {
  append(text, FMT_COMPILE(",\"{}\":{}{}.{:03}"), key, ns < 0 ? "-" : "", std::abs(ns) / 1000,
         std::abs(ns) % 1000);
}

struct Span {
  std::int64_t begin = 0, end = 0;
  // The instant nearest to `ns` that belongs to this slice and to no neighbour.
  std::int64_t inside(std::int64_t ns) const { return std::clamp(ns, begin, std::max(begin, end - 1)); }
};
Span span_of(const TraceEvent& event) { return {nanoseconds(event.begin_s), nanoseconds(event.end_s)}; }

void append_name(fmt::memory_buffer& text, const Program& program, const Step& step) {
  const Instruction& instruction = program.at(step.rank, step.stream, step.index);
  const RankEntry& entry = program.ranks[step.rank];
  switch (instruction.op()) {
    case Op::compute:
      append(text, FMT_COMPILE("{}"),
             program.program_of(step.rank).blocks[std::get<Compute>(instruction.body).block].name);
      break;
    case Op::send:
      append(text, FMT_COMPILE("send to {}"), entry.peers[instruction.message()->slot].value());
      break;
    case Op::recv:
      append(text, FMT_COMPILE("recv from {}"), entry.peers[instruction.message()->slot].value());
      break;
    case Op::collective:
      append(text, FMT_COMPILE("{}"), name_of(std::get<Collective>(instruction.body).kind));
      break;
    case Op::optimizer:
      append(text, FMT_COMPILE("optimizer"));
      break;
    case Op::copy:
      append(text, FMT_COMPILE("copy {} host"),
             goes_to_host(program.program_of(step.rank), instruction) ? "to" : "from");
      break;
  }
  if (instruction.micro_batch >= 0) append(text, FMT_COMPILE(" {}"), instruction.micro_batch);
}

std::string_view category_of(Op op) {
  switch (op) {
    case Op::compute:
      return "compute";
    case Op::send:
    case Op::recv:
      return "transfer";
    case Op::collective:
      return "collective";
    case Op::optimizer:
      return "optimizer";
    case Op::copy:
      return "copy";
  }
  return "?";
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

using Events = std::vector<const TraceEvent*>;

void write_slices(TraceFile& file, const Program& program, const Events& events) {
  for (const TraceEvent* event : events) {
    const Step& step = event->step;
    const Span span = span_of(*event);
    fmt::memory_buffer& text = file.next_line();
    append(text, FMT_COMPILE("{{\"ph\":\"X\",\"pid\":{},\"tid\":{}"), step.rank, step.stream);
    append_time(text, "ts", span.begin);
    append_time(text, "dur", span.end - span.begin);
    append(text, FMT_COMPILE(",\"cat\":\"{}\",\"name\":\""),
           category_of(program.at(step.rank, step.stream, step.index).op()));
    append_name(text, program, step);
    append(text, FMT_COMPILE("\",\"args\":"));
    append_args(text, *event);
    append(text, FMT_COMPILE("}}"));
  }
}

// A slice inside that of its compute. The shape is written, too, so that other tools need not read the Program.
void write_kernel(TraceFile& file, const Program& program, const KernelEvent& event) {
  const Kernel* const known = find_kernel(program, event.step, event.kernel);
  MOTLEY_CHECK(known != nullptr);
  const Kernel& kernel = *known;
  const Span span{nanoseconds(event.begin_s), nanoseconds(event.end_s)};
  MOTLEY_CHECK(std::isfinite(event.begin_s) && std::isfinite(event.end_s) && std::isfinite(event.flops));
  fmt::memory_buffer& text = file.next_line();
  append(text, FMT_COMPILE("{{\"ph\":\"X\",\"pid\":{},\"tid\":{}"), event.step.rank, event.step.stream);
  append_time(text, "ts", span.begin);
  append_time(text, "dur", span.end - span.begin);
  append(
      text,
      FMT_COMPILE(",\"cat\":\"kernel\",\"name\":\"{}\",\"args\":{{\"index\":{},\"kernel\":{},\"begin_s\":{},"
                  "\"end_s\":{}"),
      name_of(kernel.op), event.step.index, event.kernel, event.begin_s, event.end_s);
  if (event.bytes != 0) append(text, FMT_COMPILE(",\"bytes\":{}"), event.bytes);
  if (event.flops != 0) append(text, FMT_COMPILE(",\"flops\":{}"), event.flops);
  append(text, FMT_COMPILE(",\"shape\":[{},{},{}],\"format\":\"{}\",\"layer\":{}"), kernel.m, kernel.n,
         kernel.k, name_of(kernel.format.value_or(program.precision)), kernel.layer);
  if (kernel.recompute) append(text, FMT_COMPILE(",\"recompute\":1"));
  append(text, FMT_COMPILE("}}}}"));
}

// " (for 16)": the number of ranks for which the rank stands.
std::string count_of(const Trace& trace, Rank rank) {
  for (const StandIn& each : trace.stand_ins)
    if (each.rank == rank && each.count > 1) return fmt::format(" (for {})", each.count);
  return "";
}

void write_names(TraceFile& file, const Program& program, const Trace& trace, const Events& events) {
  std::optional<Rank> last;
  for (const TraceEvent* event : events) {
    const Rank rank = event->step.rank;
    if (rank == std::exchange(last, rank)) continue;
    const RankEntry& entry = program.ranks[rank];
    append(
        file.next_line(),
        FMT_COMPILE(
            "{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_name\",\"args\":{{\"name\":\"rank {}{}: stage {} "
            "replica {} tensor {}\"}}}}"),
        rank, rank, count_of(trace, rank), entry.stage, entry.replica, entry.tensor_index);
    append(file.next_line(),
           FMT_COMPILE(
               "{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{}}}}}"),
           rank, rank);
    const auto& streams = program.program_of(rank).streams;
    for (StreamId stream : streams.ids()) {
      append(
          file.next_line(),
          FMT_COMPILE(
              "{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":\"{}\"}}}}"),
          rank, stream, name_of(streams[stream].kind));
      append(file.next_line(),
             FMT_COMPILE("{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_sort_index\",\"args\":{{"
                         "\"sort_index\":{}}}}}"),
             rank, stream, stream);
    }
  }
}

// The transfers of a rank program through each peer slot, in the order of posting: send k through a slot is received
// by the peer's recv k through the other end.
struct Transfers {
  std::map<PeerSlot, std::vector<After>> sends, recvs;
};
IdTable<RankProgramId, Transfers> transfers_of(const Program& program) {
  IdTable<RankProgramId, Transfers> transfers(program.rank_programs.size());
  for (RankProgramId id : program.rank_programs.ids()) {
    const auto& streams = program.rank_programs[id].streams;
    for (StreamId stream : streams.ids()) {
      const auto& instructions = streams[stream].instructions;
      for (std::size_t i = 0; i < instructions.size(); ++i) {
        const PeerMessage* message = instructions[i].message();
        if (message == nullptr) continue;
        auto& places = instructions[i].op() == Op::send ? transfers[id].sends : transfers[id].recvs;
        places[message->slot].push_back({stream, static_cast<std::int32_t>(i)});
      }
    }
  }
  return transfers;
}

const TraceEvent* find_event(const Events& events, const Step& step) {
  const auto event = std::lower_bound(events.begin(), events.end(), step,
                                      [](const TraceEvent* each, const Step& s) { return each->step < s; });
  return event != events.end() && (*event)->step == step ? *event : nullptr;
}

void write_flow(TraceFile& file, std::int64_t id, const TraceEvent& send, const TraceEvent& recv) {
  const Span from = span_of(send), to = span_of(recv);
  const std::int64_t leaves = from.inside(nanoseconds(send.matched_s));
  const std::int64_t arrives = to.inside(std::max(leaves, nanoseconds(recv.matched_s)));
  fmt::memory_buffer& start = file.next_line();
  append(start, FMT_COMPILE("{{\"ph\":\"s\",\"id\":{},\"pid\":{},\"tid\":{}"), id, send.step.rank,
         send.step.stream);
  append_time(start, "ts", leaves);
  append(start, FMT_COMPILE(",\"cat\":\"transfer\",\"name\":\"transfer\"}}"));
  fmt::memory_buffer& finish = file.next_line();
  append(finish, FMT_COMPILE("{{\"ph\":\"f\",\"bp\":\"e\",\"id\":{},\"pid\":{},\"tid\":{}"), id,
         recv.step.rank, recv.step.stream);
  append_time(finish, "ts", arrives);
  append(finish, FMT_COMPILE(",\"cat\":\"transfer\",\"name\":\"transfer\"}}"));
}

// Writes only pairs of which both sides are written: a folded trace has few ranks.
void write_flows(TraceFile& file, const Program& program, const Events& events) {
  const auto transfers = transfers_of(program);
  std::int64_t id = 0;
  std::map<std::pair<Rank, PeerSlot>, std::size_t> sent;  // number of transfers so far
  for (const TraceEvent* send : events) {
    const Step& step = send->step;
    const auto* message = program.at(step.rank, step.stream, step.index).as<Send>();
    if (message == nullptr) continue;
    const RankEntry& entry = program.ranks[step.rank];
    const auto& sends = transfers[entry.rank_program].sends.at(message->slot);
    std::size_t& ordinal = sent[{step.rank, message->slot}];
    while (sends[ordinal] != After{step.stream, step.index}) ++ordinal;
    const Rank peer = entry.peers[message->slot].value();
    const auto& received = transfers[program.ranks[peer].rank_program].recvs;
    const auto slot = received.find(other_end(program, step.rank, message->slot).value());
    if (slot == received.end() || ordinal >= slot->second.size()) continue;
    const After place = slot->second[ordinal];
    const TraceEvent* recv = find_event(events, {peer, place.stream, place.index});
    if (recv != nullptr) write_flow(file, ++id, *send, *recv);
  }
}

// Bytes live on a rank over time: the peak of an instruction while it runs, and the bytes that are left when it ends.
void write_memory(TraceFile& file, const Program& program, const Events& events) {
  std::vector<std::pair<std::int64_t, std::int64_t>> changes;  // time (ns), change in bytes
  for (auto first = events.begin(); first != events.end();) {
    const Rank rank = (*first)->step.rank;
    changes.clear();
    const auto last =
        std::find_if(first, events.end(), [&](const TraceEvent* e) { return e->step.rank != rank; });
    for (auto each = first; each != last; ++each) {
      const TraceEvent& event = **each;
      if (event.peak != 0) changes.emplace_back(nanoseconds(event.begin_s), event.peak);
      if (const std::int64_t left = event.allocated - event.freed - event.peak; left != 0)
        changes.emplace_back(nanoseconds(event.end_s), left);
    }
    std::sort(changes.begin(), changes.end());
    std::int64_t live = program.program_of(rank).static_bytes;
    changes.insert(changes.begin(), {changes.empty() ? 0 : std::min<std::int64_t>(0, changes[0].first), 0});
    for (std::size_t i = 0; i < changes.size(); ++i) {
      live += changes[i].second;
      if (i + 1 < changes.size() && changes[i + 1].first == changes[i].first) continue;
      fmt::memory_buffer& text = file.next_line();
      append(text, FMT_COMPILE("{{\"ph\":\"C\",\"pid\":{},\"name\":\"memory\""), rank);
      append_time(text, "ts", changes[i].first);
      append(text, FMT_COMPILE(",\"args\":{{\"bytes\":{}}}}}"), live);
    }
    first = last;
  }
}

void write_head(TraceFile& file, const Program& program, const Trace& trace) {
  std::string stand_ins;  // [rank, count, rank, count, ...]
  for (const StandIn& each : trace.stand_ins)
    stand_ins += fmt::format("{}{},{}", stand_ins.empty() ? "\"stand_ins\":[" : ",", each.rank, each.count);
  if (!stand_ins.empty()) stand_ins += "],";
  append(
      file.text(),
      FMT_COMPILE(
          "{{\"motley\":{{\"schema\":\"motley.trace/1\",\"strategy_hash\":\"{}\",\"program_hash\":\"{}\","
          "\"world\":\"{}\",\"measured_ranks\":[{}],{}{}{}{}\"program\":{}}},\n\"displayTimeUnit\":\"ms\",\n"
          "\"traceEvents\":["),
      trace.strategy_hash, trace.program_hash, trace.world, fmt::join(trace.measured_ranks, ","),
      trace.measured_for_class ? "\"measured_for\":\"class\"," : "",
      trace.measured_transfers ? "\"transfers\":\"measured\"," : "",
      trace.period_s > 0 ? fmt::format("\"period_s\":{},", trace.period_s) : "", stand_ins,
      nlohmann::json(print(program)).dump());
}

}  // namespace

bool is_earlier(const KernelEvent& a, const KernelEvent& b) {
  return std::tie(a.step, a.kernel) < std::tie(b.step, b.kernel);
}

const Kernel* find_kernel(const Program& program, const Step& step, std::int32_t kernel) {
  if (!program.ranks.has(step.rank)) return nullptr;
  const RankProgram& rank_program = program.program_of(step.rank);
  if (!rank_program.streams.has(step.stream) || step.index < 0) return nullptr;
  const auto& instructions = rank_program.streams[step.stream].instructions;
  if (at(step.index) >= instructions.size()) return nullptr;
  const Compute* const compute = instructions[at(step.index)].as<Compute>();
  if (compute == nullptr || kernel < compute->first_kernel || kernel >= compute->last_kernel) return nullptr;
  return &rank_program.blocks[compute->block].kernels[at(kernel)];
}

double StepSpan::overlap_s(const StepSpan& other) const {
  return std::max(0.0, std::min(end_s, other.end_s) - std::max(begin_s, other.begin_s));
}

StepSpan span_of(const Trace& trace) {
  StepSpan iteration;
  if (!trace.events.empty()) iteration = {trace.events[0].free_s, trace.events[0].end_s};
  for (const TraceEvent& event : trace.events) {
    iteration.begin_s = std::min(iteration.begin_s, event.free_s);
    iteration.end_s = std::max(iteration.end_s, event.end_s);
  }
  return iteration;
}

double step_s(const Trace& trace) { return trace.period_s > 0 ? trace.period_s : span_of(trace).seconds(); }

void sort_events(Trace& trace) {
  std::sort(trace.events.begin(), trace.events.end(),
            [](const TraceEvent& a, const TraceEvent& b) { return a.step < b.step; });
  std::sort(trace.kernels.begin(), trace.kernels.end(), is_earlier);
}

void write_trace(const Trace& trace, const Program& program, const std::string& path,
                 const std::vector<Rank>& ranks) {
  Events events;
  events.reserve(trace.events.size());
  const std::set<Rank> written(ranks.begin(), ranks.end());
  for (const TraceEvent& event : trace.events)
    if (written.empty() || written.count(event.step.rank) > 0) events.push_back(&event);
  MOTLEY_CHECK(std::is_sorted(events.begin(), events.end(),
                              [](const TraceEvent* a, const TraceEvent* b) { return a->step < b->step; }));
  TraceFile file(path);
  write_head(file, program, trace);
  write_names(file, program, trace, events);
  write_slices(file, program, events);
  MOTLEY_CHECK(std::is_sorted(trace.kernels.begin(), trace.kernels.end(), is_earlier));
  for (const KernelEvent& kernel : trace.kernels)
    if (written.empty() || written.contains(kernel.step.rank)) write_kernel(file, program, kernel);
  write_flows(file, program, events);  // after the slices: at one instant Perfetto takes file order
  write_memory(file, program, events);
  append(file.text(), FMT_COMPILE("\n]}}\n"));
  file.close();
}

}  // namespace motley
