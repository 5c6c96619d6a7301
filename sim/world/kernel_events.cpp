#include "sim/world/kernel_events.hpp"

#include <algorithm>

#include "models/base/index.hpp"

namespace motley {
namespace {

// How much longer a modelled compute took than its kernels do by themselves. A measured one took what they took.
double stretch_of(const TraceEvent& event, const std::vector<KernelSpan>& spans, bool is_measured) {
  if (is_measured || spans.empty() || !(spans.back().end_s > 0)) return 1;
  return (event.end_s - event.begin_s) / spans.back().end_s;
}

}  // namespace

std::vector<KernelEvent> kernel_events(const Program& program, const std::vector<TraceEvent>& events,
                                       Durations& durations) {
  std::vector<KernelEvent> kernels;
  for (const TraceEvent& event : events) {
    const Step& step = event.step;
    const Instruction& instruction = program.at(step.rank, step.stream, step.index);
    const Compute* const compute = instruction.as<Compute>();
    if (compute == nullptr) continue;
    const auto& block = program.program_of(step.rank).blocks[compute->block].kernels;
    const std::vector<KernelSpan> spans = durations.kernels(step, instruction);
    const double stretch = stretch_of(event, spans, durations.is_measured(step.rank));
    const auto instant_s = [&](double from_begin_s) {
      return std::clamp(event.begin_s + stretch * from_begin_s, event.begin_s, event.end_s);
    };
    for (const KernelSpan& span : spans)
      kernels.push_back({.step = step,
                         .kernel = span.kernel,
                         .begin_s = instant_s(span.begin_s),
                         .end_s = instant_s(span.end_s),
                         .flops = span.flops,
                         .bytes = block[at(span.kernel)].bytes});
  }
  return kernels;
}

std::int64_t count_kernels(const Program& program, const std::vector<TraceEvent>& events) {
  std::int64_t count = 0;
  for (const TraceEvent& event : events) {
    const Step& step = event.step;
    const Compute* const compute = program.at(step.rank, step.stream, step.index).as<Compute>();
    if (compute != nullptr) count += compute->last_kernel - compute->first_kernel;
  }
  return count;
}

}  // namespace motley
