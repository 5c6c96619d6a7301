// Reads a scenario file into a Job (model, cluster, training shape, strategy) and a world. It does not price, place
// or check anything. Read next: models/compile/compile.hpp.
#include "models/scenario/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "models/base/all_refusals.hpp"
#include "models/base/data_files.hpp"
#include "models/base/refusal.hpp"
#include "models/base/text_file.hpp"
#include "models/cluster/network_text.hpp"
#include "models/cluster/site_text.hpp"
#include "models/cluster/variation_text.hpp"
#include "models/scenario/plan_request_fields.hpp"
#include "models/scenario/scenario_fields.hpp"
#include "models/scenario/setting.hpp"
#include "models/scenario/software.hpp"
#include "models/scenario/use_layers.hpp"
#include "models/strategy/degree_names.hpp"
#include "models/strategy/strategy_complaint.hpp"
#include "models/strategy/strategy_fields.hpp"
#include "models/transformer/train_text.hpp"
#include "models/transformer/transformer_text.hpp"

namespace motley {
namespace {

static_assert(lists_every_member<FidelityFields>() && lists_every_member<WorldChoiceFields>() &&
              lists_every_member<PlanRequestFields>() && lists_every_member<PlanPinsFields>());

WorldChoice read_world(const Yaml& node, std::int64_t rank_count, const std::string& folder) {
  WorldChoice world;
  if (node->is_scalar())
    world.kind = to_choice<WorldKind>(node);
  else
    read_map(WorldChoiceFields{rank_count, folder}, node, "`world`", world);
  if (world.kind == WorldKind::mixed && world.real_ranks.empty())
    throw Refusal(Exit::usage, "missing-key", node->where, "a mixed world needs a value for `real_ranks`",
                  "as `world: {kind: mixed, real_ranks: [0]}`");
  const bool recorded = world.contribution == Contribution::recorded;
  if (recorded == world.recording.empty())
    throw Refusal(Exit::usage, "missing-key", node->where,
                  recorded ? "`contribution: recorded` needs a value for `recording`"
                           : "`recording` needs `contribution: recorded`",
                  "as `world: {kind: mixed, real_ranks: [0], contribution: recorded, recording: FILE}`");
  return world;
}

void refuse_batch(const Fields& scenario, const Transformer& transformer, const Train& train) {
  const auto complaint = find_batch_complaint(transformer, train);
  if (!complaint) return;
  const YamlEntry* key = scenario.find("train")->find(complaint->about);
  throw Refusal(Exit::infeasible, complaint->kind, key ? key->where : scenario.where("train"),
                complaint->message, complaint->hint, complaint->site);
}

std::string formats_of(const Chip& chip) {
  std::vector<std::string> known;
  for (const auto& [format, peak] : chip.peak_flops) known.emplace_back(name_of(format));
  return fmt::format("it has: {}", fmt::join(known, ", "));
}

// Refuses a chip that cannot be priced because it has no figure for the format.
void refuse_format(const Fields& scenario, const Job& job) {
  const Yaml train = scenario.find("train");
  // A misspelt key, told beside this, counts as the one that is meant: then the map has no entry of that name.
  const auto place_of = [&](const char* name) {
    const YamlEntry* const key = train->find(name);
    return key != nullptr ? key->where : scenario.where("train");
  };
  for (const NodeGroup& group : job.cluster.groups) {
    const Chip& chip = group.chip;
    if (!chip.peak_flops.contains(job.train.precision))
      throw Refusal(
          Exit::infeasible, "unsupported-format", place_of("precision"),
          fmt::format("chip `{}` has no {} peak", chip.name, name_of(job.train.precision)),
          (train->find("precision") ? "" : "`precision` is bf16 unless it is given; ") + formats_of(chip));
    if (job.train.matmuls && !chip.peak_flops.contains(*job.train.matmuls))
      throw Refusal(Exit::infeasible, "unsupported-format", place_of("matmuls"),
                    fmt::format("chip `{}` has no units that multiply {} matrices", chip.name,
                                name_of(*job.train.matmuls)),
                    formats_of(chip));
  }
}

void refuse_too_many_ranks(const Fields& scenario, const Job& job) {
  const std::int64_t ranks = job.strategy.rank_count(), chips = job.cluster.chip_count();
  if (ranks <= chips) return;
  const Strategy& strategy = job.strategy;
  const std::string degrees =
      strategy.templates.size() > 1
          ? fmt::format("the pipelines take {} ranks", ranks)
          : fmt::format("tensor_parallel {} x {}pipeline_parallel {} x data_parallel {} are {} ranks",
                        strategy.tp(),
                        strategy.cp() > 1 ? fmt::format("context_parallel {} x ", strategy.cp()) : "",
                        strategy.pp(), strategy.dp(), ranks);
  throw Refusal(Exit::infeasible, "too-many-ranks", scenario.where("strategy"),
                fmt::format("{}, cluster `{}` has {} chips", degrees, job.cluster.name, chips),
                "a rank needs a chip of its own: lower a degree, or take a larger cluster");
}

// The usual variation of the chips' software, whose figures describe the slowest of eight chips. Clusters of several
// chips take the widest.
Variation usual_variation(const Cluster& cluster) {
  Variation usual;
  for (const NodeGroup& group : cluster.groups)
    if (const double deviation = group.chip.software.variation.value; deviation > usual.chips.deviation()) {
      usual.chips = Spread::normal(deviation, 1 / (1 - deviation * expected_largest(8)));
      usual.source = group.chip.software.variation.source;
    }
  return usual;
}

// A scenario's own speeds: its `slow` comes to the cluster's, its `variation` takes the place of every other.
void read_speeds(const Fields& fields, Cluster& cluster) {
  if (const Yaml variation = fields.find("variation")) {
    const bool usual = variation->is_scalar() && variation->text == "usual";
    cluster.variation = usual ? usual_variation(cluster) : read_variation(variation);
  }
  if (cluster.variation)
    for (NodeGroup& group : cluster.groups) group.chip.software.variation.value = 0;
  const Yaml slow = fields.find("slow");
  if (!slow) return;
  for (const Slow& each : read_slow(slow, cluster)) cluster.slow.push_back(each);
  build_topology(cluster);
}

// The degree of the short form that has this name; 1 where it does not stand there.
std::int64_t stated_degree(const Yaml& strategy, std::string_view name) {
  for (const std::string_view key : {name, other_name(name)})
    if (const YamlEntry* const entry = strategy->find(key);
        entry && entry->value->kind != YamlNode::Kind::null)
      return to_integer(entry->value, kDegree);
  return 1;
}

// Ranks of each replica of the short form.
std::int64_t ranks_of_replica(const Yaml& strategy) {
  const std::int64_t context = stated_degree(strategy, "context_parallel");
  for (const std::string_view key : {std::string_view("tensor_parallel"), other_name("tensor_parallel")})
    if (const YamlEntry* const entry = strategy->find(key);
        entry && entry->value->kind == YamlNode::Kind::sequence) {
      std::int64_t sum = 0;  // a degree for each stage
      for (const Yaml& item : to_sequence(entry->value)) sum += to_integer(item, kDegree);
      return std::max<std::int64_t>(sum, 1) * context;
    }
  return stated_degree(strategy, "tensor_parallel") * stated_degree(strategy, "pipeline_parallel") * context;
}

// The strategy with `data_parallel: auto` as a number: as many replicas as the other degrees leave chips for, and as
// share the batch evenly.
Yaml with_replicas(const Yaml& strategy, const Job& job) {
  if (!strategy->is_map()) return strategy;
  auto counted = std::make_shared<YamlNode>(*strategy);
  for (YamlEntry& entry : counted->entries) {
    const bool is_degree = entry.key == "data_parallel" || entry.key == "dp";
    if (!is_degree || !entry.value->is_scalar() || entry.value->text != "auto") continue;
    to_choice(entry.value, {"auto"});
    std::int64_t replicas = std::max<std::int64_t>(1, job.cluster.chip_count() / ranks_of_replica(strategy));
    while (replicas > 1 && job.train.global_batch % (replicas * job.train.micro_batch) != 0) --replicas;
    auto number = std::make_shared<YamlNode>(*entry.value);
    number->text = std::to_string(replicas);
    entry.value = std::move(number);
  }
  return counted;
}

// Reads `strategy` or `plan`, of which a scenario has one.
void read_strategy_or_plan(const Fields& fields, ScenarioUse use, Scenario& scenario) {
  const Yaml strategy = fields.find("strategy");
  const bool plans = strategy ? fields.find("plan") != nullptr : fields.stands("plan");
  if (plans && strategy)
    throw Refusal(Exit::usage, "plan-beside-strategy", fields.where("plan"),
                  "`plan` stands beside `strategy`",
                  "keep one: `plan` leaves the strategy to `motley plan`, `strategy` says it");
  if (plans) {
    scenario.strategy_location = fields.where("plan");
    if (const Yaml asked = fields.find("plan")) read_map(PlanRequestFields{}, asked, "`plan`", scenario.plan);
    scenario.plan_places = places_of(fields.find("plan"), fields.where("plan"));
    if (use == ScenarioUse::run)
      throw Refusal(Exit::usage, "not-planned", fields.where("plan"),
                    "this scenario has a `plan` and no strategy yet, so it cannot run",
                    "`motley plan FILE --out PLANNED.yaml` writes it with the strategy that it chooses");
  }
  if (use == ScenarioUse::plan && !strategy) return;
  Job& job = scenario.job;
  job.strategy = read_strategy(with_replicas(fields.need("strategy"), job), job.transformer, job.train);
  refuse_too_many_ranks(fields, job);
}

}  // namespace

Fidelity read_fidelity(const Yaml& node) {
  Fidelity fidelity;
  read_map(FidelityFields{}, node, "`fidelity`", fidelity);
  return fidelity;
}

std::string print(const Fidelity& fidelity) { return print_lines(FidelityFields{}, fidelity); }

Fidelity parse_fidelity(const std::string& text) { return read_fidelity(parse_yaml(text, "fidelity")); }

std::string find_scenario(const std::string& path_or_name) {
  const bool is_name = path_or_name != "-" && path_or_name.find('/') == std::string::npos;
  if (!is_name || is_text_source(path_or_name)) return path_or_name;
  return find_shipped_scenario(path_or_name);
}

Yaml read_scenario_file(const std::string& path_or_name, const std::vector<std::string>& settings) {
  const std::string path = find_scenario(path_or_name);
  return with_settings(read_yaml(path), path, parse_settings(settings));
}

Scenario load_scenario(const std::string& path_or_name, const std::vector<std::string>& settings) {
  return telling_all_refusals([&] {
    Scenario scenario =
        read_scenario(read_scenario_file(path_or_name, settings), find_scenario(path_or_name));
    scenario.settings = settings;
    return scenario;
  });
}

namespace {

Scenario read_once(const Yaml& node, const std::string& path, ScenarioUse use) {
  const std::string folder = folder_of(path);
  const Fields fields(node, "a scenario",
                      {"name", "model", "cluster", "software", "layers", "transport", "site", "slow",
                       "variation", "train", "strategy", "plan", "world", "fidelity", "measured"});
  Scenario scenario;
  scenario.path = path;
  const Yaml name = fields.find("name");
  scenario.name = name ? to_text(name) : stem_of(path);
  Job& job = scenario.job;
  const Yaml model = fields.need("model"), cluster = fields.need("cluster");
  scenario.model_location = fields.where("model");
  scenario.cluster_location = fields.where("cluster");
  scenario.strategy_location = fields.where("strategy");
  job.transformer = model->is_scalar() ? find_transformer(to_text(model), folder, model->where)
                                       : read_transformer(model, scenario.name);
  job.cluster = cluster->is_scalar() ? find_cluster(to_text(cluster), folder, cluster->where)
                                     : read_cluster(cluster, scenario.name, folder);
  const Yaml software = fields.find("software");
  if (software) {
    scenario.interval = use_software(software, folder, job.cluster);
  } else {
    scenario.own = own_figures(job.cluster);
    scenario.interval = use_usual_software(job.cluster);
  }
  if (job.transformer.experts.count > 0) scenario.interval = interval_with_experts(scenario.interval);
  if (const Yaml policy = fields.find("transport")) job.cluster.transport = to_transport(policy);
  if (const Yaml site = fields.find("site")) job.cluster.site = read_site(site);
  read_speeds(fields, job.cluster);
  job.train = read_train(fields.need("train"), folder);
  const YamlEntry* const lora = fields.need("train")->find("lora");
  if (lora != nullptr && lora->value->kind != YamlNode::Kind::null) read_lora(lora->value, job.transformer);
  const YamlEntry* const extra = fields.need("train")->find("extra_prediction_weight");
  if (extra != nullptr) job.transformer.extra_prediction_weight = to_number(extra->value, Sign::not_negative);
  refuse_batch(fields, job.transformer, job.train);
  if (const Yaml layers = fields.find("layers"))
    use_layers(layers, folder, job.transformer, job.train, job.cluster);
  read_strategy_or_plan(fields, use, scenario);
  refuse_format(fields, job);
  if (const Yaml measured = fields.find("measured"))
    scenario.measured_s = to_quantity(measured, Dimension::seconds, Sign::positive);
  if (const Yaml fidelity = fields.find("fidelity")) job.fidelity = read_fidelity(fidelity);
  // `world: null` is the world in which nothing takes time; YAML reads it as a null value.
  if (const Yaml world = fields.find("world"))
    scenario.world = read_world(
        world, job.strategy.templates.empty() ? job.cluster.chip_count() : job.strategy.rank_count(), folder);
  else if (fields.stands("world"))
    scenario.world.kind = WorldKind::null;
  return scenario;
}

}  // namespace

Scenario read_scenario(const Yaml& node, const std::string& path, ScenarioUse use) {
  return telling_all_refusals([&] { return read_once(node, path, use); });
}

}  // namespace motley
