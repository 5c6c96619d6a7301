#include "models/calibration/kernel_samples.hpp"

#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "models/base/median.hpp"
#include "models/base/refusal.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/cost/rated_kernels.hpp"
#include "models/trace/compare.hpp"

namespace motley {
namespace {

using SampleKey = std::tuple<RatedKernel, Format, MeasuredShape>;
SampleKey key_of(const KernelSample& sample) {
  MeasuredShape shape = sample.shape;
  shape.seconds = 0;
  return {sample.kernel, sample.format, shape};
}

void summarise(KernelSample& sample) { sample.shape.seconds = median_of(sample.times); }

std::vector<double> job_medians_of(const KernelSample& sample) {
  return sample.job_medians.empty() ? std::vector{median_of(sample.times)} : sample.job_medians;
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
  check_is_of(program, trace);
  std::map<SampleKey, KernelSample> alike;
  for (const KernelEvent& event : trace.kernels) {
    const Kernel* const kernel = find_kernel(program, event.step, event.kernel);
    const double seconds = event.end_s - event.begin_s;
    // What ranks wait for each other in a collective is no property of a kernel; a share takes no time of its own.
    if (!measured.contains(event.step.rank) || is_collective(kernel->op) || is_share_of_attention(*kernel))
      continue;
    if (!(seconds > 0)) continue;
    KernelSample sample;
    sample.kernel = rated_kernel(program.program_of(event.step.rank), *kernel);
    sample.format = kernel->format.value_or(program.precision);
    sample.shape = shape_of(*kernel);
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
    if (!(event.end_s > event.begin_s)) continue;
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
    std::vector<double> jobs = job_medians_of(known->second);
    for (const double each : job_medians_of(sample)) jobs.push_back(each);
    known->second.job_medians = std::move(jobs);
    auto& times = known->second.times;
    times.insert(times.end(), sample.times.begin(), sample.times.end());
  }
  all.kernels.clear();
  for (auto& [key, sample] : alike) {
    summarise(sample);
    all.kernels.push_back(std::move(sample));
  }
  all.optimizer.insert(all.optimizer.end(), more.optimizer.begin(), more.optimizer.end());
}

void make_one_job(Samples& samples) {
  for (KernelSample& sample : samples.kernels) sample.job_medians.clear();
}

}  // namespace motley
