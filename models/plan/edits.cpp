// One apply() and one to_yaml() for each kind of edit. The text of to_yaml() reads back as what apply() makes:
// tests/models/plan/test_moves.cpp checks this for every kind.
#include "models/plan/edits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "models/base/index.hpp"
#include "models/base/units.hpp"

namespace motley {
namespace {

std::string_view name_of(OverlapEdit overlap) {
  switch (overlap) {
    case OverlapEdit::p2p:
      return "p2p";
    case OverlapEdit::gradients:
      return "gradients";
    case OverlapEdit::parameters:
      return "parameters";
    case OverlapEdit::experts:
      return "experts";
  }
  return "?";
}

template <class Change>
void for_each_stage(Job& job, const Change& change) {
  for (PipelineTemplate& pipeline : job.strategy.templates)
    for (Stage& stage : pipeline.stages) change(stage);
}

std::int64_t micro_batch_of(const PipelineTemplate& pipeline, const Job& job) {
  return pipeline.micro_batch > 0 ? pipeline.micro_batch : job.train.micro_batch;
}

std::vector<Stage> shifted(std::vector<Stage> stages, const ShiftLayers& shift) {
  for (int i = shift.from; i < shift.to; ++i)
    stages[at(i)].last_layer = stages[at(i + 1)].first_layer -= shift.layers;
  for (int i = shift.from; i > shift.to; --i)
    stages[at(i)].first_layer = stages[at(i - 1)].last_layer += shift.layers;
  return stages;
}

// Spreads layers anew over the chunks of a schedule. A first stage that gets a stage before one of its chunks, or loses
// it, reshards as the last one does, or not at all.
void respread(Job& job, Schedule schedule, int chunks) {
  std::vector<bool> was_after;
  for (const PipelineTemplate& pipeline : job.strategy.templates)
    was_after.push_back(has_stage_before(pipeline, 0));
  use_schedule(job.transformer, job.strategy, schedule, chunks);
  for (std::size_t i = 0; i < was_after.size(); ++i) {
    PipelineTemplate& pipeline = job.strategy.templates[i];
    const bool is_after = has_stage_before(pipeline, 0);
    if (is_after == was_after[i]) continue;
    pipeline.stages.front().resharding =
        is_after ? pipeline.stages.back().resharding : std::optional<Resharding>{};
  }
}

struct Applied {
  Job& job;

  void operator()(const SetRecompute& edit) const {
    job.strategy.recompute = edit.recompute;
    for_each_stage(job, [](Stage& stage) {
      stage.recompute.reset();
      stage.recompute_layers.reset();
    });
  }

  void operator()(const SetRecomputeLayers& edit) const {
    for_each_stage(job, [&](Stage& stage) { stage.recompute_layers = edit.layers; });
  }

  void operator()(const TurnOnOverlap& edit) const {
    switch (edit.overlap) {
      case OverlapEdit::p2p:
        job.strategy.overlap_p2p = true;
        break;
      case OverlapEdit::gradients:
        job.strategy.overlap_gradients = true;
        break;
      case OverlapEdit::parameters:
        job.strategy.overlap_parameters = true;
        break;
      case OverlapEdit::experts:
        job.strategy.overlap_experts = true;
        break;
    }
  }

  void operator()(const SetBucketBytes& edit) const { job.strategy.bucket_bytes = edit.bytes; }

  void operator()(const TurnOnSequenceParallel&) const { job.strategy.sequence_parallel = true; }

  void operator()(const SetZero& edit) const { job.strategy.zero = edit.zero; }

  void operator()(const SetShardOver& edit) const { job.strategy.shard_over = edit.replicas; }

  void operator()(const SetPutOff& edit) const { job.strategy.put_off = edit.put_off; }
  void operator()(const SetReduceGradients& edit) const { job.strategy.reduce_gradients = edit.when; }

  void operator()(const SetReshardAfterForward& edit) const {
    job.strategy.reshard_after_forward = edit.reshards;
  }

  void operator()(const SetResharding& edit) const {
    for (PipelineTemplate& pipeline : job.strategy.templates) use_resharding(pipeline, edit.resharding);
  }

  void operator()(const SetMicroBatch& edit) const {
    for (PipelineTemplate& pipeline : job.strategy.templates) {
      pipeline.micro_batches = pipeline.micro_batches * micro_batch_of(pipeline, job) / edit.micro_batch;
      if (pipeline.micro_batch > 0) pipeline.micro_batch = edit.micro_batch;
    }
    job.train.micro_batch = edit.micro_batch;
  }

  void operator()(const SetSchedule& edit) const {
    const int chunks = standard_chunks(edit.schedule);
    if (chunks > 1 || chunk_count(job.strategy) > 1) return respread(job, edit.schedule, chunks);
    job.strategy.schedule = edit.schedule;
    job.strategy.timetable = {};
  }

  void operator()(const SetVirtualStages& edit) const { respread(job, job.strategy.schedule, edit.chunks); }

  void operator()(const ShiftLayers& edit) const {
    std::vector<Stage>& stages = job.strategy.templates.at(0).stages;
    stages = shifted(std::move(stages), edit);
  }

  void operator()(const SetStages& edit) const {
    PipelineTemplate& pipeline = job.strategy.templates.at(0);
    const std::vector<Stage> before = std::exchange(pipeline.stages, {});
    std::int64_t first = 0;
    for (std::size_t i = 0; i < edit.layers.size(); ++i) {
      const auto held = std::find_if(before.begin(), before.end(),
                                     [first](const Stage& stage) { return first < stage.last_layer; });
      Stage& stage = pipeline.stages.emplace_back(held == before.end() ? before.back() : *held);
      stage.first_layer = first;
      stage.last_layer = first += edit.layers[i];
      stage.tensor_parallel = edit.tensor_parallel.at(i);
      stage.replicas = edit.replicas.at(i);
    }
    if (pipeline.has_unlike_replicas()) job.strategy.sequence_parallel = false;
  }

  void operator()(const SetDegrees& edit) const {
    PipelineTemplate& pipeline = job.strategy.templates.at(0);
    const PipelineTemplate before = pipeline;
    Train train = job.train;
    train.micro_batch = micro_batch_of(before, job);
    const int chunks = chunk_count(job.strategy);
    pipeline = expand(job.transformer, train, edit.tp, edit.pp, edit.dp, edit.cp).templates[0];
    pipeline.micro_batch = before.micro_batch;
    const bool keeps_layers = pipeline.stages.size() == before.stages.size();
    for (std::size_t i = 0; i < pipeline.stages.size(); ++i) {
      const Stage laid_out = keeps_layers ? before.stages[i] : pipeline.stages[i];
      Stage& stage = pipeline.stages[i];
      stage = i == 0 ? before.stages.front() : before.stages.back();
      stage.first_layer = laid_out.first_layer;
      stage.last_layer = laid_out.last_layer;
      stage.more = laid_out.more;
      stage.tensor_parallel = edit.tp;
    }
    if (chunks > 1 && !keeps_layers) respread(job, job.strategy.schedule, chunks);
    if (has_stage_before(before, 0) && !has_stage_before(pipeline, 0))
      pipeline.stages.front().resharding.reset();
  }

  void operator()(const SetExperts& edit) const {
    for_each_stage(job, [&](Stage& stage) {
      stage.expert_parallel = edit.expert_parallel;
      if (stage.expert_cut() == edit.expert_tensor_parallel) return;
      stage.expert_tensor_parallel =
          edit.expert_tensor_parallel == stage.tensor_parallel ? 0 : edit.expert_tensor_parallel;
    });
  }

  void operator()(const SetExpertWeights& edit) const { job.strategy.expert_weights = edit.weights; }

  void operator()(const SetOffload& edit) const {
    job.strategy.offload = edit.offload;
    for_each_stage(job, [](Stage& stage) { stage.offload.reset(); });
  }
};

struct Typed {
  const Job& before;

  std::string operator()(const SetRecompute& edit) const {
    return fmt::format("recompute: {}", text_of(edit.recompute));
  }

  std::string operator()(const SetRecomputeLayers& edit) const {
    return fmt::format("recompute_layers: {}", edit.layers);
  }

  std::string operator()(const TurnOnOverlap& edit) const {
    return fmt::format("overlap: {{{}: true}}", name_of(edit.overlap));
  }

  std::string operator()(const SetBucketBytes& edit) const {
    return fmt::format("overlap: {{bucket_bytes: {} B}}", edit.bytes);
  }

  std::string operator()(const TurnOnSequenceParallel&) const { return "sequence_parallel: true"; }

  std::string operator()(const SetZero& edit) const { return fmt::format("zero: {}", edit.zero); }

  std::string operator()(const SetShardOver& edit) const {
    return fmt::format("shard_over: {}", edit.replicas);
  }

  std::string operator()(const SetPutOff& edit) const {
    return fmt::format("put_off: {}", motley::name_of(edit.put_off));
  }
  std::string operator()(const SetReduceGradients& edit) const {
    return fmt::format("reduce_gradients: {}", motley::name_of(edit.when));
  }

  std::string operator()(const SetReshardAfterForward& edit) const {
    return fmt::format("reshard_after_forward: {}", edit.reshards);
  }

  std::string operator()(const SetResharding& edit) const {
    return edit.resharding == Resharding::gather ? "resharding: gather" : "resharding: direct";
  }

  std::string operator()(const SetMicroBatch& edit) const {
    return fmt::format("micro_batch: {}", edit.micro_batch);
  }

  std::string operator()(const SetSchedule& edit) const {
    return fmt::format("schedule: {}", motley::name_of(edit.schedule));
  }

  std::string operator()(const SetVirtualStages& edit) const {
    return fmt::format("virtual_stages: {}", edit.chunks);
  }

  std::string operator()(const ShiftLayers& edit) const {
    std::vector<std::int64_t> counts;
    for (const Stage& stage : before.strategy.templates.at(0).stages)
      counts.push_back(stage.last_layer - stage.first_layer);
    counts.at(at(edit.from)) -= edit.layers;
    counts.at(at(edit.to)) += edit.layers;
    return fmt::format("layers: [{}]", fmt::join(counts, ", "));
  }

  std::string operator()(const SetStages& edit) const {
    const PipelineTemplate& pipeline = before.strategy.templates.at(0);
    SetStages now;
    for (const Stage& stage : pipeline.stages) {
      now.layers.push_back(stage.last_layer - stage.first_layer);
      now.tensor_parallel.push_back(stage.tensor_parallel);
    }
    std::vector<std::string> keys;
    if (edit.layers.size() != now.layers.size())
      keys.push_back(fmt::format("pipeline_parallel: {}", edit.layers.size()));
    if (edit.layers != now.layers) keys.push_back(fmt::format("layers: [{}]", fmt::join(edit.layers, ", ")));
    std::vector<std::int64_t> cuts = now.tensor_parallel;
    if (std::count(cuts.begin(), cuts.end(), cuts.front()) == std::ssize(cuts))
      cuts.assign(edit.layers.size(), cuts.front());  // one degree stands for any number of stages
    if (edit.tensor_parallel != cuts)
      keys.push_back(fmt::format("tensor_parallel: [{}]", fmt::join(edit.tensor_parallel, ", ")));
    keys.push_back(fmt::format("replicas: [{}]", fmt::join(edit.replicas, ", ")));
    Job after = before;
    apply(edit, after);
    std::vector<std::string> groups;
    for (const Stage& stage : after.strategy.templates[0].stages)
      if (stage.on.size() == 1) groups.push_back(stage.on[0]);
    if (edit.layers.size() != now.layers.size() && groups.size() == edit.layers.size())
      keys.push_back(fmt::format("on: [{}]", fmt::join(groups, ", ")));
    if (after.strategy.sequence_parallel != before.strategy.sequence_parallel)
      keys.push_back("sequence_parallel: false");
    return fmt::format("{}", fmt::join(keys, ", "));
  }

  std::string operator()(const SetDegrees& edit) const {
    std::vector<std::string> keys;
    const Strategy& strategy = before.strategy;
    if (edit.tp != strategy.tp()) keys.push_back(fmt::format("tensor_parallel: {}", edit.tp));
    if (edit.pp != strategy.pp()) keys.push_back(fmt::format("pipeline_parallel: {}", edit.pp));
    if (edit.dp != strategy.dp()) keys.push_back(fmt::format("data_parallel: {}", edit.dp));
    if (edit.cp != strategy.cp()) keys.push_back(fmt::format("context_parallel: {}", edit.cp));
    return fmt::format("{}", fmt::join(keys, ", "));
  }

  std::string operator()(const SetExperts& edit) const {
    const Stage& now = before.strategy.templates.at(0).stages.at(0);
    std::vector<std::string> keys;
    if (edit.expert_parallel != now.expert_parallel)
      keys.push_back(fmt::format("expert_parallel: {}", edit.expert_parallel));
    if (edit.expert_tensor_parallel != now.expert_cut())
      keys.push_back(fmt::format("expert_tensor_parallel: {}", edit.expert_tensor_parallel));
    return fmt::format("{}", fmt::join(keys, ", "));
  }

  std::string operator()(const SetExpertWeights& edit) const {
    return fmt::format("expert_weights: {}", motley::name_of(edit.weights));
  }

  std::string operator()(const SetOffload& edit) const {
    std::vector<std::string> shares;
    if (edit.offload.optimizer > 0)
      shares.push_back(fmt::format("optimizer: {}", format_exact(edit.offload.optimizer)));
    if (edit.offload.activations > 0)
      shares.push_back(fmt::format("activations: {}", format_exact(edit.offload.activations)));
    return fmt::format("offload: {{{}}}", fmt::join(shares, ", "));
  }
};

}  // namespace

void apply(const Edit& edit, Job& job) { std::visit(Applied{job}, edit); }

std::string to_yaml(const Edit& edit, const Job& before) { return std::visit(Typed{before}, edit); }

std::int64_t common_micro_batch(const Job& job) {
  const std::int64_t first = micro_batch_of(job.strategy.templates.at(0), job);
  for (const PipelineTemplate& pipeline : job.strategy.templates)
    if (micro_batch_of(pipeline, job) != first) return 0;
  return first;
}

int chunk_count(const Strategy& strategy) {
  return 1 + static_cast<int>(strategy.templates.at(0).stages.at(0).more.size());
}

bool has_even_layers(const PipelineTemplate& pipeline) {
  const std::vector<VirtualStage> chunks = virtual_stages(pipeline);
  const auto count = [](const VirtualStage& chunk) { return chunk.layers.last - chunk.layers.first; };
  const auto [least, most] =
      std::minmax_element(chunks.begin(), chunks.end(),
                          [&](const VirtualStage& a, const VirtualStage& b) { return count(a) < count(b); });
  return count(*most) - count(*least) <= 1;
}

bool is_laid_out_by_degrees(const Strategy& strategy) {
  if (strategy.templates.size() != 1) return false;
  const PipelineTemplate& pipeline = strategy.templates[0];
  const Stage& first = pipeline.stages.front();
  if (!first.on.empty() || first.replicas > 0) return false;
  const Stage& last = pipeline.stages.back();
  if (has_stage_before(pipeline, 0) && first.resharding != last.resharding) return false;
  for (std::size_t i = 1; i < pipeline.stages.size(); ++i) {
    Stage like_first = pipeline.stages[i];
    if (like_first.resharding != last.resharding || like_first.more.size() != first.more.size()) return false;
    like_first.first_layer = first.first_layer;
    like_first.last_layer = first.last_layer;
    like_first.more = first.more;
    like_first.resharding = first.resharding;
    if (like_first != first) return false;
  }
  return has_even_layers(pipeline);
}

}  // namespace motley
