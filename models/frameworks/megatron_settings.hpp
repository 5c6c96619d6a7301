// A job in Megatron-LM's arguments. FlagScale takes the same arguments in YAML, and Megatron-Bridge most of them under
// names of its own. What Megatron-LM has no argument for is refused. Facts are of the version in framework.cpp:
// megatron/training/arguments.py and config/, megatron/core/transformer/transformer_config.py and
// pipeline_parallel_layer_layout.py. Read next: megatron_import.hpp, the way back.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/frameworks/scenario_keys.hpp"
#include "models/scenario/job.hpp"

namespace motley {

// An argument: "num-layers" with its values, or "bf16" without any.
struct Setting {
  std::string name;
  std::vector<std::string> values = {};
  bool operator==(const Setting&) const = default;
};
using Settings = std::vector<Setting>;

// The shape of the model, and what a run trains it with. Refuse what Megatron-LM cannot say.
Settings megatron_model(const Job& job, const Wording& wording);
Settings megatron_train(const Job& job, const Wording& wording);
// Degrees, schedule, recomputation and optimizer of a strategy whose stages are alike.
Settings megatron_strategy(const Job& job, const Wording& wording);
// What all targets of Megatron's kind can say of a strategy in the same words, whatever its degrees are: the
// optimizer's division, overlaps, offloading. Refuses the rest.
Settings megatron_options(const Job& job, const Wording& wording);

// The layout of a pipeline's layers in the order of virtual stages, which is V-major: "Et*4|t*4|t*4L".
std::string megatron_layout(const Transformer& transformer, const PipelineTemplate& pipeline);

// How every stage recomputes, where all do it alike.
Settings megatron_recompute(const Job& job, const PipelineTemplate& pipeline, const Wording& wording);

// Sequences in a micro-batch of the pipeline.
inline std::int64_t pipeline_micro_batch(const Job& job, const PipelineTemplate& pipeline) {
  return pipeline.micro_batch > 0 ? pipeline.micro_batch : job.train.micro_batch;
}
// The one pipeline of a strategy; a strategy of several templates is refused.
const PipelineTemplate& only_template(const Strategy& strategy, const Wording& wording);
// Whether any stage keeps a part of its optimizer's state in the node's memory. Gradients then go there in buckets.
bool offloads_optimizer(const Strategy& strategy);
// How a stage recomputes.
struct StageRecompute {
  Recompute what;
  std::optional<std::int64_t> layers;  // layers at the beginning of each chunk; nothing: all
  bool operator==(const StageRecompute&) const = default;
};
StageRecompute recompute_of(const Strategy& strategy, const Stage& stage);
// Refuses a schedule that is neither 1f1b nor, where `interleaves`, interleaved, and transfers that overlap under 1f1b.
void refuse_other_schedules(const Strategy& strategy, const PipelineTemplate& pipeline, bool interleaves,
                            const Wording& wording);

}  // namespace motley
