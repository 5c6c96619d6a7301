// Published runs: which job a row becomes, which rows are passed over and why, and how errors are summarised.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <regex>

#include "models/base/data_files.hpp"
#include "models/published/published_run.hpp"
#include "models/published/validation.hpp"
#include "models/report/published_metrics.hpp"
#include "models/scenario/scenario.hpp"
#include "models/scenario/scenario_text.hpp"
#include "models/scenario/software.hpp"

using namespace motley;

namespace {

constexpr const char* kHead =
    "id,accelerator,n_accelerators,per_node,model_name,hidden,ffn_hidden,layers,heads,kv_heads,vocab,seq_len,"
    "global_batch,micro_batch,tp,pp,vpp,dp,cp,ep,schedule,zero_stage_or_fsdp,recompute,precision,metric,"
    "value,notes\n";

std::vector<PublishedRun> runs(const std::string& rows) {
  std::vector<PublishedRun> published;
  for (CsvRow& row : parse_csv_table(kHead + rows, "runs.csv")) {
    const std::string id = row["id"];
    published.push_back({id, id.substr(0, id.find('-')), std::move(row)});
  }
  return published;
}
std::variant<Measured, PassedOver> read(const std::string& row) {
  static const PublishedRules rules;
  const auto all = runs(row);
  return rules.read(all[0], all);
}
std::string reason(const std::string& row) {
  const auto reading = read(row);
  return std::holds_alternative<PassedOver>(reading) ? std::get<PassedOver>(reading).reason : "";
}

// Narayanan et al. 2021 (arXiv:2104.04473), table 1: 145.6 B parameters on 1,536 GPUs.
constexpr const char* kSc21 =
    "sc21-1,A100-SXM-80GB,1536,8,GPT-145B,12288,49152,80,96,96,51200,2048,2304,2,8,8,2,24,1,,interleaved "
    "1F1B,,full,fp16,tflops_per_gpu_incl_recompute,148,\n";

RunOutcome outcome(const std::string& id, double measured_s, double predicted_s) {
  RunOutcome run_outcome;
  run_outcome.id = id;
  run_outcome.set = id.substr(0, id.find('-'));
  run_outcome.measured_s = measured_s;
  run_outcome.predicted = {predicted_s, 0.9 * predicted_s, 1.2 * predicted_s};
  return run_outcome;
}

}  // namespace

TEST_CASE("a published run becomes the job that it prints, and its step the formula's of its source") {
  const auto reading = read(kSc21);
  REQUIRE(std::holds_alternative<Measured>(reading));
  const Measured& run = std::get<Measured>(reading);
  const Job& job = run.scenario.job;
  CHECK(job.cluster.chip_count() == 1536);
  CHECK(job.cluster.groups[0].nodes == 192);
  CHECK(job.transformer.layers == 80);
  CHECK(job.transformer.vocabulary == 51200);
  CHECK(job.strategy.tp() == 8);
  CHECK(job.strategy.schedule == Schedule::interleaved);
  CHECK(job.strategy.templates[0].stages[0].more.size() == 1);  // two chunks
  CHECK(job.strategy.recompute == Recompute::full);
  const double flops = megatron_flops_per_sequence(job.transformer, 2048) * 2304;
  CHECK(run.step_s == Approx(flops / (148e12 * 1536)));
}

TEST_CASE(
    "two matrices of a feed-forward part count as much as three that are a third narrower; groups are "
    "printed") {
  const auto reading = read(
      "dgxc-1,H100-SXM-80GB,64,8,Nemotron4-15B,6144,24576,32,48,8,,4096,256,2,2,1,,32,1,,,,,BF16,iteration_"
      "time,2.67,\n");
  REQUIRE(std::holds_alternative<Measured>(reading));
  const Job& job = std::get<Measured>(reading).scenario.job;
  CHECK(job.transformer.ffn == 16384);
  CHECK(job.transformer.kv_heads == 8);
  CHECK(job.transformer.vocabulary == 256000);
  CHECK(job.train.gradients == Format::bf16);
}

TEST_CASE("an empty cell is not a one: what is not printed is found elsewhere in the set, or passed over") {
  const std::string row = kSc21;
  const auto without = [&](const std::string& cells, const std::string& by) {
    std::string edited_row = row;
    const std::size_t at = edited_row.find(cells);
    REQUIRE(at != std::string::npos);
    return edited_row.replace(at, cells.size(), by);
  };
  CHECK(reason(without(",2048,2304,", ",,2304,")) == "`seq_len` is not printed");
  CHECK(reason(without(",12288,49152,80,", ",12288,49152,,")) == "`layers` is not printed");
  CHECK(reason(without("GPT-145B", "Mystery-9B")) == "no shape is known of `Mystery-9B`");
  CHECK(reason(without("A100-SXM-80GB", "Z900")) == "no nodes are known of `Z900`");
  CHECK(reason(without("tflops_per_gpu_incl_recompute", "mood")) == "`mood` says no step time");
  CHECK(reason(without(",8,8,2,24,", ",8,8,2,23,")) ==
        "data_parallel 23 does not divide the 1152 micro-batches of a step (global_batch 2304 / micro_batch "
        "2)");
  CHECK(reason(without(",8,8,2,24,", ",8,8,,24,")) == "`vpp` is not printed");
  // The number of chunks comes from another row of the same model and stages.
  static const PublishedRules rules;
  const auto all = runs(without(",8,8,2,24,", ",8,8,,24,") + row);
  const auto filled = rules.read(all[0], all);
  CHECK(std::get<Measured>(filled).scenario.job.strategy.templates[0].stages[0].more.size() == 1);
}

TEST_CASE(
    "a run that says it does not divide is not divided, and memory is told only where recompute is known") {
  const std::string row =
      "nemo-9,H100-SXM-80GB,64,8,LLAMA2-70B,8192,28672,80,64,8,,4096,128,1,4,4,20,4,1,,,DDP (FSDP=0),,FP8,"
      "iteration_time,5,\n";
  const auto reading = read(row);
  REQUIRE(std::holds_alternative<Measured>(reading));
  CHECK(std::get<Measured>(reading).scenario.job.strategy.zero == 1);
  CHECK_FALSE(std::get<Measured>(reading).recompute_known);
  CHECK(std::get<Measured>(read(kSc21)).recompute_known);
}

TEST_CASE("errors are summed up by set: mean, median, worst, bias, and what was passed over") {
  std::vector<RunOutcome> all = {outcome("a-1", 10, 11), outcome("a-2", 10, 9), outcome("a-3", 10, 14),
                                 outcome("b-1", 2, 2)};
  all.push_back(outcome("a-4", 0, 0));
  all.back().passed_over = "fine-tuning";
  all[0].measured_bytes = 100;
  all[0].predicted_bytes = 80;
  const auto sets = summarise(all);
  REQUIRE(sets.size() == 2);
  CHECK(sets[0].name == "a");
  CHECK(sets[0].calibrated.rows == 3);
  CHECK(sets[0].calibrated.mean_abs_pct == Approx(20));
  CHECK(sets[0].calibrated.median_abs_pct == Approx(10));
  CHECK(sets[0].calibrated.worst_abs_pct == Approx(40));
  CHECK(sets[0].calibrated.worst_id == "a-3");
  CHECK(sets[0].calibrated.bias_pct == Approx(40.0 / 3));
  // Intervals: of 9 from 8.1 to 10.8, of 14 from 12.6.
  CHECK(sets[0].calibrated.held_pct == Approx(200.0 / 3));
  CHECK(sets[0].unseen.rows == 0);
  CHECK(sets[0].memory_rows == 1);
  CHECK(sets[0].memory_mean_abs_pct == Approx(20));
  REQUIRE(sets[0].passed_over.size() == 1);
  CHECK(sets[0].passed_over[0].second == 1);
  CHECK(sets[1].calibrated.mean_abs_pct == 0);
  CHECK(to_json(all).find("\"schema\": \"motley.validate/1\"") != std::string::npos);
}

TEST_CASE("errors are summed up by chip and by the size of the job too, in both regimes") {
  std::vector<RunOutcome> all = {outcome("a-1", 10, 11), outcome("a-2", 10, 12), outcome("b-1", 10, 13)};
  all[0].accelerator = all[2].accelerator = "X";
  all[1].accelerator = "Y";
  all[0].chips = 8;
  all[1].chips = all[2].chips = 9;
  all[1].unseen = Prediction{15, 9, 16};
  all[2].unseen = Prediction{6, 5, 9};
  const auto chips = summarise(all, SummaryBy::chip);
  REQUIRE(chips.size() == 2);
  CHECK(chips[0].name == "X");
  CHECK(chips[0].calibrated.mean_abs_pct == Approx(20));
  CHECK(chips[0].unseen.rows == 1);
  CHECK(chips[0].unseen.mean_abs_pct == Approx(40));
  const auto scales = summarise(all, SummaryBy::scale);
  REQUIRE(scales.size() == 2);
  CHECK(scales[0].name == "1 to 8");
  CHECK(scales[1].name == "9 to 64");
  CHECK(scales[1].unseen.mean_abs_pct == Approx(45));
  CHECK(scales[1].unseen.held_pct == Approx(50));
  CHECK_FALSE(scales[1].dense.has_value());
  all[2].experts = true;
  const auto split = summarise(all, SummaryBy::scale);
  REQUIRE(split[1].dense.has_value());
  CHECK(split[1].dense->mean_abs_pct == Approx(20));
  CHECK(split[1].dense_unseen->mean_abs_pct == Approx(50));
  CHECK(split[1].calibrated.rows == 2);
  CHECK(to_text(all, true).find("unseen") != std::string::npos);
}

TEST_CASE("recompute is what its text begins with, by operation where the table says so") {
  CHECK(printed_recompute("full") == Recompute::full);
  CHECK(printed_recompute("none for 8K") == Recompute::none);
  CHECK(printed_recompute("alternate") == Recompute::alternate);
  CHECK(printed_recompute("selective + sequence parallel") == Recompute::selective);
  CHECK(printed_recompute("selective per-op") == Recompute::alternate);
  CHECK_FALSE(printed_recompute("sometimes"));
  // In the tables of this set "selective" means attention only.
  std::string row = kSc21;
  const std::string full = "1F1B,,full,";
  const auto by = [&](const std::string& recompute) {
    std::string changed = row;
    changed.replace(changed.find(full), full.size(), "1F1B,," + recompute + ",");
    return std::get<Measured>(read(changed)).scenario.job.strategy.recompute;
  };
  CHECK(by("selective") == Recompute::selective);
  CHECK(by("selective per-op") == Recompute::alternate);
}

namespace {

// Whether the row shows what the reason claims.
bool is_true_of(const std::string& reason, const CsvRow& row) {
  const auto says = [&](const char* column, const std::string& form) {
    return std::regex_search(row[column], std::regex(form, std::regex::icase));
  };
  std::smatch match;
  if (std::regex_match(reason, match, std::regex("`(\\w+)` is not printed")))
    return row[match[1].str()].empty();
  if (std::regex_match(reason, match, std::regex("no shape is known of `(.+)`")))
    return row["model_name"] == match[1];
  if (reason == "fine-tuning")
    return says("model_name", "lora|sft") || says("notes", "fine-tun|task=(lora|sft)");
  if (reason == "the source contradicts itself") return says("notes", "caution");
  if (reason == "its state-space layers are not modelled") return says("model_name", "^nemotron.?(3|h)");
  if (reason == "its parallel blocks and sliding windows are not modelled")
    return says("model_name", "parallel blocks");
  if (reason == "its layers of unlike attention and experts are not modelled")
    return says("model_name", "^llama.?4");
  if (reason == "experts that are cut over more ranks than the other layers are not modelled")
    return says("model_name", "^grok") && says("accelerator", "^G?B200$");
  return false;
}

}  // namespace

TEST_CASE(
    "every shipped run is read by the rules of its set, or passed over for a known reason that is true of "
    "it",
    "[slow]") {
  static const PublishedRules rules;
  const auto all = read_published_runs(data_folder() + "/tests/validation/published_runs.csv");
  std::map<std::string, int> passed_over;
  for (const PublishedRun& run : all) {
    INFO(run.id);
    CHECK_FALSE(run.row["source"].empty());
    const auto outcome = rules.read(run, all);
    if (const auto* const passed = std::get_if<PassedOver>(&outcome)) {
      INFO(passed->reason);
      CHECK(is_true_of(passed->reason, run.row));
      ++passed_over[passed->reason];
      continue;
    }
    CHECK(rules.set(run.set) != nullptr);
    const Measured& measured = std::get<Measured>(outcome);
    CHECK(measured.scenario.name == run.id);
    CHECK(std::to_string(measured.scenario.job.cluster.chip_count()) == run.row["n_accelerators"]);
    CHECK((measured.step_s > 0 && std::isfinite(measured.step_s)));
  }
  // How many runs of the shipped table are passed over for each reason. More would mean that a run that could be read
  // no longer is.
  const std::map<std::string, int> known = {
      {"its state-space layers are not modelled", 33},
      {"`seq_len` is not printed", 7},
      {"fine-tuning", 16},
      {"`layers` is not printed", 13},
      {"experts that are cut over more ranks than the other layers are not modelled", 2},
      {"`vpp` is not printed", 1},
      {"`micro_batch` is not printed", 6},
      {"its parallel blocks and sliding windows are not modelled", 5},
      {"`hidden` is not printed", 4},
      {"the source contradicts itself", 3},
      {"its layers of unlike attention and experts are not modelled", 2},
      {"`global_batch` is not printed", 1},
      {"no shape is known of `Llama2-34b`", 1}};
  CHECK(passed_over == known);
}

TEST_CASE(
    "a run that took part in the fit is predicted by figures that did not see its size, and by some that did "
    "not "
    "see its set") {
  static const PublishedRules rules;
  const auto all = read_published_runs(data_folder() + "/tests/validation/published_runs.csv");
  std::size_t left_out = 0;
  for (const PublishedRun& run : all) {
    if (run.set != "sc21" && run.set != "dgxc") continue;
    const auto read = rules.read(run, all);
    const Measured* const measured = std::get_if<Measured>(&read);
    if (measured == nullptr || !measured->unseen || measured->experts) continue;
    Cluster shipped = measured->scenario.job.cluster;
    use_software(run.set == "sc21" ? "megatron-2021" : "nemo-2024", shipped);
    const Chip& seen = shipped.groups[0].chip;
    const Chip& by_size = measured->scenario.job.cluster.groups[0].chip;
    const Chip& by_set = measured->unseen->groups[0].chip;
    INFO(run.id);
    CHECK(by_size.name == seen.name);
    CHECK(by_set.software.gemm_efficiency.value != seen.software.gemm_efficiency.value);
    left_out += by_size.software.gemm_efficiency.value != seen.software.gemm_efficiency.value ? 1 : 0;
    CHECK(measured->scenario.interval.regime == Regime::calibrated);
    CHECK(measured->unseen_interval.regime == Regime::similar);
  }
  CHECK(left_out > 50);
  // The same row with another name took no part in the fit, so it gets the figures that ship.
  const auto apart = read(kSc21);
  Cluster shipped = std::get<Measured>(apart).scenario.job.cluster;
  use_software("megatron-2021", shipped);
  CHECK(std::get<Measured>(apart).scenario.job.cluster.groups[0].chip.software.gemm_efficiency ==
        shipped.groups[0].chip.software.gemm_efficiency);
}

TEST_CASE("a chip that the software does not know inherits from its nearest kin, and the interval widens") {
  Cluster known = load_cluster("dgx-h100-pod"), kin = known;
  kin.groups[0].chip = load_chip("h200");
  const Chip own = kin.groups[0].chip, h100 = known.groups[0].chip;
  CHECK(use_software("llm-foundry-2024", known).regime == Regime::calibrated);
  CHECK(use_software("llm-foundry-2024", kin).regime == Regime::similar);
  const Chip& fitted = known.groups[0].chip;
  const Chip& inherited = kin.groups[0].chip;
  CHECK(inherited.software.layer_launch.value == fitted.software.layer_launch.value);
  CHECK(inherited.software.layer_launch.source == "inherited from h100-80gb-sxm");
  CHECK(inherited.software.gemm_efficiency.value / own.software.gemm_efficiency.value ==
        Approx(fitted.software.gemm_efficiency.value / h100.software.gemm_efficiency.value).epsilon(1e-12));
  CHECK(inherited.memory_bandwidth == own.memory_bandwidth);
  CHECK(inherited.software.one_master == fitted.software.one_master);
}

TEST_CASE("embedding and head count as layers where that makes stages even, down to chunks of no layer") {
  const auto zb = [](const std::string& schedule) {
    const auto reading = read("zb-1,A100-SXM-80GB,8,8,GPT-6.2B,4096,,30,32,,,1024,72,3,1,8,,1,1,," +
                              schedule + ",,,,iteration_time,4.32,max_mem_gb=70\n");
    REQUIRE(std::holds_alternative<Measured>(reading));
    return std::get<Measured>(reading);
  };
  const Measured plain = zb("ZB-2p");
  CHECK(plain.counted == Counted::allocated);
  CHECK(plain.scenario.job.strategy.steps_overlap());
  CHECK(plain.peak_bytes == Approx(70e9));
  CHECK(plain.scenario.job.train.gradients == Format::bf16);
  const auto& stages = plain.scenario.job.strategy.templates[0].stages;
  CHECK(stages[0].last_layer == 3);
  CHECK(stages[1].last_layer == 7);
  CHECK(stages[7].first_layer == 27);
  const Measured interleaved = zb("interleaved 1F1B (1 layer per chunk)");
  const auto all = virtual_stages(interleaved.scenario.job.strategy.templates[0]);
  REQUIRE(all.size() == 32);
  for (std::size_t v = 0; v < all.size(); ++v)
    CHECK(all[v].layers.last - all[v].layers.first == (v == 0 || v == 31 ? 0 : 1));
}

TEST_CASE("notes say which layers have no experts, and replicas of experts alone are multiplied") {
  const auto reading = read(
      "simu-1,B200,8,8,deepseekv3 truncated to 4 layers,7168,2048,4,,,,4096,32,1,1,1,,8,1,8,,ZeRO-1,,bf16,"
      "iteration_time,0.6,dense_layers=1; real_alloc_gib=104.30\n");
  REQUIRE(std::holds_alternative<Measured>(reading));
  const Job& job = std::get<Measured>(reading).scenario.job;
  CHECK(job.transformer.experts.dense_layers == std::vector<std::int64_t>{0});
  CHECK(job.train.expert_room == 1);
  const auto grok = read(
      "dgxc-1,H100-SXM-80GB,8,8,Grok1-314B (proxy 2 layers),,,2,,,,4096,1024,1,4,1,,1,1,2,,,,BF16,"
      "iteration_time,24.0,\n");
  REQUIRE(std::holds_alternative<Measured>(grok));
  CHECK(std::get<Measured>(grok).scenario.job.strategy.dp() == 2);
  CHECK(std::get<Measured>(grok).scenario.job.transformer.experts.count == 8);
}

TEST_CASE("a printed width that is the shape's own does not change the width of its heads") {
  const auto reading = read(
      "mbr-1,GB300,8,4,Qwen3_30B_a3B,2048,768,48,32,4,,4096,512,8,1,1,,8,1,8,,,,MXFP8,tokens_per_s_per_gpu,"
      "44544,\n");
  REQUIRE(std::holds_alternative<Measured>(reading));
  CHECK(std::get<Measured>(reading).scenario.job.transformer.head_dim == 128);
  CHECK(
      reason("mbr-2,GB300,64,4,Nemotron_3_Super,,,,,,,8192,512,1,1,1,,64,1,64,,,,MXFP8,tokens_per_s_per_gpu,"
             "9856,\n") == "its state-space layers are not modelled");
}

TEST_CASE("torchtitan's tables leave out the sequence, and what they call selective is by operation") {
  const auto reading = read(
      "tt-1,H100-96GB-HBM2e-500W,8,8,Llama-3.1-8B,4096,14336,32,32,8,128256,,16,2,1,1,,8,1,,,FSDP2 (ZeRO-3),"
      "selective,bf16,tokens_per_s_per_gpu,5762,mem_gib=82.4\n");
  REQUIRE(std::holds_alternative<Measured>(reading));
  const Measured& run = std::get<Measured>(reading);
  CHECK(run.scenario.job.train.sequence == 8192);
  CHECK(run.scenario.job.strategy.recompute == Recompute::alternate);
  CHECK(run.scenario.job.strategy.zero == 3);
  CHECK(run.counted == Counted::reserved);
  CHECK(run.scenario.job.cluster.groups[0].chip.software.one_master.value);
}

TEST_CASE(
    "where a recipe has no fused kernel for its heads, scores are written and attention is computed again") {
  static const PublishedRules rules;
  const auto all = read_published_runs(data_folder() + "/tests/validation/published_runs.csv");
  std::size_t unfused = 0;
  for (const PublishedRun& run : all) {
    if (run.set != "dgxc") continue;
    const auto read = rules.read(run, all);
    const Measured* const measured = std::get_if<Measured>(&read);
    if (measured == nullptr) continue;
    INFO(run.id);
    const bool without_kernel = run.id == "dgxc-0118";  // latent attention on Blackwell
    CHECK((measured->scenario.job.cluster.groups[0].chip.software.unfused_attention.value > 0) ==
          without_kernel);
    const bool nemotron = run.row["model_name"] == "Nemotron4-340B" && release_of(run) == "24.11.1";
    CHECK((measured->scenario.job.strategy.recompute == Recompute::selective) ==
          (without_kernel || nemotron));
    REQUIRE(measured->unseen);
    CHECK((measured->unseen->groups[0].chip.software.unfused_attention.value > 0) == without_kernel);
    unfused += without_kernel;
  }
  CHECK(unfused == 1);
}

TEST_CASE("how a run's tokens reach their experts is that of its release's recipe", "[slow]") {
  static const PublishedRules rules;
  const auto all = read_published_runs(data_folder() + "/tests/validation/published_runs.csv");
  struct Known {
    const char* id;
    ExpertCopies copies;
    bool overlap;
  };
  constexpr ExpertCopies expert = ExpertCopies::expert, node = ExpertCopies::node;
  std::size_t seen = 0;
  for (const Known& known : {Known{"mbr-0007", node, true},
                             {"mbr-0050", node, false},
                             {"mbr-0091", node, true},
                             {"mbr-0090", node, false},
                             {"mbr-0093", expert, true},
                             {"mbr-0092", expert, false},
                             {"mbr-0106", expert, true},
                             {"mbr-0195", node, true},
                             {"mbr-0227", expert, false},
                             {"mbr-0228", node, true},
                             {"mbr-0256", expert, false},
                             {"mbr-0264", expert, true},
                             {"mbr-0290", node, true},
                             {"mbr-0293", expert, false},
                             {"dgxc-0047", expert, false}})
    for (const PublishedRun& run : all) {
      if (run.id != known.id) continue;
      const auto read = rules.read(run, all);
      INFO(run.id);
      REQUIRE(std::holds_alternative<Measured>(read));
      CHECK(std::get<Measured>(read).scenario.job.fidelity.expert_copies == known.copies);
      CHECK(std::get<Measured>(read).scenario.job.strategy.overlap_experts == known.overlap);
      ++seen;
    }
  CHECK(seen == 15);
  for (const PublishedRun& run : all) {
    if (run.set != "mbr" && run.set != "dgxc") continue;
    const auto read = rules.read(run, all);
    const Measured* const measured = std::get_if<Measured>(&read);
    if (measured == nullptr || measured->experts) continue;
    INFO(run.id);
    CHECK(measured->scenario.job.fidelity.expert_copies == expert);
    CHECK_FALSE(measured->scenario.job.strategy.overlap_experts);
  }
}

TEST_CASE("what a run computes again and what it keeps is that of its release's recipe") {
  static const PublishedRules rules;
  const auto all = read_published_runs(data_folder() + "/tests/validation/published_runs.csv");
  const auto modules = [](std::initializer_list<Module> named) {
    Recompute recompute;
    for (const Module module : named) recompute.add(module);
    return recompute;
  };
  struct Known {
    const char* id;
    Recompute recompute;
    double room = 1;
    ExpertWeights weights = ExpertWeights::activation;
    double optimizer = 0, fp8_weights = 0;  // bytes; 0: as the Program has them
  };
  constexpr ExpertWeights combine = ExpertWeights::combine;
  std::size_t seen = 0;
  for (const Known& known :
       {Known{"mbr-0036", Recompute::none, 1, combine, 0, 1},
        {"mbr-0043", modules({Module::latent}), 1, ExpertWeights::activation, 0, 1},
        {"mbr-0080", Recompute::none, 1, combine},
        {"mbr-0091", modules({Module::latent, Module::inner}), 1, ExpertWeights::activation, 0, 1},
        {"mbr-0093", modules({Module::norms, Module::activation}), 1, ExpertWeights::activation, 0, 1},
        {"mbr-0106", Recompute::none},
        {"mbr-0282", Recompute::selective, 1, ExpertWeights::activation, 0, 1},
        {"mbr-0290", modules({Module::latent, Module::inner})},
        {"dgxc-0051", Recompute::none, 1, combine},
        {"dgxc-0117", modules({Module::latent}), 1, combine},
        {"nemo-0010", Recompute::selective, 0, combine, 6},
        {"nemo-0008", Recompute::none, 0, combine}})
    for (const PublishedRun& run : all) {
      if (run.id != known.id) continue;
      const auto read = rules.read(run, all);
      INFO(run.id);
      REQUIRE(std::holds_alternative<Measured>(read));
      const Job& job = std::get<Measured>(read).scenario.job;
      CHECK(job.strategy.recompute == known.recompute);
      CHECK(job.train.expert_room == known.room);
      CHECK(job.strategy.expert_weights == known.weights);
      CHECK(job.cluster.groups[0].chip.software.kept_optimizer.value == known.optimizer);
      CHECK(job.cluster.groups[0].chip.software.kept_weights.value == known.fp8_weights);
      ++seen;
    }
  CHECK(seen == 12);
}

TEST_CASE("Megatron-Bridge's pages print n/a where a rank has one chunk, although other rows have more") {
  const std::string others =
      "mbr-1,B200,256,8,DeepSeekV3,7168,2048,61,,,,4096,4096,1,1,8,2,32,1,32,,,,MXFP8,tokens_per_s_per_gpu,"
      "3328,"
      "release=26.04.01\n";
  const auto reading = read(
      "mbr-2,B300,256,8,DeepSeekV3,7168,2048,61,,,,4096,4096,2,1,8,,32,1,8,,,,MXFP8,tokens_per_s_per_gpu,"
      "3541,"
      "release=26.06\n" +
      others);
  REQUIRE(std::holds_alternative<Measured>(reading));
  CHECK(std::get<Measured>(reading).scenario.job.strategy.schedule == Schedule::one_f_one_b);
}

TEST_CASE("a recipe may recompute the first layers alone, and one that cannot be predicted says why") {
  const auto reading = read(
      "mbr-1,H100-SXM-80GB,8,8,LLAMA3_8B,,,,,,,8192,128,1,1,1,,8,1,,,FSDP=8,,FP8,tokens_per_s_per_gpu,14000,"
      "release=26.02\n");
  REQUIRE(std::holds_alternative<Measured>(reading));
  const Strategy& strategy = std::get<Measured>(reading).scenario.job.strategy;
  CHECK(strategy.recompute == Recompute::full);
  CHECK(strategy.templates.at(0).stages.at(0).recompute_layers == 5);
  CHECK(strategy.zero == 3);
  CHECK(reason("dgxc-1,GB200,128,4,Grok1-314B,,,64,,,,8192,256,1,4,1,1,32,1,8,,,,BF16,iteration_time,10,"
               "release=25.05\n") ==
        "experts that are cut over more ranks than the other layers are not modelled");
}

TEST_CASE("the scenario that a run becomes reads back as the run's job", "[slow]") {
  const PublishedRules rules;
  const auto all = read_published_runs(data_folder() + "/tests/validation/published_runs.csv");
  std::size_t jobs = 0;
  for (const PublishedRun& run : all) {
    const auto reading = rules.read(run, all);
    if (!std::holds_alternative<Measured>(reading)) continue;
    const Job& job = std::get<Measured>(reading).scenario.job;
    CAPTURE(run.id);
    const Job again = read_scenario(parse_yaml(print(job), "text"), "text").job;
    CHECK(again.transformer == job.transformer);
    CHECK(again.cluster == job.cluster);
    CHECK(again.train == job.train);
    CHECK(again.strategy == job.strategy);
    CHECK(again.fidelity == job.fidelity);
    ++jobs;
  }
  CHECK(jobs > 500);
}
