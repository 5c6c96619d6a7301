// What the seconds of a prediction rest on: figures that were measured, or not. Read next:
// models/cost/rated_kernels.hpp.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "models/cluster/cluster.hpp"
#include "models/cost/rated_kernels.hpp"
#include "models/trace/trace.hpp"

namespace motley {

// Kernels of one shape whose time was not measured on the chip.
struct MissingShape {
  RatedKernel kernel;
  std::string chip;
  MeasuredShape shape;  // seconds: what one such kernel is predicted to take
  double seconds = 0;   // of all of them, on all ranks
  double error =
      0;  // usual error of the speed of such kernels on shapes that were not measured; 0: not known
  double between_jobs = 0;  // of the chip's kernels
  Known known = Known::assumed;
};

struct Coverage {
  std::array<double, kWords<Known>.size()> kernel_s{};  // by Known; the optimizer's steps, too
  // Messages, collectives and copies: they rest on the cluster's figures.
  double message_s = 0;
  // The optimizer's steps that were not measured, which are assumed seconds too, and a chip that takes them.
  double optimizer_assumed_s = 0;
  std::string optimizer_chip;
  std::vector<MissingShape> missing;  // those that take most seconds first
  // How many seconds the kernels that are not assumed may all be off in a job: their seconds times `between_jobs`.
  double job_off_s = 0;
  double seconds() const;
  double share(Known known) const {
    return seconds() > 0 ? kernel_s[static_cast<std::size_t>(known)] / seconds() : 0;
  }
  double message_share() const { return seconds() > 0 ? message_s / seconds() : 0; }
};

// Counts the busy time of all ranks in a simulated step. Exposed and hidden messages count alike.
Coverage coverage_of(const Program& program, const Cluster& cluster, const Trace& trace);
bool has_measured_kernels(const Cluster& cluster);

// Throws Refusal("not-calibrated") where no chip has measured kernels, and Refusal("outside-measured") where a kernel
// or an optimizer's step is charged by figures that nothing near it was measured for: extrapolated or assumed. Messages
// and the host's launches rest on general figures, and are not refused. `scenario`: its path, for the messages.
void require_measured(const Coverage& coverage, const Cluster& cluster, const std::string& scenario);

// "61.0 % measured, 30.2 % interpolated, 1.0 % assumed, 7.8 % messages"
std::string describe(const Coverage& coverage);
// A line for each missing shape, at most so many.
std::string missing_text(const Coverage& coverage, std::size_t most);

// Half of the width of an interval, as a share of the step, that holds 80 % of measured steps: from the errors of the
// fitted speeds on held-out shapes, how far jobs are apart, and the noise between runs.
// Assumes: what else a job does makes all its kernels slower or faster alike; what is left of the errors of unlike
// shapes is independent; what was never measured (messages, kinds of kernels) is off by a third.
double measured_half_width(const Coverage& coverage, double noise);

}  // namespace motley
