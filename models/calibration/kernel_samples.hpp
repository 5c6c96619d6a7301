// Measured times of kernels, from traces of real runs, as samples that a fit learns from. Read next: kernel_fit.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/base/format.hpp"
#include "models/cluster/kernel_rates.hpp"
#include "models/trace/trace.hpp"

namespace motley {

// All kernels of a trace that are alike but for their micro-batch, layer and rank.
struct KernelSample {
  RatedKernel kernel;
  Format format = Format::fp32;
  MeasuredShape shape;        // `seconds`: the median of `times`
  std::vector<double> times;  // seconds of each time that it ran
  // The median of each job that ran it: what else a job does makes a kernel faster or slower. Empty: all is of one job.
  std::vector<double> job_medians;
};
// AdamW's steps of a rank.
struct OptimizerSample {
  double bytes = 0, seconds = 0;
};
struct Samples {
  std::vector<KernelSample> kernels;  // by kernel, format, shape
  std::vector<OptimizerSample> optimizer;
};

// Collects the samples of a measured rank's events. Throws Refusal("no-kernels") where the trace has none, and
// Refusal("not-measured-run") where no rank was measured; "different-programs" where it is not of the Program.
Samples samples_of(const Program& program, const Trace& trace);
// Samples of one shape become one, with all their times; `more` is of other jobs than `all`.
void add_samples(const Samples& more, Samples& all);
// All samples are of one job, whatever they were before.
void make_one_job(Samples& samples);

}  // namespace motley
