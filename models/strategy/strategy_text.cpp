// A Strategy as YAML: the explicit form, which print() writes, and the short form, which people write.
#include <fmt/format.h>

#include <array>

#include "models/base/data_files.hpp"
#include "models/base/refusal.hpp"
#include "models/base/text_file.hpp"
#include "models/strategy/partition.hpp"
#include "models/strategy/strategy.hpp"
#include "models/strategy/strategy_complaint.hpp"
#include "models/strategy/strategy_fields.hpp"

namespace motley {
namespace {

static_assert(lists_every_member<StrategyFields>() && lists_every_member<PipelineTemplateFields>() &&
              lists_every_member<StageFields>() && lists_every_member<OffloadFields>());

// A degree of the short form, with its long or its short name.
struct Degree {
  const YamlEntry* entry = nullptr;
  std::int64_t value = 1;
};

Degree read_degree(const Fields& fields, std::string_view name, std::string_view short_name) {
  Degree degree;
  degree.entry = find_entry(fields, name, short_name);
  if (degree.entry != nullptr) degree.value = to_integer(degree.entry->value, kDegree);
  return degree;
}

// Reads `tensor_parallel: 2`, or a degree for each stage, [1, 2]. The first one is the value.
std::vector<std::int64_t> read_cuts(const Fields& fields, Degree& degree) {
  degree.entry = find_entry(fields, "tensor_parallel", "tp");
  std::vector<std::int64_t> cuts;
  if (degree.entry != nullptr && degree.entry->value->kind == YamlNode::Kind::sequence)
    for (const Yaml& item : to_sequence(degree.entry->value)) cuts.push_back(to_integer(item, kDegree));
  if (cuts.empty())
    degree = read_degree(fields, "tensor_parallel", "tp");
  else
    degree.value = cuts.front();
  return cuts;
}

void lay_out_cuts(const std::vector<std::int64_t>& cuts, const Location& where, std::vector<Stage>& stages) {
  if (cuts.size() != stages.size())
    throw Refusal(
        Exit::infeasible, "impossible-degree", where,
        fmt::format("`tensor_parallel` names {} stages, pipeline_parallel is {}", cuts.size(), stages.size()),
        "one number for each stage, or one for all");
  for (std::size_t i = 0; i < cuts.size(); ++i) stages[i].tensor_parallel = cuts[i];
}

// Reads "0-11", "5" or "before 0".
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

[[noreturn]] void refuse(const StrategyComplaint& complaint, const Location& where) {
  throw Refusal(Exit::infeasible, complaint.kind, where, complaint.message, complaint.hint, complaint.site);
}

// Lays out chunks of layers as the schedule places them, and checks the schedule's conditions.
void lay_out_schedule(const Fields& fields, const Transformer& transformer, Strategy& strategy) {
  const char* const key = fields.find("virtual_stages") ? "virtual_stages" : "schedule";
  try {
    if (strategy.schedule == Schedule::custom) {
      if (const Yaml node = fields.find("virtual_stages"))
        throw Refusal(Exit::infeasible, "impossible-schedule", node->where,
                      "how many virtual stages a rank holds is what the schedule's CSV says",
                      "leave `virtual_stages` out");
      if (const YamlEntry* const entry = fields.entry("end_layers"))
        throw Refusal(Exit::infeasible, "impossible-schedule", entry->where,
                      "`end_layers` has no meaning for a custom schedule", "leave `end_layers` out");
      use_schedule(transformer, strategy, Timetable(strategy.timetable));
    } else {
      int chunks = standard_chunks(strategy.schedule);
      if (const Yaml node = fields.find("virtual_stages"))
        chunks = static_cast<int>(to_integer(node, {1, 1024}));
      const Yaml ends = fields.find("end_layers");
      use_schedule(transformer, strategy, strategy.schedule, chunks,
                   ends ? to_choice<EndLayers>(ends) : EndLayers::besides);
    }
    for (const PipelineTemplate& pipeline : strategy.templates)
      if (const auto complaint = find_in_schedule(strategy, pipeline)) refuse(*complaint, fields.where(key));
  } catch (const Refusal& refusal) {
    throw located(refusal, fields.where(key));
  }
}

// Reads `layers`: a list by stage, [16, 14]; or Holmes's list by type of device, "2 4 4 3 5 5 5"; or a map with
// speeds.
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
  const auto refuse_counts = [&](const std::string& why, const std::string& hint,
                                 RefusalSite site = RefusalSite::here()) {
    throw Refusal(Exit::infeasible, "impossible-stages", node->where, why, hint, site);
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

// Reads `on: [ib, roce]`: the stages are divided over the groups evenly, in order.
void lay_out_groups(const Yaml& node, std::vector<Stage>& stages) {
  std::vector<std::string> groups;
  GroupNames{}.read(node, groups);
  if (groups.empty() || stages.size() % groups.size() != 0)
    throw Refusal(
        Exit::infeasible, "uneven-placement", node->where,
        fmt::format("{} stages cannot be divided evenly over {} groups", stages.size(), groups.size()),
        "as many stages on each group, or write the `templates` out");
  for (std::size_t i = 0; i < stages.size(); ++i) stages[i].on = {groups[i * groups.size() / stages.size()]};
}

// Reads `replicas: [2, 4]`: a number for each stage.
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

// Reads `expert_parallel` and `expert_tensor_parallel`, which are for every stage.
void lay_out_experts(const Fields& fields, const Transformer& transformer, PipelineTemplate& pipeline) {
  for (Stage& stage : pipeline.stages) {
    StageFields{}.each_of_experts([&](const auto& degree) {
      if (const YamlEntry* const entry = find_entry(fields, degree.key, degree.short_key))
        degree.read(entry->value, stage);
    });
    if (const auto complaint = find_in_expert_parallel(transformer, pipeline, stage)) {
      const YamlEntry* entry = fields.entry("expert_parallel");
      for (const char* key : {"ep", "expert_tensor_parallel", "etp"})
        if (entry == nullptr) entry = fields.entry(key);
      refuse(*complaint, entry->where);
    }
  }
}

// Keys of the short form, beside the options.
constexpr std::array kShortFormKeys = {"tensor_parallel",
                                       "tp",
                                       "pipeline_parallel",
                                       "pp",
                                       "data_parallel",
                                       "dp",
                                       "context_parallel",
                                       "cp",
                                       "expert_parallel",
                                       "ep",
                                       "expert_tensor_parallel",
                                       "etp",
                                       "virtual_stages",
                                       "end_layers",
                                       "layers",
                                       "on",
                                       "recompute_layers",
                                       "resharding",
                                       "replicas",
                                       "templates"};

Strategy read_short_form(const Yaml& node, const Transformer& transformer, const Train& train) {
  const StrategyOptionFields option_list;
  std::vector<std::string> keys(kShortFormKeys.begin(), kShortFormKeys.end());
  for (std::string& key : keys_of(option_list)) keys.push_back(std::move(key));
  const Fields fields(node, "`strategy`", keys);
  Degree tp;
  const std::vector<std::int64_t> cuts = read_cuts(fields, tp);
  Degree pp = read_degree(fields, "pipeline_parallel", "pp");
  const Degree dp = read_degree(fields, "data_parallel", "dp");
  const Degree cp = read_degree(fields, "context_parallel", "cp");
  Strategy options;
  read_fields(option_list, fields, options);
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
  if (!cuts.empty()) lay_out_cuts(cuts, tp.entry->where, options.templates[0].stages);
  lay_out_experts(fields, transformer, options.templates[0]);
  if (const Yaml layers = fields.find("layers"))
    lay_out_layers(layers, transformer, options.templates[0].stages);
  if (const Yaml groups = fields.find("on")) lay_out_groups(groups, options.templates[0].stages);
  if (const Yaml layers = fields.find("recompute_layers"))  // the number is for every chunk
    for (Stage& stage : options.templates[0].stages) stage.recompute_layers = to_integer(layers, kDegree);
  if (const Yaml resharding = fields.find("resharding"))  // the choice is for every boundary
    use_resharding(options.templates[0], to_choice<Resharding>(resharding));
  if (const Yaml replicas = fields.find("replicas")) lay_out_replicas(replicas, transformer, train, options);
  if (!cuts.empty())
    if (const auto complaint = find_complaint(transformer, train, options))
      refuse(*complaint, tp.entry->where);
  return options;
}

// Location of the key that the complaint names.
Location locate(const Yaml& node, const StrategyComplaint& complaint) {
  const YamlEntry* templates = node->find("templates");
  if (complaint.about == "schedule" && node->find("schedule")) return node->find("schedule")->where;
  if (complaint.about == "templates" || templates->value->items.empty()) return templates->where;
  const Yaml& first = templates->value->items[0];
  const YamlEntry* key = first->find(complaint.about == "tensor_parallel" ? "stages" : complaint.about);
  return key != nullptr ? key->where : first->where;
}

}  // namespace

std::string print(const Layers& layers) {
  if (layers.first == layers.last) return fmt::format("before {}", layers.first);
  return fmt::format("{}-{}", layers.first, layers.last - 1);
}

double to_share_in_host(const Yaml& node) {
  const double share = to_number(node, Sign::not_negative);
  if (share > 1)
    throw Refusal(Exit::infeasible, "impossible-offload", node->where,
                  fmt::format("`offload` shares must be between 0 and 1, not `{}`", node->text),
                  "0 moves nothing, 1 moves everything");
  return share;
}

std::string ScheduleOrder::text(const Strategy& strategy) const {
  if (strategy.schedule != Schedule::custom) return std::string(name_of(strategy.schedule));
  std::string text = "\n  rows:";
  for (const auto& actions : strategy.timetable.ranks) {
    std::string row = to_csv({{actions}});
    row.pop_back();  // removes the end of the line
    text += fmt::format("\n    - \"{}\"", row);
  }
  return text;
}

void ScheduleOrder::read(const Yaml& node, Strategy& strategy) const {
  if (node->is_scalar()) {
    strategy.schedule = schedule_named(to_choice(node, schedule_names()));
    return;
  }
  const Fields fields(node, "`schedule`", {"csv", "rows"});
  strategy.schedule = Schedule::custom;
  if (const Yaml rows = fields.find("rows")) {
    for (const Yaml& row : to_sequence(rows)) {
      const Timetable timetable = parse_csv(to_text(row), row->where.file);
      strategy.timetable.ranks.insert(strategy.timetable.ranks.end(), timetable.ranks.begin(),
                                      timetable.ranks.end());
    }
    return;
  }
  const Yaml csv = fields.need("csv");
  const std::string path =
      find_file(to_text(csv), folder_of(csv->where.file), "scenarios/schedules", ".csv", csv->where);
  strategy.timetable = parse_csv(read_text_file(path, csv->where), path);
}

std::string Chunks::text(const Stage& stage) const {
  std::string text = print(Layers{stage.first_layer, stage.last_layer});
  for (const Layers& layers : stage.more) text += ", " + print(layers);
  return stage.more.empty() ? text : fmt::format("[{}]", text);
}

void Chunks::read(const Yaml& node, Stage& stage) const {
  std::vector<Layers> chunks;
  if (node->is_scalar())
    chunks.push_back(read_layers(node));
  else
    for (const Yaml& item : to_sequence(node)) chunks.push_back(read_layers(item));
  if (chunks.empty())
    throw Refusal(Exit::infeasible, "impossible-stages", node->where, "a stage without layers",
                  "give each stage at least one layer");
  stage.first_layer = chunks[0].first;
  stage.last_layer = chunks[0].last;
  stage.more.assign(chunks.begin() + 1, chunks.end());
}

std::string GroupNames::text(const std::vector<std::string>& names) const {
  return fmt::format("[{}]", fmt::join(names, ", "));
}

void GroupNames::read(const Yaml& node, std::vector<std::string>& names) const {
  names.clear();
  if (node->is_scalar())
    names.push_back(to_text(node));
  else
    for (const Yaml& item : to_sequence(node)) names.push_back(to_text(item));
}

Strategy read_explicit_strategy(const Yaml& node) {
  Strategy strategy;
  read_map(StrategyFields{}, node, "an explicit strategy", strategy);
  return strategy;
}

Strategy read_strategy(const Yaml& node, const Transformer& transformer, const Train& train) {
  if (!node->is_map() || !node->find("templates")) return read_short_form(node, transformer, train);
  Strategy strategy = read_explicit_strategy(node);
  if (const auto complaint = find_complaint(transformer, train, strategy))
    refuse(*complaint, locate(node, *complaint));
  return strategy;
}

std::string print(const Strategy& strategy) { return print_lines(StrategyFields{}, strategy); }

Strategy parse_strategy(const std::string& text) {
  return read_explicit_strategy(parse_yaml(text, "strategy"));
}

}  // namespace motley
