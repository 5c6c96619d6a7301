#include "models/frameworks/export.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>

#include "models/base/json_text.hpp"
#include "models/frameworks/launch_files.hpp"
#include "models/frameworks/megatron_settings.hpp"
#include "models/frameworks/rank_map.hpp"

namespace motley {
namespace {

bool is_plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("-_./:,=+%@").find(c) != std::string_view::npos;
}

std::string argument_lines(const Settings& settings) {
  std::string text;
  for (const Setting& setting : settings) {
    text += "  --" + setting.name;
    for (const std::string& value : setting.values) text += " " + shell_quoted(value);
    text += "\n";
  }
  return text;
}

std::vector<UnsaidKey> unsaid_keys(const Job& job) {
  std::vector<UnsaidKey> unsaid;
  const Train train;
  const auto add = [&](bool differs, const char* key, const char* why) {
    if (differs) unsaid.push_back({key, why});
  };
  add(job.train.expert_skew != train.expert_skew, "train.expert_skew", "it says what routing is expected");
  add(job.train.expert_room != train.expert_room, "train.expert_room", "it says how much memory is kept");
  add(job.train.fragmentation != train.fragmentation, "train.fragmentation",
      "it says how much memory is kept");
  add(job.train.tokens > 0, "train.tokens", "it says how long the whole run is, in reports");
  add(!job.train.text.empty(), "train.text", "data are named on the command line of a framework");
  return unsaid;
}

// Every framework is exported with AdamW, its master weights, and nothing quantized.
void refuse_other_optimizers(const Train& train, const Wording& wording) {
  if (train.optimizer != Optimizer::adamw)
    wording.refuse("train.optimizer", name_of(train.optimizer), "is exported with AdamW only",
                   "optimizer: adamw");
  if (!train.master_weights && bytes_of(train.precision) < 4)
    wording.refuse("train.master_weights", "false", "is exported with master weights only",
                   "master_weights: true");
  if (train.frozen_weights != FrozenWeights::precision)
    wording.refuse("train.frozen_weights", name_of(train.frozen_weights),
                   "is exported without adapters only");
}

}  // namespace

std::string shell_quoted(const std::string& word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string export_header(ExportTarget target, const std::string& name, const Job& job,
                          const std::string& mark) {
  const FrameworkVersion& version = version_of(target);
  return fmt::format("{0} For {1} ({2}).\n{0} From scenario {3}, strategy {4}: {5}.\n", mark, version.text(),
                     version.source, quote(name), strategy_hash(job.transformer, job.train, job.strategy),
                     degrees_of(job.strategy));
}

std::string environment_of(const Strategy& strategy) {
  const bool cuts = strategy.tp() > 1 || strategy.cp() > 1;
  return cuts && !strategy.overlap_experts ? "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" : "";
}

std::vector<ExportedFile> megatron_files(const std::string& name, const Job& job, const Wording& wording,
                                         const ExportOptions& options) {
  Settings settings = megatron_strategy(job, wording);
  for (const Settings& more : {megatron_model(job, wording), megatron_train(job, wording)})
    settings.insert(settings.end(), more.begin(), more.end());
  const RankMap map = map_ranks(job, options.hosts);
  hostfile_text(map, HostfileForm::plain, wording);  // refuses ranks that no order of hosts places
  return {{"megatron-lm.sh",
           "#!/bin/bash\n" + export_header(ExportTarget::megatron_lm, name, job) +
               "# Data and checkpoints are given behind it: ./megatron-lm.sh --mock-data\n" +
               environment_of(job.strategy) + "MEGATRON_ARGUMENTS=(\n" + argument_lines(settings) + ")\n" +
               torchrun_line(map) + " \\\n  pretrain_gpt.py \"${MEGATRON_ARGUMENTS[@]}\" \"$@\"\n"}};
}

Export export_job(const std::string& name, const Job& job, ExportTarget target, const ScenarioKeys& keys,
                  const ExportOptions& options) {
  const Wording wording{version_of(target).text(), keys};
  Export exported{target, {}, unsaid_keys(job)};
  if (target <= ExportTarget::deepspeed) refuse_other_optimizers(job.train, wording);
  switch (target) {
    case ExportTarget::megatron_lm:
      exported.files = megatron_files(name, job, wording, options);
      break;
    case ExportTarget::megatron_bridge:
      exported.files = bridge_files(name, job, wording, options);
      break;
    case ExportTarget::flagscale:
      exported.files = flagscale_files(name, job, wording, options);
      break;
    case ExportTarget::torchtitan:
      exported.files = torchtitan_files(name, job, wording);
      break;
    case ExportTarget::deepspeed:
      exported.files = deepspeed_files(name, job, wording);
      break;
    default:
      exported.files = launch_files(target, name, job, wording, options);
      break;
  }
  if (target == ExportTarget::torchtitan) {
    exported.unsaid.push_back({"strategy.overlap.p2p", "PyTorch's pipelining decides it"});
    exported.unsaid.push_back({"strategy.overlap.bucket_bytes", "FSDP reduces by layer"});
  }
  if (target == ExportTarget::deepspeed) {
    exported.unsaid.push_back({"model", "the training script builds it"});
    exported.unsaid.push_back({"train.sequence", "the training script's data have it"});
    exported.unsaid.push_back({"train.steps", "the training script counts them"});
    exported.unsaid.push_back({"train.seed", "the training script draws"});
  }
  return exported;
}

std::string export_json(const Export& exported) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array(), unsaid = nlohmann::ordered_json::array();
  for (const ExportedFile& file : exported.files) files.push_back({{"name", file.name}, {"text", file.text}});
  for (const UnsaidKey& key : exported.unsaid) unsaid.push_back({{"key", key.key}, {"why", key.why}});
  const FrameworkVersion& version = version_of(exported.target);
  return json_text({{"schema", "motley.export/1"},
                    {"to", name_of(exported.target)},
                    {"version", version.text()},
                    {"source", version.source},
                    {"files", files},
                    {"unsaid", unsaid}});
}

}  // namespace motley
