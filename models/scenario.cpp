// A scenario file becomes a Job: model, cluster, training shape, strategy, world. What it does not
// do: price, place or check anything. Read next: models/compile.hpp.
#include "models/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "models/collective.hpp"
#include "models/describe_text.hpp"
#include "models/measured_layers.hpp"
#include "models/network_text.hpp"
#include "models/refusal.hpp"
#include "models/remedies.hpp"
#include "models/site_text.hpp"
#include "models/software.hpp"
#include "models/spending_text.hpp"
#include "models/strategy_complaint.hpp"
#include "models/transformer_text.hpp"

namespace motley {
namespace {

constexpr IntegerRange kBatch{1, 1 << 20}, kTokens{1, 1 << 22};

Transformer find_transformer(const std::string& name, const std::string& folder, const Location& asked_from) {
  const std::string path = find_file(name, folder, "scenarios/models", ".json", asked_from);
  std::string model = stem_of(path);
  // A config.json is named by the folder that holds it, as on the Hugging Face hub.
  if (model == "config") {
    const std::string holder = folder_of(path);
    if (holder != ".") model = std::filesystem::path(holder).filename().string();
  }
  return read_hugging_face(read_yaml(path, asked_from), model);
}

Cluster find_cluster(const std::string& name, const std::string& folder, const Location& asked_from) {
  const std::string path = find_file(name, folder, "platforms", ".yaml", asked_from);
  return read_cluster(read_yaml(path, asked_from), stem_of(path), folder_of(path));
}

Format to_format(const Yaml& node) {
  return *parse_format(to_choice(node, {"fp32", "tf32", "bf16", "fp16"}));
}

std::string find_text(const Yaml& node, const std::string& folder) {
  const std::string name = to_text(node);
  const std::string path = name.empty() || name[0] == '/' || folder == "." ? name : folder + "/" + name;
  std::error_code ignored;
  if (!name.empty() && !std::filesystem::is_regular_file(path, ignored))
    throw Refusal(Exit::usage, "file-not-found", node->where, fmt::format("no file `{}`", path),
                  "leave `text` out to train on the one that ships");
  return path;
}

// One length, of as many as fill the sequence, or all lengths; whether they fill it is find_batch_complaint()'s.
std::vector<std::int64_t> read_documents(const Yaml& node, std::int64_t sequence) {
  std::vector<std::int64_t> lengths;
  if (node->is_scalar()) {
    const std::int64_t length = to_integer(node, kTokens);
    lengths.assign(static_cast<std::size_t>(sequence / length), length);
    if (lengths.empty()) lengths = {length};
  } else {
    for (const Yaml& item : to_sequence(node)) lengths.push_back(to_integer(item, kTokens));
  }
  return lengths;
}

Train read_train(const Yaml& node, const std::string& folder) {
  const Fields fields(
      node, "`train`",
      {"global_batch",  "micro_batch", "sequence",    "documents",   "precision",
       "gradients",     "matmuls",     "expert_skew", "expert_room", "fragmentation",
       "learning_rate", "beta1",       "beta2",       "epsilon",     "weight_decay",
       "seed",          "steps",       "text",        "lora",        "extra_prediction_weight",
       "tokens",        "goodput"});
  Train train;
  train.global_batch = to_integer(fields.need("global_batch"), kBatch);
  train.sequence = to_integer(fields.need("sequence"), kTokens);
  if (const Yaml value = fields.find("documents")) train.documents = read_documents(value, train.sequence);
  if (const Yaml value = fields.find("micro_batch")) train.micro_batch = to_integer(value, kBatch);
  if (const Yaml value = fields.find("precision")) train.precision = to_format(value);
  if (const Yaml value = fields.find("matmuls"))
    train.matmuls = parse_format(to_choice(value, {"fp8", "mxfp8", "nvfp4"}));
  if (const Yaml value = fields.find("expert_skew")) train.expert_skew = to_number(value, Sign::not_negative);
  if (const Yaml value = fields.find("expert_room")) {
    train.expert_room = to_number(value, Sign::positive);
    if (train.expert_room < 1)
      throw Refusal(Exit::infeasible, "impossible-expert-room", value->where,
                    fmt::format("expert_room {} does not hold even an even share", train.expert_room),
                    "1 or more");
  }
  if (const Yaml value = fields.find("fragmentation")) {
    train.fragmentation = to_number(value, Sign::not_negative);
    if (train.fragmentation > 1)
      throw Refusal(Exit::usage, "out-of-bounds", value->where,
                    fmt::format("`{}` is out of bounds", value->text), "a share of the activations: 0 to 1");
  }
  if (const Yaml value = fields.find("gradients")) train.gradients = to_format(value);
  if (const Yaml value = fields.find("learning_rate")) train.learning_rate = to_number(value, Sign::positive);
  for (const auto& [key, member] : {std::pair{"beta1", &Train::beta1}, {"beta2", &Train::beta2}})
    if (const Yaml value = fields.find(key)) {
      train.*member = to_number(value, Sign::not_negative);
      if (train.*member >= 1)
        throw Refusal(Exit::usage, "out-of-bounds", value->where,
                      fmt::format("`{}` is out of bounds", value->text), "must be less than 1");
    }
  if (const Yaml value = fields.find("epsilon")) train.epsilon = to_number(value, Sign::positive);
  if (const Yaml value = fields.find("weight_decay"))
    train.weight_decay = to_number(value, Sign::not_negative);
  if (const Yaml value = fields.find("seed")) train.seed = static_cast<std::uint64_t>(to_integer(value, {}));
  if (const Yaml value = fields.find("steps")) train.steps = to_integer(value, kBatch);
  if (const Yaml value = fields.find("text")) train.text = find_text(value, folder);
  if (const Yaml value = fields.find("tokens")) train.tokens = to_tokens(value);
  if (const Yaml value = fields.find("goodput")) train.goodput = to_goodput(value);
  return train;
}

CollectiveLevel to_level(const Yaml& node) {
  const std::string level = to_choice(node, {"formula", "fluid", "expanded"});
  if (level == "formula") return CollectiveLevel::formula;
  return level == "fluid" ? CollectiveLevel::fluid : CollectiveLevel::expanded;
}

CollectiveAlgorithm to_algorithm(const Yaml& node) {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(CollectiveAlgorithm::automatic); ++i)
    names.emplace_back(name_of(static_cast<CollectiveAlgorithm>(i)));
  const std::string name = to_choice(node, names);
  const auto found = std::find(names.begin(), names.end(), name);
  return static_cast<CollectiveAlgorithm>(found - names.begin());
}

Fidelity read_fidelity(const Yaml& node) {
  const Fields fields(node, "`fidelity`",
                      {"data_parallel", "tensor_parallel", "fold", "algorithm", "expert_copies"});
  Fidelity fidelity;
  if (const Yaml value = fields.find("data_parallel")) fidelity.data_parallel = to_level(value);
  if (const Yaml value = fields.find("tensor_parallel")) fidelity.tensor_parallel = to_level(value);
  if (const Yaml value = fields.find("fold")) fidelity.fold = to_bool(value);
  if (const Yaml value = fields.find("algorithm")) fidelity.algorithm = to_algorithm(value);
  if (const Yaml value = fields.find("expert_copies"))
    fidelity.expert_copies =
        to_choice(value, {"expert", "node"}) == "node" ? ExpertCopies::node : ExpertCopies::expert;
  return fidelity;
}

const std::vector<std::string> kWorlds = {"sim", "real", "mixed", "replay", "null"};

WorldChoice read_world(const Yaml& node, std::int64_t rank_count) {
  WorldChoice world;
  if (node->is_scalar()) {
    world.kind = to_choice(node, kWorlds);
  } else {
    const Fields fields(node, "`world`", {"kind", "real_ranks"});
    world.kind = to_choice(fields.need("kind"), kWorlds);
    if (const Yaml ranks = fields.find("real_ranks"))
      for (const Yaml& rank : to_sequence(ranks))
        world.real_ranks.push_back(static_cast<Rank>(to_integer(rank, {0, rank_count - 1})));
  }
  if (world.kind == "mixed" && world.real_ranks.empty())
    throw Refusal(Exit::usage, "missing-key", node->where, "a mixed world needs a value for `real_ranks`",
                  "as `world: {kind: mixed, real_ranks: [0]}`");
  return world;
}

void refuse_batch(const Fields& scenario, const Transformer& transformer, const Train& train) {
  const auto complaint = find_batch_complaint(transformer, train);
  if (!complaint) return;
  const YamlEntry* key = scenario.find("train")->find(complaint->about);
  throw Refusal(Exit::infeasible, complaint->kind, key ? key->where : scenario.where("train"),
                complaint->message, complaint->hint);
}

std::string formats_of(const Chip& chip) {
  std::vector<std::string> known;
  for (const auto& [format, peak] : chip.peak_flops) known.emplace_back(name_of(format));
  return fmt::format("it has: {}", fmt::join(known, ", "));
}

// A chip without a figure for the format cannot be priced.
void refuse_format(const Fields& scenario, const Job& job) {
  const Yaml train = scenario.find("train");
  for (const NodeGroup& group : job.cluster.groups) {
    const Chip& chip = group.chip;
    if (!chip.peak_flops.contains(job.train.precision)) {
      const YamlEntry* key = train->find("precision");
      throw Refusal(Exit::infeasible, "unsupported-format", key ? key->where : scenario.where("train"),
                    fmt::format("chip `{}` has no {} peak", chip.name, name_of(job.train.precision)),
                    (key ? "" : "`precision` is bf16 unless it is given; ") + formats_of(chip));
    }
    if (job.train.matmuls && !chip.peak_flops.contains(*job.train.matmuls))
      throw Refusal(Exit::infeasible, "unsupported-format", train->find("matmuls")->where,
                    fmt::format("chip `{}` has no units that multiply {} matrices", chip.name,
                                name_of(*job.train.matmuls)),
                    formats_of(chip));
  }
}

void refuse_too_many_ranks(const Fields& scenario, const Job& job) {
  const std::int64_t ranks = job.strategy.rank_count(), chips = job.cluster.chip_count();
  if (ranks <= chips) return;
  const Strategy& strategy = job.strategy;
  const std::string what =
      strategy.templates.size() > 1
          ? fmt::format("the pipelines take {} ranks", ranks)
          : fmt::format("tensor_parallel {} x {}pipeline_parallel {} x data_parallel {} are {} ranks",
                        strategy.tp(),
                        strategy.cp() > 1 ? fmt::format("context_parallel {} x ", strategy.cp()) : "",
                        strategy.pp(), strategy.dp(), ranks);
  throw Refusal(Exit::infeasible, "too-many-ranks", scenario.where("strategy"),
                fmt::format("{}, cluster `{}` has {} chips", what, job.cluster.name, chips),
                "a rank needs a chip of its own: lower a degree, or take a larger cluster");
}

template <typename Do>
auto placing_refusals(const Scenario& scenario, Do act) {
  try {
    return act();
  } catch (const Refusal& refusal) {
    if (refusal.exit_code() != Exit::infeasible) throw;
    throw located(refusal,
                  refusal.kind() == "unreachable" ? scenario.cluster_location : scenario.strategy_location);
  }
}

}  // namespace

Program compile(const Scenario& scenario) {
  return placing_refusals(scenario, [&] { return compile(scenario.job); });
}

std::vector<StageMemory> check(const Program& program, const Scenario& scenario) {
  return placing_refusals(scenario, [&] {
    try {
      return check(program, scenario.job.cluster, scenario.job.train.fragmentation);
    } catch (const Refusal& refusal) {
      if (refusal.kind() != "out-of-memory") throw;
      throw Refusal(refusal.exit_code(), refusal.kind(), refusal.where(), refusal.message(),
                    describe(remedies(scenario.job)));
    }
  });
}

Scenario load_scenario(const std::string& path) { return read_scenario(read_yaml(path), path); }

Scenario read_scenario(const Yaml& node, const std::string& path) {
  const std::string folder = folder_of(path);
  const Fields fields(node, "a scenario",
                      {"name", "model", "cluster", "software", "layers", "transport", "site", "train",
                       "strategy", "world", "fidelity"});
  Scenario scenario;
  scenario.path = path;
  const Yaml name = fields.find("name");
  scenario.name = name ? to_text(name) : stem_of(path);
  Job& job = scenario.job;
  const Yaml model = fields.need("model"), cluster = fields.need("cluster");
  scenario.model_location = fields.where("model");
  scenario.cluster_location = fields.where("cluster");
  scenario.strategy_location = fields.where("strategy");
  job.transformer = model->is_scalar() ? find_transformer(model->text, folder, model->where)
                                       : read_transformer(model, scenario.name);
  job.cluster = cluster->is_scalar() ? find_cluster(cluster->text, folder, cluster->where)
                                     : read_cluster(cluster, scenario.name, folder);
  const Yaml software = fields.find("software");
  scenario.interval = software ? use_software(software, folder, job.cluster) : interval_of_unseen();
  if (software && job.transformer.experts.count > 0) scenario.interval = interval_of_experts();
  if (const Yaml policy = fields.find("transport")) job.cluster.transport = to_transport(policy);
  if (const Yaml site = fields.find("site")) job.cluster.site = read_site(site);
  job.train = read_train(fields.need("train"), folder);
  const YamlEntry* const lora = fields.need("train")->find("lora");
  if (lora != nullptr && lora->value->kind != YamlNode::Kind::null) read_lora(lora->value, job.transformer);
  const YamlEntry* const extra = fields.need("train")->find("extra_prediction_weight");
  if (extra != nullptr) job.transformer.extra_prediction_weight = to_number(extra->value, Sign::not_negative);
  refuse_batch(fields, job.transformer, job.train);
  if (const Yaml layers = fields.find("layers"))
    use_layers(layers, folder, job.transformer, job.train, job.cluster);
  job.strategy = read_strategy(fields.need("strategy"), job.transformer, job.train);
  refuse_too_many_ranks(fields, job);
  refuse_format(fields, job);
  if (const Yaml fidelity = fields.find("fidelity")) job.fidelity = read_fidelity(fidelity);
  // `world: null` is the world that takes no time; YAML reads it as nothing.
  if (const Yaml world = fields.find("world"))
    scenario.world = read_world(world, job.strategy.rank_count());
  else if (fields.stands("world"))
    scenario.world.kind = "null";
  return scenario;
}

Transformer load_transformer(const std::string& path_or_name) {
  return find_transformer(path_or_name, ".", {});
}

Cluster load_cluster(const std::string& path_or_name) { return find_cluster(path_or_name, ".", {}); }

Chip load_chip(const std::string& path_or_name) {
  const std::string path = find_file(path_or_name, ".", "platforms/chips", ".yaml", {});
  return read_chip(read_yaml(path), stem_of(path));
}

}  // namespace motley
