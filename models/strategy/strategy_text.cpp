// A Strategy as YAML: the explicit form, which print() writes, and the short form people write.
#include <fmt/format.h>

#include <array>
#include <charconv>

#include "models/describe_text.hpp"
#include "models/partition.hpp"
#include "models/refusal.hpp"
#include "models/strategy.hpp"
#include "models/strategy_complaint.hpp"

namespace motley {
namespace {

constexpr IntegerRange kDegree{1, 1 << 20};  // products of three stay in int64

std::string_view name_of(Recompute recompute) {
  static constexpr std::array<std::string_view, 4> names = {"none", "selective", "full", "alternate"};
  return names[static_cast<std::size_t>(recompute)];
}

const std::vector<std::string> kOptionKeys = {"schedule", "recompute", "p2p_buffers",
                                              "overlap",  "zero",      "shard_over",
                                              "prefetch", "offload",   "sequence_parallel"};

// A name; or {csv: FILE}; or, as print() writes it, {rows: ["0F0,0B0", ...]}.
void read_schedule(const Yaml& node, Strategy& strategy) {
  if (node->is_scalar()) {
    strategy.schedule = schedule_named(to_choice(node, schedule_names()));
    return;
  }
  const Fields fields(node, "`schedule`", {"csv", "rows"});
  strategy.schedule = Schedule::custom;
  if (const Yaml rows = fields.find("rows")) {
    for (const Yaml& row : to_sequence(rows)) {
      const Timetable read = parse_csv(to_text(row), row->where.file);
      strategy.timetable.ranks.insert(strategy.timetable.ranks.end(), read.ranks.begin(), read.ranks.end());
    }
    return;
  }
  const Yaml csv = fields.need("csv");
  const std::string path =
      find_file(to_text(csv), folder_of(csv->where.file), "scenarios/schedules", ".csv", csv->where);
  strategy.timetable = parse_csv(read_text_file(path, csv->where), path);
}

std::vector<std::string> with_options(std::vector<std::string> keys) {
  keys.insert(keys.end(), kOptionKeys.begin(), kOptionKeys.end());
  return keys;
}

Recompute to_recompute(const Yaml& node) {
  const std::string name = to_choice(node, {"none", "selective", "full", "alternate"});
  if (name == "alternate") return Recompute::alternate;
  return name == "full" ? Recompute::full : name == "selective" ? Recompute::selective : Recompute::none;
}

Offload read_offload(const Yaml& node) {
  const Fields fields(node, "`offload`", {"optimizer", "activations"});
  Offload offload;
  const auto share = [](const Yaml& value, double& into) {
    into = to_number(value, Sign::not_negative);
    if (into > 1)
      throw Refusal(Exit::infeasible, "impossible-offload", value->where,
                    fmt::format("`{}` is more than there is", value->text), "a share: 0 to 1");
  };
  if (const Yaml value = fields.find("optimizer")) share(value, offload.optimizer);
  if (const Yaml value = fields.find("activations")) share(value, offload.activations);
  return offload;
}

Resharding to_resharding(const Yaml& node) {
  return to_choice(node, {"direct", "gather"}) == "direct" ? Resharding::direct : Resharding::gather;
}

// A name, or several.
std::vector<std::string> to_names(const Yaml& node) {
  if (node->is_scalar()) return {to_text(node)};
  std::vector<std::string> names;
  for (const Yaml& item : to_sequence(node)) names.push_back(to_text(item));
  return names;
}

void read_options(const Fields& fields, Strategy& strategy) {
  if (const Yaml node = fields.find("schedule")) read_schedule(node, strategy);
  if (const Yaml node = fields.find("recompute")) strategy.recompute = to_recompute(node);
  if (const Yaml node = fields.find("p2p_buffers"))
    strategy.p2p_buffers = static_cast<int>(to_integer(node, {1, 1024}));
  if (const Yaml node = fields.find("sequence_parallel")) strategy.sequence_parallel = to_bool(node);
  if (const Yaml node = fields.find("zero")) strategy.zero = static_cast<int>(to_integer(node, {0, 3}));
  if (const Yaml node = fields.find("shard_over")) strategy.shard_over = to_integer(node, {2, kDegree.most});
  if (const Yaml node = fields.find("prefetch"))
    strategy.prefetch = static_cast<int>(to_integer(node, {0, 64}));
  if (const Yaml node = fields.find("offload")) strategy.offload = read_offload(node);
  if (const Yaml node = fields.find("overlap")) {
    const Fields overlap(node, "`overlap`", {"p2p", "gradients", "parameters", "experts", "bucket_bytes"});
    if (const Yaml value = overlap.find("p2p")) strategy.overlap_p2p = to_bool(value);
    if (const Yaml value = overlap.find("gradients")) strategy.overlap_gradients = to_bool(value);
    if (const Yaml value = overlap.find("parameters")) strategy.overlap_parameters = to_bool(value);
    if (const Yaml value = overlap.find("experts")) strategy.overlap_experts = to_bool(value);
    if (const Yaml value = overlap.find("bucket_bytes")) strategy.bucket_bytes = to_bytes(value);
  }
}

// A degree has a long and a short name; only one of them may stand.
struct Degree {
  const YamlEntry* entry = nullptr;
  std::int64_t value = 1;
};

Degree read_degree(const Fields& fields, const std::string& name, const std::string& short_name) {
  const YamlEntry *by_name = fields.entry(name), *by_short_name = fields.entry(short_name);
  if (by_name && by_short_name)
    throw Refusal(Exit::usage, "duplicate-key", by_short_name->where,
                  fmt::format("`{}` and `{}` are the same key", short_name, name), "keep one");
  Degree degree;
  degree.entry = by_name ? by_name : by_short_name;
  if (degree.entry) degree.value = to_integer(degree.entry->value, kDegree);
  return degree;
}

void read_expert_degrees(const Fields& fields, Stage& stage) {
  stage.expert_parallel = read_degree(fields, "expert_parallel", "ep").value;
  const Degree cut = read_degree(fields, "expert_tensor_parallel", "etp");
  if (cut.entry) stage.expert_tensor_parallel = cut.value;
}

// "0-11" or "5": first and last layer, both included. "before 0": none, and layer 0 stands next.
Layers read_layers(const Yaml& node) {
  const std::string text = to_text(node);
  std::int64_t next = 0;
  if (text.starts_with("before ") && read_integer(text.substr(7), next) == NumberFault::none && next >= 0 &&
      next <= kDegree.most)
    return {next, next};
  const std::size_t dash = text.find('-');
  const std::string_view whole = text;
  const std::string_view first = whole.substr(0, dash);
  const std::string_view last = dash == std::string::npos ? first : whole.substr(dash + 1);
  std::int64_t from = 0, to = 0;
  const bool reads =
      read_integer(first, from) == NumberFault::none && read_integer(last, to) == NumberFault::none;
  if (!reads || from < 0 || to < from || to > kDegree.most)
    throw Refusal(Exit::usage, "wrong-type", node->where,
                  fmt::format("expected layers, found {}", describe(node)),
                  "first and last layer, as `0-11`");
  return {from, to + 1};
}

// Of one chunk, or a list of them.
void read_chunks(const Yaml& node, Stage& stage) {
  std::vector<Layers> chunks;
  if (node->is_scalar()) chunks.push_back(read_layers(node));
  if (!node->is_scalar())
    for (const Yaml& item : to_sequence(node)) chunks.push_back(read_layers(item));
  if (chunks.empty())
    throw Refusal(Exit::infeasible, "impossible-stages", node->where, "a stage without layers",
                  "give each stage at least one layer");
  stage.first_layer = chunks[0].first;
  stage.last_layer = chunks[0].last;
  stage.more.assign(chunks.begin() + 1, chunks.end());
}

PipelineTemplate read_template(const Yaml& node) {
  const Fields fields(node, "a template",
                      {"replicas", "micro_batches", "micro_batch", "context_parallel", "cp", "stages"});
  PipelineTemplate pipeline;
  if (const Yaml value = fields.find("replicas")) pipeline.replicas = to_integer(value, kDegree);
  pipeline.micro_batches = to_integer(fields.need("micro_batches"), kDegree);
  if (const Yaml value = fields.find("micro_batch")) pipeline.micro_batch = to_integer(value, kDegree);
  pipeline.context_parallel = read_degree(fields, "context_parallel", "cp").value;
  for (const Yaml& item : to_sequence(fields.need("stages"))) {
    const Fields stage(item, "a stage",
                       {"layers", "tensor_parallel", "tp", "expert_parallel", "ep", "expert_tensor_parallel",
                        "etp", "on", "recompute", "recompute_layers", "resharding", "offload", "replicas"});
    Stage read;
    read_chunks(stage.need("layers"), read);
    read.tensor_parallel = read_degree(stage, "tensor_parallel", "tp").value;
    read_expert_degrees(stage, read);
    if (const Yaml value = stage.find("on")) read.on = to_names(value);
    if (const Yaml value = stage.find("recompute")) read.recompute = to_recompute(value);
    if (const Yaml value = stage.find("offload")) read.offload = read_offload(value);
    if (const Yaml value = stage.find("recompute_layers")) read.recompute_layers = to_integer(value, kDegree);
    if (const Yaml value = stage.find("resharding")) read.resharding = to_resharding(value);
    if (const Yaml value = stage.find("replicas")) read.replicas = to_integer(value, kDegree);
    pipeline.stages.push_back(read);
  }
  return pipeline;
}

[[noreturn]] void refuse(const StrategyComplaint& complaint, const Location& where) {
  throw Refusal(Exit::infeasible, complaint.kind, where, complaint.message, complaint.hint);
}

// Chunks of layers as the schedule places them, and what it asks of them.
void lay_out_schedule(const Fields& fields, const Transformer& transformer, Strategy& strategy) {
  const char* const key = fields.find("virtual_stages") ? "virtual_stages" : "schedule";
  try {
    if (strategy.schedule == Schedule::custom) {
      if (const Yaml node = fields.find("virtual_stages"))
        throw Refusal(Exit::infeasible, "impossible-schedule", node->where,
                      "how many virtual stages a rank holds is what the schedule's CSV says",
                      "leave `virtual_stages` out");
      use_schedule(transformer, strategy, Timetable(strategy.timetable));
    } else {
      int chunks = standard_chunks(strategy.schedule);
      if (const Yaml node = fields.find("virtual_stages"))
        chunks = static_cast<int>(to_integer(node, {1, 1024}));
      use_schedule(transformer, strategy, strategy.schedule, chunks);
    }
    for (const PipelineTemplate& pipeline : strategy.templates)
      if (const auto complaint = find_in_schedule(strategy, pipeline)) refuse(*complaint, fields.where(key));
  } catch (const Refusal& refusal) {
    throw located(refusal, fields.where(key));
  }
}

// `layers`: of each stage, as [16, 14]; or Holmes's list by type of device, "2 4 4 3 5 5 5"; or following speeds.
std::vector<std::int64_t> read_layer_counts(const Yaml& node, const Transformer& transformer) {
  std::vector<std::int64_t> counts;
  if (node->is_scalar()) {
    for (const auto& type : parse_hetero_stages(to_text(node)).layers_by_type)
      counts.insert(counts.end(), type.begin(), type.end());
  } else if (node->is_map()) {
    const Fields fields(node, "`layers`", {"speeds", "alpha"});
    std::vector<double> speeds;
    for (const Yaml& item : to_sequence(fields.need("speeds")))
      speeds.push_back(to_number(item, Sign::positive));
    const Yaml alpha = fields.find("alpha");
    counts = layers_by_speed(transformer.layers, speeds, alpha ? to_number(alpha, Sign::positive) : 1.0);
  } else {
    for (const Yaml& item : to_sequence(node)) counts.push_back(to_integer(item, kDegree));
  }
  return counts;
}

void lay_out_layers(const Yaml& node, const Transformer& transformer, std::vector<Stage>& stages) {
  std::vector<std::int64_t> counts;
  try {
    counts = read_layer_counts(node, transformer);
  } catch (const Refusal& refusal) {
    throw located(refusal, node->where);
  }
  const auto refuse_counts = [&](const std::string& why, const std::string& hint) {
    throw Refusal(Exit::infeasible, "impossible-stages", node->where, why, hint);
  };
  for (const Stage& stage : stages)
    if (!stage.more.empty())
      refuse_counts("`layers` is for stages of one chunk, the schedule gives each several",
                    "write the `templates` out: `motley show strategy` prints them");
  if (counts.size() != stages.size())
    refuse_counts(
        fmt::format("`layers` names {} stages, pipeline_parallel is {}", counts.size(), stages.size()),
        "one number for each stage");
  std::int64_t next = 0;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    stages[i].first_layer = next;
    stages[i].last_layer = next += counts[i];
  }
  if (next != transformer.layers)
    refuse_counts(
        fmt::format("`layers` are {} in all, `{}` has {}", next, transformer.name, transformer.layers),
        fmt::format("they must add up to {}", transformer.layers));
}

// `on: [ib, roce]`: the stages are divided over the groups evenly, in order.
void lay_out_groups(const Yaml& node, std::vector<Stage>& stages) {
  const std::vector<std::string> groups = to_names(node);
  if (groups.empty() || stages.size() % groups.size() != 0)
    throw Refusal(
        Exit::infeasible, "uneven-placement", node->where,
        fmt::format("{} stages cannot be divided evenly over {} groups", stages.size(), groups.size()),
        "as many stages on each group, or write the `templates` out");
  for (std::size_t i = 0; i < stages.size(); ++i) stages[i].on = {groups[i * groups.size() / stages.size()]};
}

// `replicas: [2, 4]`: of each stage.
void lay_out_replicas(const Yaml& node, const Transformer& transformer, const Train& train,
                      Strategy& strategy) {
  std::vector<Stage>& stages = strategy.templates[0].stages;
  const auto items = to_sequence(node);
  if (items.size() != stages.size())
    throw Refusal(
        Exit::infeasible, "impossible-replicas", node->where,
        fmt::format("`replicas` names {} stages, pipeline_parallel is {}", items.size(), stages.size()),
        "one number for each stage");
  for (std::size_t i = 0; i < stages.size(); ++i) stages[i].replicas = to_integer(items[i], kDegree);
  if (const auto complaint = find_complaint(transformer, train, strategy)) refuse(*complaint, node->where);
}

// `expert_parallel` and `expert_tensor_parallel`: of every stage.
void lay_out_experts(const Fields& fields, const Transformer& transformer, PipelineTemplate& pipeline) {
  for (Stage& stage : pipeline.stages) {
    read_expert_degrees(fields, stage);
    if (const auto complaint = find_in_expert_parallel(transformer, pipeline, stage)) {
      const YamlEntry* entry = fields.entry("expert_parallel");
      for (const char* key : {"ep", "expert_tensor_parallel", "etp"})
        if (entry == nullptr) entry = fields.entry(key);
      refuse(*complaint, entry->where);
    }
  }
}

Strategy read_short_form(const Yaml& node, const Transformer& transformer, const Train& train) {
  const Fields fields(node, "`strategy`",
                      with_options({"tensor_parallel", "tp", "pipeline_parallel", "pp", "data_parallel", "dp",
                                    "context_parallel", "cp", "expert_parallel", "ep",
                                    "expert_tensor_parallel", "etp", "virtual_stages", "layers", "on",
                                    "recompute_layers", "resharding", "replicas", "templates"}));
  const Degree tp = read_degree(fields, "tensor_parallel", "tp");
  Degree pp = read_degree(fields, "pipeline_parallel", "pp");
  const Degree dp = read_degree(fields, "data_parallel", "dp");
  const Degree cp = read_degree(fields, "context_parallel", "cp");
  Strategy options;
  read_options(fields, options);
  const bool custom = options.schedule == Schedule::custom;
  if (custom && pp.entry == nullptr) pp.value = static_cast<std::int64_t>(options.timetable.ranks.size());
  if (const auto complaint = find_complaint(transformer, train, tp.value, pp.value, dp.value, cp.value)) {
    const Degree& about = complaint->about == "tensor_parallel"     ? tp
                          : complaint->about == "pipeline_parallel" ? pp
                          : complaint->about == "context_parallel"  ? cp
                                                                    : dp;
    refuse(*complaint, about.entry ? about.entry->where : node->where);
  }
  Strategy strategy = expand(transformer, train, tp.value, pp.value, dp.value, cp.value);
  options.templates = std::move(strategy.templates);
  lay_out_schedule(fields, transformer, options);
  lay_out_experts(fields, transformer, options.templates[0]);
  if (const Yaml layers = fields.find("layers"))
    lay_out_layers(layers, transformer, options.templates[0].stages);
  if (const Yaml groups = fields.find("on")) lay_out_groups(groups, options.templates[0].stages);
  if (const Yaml layers = fields.find("recompute_layers"))  // of every chunk
    for (Stage& stage : options.templates[0].stages) stage.recompute_layers = to_integer(layers, kDegree);
  if (const Yaml resharding = fields.find("resharding"))  // at every boundary
    for (std::size_t i = 1; i < options.templates[0].stages.size(); ++i)
      options.templates[0].stages[i].resharding = to_resharding(resharding);
  if (const Yaml replicas = fields.find("replicas")) lay_out_replicas(replicas, transformer, train, options);
  return options;
}

// Where in the file the thing complained about stands.
Location locate(const Yaml& node, const StrategyComplaint& complaint) {
  const YamlEntry* templates = node->find("templates");
  if (complaint.about == "schedule" && node->find("schedule")) return node->find("schedule")->where;
  if (complaint.about == "templates" || templates->value->items.empty()) return templates->where;
  const Yaml& first = templates->value->items[0];
  const YamlEntry* found = first->find(complaint.about);
  if (complaint.about == "tensor_parallel") found = first->find("stages");
  return found ? found->where : first->where;
}

}  // namespace

Strategy read_explicit_strategy(const Yaml& node) {
  const Fields fields(node, "an explicit strategy", with_options({"templates"}));
  Strategy strategy;
  read_options(fields, strategy);
  for (const Yaml& item : to_sequence(fields.need("templates")))
    strategy.templates.push_back(read_template(item));
  return strategy;
}

Strategy read_strategy(const Yaml& node, const Transformer& transformer, const Train& train) {
  if (!node->is_map() || !node->find("templates")) return read_short_form(node, transformer, train);
  Strategy strategy = read_explicit_strategy(node);
  if (const auto complaint = find_complaint(transformer, train, strategy))
    refuse(*complaint, locate(node, *complaint));
  return strategy;
}

static std::string print(const Offload& offload) {
  return fmt::format("{{optimizer: {}, activations: {}}}", format_exact(offload.optimizer),
                     format_exact(offload.activations));
}

static std::string print(const Layers& layers) {
  if (layers.first == layers.last) return fmt::format("before {}", layers.first);
  return fmt::format("{}-{}", layers.first, layers.last - 1);
}

static std::string print(const Stage& stage) {
  std::string layers = print(Layers{stage.first_layer, stage.last_layer});
  for (const Layers& more : stage.more) layers += ", " + print(more);
  if (!stage.more.empty()) layers = fmt::format("[{}]", layers);
  std::string text = fmt::format("      - {{layers: {}, tensor_parallel: {}", layers, stage.tensor_parallel);
  if (stage.expert_parallel > 1) text += fmt::format(", expert_parallel: {}", stage.expert_parallel);
  if (stage.expert_tensor_parallel > 0)
    text += fmt::format(", expert_tensor_parallel: {}", stage.expert_tensor_parallel);
  if (!stage.on.empty()) text += fmt::format(", on: [{}]", fmt::join(stage.on, ", "));
  if (stage.recompute) text += fmt::format(", recompute: {}", name_of(*stage.recompute));
  if (stage.recompute_layers) text += fmt::format(", recompute_layers: {}", *stage.recompute_layers);
  if (stage.resharding)
    text += fmt::format(", resharding: {}", *stage.resharding == Resharding::direct ? "direct" : "gather");
  if (stage.offload) text += ", offload: " + print(*stage.offload);
  if (stage.replicas > 0) text += fmt::format(", replicas: {}", stage.replicas);
  return text + "}\n";
}

static std::string print_schedule(const Strategy& strategy) {
  if (strategy.schedule != Schedule::custom) return std::string(name_of(strategy.schedule));
  std::string text = "\n  rows:";
  for (const auto& actions : strategy.timetable.ranks) {
    std::string row = to_csv({{actions}});
    row.pop_back();  // the end of the line
    text += fmt::format("\n    - \"{}\"", row);
  }
  return text;
}

static std::string print_sharding(const Strategy& strategy) {
  const Strategy standard;
  std::string text;
  if (strategy.sequence_parallel) text += "sequence_parallel: true\n";
  if (strategy.zero != standard.zero) text += fmt::format("zero: {}\n", strategy.zero);
  if (strategy.shard_over != standard.shard_over)
    text += fmt::format("shard_over: {}\n", strategy.shard_over);
  if (strategy.prefetch != standard.prefetch) text += fmt::format("prefetch: {}\n", strategy.prefetch);
  if (strategy.offload != standard.offload) text += fmt::format("offload: {}\n", print(strategy.offload));
  return text;
}

std::string print(const Strategy& strategy) {
  std::string text = fmt::format(
      "schedule: {}\nrecompute: {}\np2p_buffers: {}\n"
      "overlap: {{p2p: {}, gradients: {}, {}{}bucket_bytes: {} B}}\n{}templates:{}\n",
      print_schedule(strategy), name_of(strategy.recompute), strategy.p2p_buffers, strategy.overlap_p2p,
      strategy.overlap_gradients, strategy.overlap_parameters ? "parameters: true, " : "",
      strategy.overlap_experts ? "experts: true, " : "", strategy.bucket_bytes, print_sharding(strategy),
      strategy.templates.empty() ? " []" : "");
  for (const PipelineTemplate& pipeline : strategy.templates) {
    text +=
        fmt::format("  - replicas: {}\n    micro_batches: {}\n", pipeline.replicas, pipeline.micro_batches);
    if (pipeline.micro_batch > 0) text += fmt::format("    micro_batch: {}\n", pipeline.micro_batch);
    if (pipeline.context_parallel > 1)
      text += fmt::format("    context_parallel: {}\n", pipeline.context_parallel);
    text += pipeline.stages.empty() ? "    stages: []\n" : "    stages:\n";
    for (const Stage& stage : pipeline.stages) text += print(stage);
  }
  return text;
}

Strategy parse_strategy(const std::string& text) {
  return read_explicit_strategy(parse_yaml(text, "strategy"));
}

}  // namespace motley
