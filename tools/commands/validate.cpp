// motley validate: predicts training runs that others measured and published, and says how wrong the predictions are.
// tools/commands/predict_runs.hpp simulates the runs. Read next: models/published/published_run.hpp,
// models/published/validation.hpp.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "models/base/data_files.hpp"
#include "models/base/output_file.hpp"
#include "models/published/layout_choices.hpp"
#include "models/published/published_run.hpp"
#include "models/published/validation.hpp"
#include "models/scenario/scenario_text.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/predict_runs.hpp"
#include "tools/commands/validate_claims.hpp"
#include "tools/commands/validate_collectives.hpp"
#include "tools/commands/validate_plans.hpp"

namespace motley {
namespace {

struct ValidateArguments {
  std::vector<std::string> what;
  bool rows = false, json = false, no_memory = false, collectives = false, claims = false, columns = false,
       choices = false, plans = false, until_no_slower = false;
  std::int64_t evaluations = 400;
  std::string show, out;
};

// The runs that `what` names: tables, and the sets to choose from them. No table: the runs that ship.
std::vector<PublishedRun> chosen_runs(const std::vector<std::string>& what) {
  std::vector<PublishedRun> runs;
  std::vector<std::string> sets;
  for (const std::string& each : what) {
    if (!each.ends_with(".csv")) {
      sets.push_back(each);
      continue;
    }
    for (PublishedRun& run : read_published_runs(each)) runs.push_back(std::move(run));
  }
  if (sets.size() == what.size())
    runs = read_published_runs(data_folder() + "/tests/validation/published_runs.csv");
  if (sets.empty()) return runs;
  std::vector<std::string> known;
  for (const PublishedRun& run : runs)
    if (std::find(known.begin(), known.end(), run.set) == known.end()) known.push_back(run.set);
  for (const std::string& set : sets)
    if (std::find(known.begin(), known.end(), set) == known.end())
      throw Refusal(Exit::usage, "unknown-set", {}, "no run of a set `" + set + "`", suggest(set, known));
  std::erase_if(runs, [&](const PublishedRun& run) {
    return std::find(sets.begin(), sets.end(), run.set) == sets.end();
  });
  return runs;
}

// The columns of a table of runs, for whoever writes one.
constexpr const char* kColumns =
    R"(A table of runs is CSV: a line that names the columns, then a line for each run. An empty cell says that the
source does not print it; a column may be missing altogether, and others are passed over. One run is enough.

  id                  the set, a dash, a number: mine-1. Runs of one set share a software
  accelerator         H100-SXM-80GB, A100, MI300X, ... (`motley list chips`)
  n_accelerators      how many; per_node: how many in a node
  model_name          begins with one that is known (Llama-2-7b, GPT-3, Qwen3-8B, ...). Its dimensions
                      hold where the table has none: hidden, ffn_hidden, layers, heads, kv_heads, vocab
  seq_len             tokens in a sequence; global_batch, micro_batch: sequences
  tp, pp, vpp, dp, cp, ep    degrees; vpp: chunks of a stage
  schedule            1f1b, interleaved, gpipe, zb-h1, ...
  zero_stage_or_fsdp  ZeRO-1, ZeRO-2, ZeRO-3, FSDP, HSDP; nothing: the set's, or none
  recompute           full, selective or none
  precision           bf16, fp16, fp8, ...
  metric, value       step_time (or iteration_time) in s; tokens_per_s_per_gpu; samples_per_s_per_gpu;
                      model_tflops_per_gpu; tflops_per_gpu_incl_recompute
  notes               what else the source says; mem_gib=41.2 is the fullest chip's peak
  source              where it was printed

)"
    "  id,accelerator,n_accelerators,per_node,model_name,hidden,ffn_hidden,layers,heads,"
    "kv_heads,vocab,seq_len,global_batch,micro_batch,tp,pp,vpp,dp,recompute,precision,metric,value\n"
    "  "
    "mine-1,A100-SXM-80GB,32,8,Llama-2-7b,4096,11008,32,32,32,32000,4096,128,1,4,2,1,4,full,bf16,step_time,6."
    "9\n";

Exit run(const ValidateArguments& options) {
  open_outputs({options.out});
  if (options.columns) {
    write_result(kColumns, options.out);
    return Exit::ok;
  }
  if (options.claims) {
    write_result(validate_claims(options.json), options.out);
    return Exit::ok;
  }
  if (options.collectives) {
    write_result(validate_collectives(options.what, options.rows, options.json), options.out);
    return Exit::ok;
  }
  std::vector<PublishedRun> all = chosen_runs(options.what);
  std::vector<const PublishedRun*> shown;
  const PublishedRules rules;
  if (options.choices || options.plans)
    std::erase_if(all, [&](const PublishedRun& each) {
      const SetRule* const rule = rules.set(each.set);
      return rule != nullptr && rule->composed;
    });
  for (const PublishedRun& each : all)
    if (options.show.empty() || each.id == options.show) shown.push_back(&each);
  if (!options.show.empty() && shown.size() == 1)
    if (const auto run = rules.read(*shown[0], all); std::holds_alternative<Measured>(run)) {
      write_result(print(std::get<Measured>(run).scenario.job), options.out);
      return Exit::ok;
    }
  const std::vector<RunOutcome> outcomes = predict_runs({rules, shown, all}, {.memory = !options.no_memory});
  if (options.choices) {
    const std::vector<LayoutChoice> choices = layout_choices(all, outcomes);
    write_result(options.json ? to_json(choices) : to_text(choices), options.out);
    return Exit::ok;
  }
  if (options.plans) {
    const std::vector<PlannedJob> jobs = plan_published(
        rules, all, outcomes, {static_cast<std::size_t>(options.evaluations), options.until_no_slower});
    write_result(options.json ? to_json(jobs) : to_text(jobs, options.rows), options.out);
    return Exit::ok;
  }
  write_result(options.json ? to_json(outcomes) : to_text(outcomes, options.rows), options.out);
  const bool any_used = std::any_of(outcomes.begin(), outcomes.end(),
                                    [](const RunOutcome& each) { return each.passed_over.empty(); });
  if (any_used) return Exit::ok;
  spdlog::error(
      "none of the {} runs could be used\n  hint: the reasons stand above; `--columns` says what a table has",
      outcomes.size());
  return Exit::mismatch;
}

}  // namespace

void add_validate(const Command& program) {
  const auto options = std::make_shared<ValidateArguments>();
  const Command command = program.subcommand(
      "validate", "Predict training runs that others measured, and say how wrong the predictions are");
  const Option what =
      command.option("what", options->what,
                     "tables of runs (.csv), and sets to choose from them; default: the runs that ship");
  command.flag("--rows", options->rows, "print every run, not only the summary");
  const Option choices = command.flag(
      "--choices", options->choices,
      "of each job with four or more layouts, compare the one predicted fastest with the fastest measured");
  const Option show = command.option("--show", options->show,
                                     "print the scenario that this run becomes, without predicting it");
  const Option plans = command.flag(
      "--plans", options->plans,
      "plan each job anew, and compare the plan with the published layout that is predicted fastest");
  command
      .option("--evaluations", options->evaluations,
              "with --plans: strategies of a job to simulate at most; default: 400")
      .only_with(plans);
  command
      .flag("--until-no-slower", options->until_no_slower,
            "with --plans: end each search once its plan is as fast as the published layout; sooner")
      .only_with(plans);
  show.not_with(choices);
  plans.not_with(choices);
  show.not_with(plans);
  const Option collectives =
      command.flag("--collectives", options->collectives, "collectives that others timed, instead of runs");
  command.flag("--claims", options->claims, "what papers claim of whole systems, instead of runs")
      .not_with(what)
      .not_with(collectives)
      .not_with(choices);
  choices.not_with(collectives);
  plans.not_with(collectives);
  command.flag("--columns", options->columns, "say what columns a table of runs has, and stop")
      .not_with(choices)
      .not_with(plans)
      .not_with(show);
  command.flag("--no-memory", options->no_memory, "times alone: sooner");
  command.flag("--json", options->json, "print JSON (schema motley.validate/1)");
  command.option("--out", options->out, "write the result to this file instead of stdout");
  add_max_input(command);
  command.example("motley validate sc21 --rows");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
