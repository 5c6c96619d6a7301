#include "models/trace/trace_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Doubles have whole numbers up to here; a step of 104 days is no longer drawn to the nanosecond.
constexpr std::int64_t kMostExact_ns = std::int64_t{1} << 53;

// Slices without length that begin at one instant are nested in one another, and viewers drop those deeper than 512
// (Perfetto's slice_tracker.h, kMaxDepth). Where more of a stream stand at one instant, as all do in the null World,
// the rest stand a nanosecond later.
constexpr int kMostAtOneInstant = 256;

// What an importer that truncates reads of a duration.
std::int64_t truncated_ns(std::int64_t ns) {
  return static_cast<std::int64_t>(static_cast<double>(ns) / 1000.0 * 1000.0);
}

// Rounds seconds to instants of the view.
class ViewClock {
 public:
  explicit ViewClock(double first_s) : shift_ns_(std::max<std::int64_t>(0, -std::llround(first_s * 1e9))) {}
  std::int64_t at(double seconds) const { return exact_at_or_after(std::llround(seconds * 1e9) + shift_ns_); }

 private:
  std::int64_t shift_ns_;
};

double first_second(const Trace& trace) {
  double first_s = 0;
  for (const TraceEvent& event : trace.events) first_s = std::min(first_s, event.begin_s);
  for (const KernelEvent& kernel : trace.kernels) first_s = std::min(first_s, kernel.begin_s);
  return first_s;
}

// The kernels of one compute one after another inside its slice, also where an importer truncates the compute's
// duration. `parent` null: the trace lacks the compute.
void add_kernels(const ViewClock& clock, const ViewSlice* parent, const KernelEvent* first,
                 const KernelEvent* last, std::vector<ViewSlice>& slices) {
  std::int64_t from = 0, until = std::numeric_limits<std::int64_t>::max();
  const TraceEvent* event = nullptr;
  if (parent != nullptr) {
    event = parent->event;
    from = parent->begin_ns;
    until = exact_at_or_before(parent->begin_ns + truncated_ns(parent->end_ns - parent->begin_ns));
  }
  for (const KernelEvent* kernel = first; kernel != last; ++kernel) {
    const std::int64_t begin_ns = std::clamp(clock.at(kernel->begin_s), from, until);
    from = std::clamp(clock.at(kernel->end_s), begin_ns, until);
    slices.push_back({event, kernel, begin_ns, from});
  }
}

void add_slices(const Trace& trace, const std::set<Rank>& written, const ViewClock& clock, TraceView& view) {
  const auto is_written = [&](Rank rank) { return written.empty() || written.contains(rank); };
  auto kernel = trace.kernels.data();
  const auto* const last_kernel = kernel + trace.kernels.size();
  const auto kernels_of = [&](const ViewSlice* parent, const Step& step) {
    const KernelEvent* const first = kernel;
    while (kernel != last_kernel && kernel->step == step) ++kernel;
    if (is_written(step.rank)) add_kernels(clock, parent, first, kernel, view.slices);
  };
  std::int64_t free_ns = 0;  // the stream's last slice has ended
  int at_once = 0;           // slices without length at this instant
  const TraceEvent* earlier = nullptr;
  for (const TraceEvent& event : trace.events) {
    while (kernel != last_kernel && kernel->step < event.step) kernels_of(nullptr, kernel->step);
    if (!is_written(event.step.rank)) {
      kernels_of(nullptr, event.step);
      continue;
    }
    if (view.ranks.empty() || view.ranks.back() != event.step.rank) view.ranks.push_back(event.step.rank);
    if (earlier == nullptr || earlier->step.rank != event.step.rank ||
        earlier->step.stream != event.step.stream)
      free_ns = at_once = 0;
    earlier = &event;
    std::int64_t begin_ns = std::max(clock.at(event.begin_s), free_ns);
    if (begin_ns > free_ns) at_once = 0;
    if (at_once == kMostAtOneInstant) {
      begin_ns = exact_at_or_after(free_ns + 1);
      at_once = 0;
    }
    free_ns = std::max(clock.at(event.end_s), begin_ns);
    at_once = free_ns > begin_ns ? 0 : at_once + 1;
    const ViewSlice slice{&event, nullptr, begin_ns, free_ns};
    view.slices.push_back(slice);
    kernels_of(&slice, event.step);
  }
  while (kernel != last_kernel) kernels_of(nullptr, kernel->step);
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

// The slice of an instruction; the count of slices where it is not drawn.
std::size_t find_slice(const std::vector<ViewSlice>& slices, const Step& step) {
  const auto slice = std::lower_bound(slices.begin(), slices.end(), step,
                                      [](const ViewSlice& each, const Step& s) { return each.step() < s; });
  const bool is_it = slice != slices.end() && slice->step() == step && slice->kernel == nullptr;
  return is_it ? at(slice - slices.begin()) : slices.size();
}

// The instant nearest to `ns` that belongs to the slice and to no neighbour.
std::int64_t instant_inside(const ViewSlice& slice, std::int64_t ns) {
  if (ns >= slice.end_ns) ns = exact_at_or_before(std::max<std::int64_t>(0, slice.end_ns - 1));
  return std::max(ns, slice.begin_ns);
}

// Only pairs of which both sides are drawn: a folded trace has few ranks.
void add_flows(const Program& program, const ViewClock& clock, TraceView& view) {
  const auto transfers = transfers_of(program);
  std::map<std::pair<Rank, PeerSlot>, std::size_t> sent;  // number of transfers so far
  for (std::size_t i = 0; i < view.slices.size(); ++i) {
    const ViewSlice& send = view.slices[i];
    if (send.kernel != nullptr) continue;
    const Step& step = send.step();
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
    const std::size_t j = find_slice(view.slices, {peer, place.stream, place.index});
    if (j == view.slices.size()) continue;
    const ViewSlice& recv = view.slices[j];
    const std::int64_t leaves_ns = instant_inside(send, clock.at(send.event->matched_s));
    view.flows.push_back(
        {i, j, leaves_ns, instant_inside(recv, std::max(leaves_ns, clock.at(recv.event->matched_s)))});
  }
}

// The peak of an instruction while it runs, and the bytes that are left when it ends.
void add_memory(const Program& program, TraceView& view) {
  std::vector<std::pair<std::int64_t, std::int64_t>> changes;  // time (ns), change in bytes
  for (auto first = view.slices.begin(); first != view.slices.end();) {
    const Rank rank = first->step().rank;
    changes.assign(1, {0, 0});
    for (; first != view.slices.end() && first->step().rank == rank; ++first) {
      if (first->kernel != nullptr) continue;
      const TraceEvent& event = *first->event;
      if (event.peak != 0) changes.emplace_back(first->begin_ns, event.peak);
      if (const std::int64_t left = event.allocated - event.freed - event.peak; left != 0)
        changes.emplace_back(first->end_ns, left);
    }
    std::sort(changes.begin() + 1, changes.end());
    std::int64_t live = program.program_of(rank).static_bytes;
    for (std::size_t i = 0; i < changes.size(); ++i) {
      live += changes[i].second;
      if (i + 1 == changes.size() || changes[i + 1].first != changes[i].first)
        view.memory.push_back({rank, changes[i].first, live});
    }
  }
}

}  // namespace

bool is_read_exactly(std::int64_t ns) { return ns >= kMostExact_ns || truncated_ns(ns) == ns; }

std::int64_t exact_at_or_after(std::int64_t ns) {
  while (!is_read_exactly(ns)) ++ns;
  return ns;
}
std::int64_t exact_at_or_before(std::int64_t ns) {
  while (!is_read_exactly(ns)) --ns;
  return ns;
}

TraceView view_of(const Trace& trace, const Program& program, const std::vector<Rank>& ranks) {
  MOTLEY_CHECK(std::is_sorted(trace.events.begin(), trace.events.end(),
                              [](const TraceEvent& a, const TraceEvent& b) { return a.step < b.step; }));
  MOTLEY_CHECK(std::is_sorted(trace.kernels.begin(), trace.kernels.end(), is_earlier));
  TraceView view;
  view.slices.reserve(ranks.empty() ? trace.events.size() + trace.kernels.size() : 0);
  const ViewClock clock(first_second(trace));
  add_slices(trace, {ranks.begin(), ranks.end()}, clock, view);
  add_flows(program, clock, view);
  add_memory(program, view);
  return view;
}

std::string name_of_slice(const Program& program, const ViewSlice& slice) {
  const Step& step = slice.step();
  if (slice.kernel != nullptr) {
    const Kernel* const kernel = find_kernel(program, step, slice.kernel->kernel);
    MOTLEY_CHECK(kernel != nullptr);
    return std::string(name_of(kernel->op));
  }
  const Instruction& instruction = program.at(step.rank, step.stream, step.index);
  const RankEntry& entry = program.ranks[step.rank];
  std::string name;
  switch (instruction.op()) {
    case Op::compute:
      name = program.program_of(step.rank).blocks[std::get<Compute>(instruction.body).block].name;
      break;
    case Op::send:
      name = fmt::format("send to {}", entry.peers[instruction.message()->slot].value());
      break;
    case Op::recv:
      name = fmt::format("recv from {}", entry.peers[instruction.message()->slot].value());
      break;
    case Op::collective:
      name = name_of(std::get<Collective>(instruction.body).kind);
      break;
    case Op::optimizer:
      name = "optimizer";
      break;
    case Op::copy:
      name = goes_to_host(program.program_of(step.rank), instruction) ? "copy to host" : "copy from host";
      break;
  }
  if (instruction.micro_batch >= 0) name += fmt::format(" {}", instruction.micro_batch);
  return name;
}

std::string_view category_of_slice(const Program& program, const ViewSlice& slice) {
  const Step& step = slice.step();
  if (slice.kernel != nullptr) {
    const Kernel* const kernel = find_kernel(program, step, slice.kernel->kernel);
    return kernel != nullptr && is_collective(kernel->op) ? "collective" : "kernel";
  }
  switch (program.at(step.rank, step.stream, step.index).op()) {
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

std::string name_of_rank(const Program& program, const Trace& trace, Rank rank) {
  std::string stands_for;
  for (const StandIn& each : trace.stand_ins)
    if (each.rank == rank && each.count > 1) stands_for = fmt::format(" (for {})", each.count);
  const RankEntry& entry = program.ranks[rank];
  return fmt::format("rank {}{}: stage {} replica {} tensor {}", rank, stands_for, entry.stage, entry.replica,
                     entry.tensor_index);
}

std::string left_out_of_view(const Program& program, const Trace& trace, const TraceView& view) {
  std::int64_t shown = 0;
  for (const Rank rank : view.ranks) {
    const auto stand_in = std::find_if(trace.stand_ins.begin(), trace.stand_ins.end(),
                                       [&](const StandIn& each) { return each.rank == rank; });
    shown += stand_in == trace.stand_ins.end() ? 1 : stand_in->count;
  }
  std::string text;
  if (shown < program.rank_count())
    text = fmt::format("{} of {} ranks", program.rank_count() - shown, program.rank_count());
  const bool has_kernels = std::any_of(view.slices.begin(), view.slices.end(),
                                       [](const ViewSlice& slice) { return slice.kernel != nullptr; });
  if (!has_kernels) text += text.empty() ? "kernels of computes" : ", kernels of computes";
  return text;
}

}  // namespace motley
