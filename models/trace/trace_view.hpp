// A Trace as viewers draw it: slices, flows and a counter in whole nanoseconds. Both forms of file are written from it
// (chrome_trace.cpp, perfetto_trace.cpp). The exact seconds stay in the TraceEvents. Read next: models/trace/trace.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/trace/trace.hpp"

namespace motley {

// Chrome's JSON has microseconds. Importers multiply them by 1000 in double precision, and some then cut the fraction
// off (Perfetto before v50: src/trace_processor/importers/json/json_utils.cc), so that one instant in a hundred is read
// as one nanosecond less, and a slice then overlaps its neighbour and is dropped. A view therefore has only instants
// that every importer reads alike. Source of the multiplication: CoerceToTs(), as of 2023.
bool is_read_exactly(std::int64_t ns);
// The nearest such instant at or after, or at or before, `ns`, which is not negative.
std::int64_t exact_at_or_after(std::int64_t ns);
std::int64_t exact_at_or_before(std::int64_t ns);

struct ViewSlice {
  const TraceEvent* event = nullptr;    // the instruction; null: this kernel has none in the trace
  const KernelEvent* kernel = nullptr;  // null: the slice is the instruction itself
  std::int64_t begin_ns = 0, end_ns = 0;
  const Step& step() const { return kernel != nullptr ? kernel->step : event->step; }
};
// From a send to the recv that it matches: places in TraceView::slices.
struct ViewFlow {
  std::size_t send = 0, recv = 0;
  std::int64_t leaves_ns = 0, arrives_ns = 0;  // inside the slices
};
// Bytes that are live on a rank from this instant on.
struct ViewMemory {
  Rank rank;
  std::int64_t at_ns = 0, bytes = 0;
};

// Slices of one stream are disjoint; the kernels of a compute follow it, and lie inside it. Up to an hour an instant is
// at most six nanoseconds from its second, and nearly always half a one. Where a trace has times before 0, all are
// shifted by as much, because viewers drop them.
struct TraceView {
  std::vector<ViewSlice> slices;  // by rank, stream, time
  std::vector<ViewFlow> flows;
  std::vector<ViewMemory> memory;  // by rank, time
  std::vector<Rank> ranks;         // that have events, ascending
};
// `ranks` empty: all ranks. The trace must outlive the view.
TraceView view_of(const Trace& trace, const Program& program, const std::vector<Rank>& ranks);

// "forward 3", "send to 16", "matmul".
std::string name_of_slice(const Program& program, const ViewSlice& slice);
// "compute", "transfer", "collective", "optimizer", "copy", "kernel". A collective inside a compute is a "collective".
std::string_view category_of_slice(const Program& program, const ViewSlice& slice);
// "rank 16 (for 16): stage 1 replica 0 tensor 0": for how many ranks it stands.
std::string name_of_rank(const Program& program, const Trace& trace, Rank rank);
// "30 of 32 ranks, kernels": what a file of these ranks does not show; empty: it shows all.
std::string left_out_of_view(const Program& program, const Trace& trace, const TraceView& view);

}  // namespace motley
