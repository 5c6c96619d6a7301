// What a stage of a pipeline costs on one group of a cluster: seconds of its passes and bytes of its memory, for any
// number of layers. Small jobs are compiled, priced and counted as whole ones are, so that these figures are the
// compiler's own. Read next: models/plan/pipeline_search.hpp.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "models/plan/planned_recomputes.hpp"
#include "models/scenario/job.hpp"
#include "models/schedule/schedule.hpp"

namespace motley {

struct PassSeconds {
  double forward_s = 0, backward_s = 0;
  double weights_s = 0;  // of the backward: the weights' gradients, which no other stage waits for
  double passed_on_s() const { return forward_s + backward_s - weights_s; }
  double seconds() const { return forward_s + backward_s; }
  PassSeconds& operator+=(const PassSeconds& other);
};

// A way to run a stage.
struct StageWay {
  int group = 0;  // index in Cluster::groups
  std::int64_t tensor_parallel = 1;
  Recompute recompute;
  std::int64_t context_parallel = 1;
  std::int64_t expert_parallel = 1;  // more than 1: each expert is whole on its rank
  bool operator==(const StageWay&) const = default;
  // Replicas of a stage that hold all experts once.
  std::int64_t least_replicas() const {
    const std::int64_t ranks = tensor_parallel * context_parallel;
    return (expert_parallel + ranks - 1) / ranks;
  }
};

// Bytes that a chip of a stage needs beyond those of its layers grow with the micro-batches in flight.
struct StageBytes {
  double fixed = 0, in_flight = 0;        // of every stage; of each micro-batch in flight
  double layer = 0, layer_in_flight = 0;  // of each layer; of each layer and micro-batch in flight
  double first = 0, last = 0;             // of the stage with the embedding; with the head
  double capacity = 0;                    // of the chip
  // `in_flight` need not be whole: with several chunks in a stage, micro-batches are in flight in a part of them.
  std::int64_t most_layers(double micro_batches_in_flight, bool is_first, bool is_last) const;
};

// Divides the experts of a stage: over more than one rank, each expert is whole on its rank.
void divide_experts(Stage& stage, std::int64_t expert_parallel);
// Where a planned strategy begins to weigh experts: where their outputs need not be kept.
ExpertWeights planned_expert_weights(const Transformer& transformer);

struct StageSeconds {
  PassSeconds pass;  // of a pass, whatever the stage holds
  PassSeconds embedding, head;
  std::vector<PassSeconds> layers;  // [0] is 0, [i] those of layers 0 to i-1 together
  double least_layer_s = 0;         // the least of any layer, forward and backward
  // The shorter one of forward and backward, as a share of both, of any stage at most.
  double shorter_share = 0;
  // The gradients of the weights, as a share of forward and backward of any layer at most.
  double weights_share = 0;
  // The share of any pass, at least, that grows as more ranks wait for the slowest: all but waits for exchanges.
  double slowed_share = 1;
  // Seconds of layers [first, last), with the embedding or the head where they are among them.
  PassSeconds of_layers(std::int64_t first, std::int64_t last) const;
};
struct StagePrice : StageSeconds {
  StageBytes bytes;
};

// What a layer keeps more under zb_h1, as parts of what it keeps of a micro-batch in flight: once, and for each
// micro-batch whose weights' gradients are put off. With p stages, and q behind a stage, those may be p - q - 1 if they
// are put off by count.
struct PutOffShares {
  double once = 0, each = 0;
};

// Prices ways to run stages of one job, each once.
class StagePricer {
 public:
  // `offload`: of every stage. Bytes are those that stay on the chip; seconds are those without it.
  // `recomputes`: what stages may recompute, as planned_recomputes() lists it; empty: just that.
  explicit StagePricer(const Job& job, const Offload& offload = {}, std::vector<Recompute> recomputes = {})
      : job_(job),
        offload_(offload),
        recomputes_(recomputes.empty() ? planned_recomputes(job.transformer) : std::move(recomputes)) {}
  const std::vector<Recompute>& recomputes() const { return recomputes_; }
  // Null: the way is impossible (heads that do not divide, a tensor-parallel group larger than a node).
  // `micro_batch`: sequences in a micro-batch. `replicas`: of the pipeline; they divide the optimizer state (zero 1).
  const StagePrice* price(const StageWay& way, std::int64_t micro_batch, std::int64_t replicas);
  // Assumes: groups of chips, micro-batches and parts of sequences do not change these shares.
  const PutOffShares& put_off(const StageWay& way);
  // The seconds alone, which are there sooner. Null: the way is impossible; price() may find more ways to be so.
  const StageSeconds* seconds(const StageWay& way, std::int64_t micro_batch);
  // Least seconds of a chip for one sequence through layer [layer]; through embedding and head.
  struct LeastWork {
    std::vector<double> layers;
    double ends = 0;
    double seconds() const;
  };
  // As if the chip did not have to wait for slower ones.
  const LeastWork& least_work(int group);
  // How much slower a chip of the group is, as it waits for the slowest of all ranks. Seconds of stages contain it.
  // It counts as many ranks as have half of the cluster's strength.
  double slowness(int group);
  // How much more than that such a chip is slower among so many ranks, or an eighth of all fewer; at least 1.
  double slower_among(int group, double ranks);
  // Whoever uses so few ranks that `slowness` is too high takes this long at least.
  double few_ranks_step_s();
  // Parameters that all replicas of a stage train and hold alike, at least: of any layer, and of the embedding.
  struct LeastTrained {
    double layer = 0, embedding = 0;
  };
  const LeastTrained& least_trained();

 private:
  struct Key {
    int group = 0;
    std::int64_t tensor_parallel = 1;
    int recompute = 0;
    std::int64_t context_parallel = 1, expert_parallel = 1;
    std::int64_t micro_batch = 1;
    auto operator<=>(const Key&) const = default;
  };
  // Nothing: the way is impossible.
  struct Timing {
    bool communicates = true;
    double slowness = 1;
    std::optional<ExpertWeights> expert_weights = {};  // nothing: as planned
  };
  std::optional<StageSeconds> timed(const StageWay& way, std::int64_t micro_batch,
                                    const Timing& timing) const;
  std::optional<StageSeconds> timed_or_refused(const StageWay& way, std::int64_t micro_batch,
                                               const Timing& timing) const;
  void count_ranks();
  static constexpr std::int64_t kCountedStages = 4;
  // Bytes of the stages of a pipeline that was compiled to count them.
  struct Peaks {
    std::array<double, kCountedStages> optimizer{}, rest{};
    std::array<double, kCountedStages> with(double share_of_optimizer) const;
  };
  static Key key_of(const StageWay& way, std::int64_t micro_batch);
  // `puts_off`: gradients of weights, of as many micro-batches as pass. False: nothing is put off.
  std::optional<Peaks> peaks(const StageWay& way, std::int64_t micro_batch, std::int64_t replicas,
                             std::int64_t layers, bool puts_off) const;
  int first_alike(int group) const;  // the first group whose chips need the same bytes
  std::optional<StageBytes> bytes(const StageWay& way, std::int64_t micro_batch, std::int64_t replicas);

  const Job& job_;
  const Offload offload_;
  const std::vector<Recompute> recomputes_;
  double least_ranks_ = 0;  // 0: not counted yet
  double few_ranks_step_s_ = 0;
  std::optional<LeastTrained> least_trained_;
  // By the chips' variation and eighths of all chips.
  std::map<std::pair<double, std::int64_t>, double> slower_;
  std::map<int, LeastWork> least_work_;  // by group
  std::map<Key, std::optional<StageSeconds>> seconds_;
  // By way and number of counted replicas: of one and of two layers a stage.
  std::map<std::pair<Key, std::int64_t>, std::pair<std::optional<Peaks>, std::optional<Peaks>>> peaks_;
  std::map<std::pair<Key, std::int64_t>, std::optional<StagePrice>> prices_;
  std::map<Key, PutOffShares> put_off_;
};

}  // namespace motley
