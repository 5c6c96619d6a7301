#include "models/calibration/kernel_samples.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "models/base/refusal.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/trace/compare.hpp"

namespace motley {
namespace {

using SampleKey = std::pair<KernelOp, std::string>;
SampleKey key_of(const KernelSample& sample) { return {sample.op, sample.shape}; }

// The value below which that share of them lies; they are sorted.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const double above = sorted[std::min(below + 1, sorted.size() - 1)];
  return sorted[below] + (place - static_cast<double>(below)) * (above - sorted[below]);
}

void summarise(KernelSample& sample) {
  std::sort(sample.times.begin(), sample.times.end());
  sample.seconds = quantile(sample.times, 0.5);
  sample.spread = (quantile(sample.times, 0.75) - quantile(sample.times, 0.25)) / sample.seconds;
}

std::set<Rank> measured_ranks(const Trace& trace) {
  std::set<Rank> ranks(trace.measured_ranks.begin(), trace.measured_ranks.end());
  if (ranks.empty())
    throw Refusal(Exit::usage, "not-measured-run", {}, "no rank of this trace was measured",
                  "`motley train --trace FILE --trace-kernels` writes one that was");
  if (trace.kernels.empty())
    throw Refusal(Exit::usage, "no-kernels", {}, "this trace does not have the times of kernels",
                  "write it with --trace-kernels");
  return ranks;
}

}  // namespace

Samples samples_of(const Program& program, const Trace& trace) {
  const std::set<Rank> measured = measured_ranks(trace);
  std::map<SampleKey, KernelSample> alike;
  for (const KernelEvent& event : trace.kernels) {
    const Kernel* const kernel = find_kernel(program, event.step, event.kernel);
    MOTLEY_CHECK(kernel != nullptr);
    const double seconds = event.end_s - event.begin_s;
    // What ranks wait for each other in a collective is no property of a kernel; a share takes no time of its own.
    if (!measured.contains(event.step.rank) || is_collective(kernel->op) || is_share_of_attention(*kernel))
      continue;
    if (!(seconds > 0)) continue;
    KernelSample sample;
    sample.op = kernel->op;
    sample.shape = describe_kernel(*kernel, program.precision);
    sample.flops = kernel->flops;
    sample.bytes = static_cast<double>(kernel->bytes);
    alike.try_emplace(key_of(sample), sample).first->second.times.push_back(seconds);
  }
  Samples samples;
  for (auto& [key, sample] : alike) {
    summarise(sample);
    samples.kernels.push_back(std::move(sample));
  }
  for (const TraceEvent& event : trace.events) {
    if (!measured.contains(event.step.rank)) continue;
    const Step& step = event.step;
    const auto* optimizer = program.at(step.rank, step.stream, step.index).as<OptimizerStep>();
    if (optimizer == nullptr || !optimizer->tensors.empty()) continue;  // a step of the host is its memory's
    samples.optimizer.push_back(
        {optimizer_step_bytes(program, program.program_of(step.rank)), event.end_s - event.begin_s});
  }
  return samples;
}

void add_samples(const Samples& more, Samples& all) {
  std::map<SampleKey, KernelSample> alike;
  for (KernelSample& sample : all.kernels) alike.emplace(key_of(sample), std::move(sample));
  for (const KernelSample& sample : more.kernels) {
    const auto [known, is_new] = alike.try_emplace(key_of(sample), sample);
    if (is_new) continue;
    auto& times = known->second.times;
    times.insert(times.end(), sample.times.begin(), sample.times.end());
    summarise(known->second);
  }
  all.kernels.clear();
  for (auto& [key, sample] : alike) all.kernels.push_back(std::move(sample));
  all.optimizer.insert(all.optimizer.end(), more.optimizer.begin(), more.optimizer.end());
}

}  // namespace motley
