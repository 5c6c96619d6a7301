#include "models/plan/replica_edits.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "models/base/index.hpp"

namespace motley {
namespace {

// Stages [first, last) of a pipeline.
struct StageRun {
  std::size_t first = 0, last = 0;
};

bool has_replicable_stages(const Strategy& strategy) {
  if (strategy.templates.size() != 1 || strategy.schedule == Schedule::custom) return false;
  const std::vector<Stage>& stages = strategy.templates[0].stages;
  return stages.size() > 1 && std::all_of(stages.begin(), stages.end(), [](const Stage& stage) {
           return stage.more.empty() && stage.last_layer > stage.first_layer;
         });
}

class ReplicaEdits {
 public:
  explicit ReplicaEdits(const Job& job) : job_(job), pipeline_(job.strategy.templates[0]) {
    for (const Stage& stage : pipeline_.stages)
      add_stage(now_, stage.last_layer - stage.first_layer, stage.tensor_parallel,
                pipeline_.replicas_of(stage));
  }

  std::vector<std::vector<Edit>> list() {
    const std::size_t count = pipeline_.stages.size();
    std::vector<StageRun> runs = alike_runs();
    for (const StageRun& run : runs) merge(run);
    merge({0, 2});
    merge({count - 2, count});
    runs.push_back({0, 1});
    runs.push_back({count - 1, count});
    for (const StageRun& run : runs) {
      trade(run, true);
      trade(run, false);
      replicate(run);
    }
    return std::move(list_);
  }

 private:
  static void add_stage(SetStages& stages, std::int64_t layers, std::int64_t tensor_parallel,
                        std::int64_t replicas) {
    stages.layers.push_back(layers);
    stages.tensor_parallel.push_back(tensor_parallel);
    stages.replicas.push_back(replicas);
  }

  bool are_alike(std::size_t one, std::size_t other) const {
    const Stage &a = pipeline_.stages[one], &b = pipeline_.stages[other];
    return a.on == b.on && a.tensor_parallel == b.tensor_parallel &&
           pipeline_.replicas_of(a) == pipeline_.replicas_of(b);
  }

  // The longest runs of stages on the same groups that are cut and replicated alike.
  std::vector<StageRun> alike_runs() const {
    std::vector<StageRun> runs = {{0, 1}};
    for (std::size_t i = 1; i < pipeline_.stages.size(); ++i) {
      if (are_alike(i - 1, i))
        ++runs.back().last;
      else
        runs.push_back({i, i + 1});
    }
    return runs;
  }

  // Every two stages of the run become one, with twice the replicas; an odd last one stays.
  void merge(const StageRun& run) {
    SetStages next;
    for (std::size_t i = 0; i < now_.layers.size(); ++i) {
      const bool is_merged =
          i >= run.first && i + 1 < run.last && (i - run.first) % 2 == 0 && are_alike(i, i + 1);
      add_stage(next, now_.layers[i] + (is_merged ? now_.layers[i + 1] : 0), now_.tensor_parallel[i],
                now_.replicas[i] * (is_merged ? 2 : 1));
      if (is_merged) ++i;
    }
    if (next.layers.size() > 1) add(next);
  }

  // The stages have as many chips as before: twice the replicas, each cut half as often, or the reverse.
  void trade(const StageRun& run, bool replicates) {
    SetStages next = now_;
    for (std::size_t i = run.first; i < run.last; ++i) {
      std::int64_t& more = replicates ? next.replicas[i] : next.tensor_parallel[i];
      std::int64_t& less = replicates ? next.tensor_parallel[i] : next.replicas[i];
      if (less % 2 != 0) return;
      less /= 2;
      more *= 2;
      if (next.tensor_parallel[i] > chips_per_node(pipeline_.stages[i])) return;
    }
    add(next);
  }

  // Twice the replicas, on chips that no stage has.
  void replicate(const StageRun& run) {
    SetStages next = now_;
    std::int64_t chips = 0;
    for (std::size_t i = run.first; i < run.last; ++i) {
      chips += pipeline_.copies_of(pipeline_.stages[i]) * pipeline_.stages[i].tensor_parallel;
      next.replicas[i] *= 2;
    }
    if (chips <= idle_chips(pipeline_.stages[run.first])) add(next);
  }

  std::int64_t chips_per_node(const Stage& stage) const {
    std::int64_t chips = job_.cluster.chip_count();
    for (const NodeGroup& group : job_.cluster.groups)
      if (stage.on.empty() || std::find(stage.on.begin(), stage.on.end(), group.name) != stage.on.end())
        chips = std::min<std::int64_t>(chips, group.chips_per_node);
    return chips;
  }

  // Chips of the stage's group that no stage has; 0: the stages do not say whose they are.
  std::int64_t idle_chips(const Stage& stage) const {
    if (stage.on.size() > 1) return 0;
    std::int64_t idle = 0;
    for (const NodeGroup& group : job_.cluster.groups)
      if (stage.on.empty() || group.name == stage.on[0])
        idle += std::int64_t{group.nodes} * group.chips_per_node;
    for (const Stage& each : pipeline_.stages) {
      if (each.on.size() > 1 || each.on.empty() != stage.on.empty()) return 0;
      if (each.on == stage.on) idle -= pipeline_.copies_of(each) * each.tensor_parallel;
    }
    return idle;
  }

  // Adds the change if stages are replicated unlike before it or after it, with a micro-batch twice as large if its
  // sequences are too few for the replicas.
  void add(const SetStages& next) {
    const auto is_uniform = [](const std::vector<std::int64_t>& replicas) {
      return std::set<std::int64_t>(replicas.begin(), replicas.end()).size() == 1;
    };
    if (next == now_ || (is_uniform(now_.replicas) && is_uniform(next.replicas))) return;
    const std::int64_t micro_batch = common_micro_batch(job_), sequences = pipeline_.replicas * micro_batch;
    const auto share = [&](std::int64_t all) {
      return std::all_of(next.replicas.begin(), next.replicas.end(),
                         [all](std::int64_t replicas) { return all % replicas == 0; });
    };
    const bool is_larger = !share(sequences);
    if (is_larger && (!share(2 * sequences) || pipeline_.micro_batches % 2 != 0)) return;
    const std::vector<Edit> edits =
        is_larger ? std::vector<Edit>{SetMicroBatch{2 * micro_batch}, next} : std::vector<Edit>{next};
    if (std::find(list_.begin(), list_.end(), edits) == list_.end()) list_.push_back(edits);
  }

  const Job& job_;
  const PipelineTemplate& pipeline_;
  SetStages now_;
  std::vector<std::vector<Edit>> list_;
};

}  // namespace

std::vector<std::vector<Edit>> replica_edits(const Job& job) {
  if (!has_replicable_stages(job.strategy)) return {};
  return ReplicaEdits(job).list();
}

}  // namespace motley
