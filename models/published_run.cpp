#include "models/published_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "models/measured_layers.hpp"
#include "models/published_metrics.hpp"
#include "models/published_stages.hpp"
#include "models/software.hpp"
#include "models/strategy_complaint.hpp"
#include "models/units.hpp"
#include "models/yaml_reader.hpp"

namespace motley {
namespace {

struct Unknown {
  std::string reason;
};
[[noreturn]] void pass_over(std::string reason) { throw Unknown{std::move(reason)}; }

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

Recompute printed_recompute(const std::string& text, const Location& where) {
  if (text.starts_with("full")) return Recompute::full;
  if (text.starts_with("selective")) return Recompute::selective;
  if (text.starts_with("alternate") || text.starts_with("selective per-op")) return Recompute::alternate;
  if (text.starts_with("none")) return Recompute::none;
  throw Refusal(Exit::usage, "bad-csv", where, fmt::format("recompute `{}`", text),
                "full, selective or none, or nothing where it is not printed");
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

// One row at a time. What it cannot know it passes over, by way of Unknown.
class RunReader {
 public:
  RunReader(const PublishedRules& rules, const PublishedRun& run, const std::vector<PublishedRun>& all)
      : rules_(rules), run_(run), all_(all) {
    if (const auto found = rules.sets_.find(run.set); found != rules.sets_.end()) set_ = found->second;
  }

  Measured read() {
    refuse_doubtful();
    Job job;
    job.transformer = transformer();
    const Cluster bare = cluster();
    Measured made;
    job.cluster = bare;
    made.scenario.interval = use_calibrated(job.cluster);
    use_what_is_kept(job.cluster);
    set_train(job);
    measure_layers(job, job.cluster);
    job.fidelity.fold = true;
    job.fidelity.algorithm = CollectiveAlgorithm::hierarchical;  // NCCL's rings leave a node by all its NICs
    const PublishedRules::Recipe* recipe = rules_.recipe_of(run_);
    if (recipe && recipe->recompute) set_.recompute = recipe->recompute;
    strategy(job);
    if (recipe) {
      use_attention(*recipe, job.cluster);
      job.fidelity.expert_copies = recipe->expert_copies;
      job.strategy.overlap_experts = recipe->overlap_experts;
      if (find_complaint(job.transformer, job.train, job.strategy)) job.strategy.overlap_experts = false;
    }
    // What is priced inside computes is one ring, which leaves a node by one of its NICs.
    if (job.strategy.tp() > job.cluster.groups[0].chips_per_node)
      job.fidelity.tensor_parallel = CollectiveLevel::fluid;
    made.step_s = step_s(job);
    made.peak_bytes = peak_bytes();
    made.counted = set_.counted;
    if (const Yaml figures = figures_without_set()) {
      made.unseen = bare;
      use_figures(figures, *made.unseen);
      measure_layers(job, *made.unseen);
      if (recipe) use_attention(*recipe, *made.unseen);
      made.unseen_interval = interval_of_left_out();
    }
    if (job.transformer.experts.count > 0)
      made.scenario.interval = made.unseen_interval = interval_of_experts();
    made.experts = job.transformer.experts.count > 0;
    made.runs_on = set_.runs_on;
    made.recompute_known = !cell("recompute").empty() || set_.recompute || made.peak_bytes;
    made.scenario.name = run_.id;
    made.scenario.job = std::move(job);
    return made;
  }

 private:
  const PublishedRules& rules_;
  const PublishedRun& run_;
  const std::vector<PublishedRun>& all_;
  PublishedRules::Set set_;

  const std::string& cell(const char* column) const { return run_.row[column]; }
  double number(const char* column) const {
    double value = 0;
    if (read_number(cell(column), value) != NumberFault::none)
      throw Refusal(Exit::usage, "bad-csv", run_.row.where(column),
                    fmt::format("`{}` is no number", cell(column)), "a plain number, or nothing");
    return value;
  }
  std::int64_t printed(const char* column, std::int64_t otherwise) const {
    if (cell(column).empty()) return otherwise;
    const double value = number(column);
    if (value != std::floor(value) || value < 0)
      throw Refusal(Exit::usage, "bad-csv", run_.row.where(column),
                    fmt::format("`{}` is no count", cell(column)), "a whole number, or nothing");
    return static_cast<std::int64_t>(value);
  }
  std::int64_t needed(const char* column) const {
    if (cell(column).empty()) pass_over(fmt::format("`{}` is not printed", column));
    return printed(column, 0);
  }

  // "dense_layers=1" among the notes.
  std::int64_t noted(const char* name, std::int64_t otherwise) const {
    std::smatch found;
    const std::string& notes = cell("notes");
    return std::regex_search(notes, found, std::regex(fmt::format("\\b{}=([0-9]+)", name)))
               ? std::stoll(found[1])
               : otherwise;
  }
  std::int64_t sequence() const {
    return cell("seq_len").empty() && set_.sequence > 0 ? set_.sequence : needed("seq_len");
  }

  void refuse_doubtful() const {
    if (contains(cell("notes"), "CAUTION")) pass_over("the source contradicts itself");
    const std::string name = lower(cell("model_name"));
    if (contains(name, "lora") || contains(name, "sft") || contains(lower(cell("notes")), "fine-tun") ||
        contains(cell("notes"), "task=LoRA") || contains(cell("notes"), "task=SFT"))
      pass_over("fine-tuning");
  }

  const PublishedRules::Likeness& likeness() const {
    const std::string name = bare_name(cell("model_name"));
    for (const auto& likeness : rules_.models_)
      for (const std::string& prefix : likeness.prefixes)
        if (name.starts_with(prefix)) return likeness;
    pass_over(fmt::format("no shape is known of `{}`", cell("model_name")));
  }
  Transformer transformer() const {
    const PublishedRules::Likeness& likeness = this->likeness();
    if (!likeness.unlike.empty()) pass_over(likeness.unlike);
    Transformer t = likeness.shape();
    t.name = cell("model_name");
    if (set_.vocabulary > 0) t.vocabulary = set_.vocabulary;
    t.vocabulary = printed("vocab", t.vocabulary);
    const bool general = t.family == Family::gpt2 && likeness.like == "gpt3-175b";
    if (general)
      for (const char* column : {"hidden", "layers", "heads"}) needed(column);
    const std::int64_t hidden = t.hidden, heads = t.heads;
    t.hidden = printed("hidden", t.hidden);
    t.layers = printed("layers", t.layers);
    t.heads = printed("heads", t.heads);
    t.kv_heads = general ? t.heads : printed("kv_heads", t.kv_heads);
    std::int64_t& inner = t.experts.count > 0 ? t.experts.ffn : t.ffn;  // tables print an expert's
    inner = printed("ffn_hidden", general ? 4 * t.hidden : inner);
    if (!likeness.gated)
      inner = inner * 2 / 3;  // two matrices where a gated one has three: as many weights and FLOPs
    if ((t.hidden != hidden || t.heads != heads) && !t.latent.used()) t.head_dim = t.hidden / t.heads;
    t.max_positions = std::max(t.max_positions, sequence());
    const std::int64_t dense = noted("dense_layers", t.layers);
    std::erase_if(t.experts.dense_layers, [&](std::int64_t layer) { return layer >= dense; });
    std::erase_if(t.full_attention, [&](std::int64_t layer) { return layer >= t.layers; });
    return t;
  }

  // Layers measured one by one are no fit to runs: they stand in every regime.
  void measure_layers(const Job& job, Cluster& cluster) const {
    if (const std::string& layers = likeness().layers; !layers.empty())
      use_layers(layers, job.transformer, job.train, cluster);
  }

  // Assumes: what is not fused takes the form's seconds, where no fit has others.
  static void use_attention(const PublishedRules::Recipe& recipe, Cluster& cluster) {
    if (!recipe.unfused_attention) return;
    for (NodeGroup& group : cluster.groups)
      if (group.chip.unfused_attention.value == 0)
        group.chip.unfused_attention = {1, "the run's recipe: platforms/published/unprinted.yaml"};
  }

  // Of several kinds, on the groups of one cluster that have their names.
  Cluster mixed_cluster(const std::map<std::string, std::int64_t>& counts) const {
    const auto found = rules_.accelerators_.find(counts.begin()->first);
    if (found == rules_.accelerators_.end())
      pass_over(fmt::format("no nodes are known of `{}`", cell("accelerator")));
    Cluster made = load_cluster(found->second.cluster);
    made.name = run_.set;
    if (!keep_chips(counts, made))
      pass_over(fmt::format("`{}` does not stand in one cluster that is known", cell("accelerator")));
    return made;
  }

  Cluster cluster() const {
    if (const auto counts = chips_by_kind(cell("accelerator"))) return mixed_cluster(*counts);
    const auto found = rules_.accelerators_.find(cell("accelerator"));
    if (found == rules_.accelerators_.end())
      pass_over(fmt::format("no nodes are known of `{}`", cell("accelerator")));
    const PublishedRules::Accelerator& of = found->second;
    const std::int64_t count = needed("n_accelerators");
    Cluster made = load_cluster(of.cluster);
    if (made.groups.size() > 1) return mixed_cluster({{cell("accelerator"), count}});
    made.name = run_.set;
    NodeGroup& group = made.groups.at(0);
    const std::int64_t a_node = of.domain > 0 ? std::min<std::int64_t>(of.domain, count)
                                              : std::min(count, printed("per_node", group.chips_per_node));
    if (count % a_node != 0) pass_over(fmt::format("{} chips in nodes of {}", count, a_node));
    group.chip = load_chip(of.chip);
    group.chips_per_node = static_cast<int>(a_node);
    group.nodes = static_cast<int>(count / a_node);
    for (Nic& nic : group.nics) {
      nic.count = static_cast<int>(std::min<std::int64_t>(nic.count, a_node));
      if (set_.nics > 0) nic.bandwidth = set_.nics / static_cast<double>(nic.count);
    }
    build_topology(made);
    return made;
  }

  // What ships, and its interval; of a run that took part in its fit, the figures of the fit that left it out.
  Interval use_calibrated(Cluster& cluster) const {
    if (set_.software.empty()) return interval_of_unseen();
    Cluster shipped = cluster;
    const Interval interval = use_trial_or_shipped(shipped);
    const auto fit = std::find_if(rules_.left_out_.begin(), rules_.left_out_.end(),
                                  [&](const auto& each) { return each.runs.contains(run_.id); });
    if (fit != rules_.left_out_.end() && fit->software.contains(set_.software))
      use_figures(fit->software.at(set_.software), cluster);
    else
      cluster = std::move(shipped);
    return interval;
  }
  Interval use_trial_or_shipped(Cluster& cluster) const {
    const auto trial = rules_.trial_.find(set_.software);
    if (trial == rules_.trial_.end()) return use_software(set_.software, cluster);
    use_kept(set_.software, cluster);
    return use_figures(trial->second, cluster);
  }
  void use_what_is_kept(Cluster& cluster) const {
    use_kept(set_.software, cluster);
    const auto& kept = printed("tp", 1) > 1 && !set_.kept_cut.empty() ? set_.kept_cut : set_.kept;
    if (const auto found = kept.find(cell("accelerator")); found != kept.end())
      use_kept(found->second, cluster);
  }
  Yaml figures_without_set() const {
    for (const auto& fit : rules_.left_out_)
      if (fit.set == run_.set)
        if (const auto found = fit.software.find(set_.software); found != fit.software.end())
          return found->second;
    return nullptr;
  }

  void set_train(Job& job) const {
    Train& train = job.train;
    train.sequence = sequence();
    train.global_batch = needed("global_batch");
    train.micro_batch =
        set_.micro_batch > 0 ? printed("micro_batch", set_.micro_batch) : needed("micro_batch");
    const std::string precision = lower(cell("precision"));
    if (contains(precision, "not resolved")) pass_over("the precision is not resolved");
    // llm-foundry's PURE reduces what it computes in, DEFAULT in 32 bits.
    train.gradients = contains(cell("zero_stage_or_fsdp"), "PURE") ? Format::bf16 : set_.gradients;
    train.precision =
        job.cluster.groups[0].chip.peak_flops.contains(Format::bf16) ? Format::bf16 : Format::fp16;
    for (const auto& [name, format] :
         {std::pair{"nvfp4", Format::nvfp4}, {"mx", Format::mxfp8}, {"fp8", Format::fp8}})
      if (contains(precision, name) && !train.matmuls) train.matmuls = format;
    if (set_.precision) train.precision = *set_.precision;
    if (train.matmuls && !job.cluster.groups[0].chip.peak_flops.contains(*train.matmuls))
      train.matmuls = Format::fp8;
    train.expert_room = set_.expert_room;
    if (const auto complaint = find_batch_complaint(job.transformer, train)) pass_over(complaint->message);
  }

  // Printed, or printed by another row of the set for the same model and stages, or what the set's software does: an
  // empty cell is not 1, but a schedule that is printed and has no chunks is.
  std::int64_t chunks(std::int64_t stages) const {
    if (stages == 1) return 1;
    if (!cell("vpp").empty()) return std::max<std::int64_t>(1, printed("vpp", 1));
    for (const PublishedRun& other : all_)
      if (other.set == run_.set && other.row["model_name"] == cell("model_name") &&
          other.row["pp"] == cell("pp") && !other.row["vpp"].empty())
        return std::max<std::int64_t>(1, std::stoll(other.row["vpp"]));
    if (set_.virtual_stages > 0) return set_.virtual_stages;
    const std::string schedule = lower(cell("schedule"));
    if (schedule.empty() || (contains(schedule, "interleaved") && !contains(schedule, "1 layer per chunk")))
      pass_over("`vpp` is not printed");
    return 1;
  }

  // Some tables count as replicas those of the experts alone.
  std::int64_t replicas(std::int64_t chips_of_one) const {
    const std::int64_t dp = needed("dp"), chips = needed("n_accelerators"), ep = printed("ep", 1);
    const bool of_experts = chips_of_one * dp != chips && chips_of_one * dp * ep == chips;
    return of_experts ? dp * ep : dp;
  }
  void strategy(Job& job) const {
    const std::int64_t tp = needed("tp"), pp = needed("pp"), cp = printed("cp", 1);
    const std::int64_t dp = replicas(tp * pp * cp);
    try {
      job.strategy = expand(job.transformer, job.train, tp, pp, dp, cp);
      set_schedule(job, pp);
      set_printed_stages(job);
      job.strategy.sequence_parallel =
          tp > 1 && (set_.sequence_parallel || contains(cell("recompute"), "sequence parallel"));
      if (set_.scatter_gather && tp > 1 && !job.strategy.sequence_parallel)
        gather_at_boundaries(job.strategy);
      const std::string& recompute = cell("recompute");
      job.strategy.recompute = recompute.empty() ? set_.recompute.value_or(Recompute::none)
                                                 : printed_recompute(recompute, run_.row.where("recompute"));
      if (job.strategy.recompute == Recompute::selective) job.strategy.recompute = set_.selective;
      set_division(job, dp * cp);
      job.strategy.overlap_gradients = set_.overlap;
      job.strategy.overlap_parameters = set_.overlap_parameters;
      for (PipelineTemplate& pipeline : job.strategy.templates)
        for (Stage& stage : pipeline.stages) stage.expert_parallel = printed("ep", 1);
      if (job.transformer.experts.count > 0)
        for (PipelineTemplate& pipeline : job.strategy.templates)
          for (Stage& stage : pipeline.stages) stage.expert_tensor_parallel = 1;
      validate(job.transformer, job.train, job.strategy);
    } catch (const Refusal& refusal) {
      pass_over(refusal.message());
    }
  }
  void set_printed_stages(Job& job) const {
    if (const auto map = stage_map(cell("notes")))
      job.strategy.templates = pipelines_of(*map, job.strategy.templates.at(0).micro_batches);
    if (const auto layers = layers_per_stage(cell("notes")))
      if (!set_layers(*layers, job.transformer, job.strategy))
        pass_over("the layers printed by stage are not the model's");
  }
  // Embedding and head count as a layer each where that alone makes the stages even.
  static EndLayers ends_of(std::int64_t layers, std::int64_t parts) {
    return layers % parts != 0 && (layers + 2) % parts == 0 ? EndLayers::counted : EndLayers::besides;
  }
  void set_schedule(Job& job, std::int64_t pp) const {
    const std::string printed_name = lower(cell("schedule"));
    const std::int64_t L = job.transformer.layers;
    std::int64_t count = chunks(pp);
    if (contains(printed_name, "1 layer per chunk")) count = (L + (L % pp == 0 ? 0 : 2)) / pp;
    if (pp == 1) return;
    Schedule schedule = count > 1 ? Schedule::interleaved : Schedule::one_f_one_b;
    if (contains(printed_name, "zb-1p")) schedule = Schedule::zb_h1;
    if (contains(printed_name, "zb-2p")) schedule = Schedule::zb_h2;
    use_schedule(job.transformer, job.strategy, schedule, static_cast<int>(count), ends_of(L, pp * count));
  }
  // Each rank of a tensor group sends its part of what crosses a boundary, and the receivers gather the whole.
  // Assumes: chunks of interleaved schedules send whole tensors; Motley's do.
  static void gather_at_boundaries(Strategy& strategy) {
    for (PipelineTemplate& pipeline : strategy.templates)
      for (std::size_t i = 1; i < pipeline.stages.size(); ++i)
        if (pipeline.stages[i].more.empty()) pipeline.stages[i].resharding = Resharding::gather;
  }
  void set_division(Job& job, std::int64_t copies) const {
    const std::string kind = lower(cell("zero_stage_or_fsdp"));
    Strategy& strategy = job.strategy;
    strategy.zero = copies > 1 ? set_.zero : 0;
    if (contains(kind, "zero-1")) strategy.zero = 1;
    if (contains(kind, "zero-2") || contains(kind, "shard_grad_op")) strategy.zero = 2;
    if (contains(kind, "full_shard") || contains(kind, "fsdp2") || contains(kind, "zero-3"))
      strategy.zero = 3;
    if (contains(kind, "fsdp+")) pass_over("FSDP over an unprinted group");
    const bool without = contains(kind, "fsdp=0");  // "DDP (FSDP=0)"
    if (contains(kind, "hsdp") || (contains(kind, "fsdp") && !without)) strategy.zero = 3;
    if (contains(kind, "hsdp"))
      strategy.shard_over = job.cluster.groups[0].chips_per_node;  // PyTorch's default
    if (copies == 1) strategy.zero = 0;
    std::smatch group;
    if (strategy.zero == 1 && std::regex_search(kind, group, std::regex("group ([0-9]+)")))
      strategy.shard_over = std::min<std::int64_t>(std::stoll(group[1]), copies);
    if (strategy.shard_over == copies) strategy.shard_over = 0;
  }

  double step_s(const Job& job) const {
    const std::string& metric = cell("metric");
    const double value = number("value"), chips = static_cast<double>(needed("n_accelerators"));
    const auto sequences = static_cast<double>(job.train.global_batch);
    const double tokens = sequences * static_cast<double>(job.train.sequence);
    if (!(value > 0)) pass_over("the measured value is not positive");
    if (metric == "iteration_time") return value;
    if (metric == "tokens_per_s_per_gpu") return tokens / (value * chips);
    if (metric == "samples_per_s_per_gpu") return sequences / (value * chips);
    if (metric == "model_tflops_per_gpu")
      return model_flops_per_sequence(job.transformer, job.train.sequence) * sequences /
             (value * 1e12 * chips);
    if (metric == "tflops_per_gpu_incl_recompute")
      return megatron_flops_per_sequence(job.transformer, job.train.sequence) * sequences /
             (value * 1e12 * chips);
    pass_over(fmt::format("`{}` says no step time", metric));
  }

  // Whoever prints it does so among the notes.
  std::optional<double> peak_bytes() const {
    std::smatch found;
    const std::string& notes = cell("notes");
    for (const auto& [name, unit] : {std::pair{"max_mem_bytes=([0-9.]+)", 1.0},
                                     {"mem_gib=([0-9.]+)", 1024.0 * 1024 * 1024},
                                     {"max_mem_gb=([0-9.]+)", 1e9},
                                     {"real_alloc_gib=([0-9.]+)", 1024.0 * 1024 * 1024}})
      if (std::regex_search(notes, found, std::regex(name))) return std::stod(found[1]) * unit;
    return std::nullopt;
  }
};

std::variant<Measured, PassedOver> PublishedRules::read(const PublishedRun& run,
                                                        const std::vector<PublishedRun>& all) const {
  try {
    return RunReader(*this, run, all).read();
  } catch (const Unknown& unknown) {
    return PassedOver{unknown.reason};
  }
}

}  // namespace motley
