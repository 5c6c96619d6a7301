#include "models/published/published_run.hpp"

#include <fmt/format.h>

#include "models/base/text_file.hpp"
#include "models/published/printed_row.hpp"
#include "models/scenario/software.hpp"
#include "models/strategy/strategy_complaint.hpp"

namespace motley {
namespace {

void pass_over_doubtful(const PrintedCells& cells) {
  const std::string& notes = cells.text("notes");
  if (contains(notes, "CAUTION")) pass_over("the source contradicts itself");
  const std::string name = lower(cells.text("model_name"));
  if (contains(name, "lora") || contains(name, "sft") || contains(lower(notes), "fine-tun") ||
      contains(notes, "task=LoRA") || contains(notes, "task=SFT"))
    pass_over("fine-tuning");
}

void use_recipe(const PrintedRow& row, Job& job) {
  if (!row.recipe) return;
  use_attention_of_recipe(row, job.cluster);
  job.fidelity.expert_copies = row.recipe->expert_copies;
  job.strategy.overlap_experts = row.recipe->overlap_experts;
  job.strategy.offload.activations =
      static_cast<double>(row.recipe->offloaded_layers) / static_cast<double>(job.transformer.layers);
  if (find_complaint(job.transformer, job.train, job.strategy)) job.strategy.overlap_experts = false;
}

// The job on its cluster with the figures of the set's software, and the interval of these figures.
Scenario printed_scenario(const PrintedRow& row, const Transformer& transformer, const Cluster& bare) {
  Scenario scenario;
  scenario.name = row.run.id;
  Job& job = scenario.job;
  job.transformer = transformer;
  job.cluster = bare;
  scenario.interval = use_software_of_set(row, job.cluster);
  use_what_is_kept(row, job.cluster);
  read_train(row, job);
  use_measured_layers(row, job, job.cluster);
  job.fidelity.fold = true;
  job.fidelity.algorithm = CollectiveAlgorithm::hierarchical;  // NCCL's rings leave a node by all its NICs
  read_strategy(row, job);
  use_recipe(row, job);
  // A collective inside computes is one ring, which leaves a node by one of its NICs.
  if (job.strategy.tp() > job.cluster.groups[0].chips_per_node)
    job.fidelity.tensor_parallel = CollectiveLevel::fluid;
  return scenario;
}

// The bare cluster with figures fitted without any run of the row's set; nothing: there is no such fit.
std::optional<Cluster> cluster_without_set(const PrintedRow& row, const Job& job, const Cluster& bare) {
  const Yaml figures = row.rules.figures_without_set(row.run.set, row.set.software);
  if (!figures) return std::nullopt;
  Cluster cluster = bare;
  use_figures(figures, cluster);
  use_measured_layers(row, job, cluster);
  use_attention_of_recipe(row, cluster);
  return cluster;
}

Measured read_row(const PrintedRow& row) {
  pass_over_doubtful(row.cells);
  if (row.recipe && !row.recipe->unlike.empty()) pass_over(row.recipe->unlike);
  const Transformer transformer = printed_transformer(row);
  const Cluster bare = printed_cluster(row);
  Measured measured;
  measured.scenario = printed_scenario(row, transformer, bare);
  const Job& job = measured.scenario.job;
  measured.step_s = measured_step_s(row, job);
  measured.peak_bytes = measured_peak_bytes(row);
  measured.counted = row.set.counted;
  measured.unseen = cluster_without_set(row, job, bare);
  if (measured.unseen) measured.unseen_interval = interval_of_left_out();
  measured.experts = transformer.experts.count > 0;
  if (measured.experts) {
    measured.scenario.interval = interval_with_experts(measured.scenario.interval);
    measured.unseen_interval = interval_with_experts(measured.unseen_interval);
  }
  measured.recompute_known = !row.cells.text("recompute").empty() || row.set.recompute || measured.peak_bytes;
  return measured;
}

}  // namespace

std::optional<Recompute> printed_recompute(const std::string& text) {
  if (text.starts_with("full")) return Recompute::full;
  if (text.starts_with("alternate") || text.starts_with("selective per-op")) return Recompute::alternate;
  if (text.starts_with("selective")) return Recompute::selective;
  if (text.starts_with("none")) return Recompute::none;
  return std::nullopt;
}

std::vector<PublishedRun> read_published_runs(const std::string& path) {
  std::vector<PublishedRun> runs;
  for (CsvRow& row : parse_csv_table(read_text_file(path), path)) {
    const std::string id = row["id"];
    if (id.empty())
      throw Refusal(Exit::usage, "bad-csv", row.where("id"), "a run without an id",
                    "a column `id`: the set, a dash, a number");
    runs.push_back({id, id.substr(0, id.find('-')), std::move(row)});
  }
  return runs;
}

std::variant<Measured, PassedOver> PublishedRules::read(const PublishedRun& run,
                                                        const std::vector<PublishedRun>& all) const {
  try {
    return read_row(PrintedRow(*this, run, all));
  } catch (const UnknownRun& unknown) {
    return PassedOver{unknown.reason};
  }
}

}  // namespace motley
