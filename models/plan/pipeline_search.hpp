// Finds the pipelines of a job that closed forms call fastest: which groups of chips hold stages, in which order, with
// which tensor parallelism, how many layers and how much recomputed, for every micro-batch and number of replicas. It
// ranks; only a simulation tells how fast a pipeline is. Read next: models/plan/stage_price.hpp, planner.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "models/plan/stage_price.hpp"
#include "models/scenario/job.hpp"
#include "models/schedule/schedule.hpp"

namespace motley {

struct PlannedStage {
  StageWay way;
  std::int64_t layers = 0;
  // Layers at the beginning of each chunk that recompute; the others keep everything. Nothing: all recompute.
  std::optional<std::int64_t> recompute_layers = {};
  bool operator==(const PlannedStage&) const = default;
};

// One pipeline with equal replicas.
struct PlannedPipeline {
  std::int64_t micro_batch = 1, micro_batches = 1, replicas = 1;
  std::int64_t context_parallel = 1, expert_parallel = 1;
  Schedule schedule = Schedule::one_f_one_b;  // or interleaved, zb_h1, zb_v, dualpipe_v
  PutOff put_off = PutOff::count;
  int chunks = 1;                    // of each stage; more than one under `interleaved`; two in a V
  std::vector<PlannedStage> stages;  // in their order; with one chunk, from the first layer to the last
  // m times the longest stage, plus the others, plus gradients. With several chunks: the longest chunks of each round,
  // and the others' first chunks. Under zb_h1: split_backward_s().
  double estimate_s = 0;
  bool operator==(const PlannedPipeline&) const = default;
};

struct PipelineSearch {
  std::vector<PlannedPipeline> best;  // of each schedule in turn, the lowest estimates first
  std::int64_t explored = 0;          // layouts whose layers were divided
  std::int64_t pruned = 0;            // layouts that cannot be among the best
  // No pipeline is faster under 1F1B, without transfers between stages.
  double bound_s = std::numeric_limits<double>::infinity();
  bool is_whole = true;  // false: the search was ended early
  // The least estimate is that of all pipelines whose estimate is judged by. False: there were too many to tell.
  bool is_exact = true;
};

// A run of stages on one group, all cut alike.
struct RowSegment {
  int group = 0;
  std::int64_t tensor_parallel = 1;
};

// Which pipelines are looked for. The bound of the form counts more stages than `stages` and `most_stages` allow; it
// holds for them, too.
struct PipelineForm {
  int most_chunks = 12;         // in a stage
  bool splits_backward = true;  // zb_h1, too
  bool has_unlike_cuts = true;  // groups may have different tensor parallelism
  bool has_unlike_templates = true, has_unlike_replicas = true;  // of a pipeline's stages
  bool cuts_sequences = true, divides_experts = true;
  bool recomputes_modules = true;              // others than attention, in some layers of a stage
  std::int64_t replicas = 0, micro_batch = 0;  // 0: any
  std::int64_t stages = 0, most_stages = 0;    // of a pipeline; 0: any
  // What a step ends with on each rank, after its last backward: nothing beside any computation.
  bool reduces_last = true, gathers_last = false;  // gradients; the parameters that replicas updated
  // Whether a row from the first stage to the last is looked at; empty: every row is.
  std::function<bool(const std::vector<RowSegment>& row)> allows_row = {};

  // As StagePricer takes them.
  std::vector<Recompute> recomputes() const;
};

// The `most` best pipelines under 1F1B, interleaved or zb_h1, with zero 1. `has_time` is asked now and then; when it
// says no, the search ends with what it has.
PipelineSearch search_pipelines(const Job& job, StagePricer& pricer, std::size_t most,
                                const std::function<bool()>& has_time, const PipelineForm& form = {});

// The job with that pipeline as its strategy.
Job with_pipeline(const Job& job, const PlannedPipeline& pipeline);

}  // namespace motley
