// Finds the pipelines of a job that closed forms call fastest: which groups of chips hold stages, in which order, with
// which tensor parallelism, how many layers and how much recomputed, for every micro-batch and number of replicas. It
// ranks; only a simulation tells how fast a pipeline is. Read next: models/plan/stage_price.hpp, planner.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "models/plan/stage_price.hpp"
#include "models/scenario/job.hpp"

namespace motley {

struct PlannedStage {
  StageWay way;
  std::int64_t layers = 0;
};

// One pipeline with equal replicas.
struct PlannedPipeline {
  std::int64_t micro_batch = 1, micro_batches = 1, replicas = 1;
  std::int64_t context_parallel = 1, expert_parallel = 1;
  int chunks = 1;                    // of each stage; more than one: interleaved
  std::vector<PlannedStage> stages;  // in their order; with one chunk, from the first layer to the last
  // m times the longest stage, plus the others, plus gradients. With several chunks: the longest chunks of each round,
  // and the others' first chunks.
  double estimate_s = 0;
};

// What bounds the steps of all layouts of a row of groups from below. With m micro-batches, 1F1B takes at least
//   m tau_s + sum_{j<s} tau_j + max(0, R - (w-1) f_s) + max(0, R - (w-1) b_s)
// for each stage s of p, with tau = f + b its forward and backward, R = sum_{j>s} tau_j and w = min(m, p-s); where
// m <= w only the larger of the last two counts. Taken at the longest stage, wherever it stands and however the other
// layers are divided, that is at least seconds().
//
// all_s(T) is what one micro-batch takes in all stages, if none takes more than T: the fastest segments are filled
// first.
struct RowBound {
  struct Segment {
    double stages = 0, layer_s = 0;  // most stages; least seconds of a layer
  };
  std::vector<Segment> segments;  // the fastest layers first
  double layers = 0, ends_s = 0;  // of the model; least seconds of embedding and head
  double micro_batches = 1;
  double stages = 1;         // most stages of the row
  double shorter_share = 0;  // most that the shorter one of forward and backward can be, as a share of both

  double all_s(double longest_s) const;  // infinite: so short stages cannot hold the model
  // Least seconds of a step whose longest stage takes `longest_s` or more, as far as they are below `enough_s`.
  double seconds(double longest_s, double enough_s) const;
  // A longest stage with which, and beyond which, every step takes at least `enough_s`.
  double least_longest_s(double enough_s) const;

 private:
  // Least seconds of a step whose longest stage takes between the two.
  double between(double least_s, double most_s) const;
};

struct PipelineSearch {
  std::vector<PlannedPipeline> best;  // the lowest estimates first
  std::int64_t explored = 0;          // layouts whose layers were divided
  std::int64_t pruned = 0;            // layouts that cannot be among the best
  // No pipeline with one chunk in each stage is faster, without transfers between stages. Meaningless if the search was
  // ended early.
  double bound_s = std::numeric_limits<double>::infinity();
  bool is_whole = true;  // false: the search was ended early
};

// A run of stages on one group, all cut alike.
struct RowSegment {
  int group = 0;
  std::int64_t tensor_parallel = 1;
};

// Which pipelines are looked for. The bound of the form counts more stages than `stages` and `most_stages` allow; it
// holds for them, too.
struct PipelineForm {
  int most_chunks = 8;  // in a stage
  bool cuts_sequences = true, divides_experts = true;
  std::int64_t replicas = 0, micro_batch = 0;  // 0: any
  std::int64_t stages = 0, most_stages = 0;    // of a pipeline; 0: any
  // Whether a row from the first stage to the last is looked at; empty: every row is.
  std::function<bool(const std::vector<RowSegment>& row)> allows_row = {};
};

// The `most` best pipelines under 1F1B, or interleaved, with zero 1. `has_time` is asked now and then; when it says no,
// the search ends with what it has.
PipelineSearch search_pipelines(const Job& job, StagePricer& pricer, std::size_t most,
                                const std::function<bool()>& has_time, const PipelineForm& form = {});

// The job with that pipeline as its strategy.
Job with_pipeline(const Job& job, const PlannedPipeline& pipeline);

}  // namespace motley
