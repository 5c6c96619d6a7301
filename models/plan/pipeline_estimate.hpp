// Seconds and memory of a planned pipeline by closed forms, as policies use them. Read next:
// models/plan/stage_price.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/plan/pipeline_search.hpp"
#include "models/plan/stage_price.hpp"
#include "models/scenario/job.hpp"

namespace motley {

// No 1F1B takes less: m tau_s + sum_{j<s} tau_j for each stage s.
double least_step_s(std::span<const double> stage_s, std::int64_t micro_batches);

// Seconds in which a pipeline takes in one more micro-batch, at least: a stage that has w of them in flight waits until
// one has come back from the stages behind it. `transfer_s`: to the next stage, of all but the last.
double cycle_s(std::span<const double> stage_s, std::span<const double> transfer_s,
               std::span<const double> in_flight);

// Seconds of a pipeline under zb_h1, whose ranks do not end a step together: a stage waits for what a micro-batch takes
// in all others, and fills that with as many gradients of its weights as it may put off. With equal stages that is
// m tau + (p-1) (f + b - w) (arXiv:2401.10241). It is no bound: a law compares it with the schedule's own timetables.
double split_backward_s(std::span<const PassSeconds> stages, double micro_batches);

// Estimates pipelines of one job.
class PipelineEstimator {
 public:
  PipelineEstimator(const Job& job, StagePricer& pricer);

  // Seconds of a micro-batch's forward and backward in each stage. Empty: a stage is impossible.
  std::vector<double> stage_seconds(const PlannedPipeline& pipeline) const;

  // The most layers of each stage that its memory allows under 1F1B. 0: not even one.
  std::vector<std::int64_t> most_layers(const PlannedPipeline& pipeline) const;
  // Whether each stage has memory for its layers under 1F1B.
  bool fits(const PlannedPipeline& pipeline) const;
  // Gives every stage the lightest recompute that fits, the same in all stages. False: none fits.
  bool use_lightest_recompute(PlannedPipeline& pipeline) const;
  // Lets every stage, of one chunk, recompute as few of its layers as fit, in the way that is fastest. False: some
  // stage does not fit.
  bool recompute_least(PlannedPipeline& pipeline) const;

  // Seconds in which a micro-batch's activations pass from each stage to the next, while all replicas send theirs.
  // Assumes: NICs and links between sites are shared evenly; NICs reach the usual share of their line, or what sockets
  // move; stages take each group's chips in order, and transfers inside a node take no time.
  std::vector<double> transfer_seconds(const PlannedPipeline& pipeline) const;

  // Seconds after the last micro-batch in which a stage reduces its gradients, updates its share of the parameters
  // (zero 1) and gathers them. Assumes: the network is idle; the update reads and writes memory alone.
  double update_s(const StageWay& way, std::int64_t layers, std::int64_t replicas) const;

  // Seconds of a step: 1F1B's closed form with stages as long as the longer of their work and their transfers, the
  // first micro-batch's way to the last stage and back, and the longest update.
  double step_s(const PlannedPipeline& pipeline) const;

  double layer_parameters() const { return layer_parameters_; }  // of a whole layer

 private:
  double boundary_s(const PlannedPipeline& pipeline, const StageWay& from, const StageWay& to) const;

  const Job& job_;
  StagePricer& pricer_;
  double layer_parameters_ = 0;
};

// Tensor-parallel degrees that a group's nodes allow: the powers of two that divide their chips.
std::vector<std::int64_t> tensor_degrees(const NodeGroup& group);

std::int64_t chips_of(const NodeGroup& group);

// Bytes/s at which each rank of a stage on the group reduces what its copies hold alike: over the fabric if they fit
// into a node, else over all NICs of the first kind, which the ranks of a tensor-parallel group share, because a ring
// over nodes leaves each of them at another NIC.
double rate_to_replicas(const Cluster& cluster, const NodeGroup& group, std::int64_t copies,
                        std::int64_t tensor_parallel);

// Bytes/s that no such rank passes in what reduces over so many copies, by that algorithm. Of three ranks in a row,
// where a node has room for two, two are in one node, and a ring is as slow as the fabric between them.
double most_to_replicas(const NodeGroup& group, std::int64_t copies, std::int64_t tensor_parallel,
                        CollectiveAlgorithm algorithm);

}  // namespace motley
