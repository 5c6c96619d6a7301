// How a published row divides its step: batch and formats, and the strategy, from degrees, schedule, recompute and
// the habits of its software.
#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "models/base/size.hpp"
#include "models/published/printed_row.hpp"
#include "models/published/published_stages.hpp"
#include "models/strategy/strategy_complaint.hpp"

namespace motley {
namespace {

// Virtual stages of a rank: as printed, or by the rule for the set's software, or as printed by another row of the
// set for the same model and stages. An empty cell does not mean 1, but a printed schedule without chunks does.
std::int64_t chunks(const PrintedRow& row, std::int64_t stages) {
  const PrintedCells& cells = row.cells;
  if (stages == 1) return 1;
  if (!cells.text("vpp").empty()) return cells.count("vpp");
  if (row.set.virtual_stages > 0) return row.set.virtual_stages;
  for (const PublishedRun& other : row.table)
    if (other.set == row.run.set && other.row["model_name"] == cells.text("model_name") &&
        other.row["pp"] == cells.text("pp") && !other.row["vpp"].empty())
      return PrintedCells(other.row).count("vpp");
  const std::string schedule = lower(cells.text("schedule"));
  if (schedule.empty() || (contains(schedule, "interleaved") && !contains(schedule, "1 layer per chunk")))
    pass_over("`vpp` is not printed");
  return 1;
}

// Some tables count only the replicas of experts.
std::int64_t replicas(const PrintedCells& cells, std::int64_t chips_of_one) {
  const std::int64_t dp = cells.count("dp"), chips = cells.count("n_accelerators"),
                     ep = cells.count_or("ep", 1);
  const bool of_experts =
      size_product({chips_of_one, dp}) != chips && size_product({chips_of_one, dp, ep}) == chips;
  return of_experts ? dp * ep : dp;
}

// Embedding and head count as a layer each if only that makes the stages even.
EndLayers end_layers(std::int64_t layers, std::int64_t parts) {
  return layers % parts != 0 && (layers + 2) % parts == 0 ? EndLayers::counted : EndLayers::besides;
}

void set_schedule(const PrintedRow& row, Job& job, std::int64_t pp) {
  const std::string printed_name = lower(row.cells.text("schedule"));
  const std::int64_t L = job.transformer.layers;
  std::int64_t count = chunks(row, pp);
  if (contains(printed_name, "1 layer per chunk")) count = (L + (L % pp == 0 ? 0 : 2)) / pp;
  if (pp == 1) return;
  Schedule schedule = count > 1 ? Schedule::interleaved : Schedule::one_f_one_b;
  if (contains(printed_name, "zb-1p")) schedule = Schedule::zb_h1;
  if (contains(printed_name, "zb-2p")) schedule = Schedule::zb_h2;
  use_schedule(job.transformer, job.strategy, schedule, static_cast<int>(count), end_layers(L, pp * count));
}

void set_printed_stages(const PrintedRow& row, Job& job) {
  const std::string& notes = row.cells.text("notes");
  if (const auto map = stage_map(notes))
    job.strategy.templates = pipelines_of(*map, job.strategy.templates.at(0).micro_batches);
  if (const auto layers = layers_per_stage(notes))
    if (!set_layers(*layers, job.transformer, job.strategy))
      pass_over("the layers printed by stage are not the model's");
}

// Each rank of a tensor group sends its part of a boundary tensor, and the receivers gather the whole.
// Assumes: chunks of interleaved schedules send whole tensors.
void gather_at_boundaries(Strategy& strategy) {
  for (PipelineTemplate& pipeline : strategy.templates)
    for (std::size_t i = 1; i < pipeline.stages.size(); ++i)
      if (pipeline.stages[i].more.empty()) pipeline.stages[i].resharding = Resharding::gather;
}

void set_recompute(const PrintedRow& row, Strategy& strategy) {
  const std::string& printed = row.cells.text("recompute");
  const std::optional<Recompute> known =
      printed.empty() ? row.set.recompute.value_or(Recompute::none) : printed_recompute(printed);
  if (!known) pass_over(fmt::format("recompute `{}`", printed));
  strategy.recompute = *known;
  if (strategy.recompute == Recompute::selective) strategy.recompute = row.set.selective;
  if (!printed.empty() || !row.recipe || !row.recipe->recompute_layers) return;
  for (PipelineTemplate& pipeline : strategy.templates)
    for (Stage& stage : pipeline.stages) stage.recompute_layers = row.recipe->recompute_layers;
}

void set_division(const PrintedRow& row, Job& job, std::int64_t copies) {
  const std::string kind = lower(row.cells.text("zero_stage_or_fsdp"));
  Strategy& strategy = job.strategy;
  strategy.zero = copies > 1 ? row.set.zero : 0;
  if (contains(kind, "zero-1")) strategy.zero = 1;
  if (contains(kind, "zero-2") || contains(kind, "shard_grad_op")) strategy.zero = 2;
  if (contains(kind, "full_shard") || contains(kind, "fsdp2") || contains(kind, "zero-3")) strategy.zero = 3;
  if (contains(kind, "fsdp+")) pass_over("FSDP over an unprinted group");
  const bool without = contains(kind, "fsdp=0");  // "DDP (FSDP=0)"
  if (contains(kind, "hsdp") || (contains(kind, "fsdp") && !without)) strategy.zero = 3;
  if (contains(kind, "hsdp"))
    strategy.shard_over = job.cluster.groups[0].chips_per_node;  // PyTorch's default
  if (copies == 1) strategy.zero = 0;
  std::smatch group;
  if (strategy.zero == 1 && std::regex_search(kind, group, std::regex("group ([0-9]{1,9})")))
    strategy.shard_over = std::min<std::int64_t>(std::stoll(group[1]), copies);
  if (strategy.shard_over == copies) strategy.shard_over = 0;
  if (strategy.zero >= 2) strategy.reduce_gradients = row.set.reduce_gradients;
}

void set_expert_degrees(const PrintedRow& row, Job& job) {
  for (PipelineTemplate& pipeline : job.strategy.templates)
    for (Stage& stage : pipeline.stages) {
      stage.expert_parallel = row.cells.count_or("ep", 1);
      if (job.transformer.experts.count > 0) stage.expert_tensor_parallel = 1;
    }
  if (job.transformer.experts.count > 0) job.strategy.expert_weights = row.set.expert_weights;
}

}  // namespace

void read_train(const PrintedRow& row, Job& job) {
  const PrintedCells& cells = row.cells;
  const auto& peaks = job.cluster.groups[0].chip.peak_flops;
  Train& train = job.train;
  train.sequence = row.sequence();
  train.global_batch = cells.count("global_batch");
  train.micro_batch = row.set.micro_batch > 0 ? cells.count_or("micro_batch", row.set.micro_batch)
                                              : cells.count("micro_batch");
  const std::string precision = lower(cells.text("precision"));
  if (contains(precision, "not resolved")) pass_over("the precision is not resolved");
  // llm-foundry's PURE reduces gradients in the format of computation, DEFAULT in 32 bits.
  const bool pure = contains(cells.text("zero_stage_or_fsdp"), "PURE");
  train.gradients = pure ? Format::bf16 : row.set.gradients;
  train.precision = peaks.contains(Format::bf16) ? Format::bf16 : Format::fp16;
  for (const auto& [name, format] :
       {std::pair{"nvfp4", Format::nvfp4}, {"mx", Format::mxfp8}, {"fp8", Format::fp8}})
    if (contains(precision, name) && !train.matmuls) train.matmuls = format;
  if (row.set.precision) train.precision = *row.set.precision;
  if (train.matmuls && !peaks.contains(*train.matmuls)) train.matmuls = Format::fp8;
  train.expert_room = row.set.expert_room;
  if (const auto complaint = find_batch_complaint(job.transformer, train)) pass_over(complaint->message);
}

void read_strategy(const PrintedRow& row, Job& job) {
  const PrintedCells& cells = row.cells;
  const std::int64_t tp = cells.count("tp"), pp = cells.count("pp"), cp = cells.count_or("cp", 1);
  try {
    const std::int64_t dp = replicas(cells, size_product({tp, pp, cp}));
    job.strategy = expand(job.transformer, job.train, tp, pp, dp, cp);
    set_schedule(row, job, pp);
    set_printed_stages(row, job);
    const bool sequence_parallel =
        row.set.sequence_parallel || contains(cells.text("recompute"), "sequence parallel");
    job.strategy.sequence_parallel = tp > 1 && sequence_parallel;
    if (row.set.scatter_gather && tp > 1 && !job.strategy.sequence_parallel)
      gather_at_boundaries(job.strategy);
    set_recompute(row, job.strategy);
    set_division(row, job, dp * cp);
    job.strategy.overlap_gradients = row.set.overlap;
    job.strategy.overlap_parameters = row.set.overlap_parameters;
    set_expert_degrees(row, job);
    validate(job.transformer, job.train, job.strategy);
  } catch (const Refusal& refusal) {
    pass_over(refusal.message());
  }
}

}  // namespace motley
