#include "models/scenario/plan_request_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

using Degrees = std::vector<std::pair<std::string, std::int64_t>>;

std::vector<std::string> names_of_groups(const Cluster& cluster) {
  std::vector<std::string> names;
  for (const NodeGroup& group : cluster.groups) names.push_back(group.name);
  return names;
}

bool is_in(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The groups on which the plan may have stages.
std::vector<NodeGroup> asked_groups(const PlanRequest& request, const Cluster& cluster) {
  std::vector<NodeGroup> groups = cluster.groups;
  if (!request.pins.groups.empty())
    std::erase_if(groups, [&](const NodeGroup& group) { return !is_in(request.pins.groups, group.name); });
  return groups;
}

// The chips of the groups for which `lacks` holds, in backticks; empty: none does.
template <class Lacks>
std::string chips_that(const std::vector<NodeGroup>& groups, const Lacks& lacks) {
  std::vector<std::string> names;
  for (const NodeGroup& group : groups)
    if (lacks(group) && !is_in(names, group.chip.name)) names.push_back(group.chip.name);
  return names.empty() ? "" : fmt::format("`{}`", fmt::join(names, "`, `"));
}

void check_prices(const PlanRequest& request, const PlanPlaces& places, const Job& job) {
  const std::vector<NodeGroup> groups = asked_groups(request, job.cluster);
  const bool has_budget = request.budget_usd > 0;
  const std::string unpriced =
      chips_that(groups, [](const NodeGroup& group) { return group.chip.price_per_hour.value <= 0; });
  if ((request.objective == PlanObjective::price || has_budget) && !unpriced.empty())
    throw Refusal(
        Exit::usage, "unpriced", places.place_of(has_budget ? "budget" : "objective"),
        fmt::format("a plan by price needs the price of {}", unpriced),
        "give it in the chip's file as `price: {value: 2.10 USD/h, source: ...}`, or pin the plan to "
        "other groups (`pins: {groups: [...]}`)");
  if (request.objective != PlanObjective::energy && request.objective != PlanObjective::carbon) return;
  const std::string unpowered =
      chips_that(groups, [](const NodeGroup& group) { return group.chip.watts.value <= 0; });
  if (!unpowered.empty())
    throw Refusal(Exit::usage, "unpowered", places.place_of("objective"),
                  fmt::format("a plan by {} needs the power of {}", name_of(request.objective), unpowered),
                  "give it in the chip's file as `power: {value: 400 W, source: ...}`");
  if (request.objective != PlanObjective::carbon) return;
  const std::optional<Site>& site = job.cluster.site;
  for (const NodeGroup& group : groups) {
    const std::optional<Site>& own = group.site ? group.site : site;
    if (!own || !own->carbon)
      throw Refusal(
          Exit::usage, "no-carbon", places.place_of("objective"),
          fmt::format("a plan by carbon needs the carbon of the electricity of group `{}`", group.name),
          "give it in the scenario or the cluster as `site: {carbon: 380 g/kWh}`");
  }
}

void check_targets(const PlanRequest& request, const PlanPlaces& places, const Job& job) {
  const char* const target = request.deadline_s > 0 ? "deadline" : "budget";
  if ((request.deadline_s > 0 || request.budget_usd > 0) && request.tokens <= 0 && job.train.tokens <= 0)
    throw Refusal(Exit::usage, "missing-key", places.place_of(target),
                  fmt::format("a {} needs the tokens of the whole run", target),
                  "as `plan: {tokens: 2T}`, `train: {tokens: 2T}` or `--tokens 2T`");
}

void check_names(const PlanPins& pins, const PlanPlaces& places, const Job& job) {
  const std::vector<std::string> known = names_of_groups(job.cluster);
  const auto check = [&](const std::string& name, const char* key) {
    if (!is_in(known, name))
      throw Refusal(Exit::usage, "unknown-group", places.place_of(key),
                    fmt::format("cluster `{}` has no group `{}`", job.cluster.name, name),
                    suggest(name, known));
  };
  for (const std::string& name : pins.groups) check(name, "pins.groups");
  for (const auto& [name, degree] : pins.tensor_parallel)
    if (!name.empty()) check(name, "pins.tensor_parallel");
  for (const std::vector<std::string>& pair : pins.forbidden_links) {
    if (pair.size() != 2 || pair[0] == pair[1])
      throw Refusal(Exit::usage, "bad-pin", places.place_of("pins.forbidden_links"),
                    fmt::format("a forbidden link joins two groups, not [{}]", fmt::join(pair, ", ")),
                    "as `forbidden_links: [[a, c]]`");
    for (const std::string& name : pair) check(name, "pins.forbidden_links");
  }
}

[[noreturn]] void contradict(const PlanPlaces& places, const char* key, const std::string& message,
                             const std::string& hint, RefusalSite site = RefusalSite::here()) {
  throw Refusal(Exit::usage, "contradicting-pins", places.place_of(key), message, hint, site);
}

// Groups that the pins want together and that no row of them, each joined to the next, connects.
void check_links(const PlanPins& pins, const PlanPlaces& places, const Job& job) {
  if (pins.groups.size() < 2) return;
  std::vector<int> wanted;
  for (std::size_t group = 0; group < job.cluster.groups.size(); ++group)
    if (is_in(pins.groups, job.cluster.groups[group].name)) wanted.push_back(static_cast<int>(group));
  const auto name = [&](int group) { return job.cluster.groups[at(group)].name; };
  const auto is_forbidden = [&](int a, int b) {
    return std::any_of(pins.forbidden_links.begin(), pins.forbidden_links.end(), [&](const auto& pair) {
      return (pair[0] == name(a) && pair[1] == name(b)) || (pair[0] == name(b) && pair[1] == name(a));
    });
  };
  std::vector<int> reached = {wanted[0]};
  bool forbidden_matters = false;
  for (std::size_t i = 0; i < reached.size(); ++i)
    for (const int other : wanted) {
      if (std::find(reached.begin(), reached.end(), other) != reached.end()) continue;
      if (!joining_kind(job.cluster, reached[i], other)) continue;
      if (is_forbidden(reached[i], other))
        forbidden_matters = true;
      else
        reached.push_back(other);
    }
  for (const int group : wanted) {
    if (std::find(reached.begin(), reached.end(), group) != reached.end()) continue;
    if (forbidden_matters)
      contradict(places, "pins.forbidden_links",
                 fmt::format("the plan shall stand on `{}` and `{}`, and no byte may go between them",
                             name(wanted[0]), name(group)),
                 "leave out a group of `groups`, or allow a link");
    const std::vector<NodeGroup>& groups = job.cluster.groups;
    const NicKind kind =
        fastest_shared_kind(groups[at(wanted[0])], groups[at(group)]).value_or(NicKind::ethernet);
    throw Refusal(Exit::infeasible, "unreachable", places.place_of("pins.groups"),
                  fmt::format("no link joins groups `{}` and `{}`", name(wanted[0]), name(group)),
                  fmt::format("pin one of them, or join them: `links: [{{between: [{}, {}], over: {}}}]`",
                              name(wanted[0]), name(group), name_of(kind)));
  }
}

void check_degrees(const PlanPins& pins, const PlanPlaces& places, const Job& job) {
  const std::int64_t stages = pins.pipeline_parallel;
  if (stages > 0 && pins.most_stages > 0 && stages > pins.most_stages)
    contradict(places, "pins.pipeline_parallel",
               fmt::format("a pipeline shall have {} stages, and {} at most", stages, pins.most_stages),
               "keep one of `pp` and `most_stages`");
  const std::int64_t most = stages > 0 ? stages : pins.most_stages;
  if (most > 0 && most < static_cast<std::int64_t>(pins.groups.size()))
    contradict(
        places, "pins.groups",
        fmt::format("{} groups shall hold stages, and a pipeline has {} at most", pins.groups.size(), most),
        "each group holds at least one stage: pin fewer groups, or allow more stages");
  for (const auto& [name, degree] : pins.tensor_parallel) {
    if (!name.empty() && !pins.groups.empty() && !is_in(pins.groups, name))
      contradict(places, "pins.tensor_parallel",
                 fmt::format("group `{}` has a degree, and the plan shall not stand on it", name),
                 "add it to `groups`, or leave its degree out");
    for (const NodeGroup& group : job.cluster.groups)
      if ((name.empty() ? pins.groups.empty() || is_in(pins.groups, group.name) : group.name == name) &&
          (degree > group.chips_per_node || group.chips_per_node % degree != 0))
        throw Refusal(Exit::infeasible, "impossible-pin", places.place_of("pins.tensor_parallel"),
                      fmt::format("tensor_parallel {} does not divide the {} chips of a node of `{}`", degree,
                                  group.chips_per_node, group.name),
                      "a plan cuts matrices inside a node: pin a divisor of its chips");
  }
}

// How many sequences or layers the pins are short of.
void check_job(const PlanPins& pins, const PlanPlaces& places, const Job& job) {
  const std::int64_t batch = job.train.global_batch;
  const std::int64_t together =
      std::max<std::int64_t>(pins.data_parallel, 1) * std::max<std::int64_t>(pins.micro_batch, 1);
  if (batch % together != 0) {
    const char* const key = pins.data_parallel > 0 ? "pins.data_parallel" : "pins.micro_batch";
    const std::int64_t missing = together - batch % together;
    throw Refusal(
        Exit::infeasible, "indivisible-batch", places.place_of(key),
        fmt::format("nothing divides a global batch of {} into micro-batches of {} on {} replicas: of the {} "
                    "sequences that could be divided it is {} short",
                    batch, std::max<std::int64_t>(pins.micro_batch, 1),
                    std::max<std::int64_t>(pins.data_parallel, 1), batch + missing, missing),
        fmt::format("`global_batch: {}`{} can be divided", batch + missing,
                    batch > together ? fmt::format(" or `global_batch: {}`", batch - batch % together) : ""));
  }
  if (pins.pipeline_parallel > job.transformer.layers)
    throw Refusal(Exit::infeasible, "too-few-layers", places.place_of("pins.pipeline_parallel"),
                  fmt::format("{} stages need a layer each, `{}` has {} layers: {} short",
                              pins.pipeline_parallel, job.transformer.name, job.transformer.layers,
                              pins.pipeline_parallel - job.transformer.layers),
                  fmt::format("pin `pp: {}` or less", job.transformer.layers));
}

}  // namespace

PlanPlaces places_of(const Yaml& plan, const Location& whole) {
  PlanPlaces places{whole, {}};
  if (!plan || !plan->is_map()) return places;
  const std::map<std::string, std::string> long_names = {
      {"tp", "tensor_parallel"}, {"pp", "pipeline_parallel"}, {"dp", "data_parallel"}};
  for (const YamlEntry& entry : plan->entries) {
    places.keys[entry.key] = entry.value->kind == YamlNode::Kind::null ? entry.where : entry.value->where;
    if (entry.key != "pins" || !entry.value->is_map()) continue;
    for (const YamlEntry& pin : entry.value->entries) {
      const auto name = long_names.find(pin.key);
      places.keys["pins." + (name == long_names.end() ? pin.key : name->second)] = pin.value->where;
    }
  }
  return places;
}

void check_request(const PlanRequest& request, const PlanPlaces& places, const Job& job) {
  check_names(request.pins, places, job);
  check_degrees(request.pins, places, job);
  check_links(request.pins, places, job);
  check_job(request.pins, places, job);
  check_prices(request, places, job);
  check_targets(request, places, job);
}

}  // namespace motley
