// Writes a Trace as Perfetto's protobuf (perfetto.proto): a process for each rank, with a track for each of its streams
// and a counter of its memory. Each slice is a pair of events; each track has its events in the order of time, and a
// viewer sorts them by time over all tracks.
#include <fmt/format.h>

#include <map>
#include <utility>

#include "models/base/refusal.hpp"
#include "models/trace/trace_forms.hpp"

#ifdef MOTLEY_PROTOBUF
#include <perfetto.pb.h>
#endif

namespace motley {

void require_trace_form(const std::string& path, const std::string& version) {
  if (form_of_trace(path) == TraceForm::perfetto && version.empty())
    throw Refusal(
        Exit::missing, "missing-part", {.file = path},
        "this program was built without protobuf, which writes Perfetto's form of a trace",
        "install libprotobuf-dev and protobuf-compiler and build again; or name the file NAME.json, "
        "which Perfetto opens, too");
}

#ifndef MOTLEY_PROTOBUF

std::string protobuf_version() { return ""; }
void write_perfetto_trace(const Trace&, const Program&, const TraceView&, TraceFile&) {
  MOTLEY_CHECK(!protobuf_version().empty());
}

#else

std::string protobuf_version() {
  return fmt::format("{}.{}.{}", GOOGLE_PROTOBUF_VERSION / 1000000, GOOGLE_PROTOBUF_VERSION / 1000 % 1000,
                     GOOGLE_PROTOBUF_VERSION % 1000);
}

namespace {

constexpr std::uint32_t kForgetsNames = 1, kNeedsNames = 2;  // TracePacket::sequence_flags
constexpr std::int32_t kByRank = 3, kBytes = 3;              // child_ordering, unit

using perfetto::TrackEvent;

// Names that stand once in the file: the packet that is the first to use one brings it along.
using NameIds = std::map<std::string, std::uint64_t, std::less<> >;
using NewNames = google::protobuf::RepeatedPtrField<perfetto::InternedName>* (perfetto::InternedData::*)();

// Viewers take process 0 for the idle one, so the process of a rank has the next number.
std::int32_t process_of(Rank rank) { return rank.value() + 1; }
// Tracks of a rank: itself, its memory, its streams.
std::uint64_t track_of(Rank rank) { return static_cast<std::uint64_t>(process_of(rank)) << 16U; }
std::uint64_t track_of_memory(Rank rank) { return track_of(rank) + 1; }
std::uint64_t track_of(Rank rank, StreamId stream) {
  return track_of(rank) + 2 + static_cast<std::uint64_t>(stream.value());
}

class PerfettoWriter {
 public:
  PerfettoWriter(const Program& program, TraceFile& file) : program_(program), file_(file) {}

  void add_rank(Rank rank, const std::string& name) {
    perfetto::TrackDescriptor& track = *begin_packet().mutable_track_descriptor();
    track.set_uuid(track_of(rank));
    track.set_child_ordering(kByRank);
    track.mutable_process()->set_pid(process_of(rank));
    track.mutable_process()->set_process_name(name);
    end_packet();
    const auto& streams = program_.program_of(rank).streams;
    for (const StreamId stream : streams.ids())
      add_track(rank, track_of(rank, stream), std::string(name_of(streams[stream].kind)), stream.value());
    add_track(rank, track_of_memory(rank), "memory", -1);
  }

  void begin_slice(const ViewSlice& slice, const std::vector<std::uint64_t>& leaving) {
    TrackEvent& event = begin_event(TrackEvent::TYPE_SLICE_BEGIN, slice, slice.begin_ns);
    event.add_category_iids(id_of(category_of_slice(program_, slice), categories_,
                                  &perfetto::InternedData::mutable_event_categories));
    event.set_name_iid(
        id_of(name_of_slice(program_, slice), event_names_, &perfetto::InternedData::mutable_event_names));
    if (slice.kernel != nullptr)
      annotate_kernel(event, *slice.kernel);
    else
      annotate_instruction(event, *slice.event);
    for (const std::uint64_t flow : leaving) event.add_flow_ids(flow);
    end_packet();
  }

  // A recv is often posted before its send begins, but it never ends before: so a flow arrives at its end.
  void end_slice(const ViewSlice& slice, const std::vector<std::uint64_t>& arriving) {
    TrackEvent& event = begin_event(TrackEvent::TYPE_SLICE_END, slice, slice.end_ns);
    for (const std::uint64_t flow : arriving) event.add_terminating_flow_ids(flow);
    end_packet();
  }

  void add_memory(const ViewMemory& memory) {
    perfetto::TracePacket& packet = begin_packet();
    packet.set_timestamp(static_cast<std::uint64_t>(memory.at_ns));
    packet.mutable_track_event()->set_type(TrackEvent::TYPE_COUNTER);
    packet.mutable_track_event()->set_track_uuid(track_of_memory(memory.rank));
    packet.mutable_track_event()->set_counter_value(memory.bytes);
    end_packet();
  }

 private:
  perfetto::TracePacket& begin_packet() {
    perfetto::TracePacket& packet = *packets_.add_packet();
    packet.set_trusted_packet_sequence_id(1);
    packet.set_sequence_flags(is_first_ ? kForgetsNames | kNeedsNames : kNeedsNames);
    is_first_ = false;
    return packet;
  }
  // A file is a message of packets, and messages that stand one after another are one.
  void end_packet() {
    const std::string bytes = packets_.SerializeAsString();
    file_.text().append(std::string_view(bytes));
    file_.write_full();
    packets_.Clear();
  }

  // A counter has no order.
  void add_track(Rank rank, std::uint64_t uuid, const std::string& name, int order) {
    perfetto::TrackDescriptor& track = *begin_packet().mutable_track_descriptor();
    track.set_uuid(uuid);
    track.set_parent_uuid(track_of(rank));
    track.set_name(name);
    track.set_sibling_order_rank(order);
    if (order < 0) track.mutable_counter()->set_unit(kBytes);
    end_packet();
  }

  TrackEvent& begin_event(TrackEvent::Type type, const ViewSlice& slice, std::int64_t at_ns) {
    perfetto::TracePacket& packet = begin_packet();
    packet.set_timestamp(static_cast<std::uint64_t>(at_ns));
    packet.mutable_track_event()->set_type(type);
    packet.mutable_track_event()->set_track_uuid(track_of(slice.step().rank, slice.step().stream));
    return *packet.mutable_track_event();
  }

  std::uint64_t id_of(std::string_view name, NameIds& ids, NewNames new_names) {
    if (const auto known = ids.find(name); known != ids.end()) return known->second;
    const std::uint64_t id = ids.size() + 1;
    ids.emplace(name, id);
    perfetto::InternedData& data = *packets_.mutable_packet(0)->mutable_interned_data();
    perfetto::InternedName& entry = *(data.*new_names)()->Add();
    entry.set_iid(id);
    entry.set_name(std::string(name));
    return id;
  }

  perfetto::DebugAnnotation& annotation(TrackEvent& event, std::string_view name) {
    perfetto::DebugAnnotation& added = *event.add_debug_annotations();
    added.set_name_iid(id_of(name, annotations_, &perfetto::InternedData::mutable_debug_annotation_names));
    return added;
  }
  void annotate(TrackEvent& event, std::string_view name, double value) {
    annotation(event, name).set_double_value(value);
  }
  void annotate(TrackEvent& event, std::string_view name, std::int64_t value) {
    annotation(event, name).set_int_value(value);
  }
  void annotate(TrackEvent& event, std::string_view name, const std::string& value) {
    annotation(event, name).set_string_value(value);
  }
  void annotate_instruction(TrackEvent& event, const TraceEvent& from);
  void annotate_kernel(TrackEvent& event, const KernelEvent& from);

  const Program& program_;
  TraceFile& file_;
  perfetto::Trace packets_;  // one at a time
  bool is_first_ = true;
  NameIds categories_, event_names_, annotations_;
};

void PerfettoWriter::annotate_instruction(TrackEvent& event, const TraceEvent& from) {
  annotate(event, "index", std::int64_t{from.step.index});
  annotate(event, "free_s", from.free_s);
  annotate(event, "begin_s", from.begin_s);
  annotate(event, "matched_s", from.matched_s);
  annotate(event, "end_s", from.end_s);
  if (from.waited != Waited::no)
    annotate(event, "waited", std::string(from.waited == Waited::step ? "step" : "peer"));
  if (from.waited_for != Step{})
    annotate(event, "waited_for",
             fmt::format("rank {} stream {} index {}", from.waited_for.rank, from.waited_for.stream,
                         from.waited_for.index));
  if (from.waited_rank) annotate(event, "waited_rank", std::int64_t{from.waited_rank->value()});
  for (const auto& [name, value] : {std::pair{"bytes", from.bytes},
                                    {"allocated", from.allocated},
                                    {"freed", from.freed},
                                    {"peak", from.peak}})
    if (value != 0) annotate(event, name, value);
  if (from.flops != 0) annotate(event, "flops", from.flops);
  if (!from.paths.empty()) annotate(event, "paths", print(from.paths));
}

void PerfettoWriter::annotate_kernel(TrackEvent& event, const KernelEvent& from) {
  const Kernel* const kernel = find_kernel(program_, from.step, from.kernel);
  MOTLEY_CHECK(kernel != nullptr);
  annotate(event, "kernel", std::int64_t{from.kernel});
  annotate(event, "begin_s", from.begin_s);
  annotate(event, "end_s", from.end_s);
  annotate(event, "shape", fmt::format("{} x {} x {}", kernel->m, kernel->n, kernel->k));
  annotate(event, "format", std::string(name_of(kernel->format.value_or(program_.precision))));
  annotate(event, "layer", std::int64_t{kernel->layer});
  if (from.bytes != 0) annotate(event, "bytes", from.bytes);
  if (from.flops != 0) annotate(event, "flops", from.flops);
  if (kernel->recompute) annotate(event, "recompute", std::int64_t{1});
}

}  // namespace

void write_perfetto_trace(const Trace& trace, const Program& program, const TraceView& view,
                          TraceFile& file) {
  PerfettoWriter writer(program, file);
  for (const Rank rank : view.ranks) writer.add_rank(rank, name_of_rank(program, trace, rank));
  std::map<std::size_t, std::vector<std::uint64_t> > leaving, arriving;  // flows of a slice
  for (std::size_t i = 0; i < view.flows.size(); ++i) {
    leaving[view.flows[i].send].push_back(i + 1);
    arriving[view.flows[i].recv].push_back(i + 1);
  }
  for (std::size_t i = 0; i < view.slices.size(); ++i) {
    const ViewSlice& slice = view.slices[i];
    const std::size_t instruction = i;
    writer.begin_slice(slice, leaving[instruction]);
    if (slice.kernel == nullptr)
      for (; i + 1 < view.slices.size() && view.slices[i + 1].kernel != nullptr &&
             view.slices[i + 1].step() == slice.step();
           ++i) {
        writer.begin_slice(view.slices[i + 1], {});
        writer.end_slice(view.slices[i + 1], {});
      }
    writer.end_slice(slice, arriving[instruction]);
  }
  for (const ViewMemory& memory : view.memory) writer.add_memory(memory);
}

#endif

}  // namespace motley
