// motley memory: what a model takes on a chip, stage by stage, without a scenario or a cluster. It makes a scenario of
// its options and counts it as motley check does. Read next: models/check/memory.hpp, models/transformer/optimizer.hpp.
#include "models/check/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "models/base/data_files.hpp"
#include "models/base/json_text.hpp"
#include "models/base/refusal.hpp"
#include "models/base/table.hpp"
#include "models/base/units.hpp"
#include "models/check/memory_text.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/remedies.hpp"
#include "models/scenario/scenario.hpp"
#include "models/scenario/setting.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/listed_data.hpp"
#include "tools/commands/new_scenario.hpp"
#include "tools/commands/scenario_flags.hpp"

namespace motley {
namespace {

// Nodes whose links decide the communication buffers where no chip is named.
constexpr const char* kUsualChip = "h100-80gb-sxm";

struct MemoryArguments {
  std::string model, chip, recompute = "none", schedule = "1f1b", optimizer = "adamw", precision = "bf16",
                           gradients = "fp32", matmuls, lora_targets, out;
  std::int64_t tp = 1, pp = 1, dp = 1, cp = 1, ep = 1, micro_batch = 1, global_batch = 0, sequence = 0,
               zero = 0, lora = 0, chips_per_node = 0;
  bool sequence_parallel = false, no_master_weights = false, qlora = false, offload_optimizer = false,
       json = false;
  std::vector<std::string> settings;
};

// Assumes: nodes that do not say what memory they have of their own have as much as is needed, and a link that changes
// no byte.
constexpr const char* kAssumedHost = "{memory: 1024 TiB, memory_bandwidth: 400 GB/s, link: 25 GB/s}";

// Values of a scenario, with the option that says each as the place of refusals.
class OptionSettings {
 public:
  void add(const std::string& option, std::vector<std::string> path, const std::string& value) {
    auto node = std::make_shared<YamlNode>(*parse_yaml(value, option));
    node->where = {option, 0, 0};
    const std::vector<int> columns(path.size(), 0);
    settings_.push_back({option, std::move(path), columns, Yaml(std::move(node))});
  }
  void add(const std::string& option, std::vector<std::string> path, std::int64_t value, std::int64_t usual) {
    if (value != usual) add(fmt::format("{} {}", option, value), std::move(path), std::to_string(value));
  }
  void add_further(const std::vector<std::string>& texts) {
    for (ScenarioSetting& each : parse_settings(texts)) settings_.push_back(std::move(each));
  }
  const std::vector<ScenarioSetting>& all() const { return settings_; }

 private:
  std::vector<ScenarioSetting> settings_;
};

// Names that PEFT gives the linear layers of such models, and Motley's; `all-linear` is every one.
std::string lora_text(const MemoryArguments& options) {
  static const std::map<std::string, std::string> peft = {
      {"q_proj", "q"},   {"k_proj", "k"},      {"v_proj", "v"},   {"o_proj", "proj"}, {"gate_proj", "gate"},
      {"up_proj", "up"}, {"down_proj", "fc2"}, {"c_attn", "qkv"}, {"c_fc", "fc1"}};
  if (options.lora_targets.empty() || options.lora_targets == "all-linear")
    return fmt::format("{{rank: {}}}", options.lora);
  std::vector<std::string> names;
  std::stringstream list(options.lora_targets);
  for (std::string name; std::getline(list, name, ',');) {
    const auto own = peft.find(name);
    names.push_back(own == peft.end() ? quote(name) : own->second);
  }
  return fmt::format("{{rank: {}, on: [{}]}}", options.lora, fmt::join(names, ", "));
}

std::int64_t ranks_of(const MemoryArguments& options) {
  return options.tp * options.pp * options.dp * options.cp;
}

std::string base_text(const MemoryArguments& options, const std::string& model, std::int64_t sequence) {
  NewScenario asked;
  asked.chip = options.chip.empty() ? kUsualChip : options.chip;
  asked.chips_per_node = options.chips_per_node;
  asked.nodes = 1;
  const std::string cluster = cluster_text(asked);
  const Yaml described = Fields(parse_yaml(cluster, "cluster"), "a scenario", {"cluster"}).need("cluster");
  const Cluster one = read_cluster(described, "nodes", ".");
  const int each = one.groups.at(0).chips_per_node;
  asked.nodes = (ranks_of(options) + each - 1) / each;
  // As many micro-batches as the first stage can have in flight, twice.
  const std::int64_t batch =
      options.global_batch > 0 ? options.global_batch : options.dp * options.micro_batch * 2 * options.pp;
  return fmt::format("model: {}\n{}train:\n  global_batch: {}\n  micro_batch: {}\n  sequence: {}\n", model,
                     cluster_text(asked), batch, options.micro_batch, sequence) +
         fmt::format("strategy:\n  tensor_parallel: {}\n  pipeline_parallel: {}\n  data_parallel: {}\n",
                     options.tp, options.pp, options.dp);
}

OptionSettings settings_of(const MemoryArguments& options) {
  OptionSettings settings;
  settings.add("--tp", {"strategy", "tensor_parallel"}, options.tp, 0);
  settings.add("--pp", {"strategy", "pipeline_parallel"}, options.pp, 0);
  settings.add("--dp", {"strategy", "data_parallel"}, options.dp, 0);
  settings.add("--cp", {"strategy", "context_parallel"}, options.cp, 1);
  settings.add("--ep", {"strategy", "expert_parallel"}, options.ep, 1);
  settings.add("--zero", {"strategy", "zero"}, options.zero, 0);
  settings.add("--micro-batch", {"train", "micro_batch"}, options.micro_batch, 0);
  settings.add("--sequence-length", {"train", "sequence"}, options.sequence, 0);
  settings.add("--global-batch", {"train", "global_batch"}, options.global_batch, 0);
  const auto word = [&](const char* option, std::vector<std::string> path, const std::string& value,
                        const char* usual) {
    if (value != usual) settings.add(fmt::format("{} {}", option, value), std::move(path), value);
  };
  word("--recompute", {"strategy", "recompute"}, options.recompute, "none");
  word("--schedule", {"strategy", "schedule"}, options.schedule, "1f1b");
  word("--precision", {"train", "precision"}, options.precision, "bf16");
  word("--gradients", {"train", "gradients"}, options.gradients, "fp32");
  word("--optimizer", {"train", "optimizer"}, options.optimizer, "adamw");
  word("--matmuls", {"train", "matmuls"}, options.matmuls, "");
  if (options.no_master_weights) settings.add("--no-master-weights", {"train", "master_weights"}, "false");
  if (options.sequence_parallel)
    settings.add("--sequence-parallel", {"strategy", "sequence_parallel"}, "true");
  if (options.offload_optimizer)
    settings.add("--offload-optimizer", {"strategy", "offload"}, "{optimizer: 1, activations: 0}");
  if (options.lora > 0)
    settings.add(options.lora_targets.empty() ? fmt::format("--lora {}", options.lora)
                                              : fmt::format("--lora-targets {}", options.lora_targets),
                 {"train", "lora"}, lora_text(options));
  if (options.qlora) settings.add("--qlora", {"train", "frozen_weights"}, "nf4");
  settings.add_further(options.settings);
  return settings;
}

struct CountedJob {
  Scenario scenario;
  Yaml text;
  std::vector<StageMemory> memory;
  bool has_assumed_host = false;
};

std::vector<StageMemory> memory_of(const Job& job) {
  return memory_by_stage(compile(job), job.cluster, job.train.fragmentation);
}

CountedJob count(const MemoryArguments& options) {
  const bool is_path = std::filesystem::exists(options.model);
  const std::string model =
      is_path ? std::filesystem::absolute(options.model).lexically_normal().string() : options.model;
  const Transformer transformer = load_transformer(model);
  const std::int64_t sequence =
      options.sequence > 0 ? options.sequence : std::min<std::int64_t>(4'096, transformer.max_positions);
  const std::string path = "memory.yaml";
  CountedJob counted;
  OptionSettings settings = settings_of(options);
  const Yaml base = parse_yaml(base_text(options, model, sequence), path);
  counted.text = with_settings(base, path, settings.all());
  counted.scenario = read_scenario(counted.text, path);
  if (options.offload_optimizer && !counted.scenario.job.cluster.groups.at(0).host) {
    settings.add("--offload-optimizer", {"cluster", "groups", "0", "host"}, kAssumedHost);
    counted.text = with_settings(base, path, settings.all());
    counted.scenario = read_scenario(counted.text, path);
    counted.has_assumed_host = true;
  }
  counted.memory = memory_of(counted.scenario.job);
  if (counted.has_assumed_host)
    for (StageMemory& each : counted.memory) each.host_capacity = 0;
  return counted;
}

bool fits(const std::vector<StageMemory>& memory) {
  return std::all_of(memory.begin(), memory.end(),
                     [](const StageMemory& each) { return each.peak <= each.capacity; });
}

std::int64_t highest_peak(const std::vector<StageMemory>& memory) {
  std::int64_t most = 0;
  for (const StageMemory& each : memory) most = std::max(most, each.peak);
  return most;
}

// ---- what would fit

struct Smaller {
  std::string change;
  std::int64_t peak = 0;
  bool fits = false;
};

// Other optimizers, and adapters on frozen weights, which train something else than was asked for.
std::vector<Smaller> other_training(const Job& job) {
  std::vector<Smaller> all;
  const auto try_job = [&](Job other, const std::string& change) {
    try {
      validate(other.transformer, other.train, other.strategy);
      const std::vector<StageMemory> memory = memory_of(other);
      all.push_back({change, highest_peak(memory), fits(memory)});
    } catch (const Refusal&) {  // a change that is not legal is no way out
    }
  };
  if (!job.transformer.lora.used())
    for (const Optimizer optimizer : {Optimizer::muon, Optimizer::adamw_8bit, Optimizer::adafactor}) {
      if (optimizer == job.train.optimizer) continue;
      Job other = job;
      other.train.optimizer = optimizer;
      try_job(std::move(other), fmt::format("--optimizer {}", name_of(optimizer)));
    }
  if (job.transformer.lora.used() && job.train.frozen_weights == FrozenWeights::precision) {
    Job other = job;
    other.train.frozen_weights = FrozenWeights::nf4;
    try_job(std::move(other), "--qlora");
  }
  return all;
}

// The chips that ship and hold that many bytes, the smallest ones first.
std::vector<std::pair<double, std::string>> chips_that_hold(std::int64_t bytes) {
  std::vector<std::pair<double, std::string>> chips;
  for (const std::string& name : data_names(DataKind::chips)) try {
      const std::string path = find_file(name, ".", "platforms/chips", ".yaml", {});
      const Chip chip = read_chip(read_yaml(path), name);
      if (chip.kind != "cpu" && chip.memory_bytes.value >= static_cast<double>(bytes))
        chips.emplace_back(chip.memory_bytes.value, name);
    } catch (const Refusal&) {  // whoever names that file is told
    }
  std::sort(chips.begin(), chips.end());
  return chips;
}

// ---- results

std::string bytes_text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string layers_of(const Job& job, std::size_t stage) {
  std::string text;
  std::size_t index = 0;
  for (const PipelineTemplate& pipeline : job.strategy.templates)
    for (std::size_t s = 0; s < pipeline.stages.size(); ++s, ++index) {
      if (index != stage) continue;
      for (const VirtualStage& each : virtual_stages(pipeline))
        if (each.stage == static_cast<int>(s)) text += (text.empty() ? "" : ", ") + print(each.layers);
    }
  return text;
}

std::string table_text(const CountedJob& counted, bool has_chip) {
  Table table(has_chip ? "llrrrrrrrl" : "llrrrrrr",
              has_chip ? std::vector<std::string>{"stage", "layers", "weights", "gradients", "optimizer",
                                                  "activations", "beyond", "total", "capacity", ""}
                       : std::vector<std::string>{"stage", "layers", "weights", "gradients", "optimizer",
                                                  "activations", "beyond", "total"});
  for (const StageMemory& each : counted.memory) {
    std::vector<std::string> row = {std::to_string(each.stage),
                                    layers_of(counted.scenario.job, static_cast<std::size_t>(each.stage)),
                                    bytes_text(each.parameters),
                                    bytes_text(each.gradients),
                                    bytes_text(each.optimizer),
                                    bytes_text(each.activations_peak),
                                    bytes_text(beyond_tensors(each)),
                                    bytes_text(each.peak)};
    if (has_chip) {
      row.push_back(bytes_text(each.capacity));
      row.push_back(each.peak <= each.capacity
                        ? fmt::format("fits, {} free", bytes_text(each.capacity - each.peak))
                        : fmt::format("{} too much", bytes_text(each.peak - each.capacity)));
    }
    table.add(row);
  }
  return table.print();
}

std::string head_text(const CountedJob& counted, const MemoryArguments& options) {
  const Job& job = counted.scenario.job;
  const Transformer& t = job.transformer;
  std::string text =
      fmt::format("{}: {} parameters", t.name, format_count(static_cast<double>(parameter_count(t))));
  if (t.lora.used())
    text += fmt::format(
        ", frozen{}; adapters of rank {} have {} ({:.2g} %)",
        job.train.frozen_weights == FrozenWeights::nf4 ? " in NF4" : "", t.lora.rank,
        format_count(static_cast<double>(trained_parameter_count(t))),
        100 * static_cast<double>(trained_parameter_count(t)) / static_cast<double>(parameter_count(t)));
  text += fmt::format(
      "\n{} on {} {}, {} of {} tokens, {}, {}{}\n\n", degrees_of(job.strategy), job.strategy.rank_count(),
      options.chip.empty() ? std::string(job.strategy.rank_count() == 1 ? "chip" : "chips")
                           : job.cluster.groups.at(0).chip.name,
      job.train.micro_batch == 1 ? "1 sequence" : fmt::format("{} sequences", job.train.micro_batch),
      job.train.sequence, name_of(job.train.precision), name_of(job.train.optimizer),
      job.train.optimizer_rule().has_masters() ? " with master weights" : "");
  return text + "memory of a chip, at its peak:\n";
}

// What would fit where nothing does: moves of the strategy, the mildest first, then other training.
std::string remedy_text(const Job& job) {
  std::string text = describe(remedies(job));
  std::string other;
  for (const Smaller& each : other_training(job))
    other += fmt::format("{}`{}` needs {}{}", other.empty() ? "" : "; ", each.change, bytes_text(each.peak),
                         each.fits ? ", which fits" : "");
  if (text.empty() && other.empty()) return "  no change that was tried saves memory\n";
  if (!text.empty()) text = "  as keys of a scenario: " + text + "\n";
  if (!other.empty()) text += "  other training: " + other + "\n";
  return text;
}

std::string to_text(const CountedJob& counted, const MemoryArguments& options) {
  const bool has_chip = !options.chip.empty();
  std::string text =
      head_text(counted, options) + table_text(counted, has_chip) + print_memory_notes(counted.memory);
  if (counted.has_assumed_host)
    text += fmt::format("  nodes of {} do not say what memory they have of their own: enough is assumed\n",
                        counted.scenario.job.cluster.groups.at(0).chip.name);
  if (!has_chip) {
    const auto chips = chips_that_hold(highest_peak(counted.memory));
    std::vector<std::string> names;
    for (std::size_t i = 0; i < std::min<std::size_t>(4, chips.size()); ++i)
      names.push_back(fmt::format("{} ({})", chips[i].second, format_bytes(chips[i].first)));
    text += fmt::format("\n{}; buffers are those of nodes of {}\n",
                        names.empty() ? "no chip of `motley list chips` holds it"
                                      : fmt::format("chips that hold it: {}{}", fmt::join(names, ", "),
                                                    chips.size() > names.size() ? " and larger ones" : ""),
                        kUsualChip);
    return text;
  }
  if (fits(counted.memory)) return text;
  return text + "\nit does not fit:\n" + remedy_text(counted.scenario.job);
}

std::string to_json(const CountedJob& counted, const MemoryArguments& options) {
  using Json = nlohmann::ordered_json;
  const Job& job = counted.scenario.job;
  const bool has_chip = !options.chip.empty();
  Json stages = Json::array();
  for (const StageMemory& each : counted.memory) {
    Json stage = {{"stage", each.stage},
                  {"layers", layers_of(job, static_cast<std::size_t>(each.stage))},
                  {"parameters", each.parameters},
                  {"gradients", each.gradients},
                  {"optimizer", each.optimizer},
                  {"activations_peak", each.activations_peak},
                  {"logits", each.logits},
                  {"buffers", each.buffers},
                  {"buckets", each.buckets},
                  {"runtime", each.runtime},
                  {"fragmentation", each.fragmentation},
                  {"peak", each.peak},
                  {"host", each.host}};
    if (has_chip) {
      stage["capacity"] = each.capacity;
      stage["fits"] = each.peak <= each.capacity;
    }
    stages.push_back(stage);
  }
  Json whole = {{"schema", "motley.memory/1"},
                {"model", job.transformer.name},
                {"parameters", parameter_count(job.transformer)},
                {"trained_parameters", trained_parameter_count(job.transformer)},
                {"strategy", degrees_of(job.strategy)},
                {"optimizer", name_of(job.train.optimizer)},
                {"chip", has_chip ? Json(job.cluster.groups.at(0).chip.name) : Json(nullptr)},
                {"stages", stages}};
  if (!has_chip) return json_text(whole);
  whole["fits"] = fits(counted.memory);
  if (!fits(counted.memory)) {
    Json changes = Json::array();
    for (const Remedy& each : remedies(job))
      changes.push_back({{"change", each.change}, {"peak", each.peak}, {"fits", each.fits()}});
    for (const Smaller& each : other_training(job))
      changes.push_back({{"change", each.change}, {"peak", each.peak}, {"fits", each.fits}});
    whole["changes"] = changes;
  }
  return json_text(whole);
}

Exit run(MemoryArguments options) {
  if (options.qlora && options.lora == 0) options.lora = 16;
  if (!options.lora_targets.empty() && options.lora == 0)
    throw Refusal(Exit::usage, "missing-option", {}, "--lora-targets needs adapters",
                  "--lora 16 --lora-targets qkv");
  const CountedJob counted = count(options);
  if (!options.out.empty()) write_result(print_yaml(counted.text), options.out);
  write_result(options.json ? to_json(counted, options) : to_text(counted, options), "");
  return options.chip.empty() || fits(counted.memory) ? Exit::ok : Exit::infeasible;
}

void add_layout_options(const Command& command, MemoryArguments& options) {
  constexpr int kMost = 1 << 20;
  command.option("--tp", options.tp, "tensor parallelism: chips that share each layer").between(1, kMost);
  command.option("--pp", options.pp, "pipeline stages").between(1, kMost);
  command.option("--dp", options.dp, "replicas (data parallelism)").between(1, kMost);
  command.option("--cp", options.cp, "context parallelism: chips that share each sequence").between(1, kMost);
  command.option("--ep", options.ep, "chips of a stage over which experts are divided").between(1, kMost);
  command.flag("--sequence-parallel", options.sequence_parallel,
               "divide rows of norms over the tensor-parallel chips");
  command
      .option("--zero", options.zero,
              "what replicas divide: 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too (FSDP)")
      .between(0, 3);
  command.option("--micro-batch", options.micro_batch, "sequences in one forward").between(1, kMost);
  command
      .option("--global-batch", options.global_batch,
              "sequences in a step; default: enough to fill the pipeline")
      .between(1, kMost);
  command
      .option("--sequence-length", options.sequence,
              "tokens in a sequence; default: 4096, or the model's longest")
      .between(1, 1 << 22);
  command.option("--recompute", options.recompute, "none, selective or full").shows_default();
  command.option("--schedule", options.schedule, "a name of `motley list schedules`").shows_default();
}

void add_training_options(const Command& command, MemoryArguments& options) {
  std::vector<std::string> optimizers;
  for (const Optimizer each : every<Optimizer>()) optimizers.emplace_back(name_of(each));
  command
      .option("--optimizer", options.optimizer,
              "adamw; adamw-8bit (bitsandbytes); adafactor (factored second moments, no momentum); muon (one "
              "momentum "
              "for matrices in layers, adamw for the rest); sgd (no momentum)")
      .one_of(optimizers)
      .shows_default();
  command.option("--precision", options.precision, "of weights and activations: fp32, tf32, bf16, fp16")
      .shows_default();
  command.option("--gradients", options.gradients, "in which gradients are summed: fp32, bf16, fp16")
      .shows_default();
  command.option("--matmuls", options.matmuls, "narrower operands of matrix products: fp8, mxfp8, nvfp4");
  command.flag("--no-master-weights", options.no_master_weights, "keep no fp32 copy of narrower weights");
  command.flag("--offload-optimizer", options.offload_optimizer,
               "keep the optimizer state in the node's memory");
  command.option("--lora", options.lora, "freeze the model, and train adapters of this rank")
      .between(1, 1 << 16);
  command.option(
      "--lora-targets", options.lora_targets,
      "linear layers with an adapter, as qkv,proj or PEFT's q_proj,v_proj; default: all (qkv, proj, gate_up "
      "or fc1, fc2)");
  command.flag("--qlora", options.qlora,
               "keep frozen weights of layers in NF4 with double quantization; without --lora: rank 16");
}

}  // namespace

void add_memory(const Command& program) {
  const auto options = std::make_shared<MemoryArguments>();
  const Command command =
      program.subcommand("memory", "Say what training a model takes of a chip's memory, without a cluster");
  command
      .option("model", options->model,
              "a name of `motley list models`, a model's file, or a Hugging Face config.json")
      .required();
  command.option("--chip", options->chip,
                 "a name of `motley list chips`, or a file; default: say which chips hold it");
  command
      .option("--chips-per-node", options->chips_per_node, "default: as in nodes that ship with such chips")
      .between(1, 1 << 10);
  add_layout_options(command, *options);
  add_training_options(command, *options);
  add_settings(command, options->settings);
  command.option("--out", options->out, "also write what was counted as a scenario, for the other commands");
  add_max_input(command);
  command.flag("--json", options->json, "print JSON (schema motley.memory/1)");
  command.example(
      "motley memory llama-3-70b --chip h100-80gb-sxm --tp 8 --pp 4 --zero 1\n"
      "  motley memory llama-2-7b --chip rtx-4090 --qlora --lora 64 --recompute full");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
