// FlagScale's YAML. Its process meshes (flagscale/train/hetero/parallel_context.py) are runs of pipeline stages with
// the same degrees on one type of device; between two meshes a rank sends the rows that the other has, so that sequence
// parallelism must be on where tensor parallelism is (get_inter_mesh_tensor_slices). Its Megatron-LM takes the
// arguments of megatron_settings.hpp as keys.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>

#include "models/base/index.hpp"
#include "models/frameworks/export.hpp"
#include "models/frameworks/launch_files.hpp"
#include "models/frameworks/megatron_settings.hpp"
#include "models/frameworks/rank_map.hpp"

namespace motley {
namespace {

struct Mesh {
  std::int64_t tp = 1, cp = 1, ep = 1, dp = 1, pp = 1, etp = 1;
  std::string device;
  bool joins(const Mesh& other) const {
    return tp == other.tp && cp == other.cp && ep == other.ep && dp == other.dp && etp == other.etp &&
           device == other.device;
  }
};

// The type of chips that each stage has.
std::vector<std::string> devices_of(const PipelineTemplate& pipeline, const RankMap& map,
                                    const Wording& wording) {
  std::vector<std::string> devices;
  std::size_t rank = 0;
  for (const Stage& stage : pipeline.stages) {
    const auto ranks = at(pipeline.copies_of(stage) * stage.tensor_parallel);
    devices.push_back(map.hosts[at(map.ranks.at(rank).host)].device);
    for (std::size_t i = 0; i < ranks; ++i, ++rank)
      if (map.hosts[at(map.ranks.at(rank).host)].device != devices.back())
        wording.refuse("strategy.on", "", "has one type of device in each mesh, and so in each stage",
                       "the replicas of a stage on groups of the same chips");
  }
  return devices;
}

std::vector<Mesh> meshes_of(const PipelineTemplate& pipeline, const std::vector<std::string>& devices) {
  std::vector<Mesh> meshes;
  for (std::size_t i = 0; i < pipeline.stages.size(); ++i) {
    const Stage& stage = pipeline.stages[i];
    const Mesh mesh{stage.tensor_parallel,
                    pipeline.context_parallel,
                    stage.expert_parallel,
                    pipeline.replicas_of(stage),
                    1,
                    stage.expert_cut(),
                    devices[i]};
    if (!meshes.empty() && meshes.back().joins(mesh))
      ++meshes.back().pp;
    else
      meshes.push_back(mesh);
  }
  return meshes;
}

void refuse_at_boundaries(const Job& job, const std::vector<Mesh>& meshes, const Wording& wording) {
  std::set<std::string> begun;
  for (std::size_t i = 0; i < meshes.size(); ++i) {
    if (!begun.insert(meshes[i].device).second && meshes[i].device != meshes[i - 1].device)
      wording.refuse("strategy.on", meshes[i].device,
                     "orders ranks by the type of their device, each type once",
                     "stages of one type next to each other");
    if (i > 0 && (meshes[i].tp > 1 || meshes[i - 1].tp > 1) && !job.strategy.sequence_parallel)
      wording.refuse("strategy.sequence_parallel", "false",
                     "sends rows between meshes that have tensor parallelism, so the rows must be divided",
                     "sequence_parallel: true");
  }
  const Mesh &first = meshes.front(), &last = meshes.back();
  if ((job.transformer.tied_embeddings || job.transformer.trained_extra() > 0) && first.tp != last.tp)
    wording.refuse(
        "strategy.tensor_parallel", std::to_string(last.tp),
        fmt::format(
            "shares the embedding between the first and the last stage, which have tensor parallelism "
            "{} and {}",
            first.tp, last.tp));
}

template <class Values>
std::string list(const Values& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

bool is_bare(const std::string& value) {
  return !value.empty() && std::all_of(value.begin(), value.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("+-._").find(c) != std::string_view::npos;
  });
}

std::string key_lines(const Settings& settings, int indent) {
  std::string text;
  for (const Setting& setting : settings) {
    std::string name = setting.name;
    std::replace(name.begin(), name.end(), '-', '_');
    std::vector<std::string> values = setting.values;
    for (std::string& value : values)
      if (!is_bare(value)) value = quote(value);
    text += fmt::format("{:{}}{}: {}\n", "", indent, name,
                        values.empty()                                              ? "true"
                        : values.size() == 1 && setting.name != "recompute-modules" ? values[0]
                                                                                    : list(values));
  }
  return text;
}

// Moves the settings of these names out of the list.
Settings take(Settings& settings, const std::set<std::string>& names) {
  Settings taken;
  for (const Setting& setting : settings)
    if (names.contains(setting.name)) taken.push_back(setting);
  std::erase_if(settings, [&](const Setting& setting) { return names.contains(setting.name); });
  return taken;
}

// Rows of [stages, micro-batches, value] for each run of stages with the same value.
std::string rows(const std::string& name, const std::vector<std::int64_t>& values,
                 std::int64_t micro_batches) {
  std::string text = fmt::format("    {}_per_stage_micro_batch:\n", name);
  for (std::size_t i = 0; i < values.size();) {
    std::size_t end = i;
    while (end < values.size() && values[end] == values[i]) ++end;
    text += fmt::format("      - [{}, {}, {}]\n", end - i, micro_batches, values[i]);
    i = end;
  }
  return text;
}

std::string recompute_lines(const Job& job, const PipelineTemplate& pipeline, const Wording& wording) {
  std::vector<std::int64_t> recomputes, by_block, layers;
  bool unlike = false, any = false;
  for (const Stage& stage : pipeline.stages) {
    const StageRecompute here = recompute_of(job.strategy, stage);
    unlike = unlike || here != recompute_of(job.strategy, pipeline.stages[0]);
    any = any || here.what != Recompute::none;
    recomputes.push_back(here.what == Recompute::none ? 0 : 1);
    by_block.push_back(here.layers ? 1 : 0);
    layers.push_back(here.layers.value_or(1));
  }
  if (!any) return "";
  if (!unlike) return "  recompute:\n" + key_lines(megatron_recompute(job, pipeline, wording), 4);
  for (const Stage& stage : pipeline.stages) {
    const Recompute what = recompute_of(job.strategy, stage).what;
    if (what != Recompute::none && what != Recompute::full)
      wording.refuse("strategy.recompute", text_of(what),
                     "recomputes whole layers or nothing where stages differ",
                     "recompute: full or none in each stage");
  }
  return "  recompute:\n    recompute_granularity: full\n    recompute_method: uniform\n    "
         "recompute_num_layers: 1\n" +
         rows("recompute_granularity", recomputes, pipeline.micro_batches) +
         rows("recompute_method", by_block, pipeline.micro_batches) +
         rows("recompute_num_layers", layers, pipeline.micro_batches);
}

std::string hetero_lines(const PipelineTemplate& pipeline, const std::vector<Mesh>& meshes,
                         bool has_experts) {
  std::vector<std::int64_t> sizes, layers, cuts;
  std::vector<std::string> devices;
  for (const Mesh& mesh : meshes) {
    for (const std::int64_t size : {mesh.tp, mesh.cp, mesh.ep, mesh.dp, mesh.pp}) sizes.push_back(size);
    devices.push_back(quote(mesh.device));
    cuts.push_back(mesh.etp);
  }
  for (const Stage& stage : pipeline.stages) layers.push_back(stage.last_layer - stage.first_layer);
  std::string text =
      "  hetero:\n    enable_hetero: true\n    # of each mesh: tensor, context, expert, data, pipeline\n";
  text += fmt::format("    hetero_process_meshes: {}\n    hetero_pipeline_layer_split: {}\n", list(sizes),
                      list(layers));
  text += fmt::format("    hetero_device_types: {}\n    hetero_current_device_type: {}\n", list(devices),
                      devices[0]);
  if (has_experts) text += fmt::format("    expert_tensor_parallel_size_per_process_mesh: {}\n", list(cuts));
  return text + "    standalone_embedding_stage: false\n";
}

Settings system_settings(const Job& job, const PipelineTemplate& pipeline, const std::vector<Mesh>& meshes,
                         const Wording& wording) {
  const Strategy& s = job.strategy;
  Settings settings = {{"tensor-model-parallel-size", {std::to_string(meshes[0].tp)}},
                       {"pipeline-model-parallel-size", {std::to_string(pipeline.stages.size())}}};
  if (pipeline.context_parallel > 1) {
    settings.push_back({"context-parallel-size", {std::to_string(pipeline.context_parallel)}});
    settings.push_back({"cp-comm-type", {s.passes_context_in_ring() ? "p2p" : "allgather"}});
  }
  if (s.sequence_parallel) settings.push_back({"sequence-parallel"});
  for (Setting& option : megatron_options(job, wording)) settings.push_back(std::move(option));
  if (pipeline.has_unlike_replicas() && s.shard_over > 0)
    wording.refuse("strategy.shard_over", std::to_string(s.shard_over),
                   "divides over all replicas where stages differ");
  if (job.transformer.tied_embeddings && s.zero > 0 && meshes.front().dp != meshes.back().dp) {
    if (meshes.front().dp % meshes.back().dp != 0 && meshes.back().dp % meshes.front().dp != 0)
      wording.refuse("strategy.replicas", "",
                     "shares the embedding between stages whose replicas divide one another");
    settings.push_back({"use-partial-reduce-for-shared-embedding"});
  }
  return settings;
}

void refuse_in_stages(const Job& job, const PipelineTemplate& pipeline, const Wording& wording) {
  refuse_other_schedules(job.strategy, pipeline, false, wording);
  for (const Stage& stage : pipeline.stages) {
    if (stage.last_layer == stage.first_layer)
      wording.refuse("strategy.templates", "", "has a layer in every stage at least");
    if (stage.resharding == Resharding::gather)
      wording.refuse("strategy.resharding", "gather",
                     "sends rows, or whole tensors without tensor parallelism");
  }
  if (job.strategy.overlap_experts)
    wording.refuse("strategy.overlap.experts", "true",
                   "overlaps experts with virtual stages only, which it has not here");
  // Micro-batches are counted by the replicas of the first stage. A strategy in which they do not come out is refused.
  MOTLEY_CHECK(pipeline.replicas * pipeline_micro_batch(job, pipeline) %
                   pipeline.replicas_of(pipeline.stages.at(0)) ==
               0);
}

std::string experiment_file(const std::string& name, const Job& job) {
  return export_header(ExportTarget::flagscale, name, job) +
         fmt::format(
             "defaults:\n  - train: train\n  - _self_\n\nexperiment:\n  exp_name: {}\n  exp_dir: ./outputs\n"
             "  task:\n    type: train\n    backend: megatron\n    entrypoint: "
             "./flagscale/train/train_gpt.py\n"
             "  runner:\n    backend: torchrun\n    hostfile: ./hostfile\n    rdzv_backend: static\n"
             "  envs:\n    CUDA_DEVICE_MAX_CONNECTIONS: 1\n\naction: run\n",
             quote(name));
}

}  // namespace

std::vector<ExportedFile> flagscale_files(const std::string& name, const Job& job, const Wording& wording,
                                          const ExportOptions& options) {
  const PipelineTemplate& pipeline = only_template(job.strategy, wording);
  refuse_in_stages(job, pipeline, wording);
  const RankMap map = map_ranks(job, options.hosts);
  const std::vector<Mesh> meshes = meshes_of(pipeline, devices_of(pipeline, map, wording));
  refuse_at_boundaries(job, meshes, wording);
  Settings system = system_settings(job, pipeline, meshes, wording);
  Settings model = megatron_model(job, wording), train = megatron_train(job, wording);
  for (Setting& setting : train)
    if (setting.name == "micro-batch-size")  // of the first mesh, from which that of the others follows
      setting.values = {
          std::to_string(pipeline.replicas * pipeline_micro_batch(job, pipeline) / meshes[0].dp)};
  const Settings precision =
      take(train, {"bf16", "fp16", "accumulate-allreduce-grads-in-fp32", "grad-reduce-in-bf16"});
  const Settings tokens = take(model, {"vocab-size", "tokenizer-type", "make-vocab-size-divisible-by"});
  const Settings optimizer =
      take(train, {"adam-beta1", "adam-beta2", "weight-decay", "lr", "adam-eps", "optimizer"});
  std::string text = export_header(ExportTarget::flagscale, name, job);
  text += "system:\n" + key_lines(system, 2) +
          hetero_lines(pipeline, meshes, job.transformer.experts.count > 0) +
          recompute_lines(job, pipeline, wording);
  if (!precision.empty()) text += "  precision:\n" + key_lines(precision, 4);
  text +=
      "\nmodel:\n" + key_lines(model, 2) + key_lines(train, 2) + "  optimizer:\n" + key_lines(optimizer, 4);
  text += "\ndata:\n  tokenizer:\n" + key_lines(tokens, 4);
  return {{"train.yaml", text},
          {"experiment.yaml", experiment_file(name, job)},
          {"hostfile", hostfile_text(map, HostfileForm::with_types, wording)}};
}

}  // namespace motley
