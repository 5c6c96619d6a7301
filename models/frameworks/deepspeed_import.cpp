// DeepSpeed's JSON as a scenario. The JSON names no model and no sequence: both are given beside it. Facts are of the
// version in framework.cpp: deepspeed/runtime/config.py and constants.py, zero/config.py, zero/offload_config.py.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "models/base/index.hpp"
#include "models/base/units.hpp"
#include "models/frameworks/import.hpp"
#include "models/strategy/strategy_complaint.hpp"
#include "models/strategy/strategy_fields.hpp"
#include "models/transformer/train_fields.hpp"

namespace motley {
namespace {

constexpr std::array kReadKeys = {"train_batch_size",
                                  "train_micro_batch_size_per_gpu",
                                  "gradient_accumulation_steps",
                                  "bf16",
                                  "fp16",
                                  "data_types",
                                  "communication_data_type",
                                  "optimizer",
                                  "zero_optimization",
                                  "tensor_parallel",
                                  "sequence_parallel_size",
                                  "motley"};
// Keys that DeepSpeed knows and that change nothing that a scenario holds.
constexpr std::array kOtherKeys = {"steps_per_print",
                                   "gradient_clipping",
                                   "scheduler",
                                   "wall_clock_breakdown",
                                   "dump_state",
                                   "prescale_gradients",
                                   "sparse_gradients",
                                   "gradient_predivide_factor",
                                   "activation_checkpointing",
                                   "flops_profiler",
                                   "monitor",
                                   "tensorboard",
                                   "wandb",
                                   "csv_monitor",
                                   "comms_logger",
                                   "amp",
                                   "zero_allow_untested_optimizer",
                                   "zero_force_ds_cpu_optimizer",
                                   "checkpoint",
                                   "aio",
                                   "elasticity",
                                   "autotuning",
                                   "compression_training",
                                   "data_efficiency",
                                   "pipeline",
                                   "disable_allgather",
                                   "memory_breakdown",
                                   "seed",
                                   "dataloader_drop_last",
                                   "gradient_allreduce_op",
                                   "torch_autocast",
                                   "eigenvalue",
                                   "progressive_layer_drop",
                                   "curriculum_learning",
                                   "hybrid_engine",
                                   "compile"};
const std::vector<std::string>& zero_keys() {
  static const std::vector<std::string> keys = {"stage",
                                                "contiguous_gradients",
                                                "reduce_scatter",
                                                "reduce_bucket_size",
                                                "use_multi_rank_bucket_allreduce",
                                                "allgather_partitions",
                                                "allgather_bucket_size",
                                                "overlap_comm",
                                                "load_from_fp32_weights",
                                                "elastic_checkpoint",
                                                "offload_param",
                                                "offload_optimizer",
                                                "zenflow",
                                                "sub_group_size",
                                                "cpu_offload_param",
                                                "cpu_offload_use_pin_memory",
                                                "cpu_offload",
                                                "prefetch_bucket_size",
                                                "stage3_prefetch_bucket_size",
                                                "param_persistence_threshold",
                                                "stage3_param_persistence_threshold",
                                                "model_persistence_threshold",
                                                "stage3_model_persistence_threshold",
                                                "max_live_parameters",
                                                "stage3_max_live_parameters",
                                                "max_reuse_distance",
                                                "stage3_max_reuse_distance",
                                                "gather_16bit_weights_on_model_save",
                                                "stage3_gather_16bit_weights_on_model_save",
                                                "module_granularity_threshold",
                                                "stage3_module_granularity_threshold",
                                                "use_all_reduce_for_fetch_params",
                                                "stage3_use_all_reduce_for_fetch_params",
                                                "allgather_sequential",
                                                "stage3_allgather_sequential",
                                                "ignore_unused_parameters",
                                                "legacy_stage1",
                                                "round_robin_gradients",
                                                "zero_hpz_partition_size",
                                                "zero_quantized_weights",
                                                "zero_quantized_nontrainable_weights",
                                                "zero_quantized_gradients",
                                                "zeropp_loco_param",
                                                "mics_shard_size",
                                                "mics_hierarchical_params_gather",
                                                "memory_efficient_linear",
                                                "pipeline_loading_checkpoint",
                                                "override_module_apply",
                                                "log_trace_cache_warnings",
                                                "enable_sanity_checks",
                                                "save_muon_momentum_buffer_in_memory",
                                                "leaf_module"};
  return keys;
}

[[noreturn]] void refuse_foreign_key(const Location& where, const std::string& what,
                                     const std::string& hint = {}, RefusalSite site = RefusalSite::here()) {
  throw Refusal(Exit::infeasible, "foreign-setting", where, what, hint, site);
}

// A value that Hugging Face's Trainer fills in ("auto").
Yaml own_value(const YamlEntry& entry) {
  if (entry.value->is_scalar() && entry.value->text == "auto")
    throw Refusal(Exit::usage, "undefined-variable", entry.value->where,
                  fmt::format("`{}` is \"auto\", which another program fills in", entry.key),
                  "write the value");
  return entry.value;
}

// JSON has one kind of number: 5e8, as DeepSpeed's own examples have it, is as whole as 500000000.
std::int64_t to_whole_number(const Yaml& node, IntegerRange range) {
  constexpr double kMostExact = 0x1p53;
  double value = 0;
  if (!node->is_scalar() || node->text.find_first_of(".eE") == std::string::npos ||
      motley::read_number(node->text, value) != NumberFault::none || value != std::floor(value) ||
      std::fabs(value) > kMostExact)
    return to_integer(node, range);
  YamlNode whole = *node;
  whole.text = fmt::format("{:.0f}", value);
  return to_integer(std::make_shared<const YamlNode>(std::move(whole)), range);
}

std::optional<std::int64_t> read_number(const Fields& fields, const char* key, IntegerRange range) {
  const YamlEntry* const entry = fields.entry(key);
  if (entry == nullptr) return std::nullopt;
  return to_whole_number(own_value(*entry), range);
}

bool is_enabled(const Fields& fields, const char* key) {
  const Yaml section = fields.find(key);
  if (!section) return false;
  const YamlEntry* const enabled = section->find("enabled");
  return enabled != nullptr && to_bool(own_value(*enabled));
}

Format read_dtype(const Yaml& node) {
  const std::string word = to_choice(node, {"fp32", "fp16", "bf16", "bfloat16", "float16", "float32"});
  return word == "bf16" || word == "bfloat16"  ? Format::bf16
         : word == "fp16" || word == "float16" ? Format::fp16
                                               : Format::fp32;
}

void read_precision(const Fields& fields, Train& train) {
  const bool bf16 = is_enabled(fields, "bf16"), fp16 = is_enabled(fields, "fp16");
  if (bf16 && fp16)
    throw Refusal(Exit::usage, "clashing-settings", fields.where("fp16"),
                  "`fp16` stands beside `bf16`, and one excludes the other", "enable one of them");
  train.precision = bf16 ? Format::bf16 : fp16 ? Format::fp16 : Format::fp32;
  train.gradients = fp16 ? Format::fp16 : Format::fp32;
  if (const Yaml types = fields.find("data_types"))
    if (const YamlEntry* const kept = types->find("grad_accum_dtype"))
      train.gradients = read_dtype(own_value(*kept));
}

void read_optimizer(const Fields& fields, Train& train) {
  const Yaml optimizer = fields.find("optimizer");
  if (!optimizer) return;
  const Fields section(optimizer, "`optimizer`", {"type", "params", "legacy_fusion"});
  const std::string type = to_text(section.need("type"));
  if (type != "Adam" && type != "AdamW")
    refuse_foreign_key(section.where("type"),
                       fmt::format("optimizer `{}`: Motley has AdamW", shortened(type)));
  const Yaml params = section.find("params");
  if (!params) return;
  for (const YamlEntry& entry : params->entries) {
    if (entry.key == "lr") train.learning_rate = to_number(own_value(entry), Sign::positive);
    if (entry.key == "eps") train.epsilon = to_number(own_value(entry), Sign::positive);
    if (entry.key == "weight_decay") train.weight_decay = to_number(own_value(entry), Sign::not_negative);
    if (entry.key != "betas") continue;
    const std::vector<Yaml>& betas = to_sequence(own_value(entry));
    if (betas.size() != 2)
      refuse_foreign_key(entry.where, fmt::format("`betas` has {} numbers, not two", betas.size()));
    train.beta1 = to_decay(betas[0]);
    train.beta2 = to_decay(betas[1]);
  }
}

void read_offload(const Yaml& zero, Strategy& strategy) {
  if (const YamlEntry* const parameters = zero->find("offload_param"))
    if (const YamlEntry* const device = parameters->value->find("device");
        device && device->value->text != "none")
      refuse_foreign_key(parameters->where,
                         "`offload_param` keeps parameters in the memory of the node: Motley offloads the "
                         "optimizer's state alone",
                         "leave `offload_param` out");
  const YamlEntry* const optimizer = zero->find("offload_optimizer");
  if (optimizer == nullptr || !optimizer->value->is_map()) return;
  const YamlEntry* const device = optimizer->value->find("device");
  if (device == nullptr || device->value->text == "none") return;
  if (to_choice(device->value, {"cpu", "nvme", "none"}) == "nvme")
    refuse_foreign_key(device->where,
                       "`nvme` keeps the optimizer's state on a disk: Motley has the memory of the node",
                       "device: cpu");
  const YamlEntry* const ratio = optimizer->value->find("ratio");
  strategy.offload.optimizer = ratio == nullptr ? 1.0 : to_share_in_host(ratio->value);
}

void read_zero_section(const Fields& fields, const Train& train, std::int64_t replicas, Imported& imported) {
  const Yaml zero = fields.find("zero_optimization");
  if (!zero) return;
  Strategy& strategy = imported.strategy;
  const Fields section(zero, "`zero_optimization`", zero_keys());
  strategy.zero = static_cast<int>(read_number(section, "stage", {0, 3}).value_or(0));
  if (strategy.zero == 0) return;
  // DeepSpeed overlaps under ZeRO-3 unless it is told not to (zero/config.py, overlap_comm_valid).
  const YamlEntry* const overlap = section.entry("overlap_comm");
  strategy.overlap_gradients = overlap == nullptr ? strategy.zero == 3 : to_bool(own_value(*overlap));
  if (const auto shard = read_number(section, "mics_shard_size", {-1, kDegree.most}); shard && *shard > 0) {
    if (strategy.zero < 3 || replicas % *shard != 0)
      refuse_foreign_key(
          section.where("mics_shard_size"),
          fmt::format("`mics_shard_size` {} needs ZeRO-3 and a number of replicas that it divides", *shard));
    if (*shard < replicas) strategy.shard_over = *shard;
  }
  read_offload(zero, strategy);
  if (strategy.overlap_gradients || strategy.offload.optimizer > 0)
    strategy.bucket_bytes =
        bytes_of(train.gradients) *
        read_number(section, "reduce_bucket_size", {1, std::int64_t{1} << 40}).value_or(500'000'000);
  for (const YamlEntry& entry : zero->entries)
    if (entry.key != "stage" && entry.key != "overlap_comm" && entry.key != "reduce_bucket_size" &&
        entry.key != "mics_shard_size" && entry.key != "offload_optimizer")
      imported.ignored.push_back(
          {"zero_optimization." + entry.key, entry.where, "a scenario has no key for it"});
}

void list_other_keys(const Yaml& root, Imported& imported) {
  std::vector<std::string> known(kReadKeys.begin(), kReadKeys.end());
  known.insert(known.end(), kOtherKeys.begin(), kOtherKeys.end());
  for (const YamlEntry& entry : root->entries) {
    if (std::find(kReadKeys.begin(), kReadKeys.end(), entry.key) != kReadKeys.end()) continue;
    const std::string hint = suggest(entry.key, known);
    if (std::find(known.begin(), known.end(), entry.key) == known.end() && hint.starts_with("did you mean"))
      throw Refusal(Exit::usage, "unknown-key", entry.where,
                    fmt::format("DeepSpeed 0.19.6 has no key `{}`", shortened(entry.key)), hint);
    imported.ignored.push_back({entry.key, entry.where, "a scenario has no key for it"});
  }
}

// Two of the three numbers say the third.
void read_batch(const Fields& fields, std::int64_t replicas, Train& train, PipelineTemplate& pipeline) {
  const auto whole = read_number(fields, "train_batch_size", kBatch),
             micro = read_number(fields, "train_micro_batch_size_per_gpu", kBatch),
             steps = read_number(fields, "gradient_accumulation_steps", kBatch);
  if (!whole && !micro)
    throw Refusal(Exit::usage, "missing-setting", fields.where(),
                  "`train_batch_size` and `train_micro_batch_size_per_gpu` are missing",
                  "DeepSpeed needs one of them");
  train.micro_batch = micro ? *micro : *whole / std::max<std::int64_t>(steps.value_or(1) * replicas, 1);
  pipeline.micro_batches =
      steps.value_or(whole ? *whole / std::max<std::int64_t>(train.micro_batch * replicas, 1) : 1);
  train.global_batch = whole.value_or(train.micro_batch * pipeline.micro_batches * replicas);
  if (train.micro_batch < 1 || train.micro_batch * pipeline.micro_batches * replicas != train.global_batch)
    throw Refusal(
        Exit::infeasible, "impossible-batch",
        fields.where(whole ? "train_batch_size" : "train_micro_batch_size_per_gpu"),
        fmt::format(
            "{} sequences are not {} of each replica in a micro-batch x {} micro-batches x {} replicas",
            train.global_batch, train.micro_batch, pipeline.micro_batches, replicas),
        "--ranks says how many ranks start");
  pipeline.replicas = replicas;
}

}  // namespace

Imported import_deepspeed(const std::string& text, const std::string& file, const ImportOptions& options) {
  const Yaml root = parse_yaml(text, file);
  if (!root->is_map())
    throw Refusal(Exit::usage, "wrong-type", root->where, "DeepSpeed's configuration is an object");
  if (!options.model || options.sequence == 0)
    throw Refusal(Exit::usage, "missing-model", {file, 1, 1},
                  "DeepSpeed's JSON has neither the model nor the length of its sequences",
                  "--model llama-2-7b --sequence 4096");
  std::vector<std::string> keys;
  for (const YamlEntry& entry : root->entries) keys.push_back(entry.key);
  const Fields fields(root, "DeepSpeed's configuration", keys);
  Imported imported{.name = options.name,
                    .cluster = options.cluster,
                    .transformer = *options.model,
                    .model_name = options.model_name,
                    .train = {},
                    .strategy = {},
                    .ignored = {},
                    .notes = {}};
  list_other_keys(root, imported);
  Train& train = imported.train;
  train.sequence = options.sequence;
  read_precision(fields, train);
  read_optimizer(fields, train);
  std::int64_t tp = 1;
  if (const Yaml section = fields.find("tensor_parallel"))
    if (const YamlEntry* const size = section->find("autotp_size"))
      tp = std::max<std::int64_t>(to_integer(own_value(*size), {0, kDegree.most}), 1);
  if (const auto cut = read_number(fields, "sequence_parallel_size", kDegree); cut && *cut > 1)
    refuse_foreign_key(
        fields.where("sequence_parallel_size"),
        fmt::format("`sequence_parallel_size` {} exchanges parts of sequences, as Ulysses does: "
                    "Motley passes them in a ring or gathers them",
                    *cut));
  if (options.chips % tp != 0)
    throw Refusal(Exit::infeasible, "impossible-degrees", fields.where("tensor_parallel"),
                  fmt::format("{} ranks are not a multiple of tensor-parallel {}", options.chips, tp),
                  "--ranks says how many ranks start");
  PipelineTemplate pipeline;
  read_batch(fields, options.chips / tp, train, pipeline);
  imported.notes.push_back(
      fmt::format("{} ranks: {} replicas of tensor-parallel {}", options.chips, pipeline.replicas, tp));
  Stage& stage = pipeline.stages.emplace_back();
  stage.last_layer = imported.transformer.layers;
  stage.tensor_parallel = tp;
  read_zero_section(fields, train, pipeline.replicas, imported);
  imported.strategy.templates = {std::move(pipeline)};
  if (const auto complaint = find_complaint(imported.transformer, train, imported.strategy))
    throw Refusal(Exit::infeasible, complaint->kind, root->where, complaint->message, complaint->hint,
                  complaint->site);
  return imported;
}

}  // namespace motley
