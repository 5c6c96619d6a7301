// How a step spreads where chips, nodes and NICs that are called alike are not (Cluster::variation): its mean and its
// percentiles by order statistics, without drawing the speed of every chip. All ranks wait for the slowest, so the step
// is that of the one chip or NIC that costs most. Read next: models/cluster/variation.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "models/explain/experiments.hpp"
#include "models/report/report.hpp"

namespace motley {

// Whether the job's chips, nodes or NICs vary.
bool has_variation(const Job& job);

struct ExpectedStep {
  StepSpread spread;
  // The cluster with all speeds at their middle, but for chips of one node and the NICs of one, which are so slow that
  // the step is about the mean one. It does not vary.
  Cluster cluster;
};

// Simulates the job with one slow part at a time, a part of each stage and kind of chip, to see what such a part costs.
//
// Assumes: the step is the largest of what the chips of each stage and node alone, at their speed, would make of it. So
// the share of steps that take at most t is the product over all of the share of their speeds that allow t. The same
// holds for NICs; what chips and what NICs cost adds up. Against simulations of whole
// draws, means are within 1 % (tests/sim/world/test_speeds.cpp).
// Throws the Refusal of a job that does not stand.
ExpectedStep expect_step(const Job& job, const Program& program, const Simulation& simulation,
                         const TrialRunner& runner, const ExperimentProgress& progress = {});

// The steps of that many draws of all speeds (draw_speeds()), each simulated whole, ascending.
std::vector<double> drawn_steps(const Job& job, std::int64_t draws, const Simulation& simulation,
                                const TrialRunner& runner, const ExperimentProgress& progress = {});

}  // namespace motley
