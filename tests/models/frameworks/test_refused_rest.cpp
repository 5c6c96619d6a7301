// What a target cannot say is refused, and nothing is left out in silence: a job that says one thing more than a target
// can, in any of a strategy's keys, is refused, or its export is imported as a job with the same Program.
#include <catch2/catch.hpp>
#include <map>

#include "models/compile/compile.hpp"
#include "models/frameworks/export.hpp"
#include "models/frameworks/import.hpp"
#include "models/strategy/strategy_complaint.hpp"
#include "tests/models/frameworks/random_strategies.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;

namespace {

// Changes one thing of the strategy, and says which.
std::string change(tests::Dice& dice, Job& job) {
  Strategy& s = job.strategy;
  PipelineTemplate& pipeline = s.templates[0];
  Stage& stage = pipeline.stages[dice.engine()() % pipeline.stages.size()];
  switch (dice.engine()() % 20) {
    case 0:
      s.schedule = dice.one_of({Schedule::gpipe, Schedule::zb_h1, Schedule::zb_h2});
      return "schedule";
    case 1:
      s.overlap_p2p = !s.overlap_p2p;
      return "overlap.p2p";
    case 2:
      s.zero = dice.one_of({0, 1, 2, 3});
      return "zero";
    case 3:
      s.reduce_gradients = ReduceGradients::last;
      return "reduce_gradients";
    case 4:
      s.prefetch = 2;
      return "prefetch";
    case 5:
      s.p2p_buffers = 1;
      return "p2p_buffers";
    case 6:
      s.overlap_parameters = true;
      return "overlap.parameters";
    case 7:
      s.overlap_steps = dice.once_in(2);
      return "overlap.steps";
    case 8:
      s.overlap_context = !s.overlap_context;
      return "overlap.context";
    case 9:
      s.bucket_bytes = 1'000'001;
      return "overlap.bucket_bytes";
    case 10:
      s.expert_weights = ExpertWeights::combine;
      return "expert_weights";
    case 11:
      s.sequence_parallel = !s.sequence_parallel;
      return "sequence_parallel";
    case 12:
      s.offload.activations = 0.5;
      return "offload.activations";
    case 13:
      stage.recompute = dice.one_of({Recompute::full, Recompute::none, Recompute::alternate});
      return "recompute";
    case 14:
      stage.recompute_layers = 1;
      return "recompute_layers";
    case 15:
      stage.resharding = Resharding::gather;
      return "resharding";
    case 16:
      stage.tensor_parallel = 2;
      return "tensor_parallel";
    case 17:
      stage.offload = Offload{.optimizer = 1, .activations = 0};
      return "offload";
    case 18:
      s.shard_over = 2;
      return "shard_over";
    default:
      s.overlap_experts = true;
      return "overlap.experts";
  }
}

// The hash of the Program alone, without that of the strategy that it was compiled from.
std::string program_of(const Job& job) {
  Program program = compile(job);
  program.strategy_hash.clear();
  return program_hash(program);
}

std::string program_of(const Job& job, const Transformer& transformer, const Train& train,
                       const Strategy& strategy) {
  Job again = job;
  again.transformer = transformer;
  again.transformer.name = job.transformer.name;
  again.train = train;
  again.strategy = strategy;
  return program_of(again);
}

constexpr unsigned kDraws = tests::kSanitized ? 150 : 500;

struct Counts {
  int exported = 0;
  std::map<std::string, int> refused;
};

void check_job(const Job& job, ExportTarget target, ImportSource source, Counts& counts) {
  Export exported;
  try {
    exported = export_job("random", job, target);
  } catch (const Refusal& refusal) {
    REQUIRE(refusal.kind() == "inexpressible");
    ++counts.refused[refusal.message().substr(1, refusal.message().find_first_of("`:", 1) - 1)];
    return;
  }
  ++counts.exported;
  ImportOptions options{.name = "random", .cluster = "unlike", .chips = job.strategy.rank_count()};
  for (const NodeGroup& group : job.cluster.groups) options.groups.emplace_back(group.name, group.chip.name);
  if (source == ImportSource::deepspeed) {
    options.model = job.transformer;
    options.sequence = job.train.sequence;
  }
  INFO(exported.files[0].text);
  const Imported imported = import_text(source, exported.files[0].text, exported.files[0].name, options);
  INFO(print(imported.strategy));
  REQUIRE(program_of(job, imported.transformer, imported.train, imported.strategy) == program_of(job));
}

void check_target(Job (*draw)(unsigned), ExportTarget target, ImportSource source, const Cluster& cluster) {
  Counts counts;
  std::map<std::string, int> changed;
  for (unsigned seed = 0; seed < kDraws; ++seed) {
    tests::Dice dice(seed);
    Job job = draw(seed % 300);
    job.cluster = cluster;
    const std::string key = change(dice, job);
    if (find_complaint(job.transformer, job.train, job.strategy)) continue;
    INFO("seed " << seed << ", changed " << key << "\n" << print(job.strategy));
    try {
      compile(job);
    } catch (const Refusal&) {
      continue;  // what cannot be placed or compiled is no job
    }
    ++changed[key];
    check_job(job, target, source, counts);
  }
  CHECK(counts.exported > static_cast<int>(kDraws / 5));
  CHECK(counts.refused.size() >= 6);
  CHECK(changed.size() >= 12);
}

}  // namespace

TEST_CASE("Megatron-LM's export refuses what it cannot say or leaves no trace of it in the Program") {
  Cluster cluster = tests::unlike_cluster();
  cluster.groups.resize(1);
  cluster.groups[0].nodes = 128;
  cluster.links.clear();
  build_topology(cluster);
  check_target(tests::megatron_job, ExportTarget::megatron_lm, ImportSource::megatron_lm, cluster);
}

TEST_CASE("FlagScale's export refuses what it cannot say or leaves no trace of it in the Program") {
  check_target(tests::flagscale_job, ExportTarget::flagscale, ImportSource::flagscale,
               tests::unlike_cluster());
}

TEST_CASE("DeepSpeed's export refuses what it cannot say or leaves no trace of it in the Program") {
  check_target(tests::deepspeed_job, ExportTarget::deepspeed, ImportSource::deepspeed,
               tests::unlike_cluster());
}

TEST_CASE("no framework is given another optimizer than AdamW in silence") {
  Job job = tests::megatron_job(1);
  job.cluster = tests::unlike_cluster();
  job.train.precision = Format::bf16;
  for (const ExportTarget target :
       {ExportTarget::megatron_lm, ExportTarget::megatron_bridge, ExportTarget::flagscale,
        ExportTarget::torchtitan, ExportTarget::deepspeed}) {
    Job other = job;
    other.train.optimizer = Optimizer::muon;
    CHECK_THROWS_WITH(export_job("random", other, target), Catch::Contains("train.optimizer: muon"));
    other = job;
    other.train.master_weights = false;
    CHECK_THROWS_WITH(export_job("random", other, target), Catch::Contains("train.master_weights: false"));
    other = job;
    other.train.frozen_weights = FrozenWeights::nf4;
    CHECK_THROWS_WITH(export_job("random", other, target), Catch::Contains("train.frozen_weights: nf4"));
  }
}
