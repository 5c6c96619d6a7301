// What can be said of a Trace without its Program, and the file that it is written to. Read next:
// models/trace/trace_forms.hpp.
#include "models/trace/trace.hpp"

#include <algorithm>
#include <tuple>

#include "models/base/index.hpp"
#include "models/trace/trace_forms.hpp"

namespace motley {

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
  const TraceForm form = form_of_trace(path);
  require_trace_form(path, protobuf_version());
  TraceFile file(path);
  const TraceView view = view_of(trace, program, ranks);
  if (form == TraceForm::perfetto)
    write_perfetto_trace(trace, program, view, file);
  else
    write_chrome_trace(trace, program, view, file);
  file.close();
}

}  // namespace motley
