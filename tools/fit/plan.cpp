#include "tools/fit/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "models/base/data_files.hpp"
#include "models/scenario/scenario.hpp"

namespace motley::fit {
namespace {

FigurePlan read_figure(const YamlEntry& entry) {
  const Fields fields(entry.value, "a figure", {"prior", "spread", "attention", "messages"});
  FigurePlan figure;
  figure.kind = entry.key;
  figure.spread = to_number(fields.need("spread"), Sign::positive);
  const Yaml prior = fields.need("prior");
  const std::string text = to_text(prior);
  if (text == "chip" || text == "software") {
    figure.prior_owner = text == "chip" ? PriorOf::chip : PriorOf::software;
  } else {
    figure.seconds = text.find(' ') != std::string::npos;
    figure.prior = figure.seconds ? to_quantity(prior, Dimension::seconds, Sign::positive)
                                  : to_number(prior, Sign::positive);
  }
  if (const Yaml attention = fields.find("attention"))
    figure.fused = to_choice(attention, {"fused", "unfused"}) == "fused";
  if (const Yaml messages = fields.find("messages"))
    figure.drains = to_choice(messages, {"drain", "overlap"}) == "drain";
  return figure;
}

// Refuses priors that do not exist: only gemm_efficiency and attention_efficiency are a chip's own and known for every
// chip, and only collective_share is said of software.
void refuse_priors(const FigurePlan& figure, const Location& where) {
  const std::vector<std::string> of_chip = {"gemm_efficiency", "attention_efficiency"};
  if (figure.prior_owner == PriorOf::chip &&
      std::find(of_chip.begin(), of_chip.end(), figure.kind) == of_chip.end())
    throw Refusal(Exit::usage, "unknown-value", where,
                  fmt::format("no chip has a `{}` of its own", figure.kind), suggest(figure.kind, of_chip));
  if (figure.prior_owner == PriorOf::software && figure.kind != "collective_share")
    throw Refusal(Exit::usage, "unknown-value", where, fmt::format("software says no `{}`", figure.kind),
                  suggest(figure.kind, {"collective_share"}));
}

std::vector<HeldFigure> read_held(const Yaml& node) {
  std::vector<HeldFigure> held;
  for (const YamlEntry& entry : node->entries) {
    const Fields fields(entry.value, "a figure", {"value", "source"});
    held.push_back(
        {entry.key, to_number(fields.need("value"), Sign::positive), to_text(fields.need("source"))});
  }
  return held;
}

std::map<std::string, std::optional<double>> read_attention(const Yaml& node) {
  std::map<std::string, std::optional<double>> attention;
  for (const YamlEntry& entry : node->entries)
    attention[entry.key] = entry.value->is_scalar() && entry.value->text == "unfused"
                               ? std::nullopt
                               : std::optional(to_number(entry.value, Sign::positive));
  return attention;
}

SoftwarePlan read_software(const YamlEntry& entry,
                           const std::map<std::string, std::optional<double>>& attention) {
  const Fields fields(entry.value, "software", {"sets", "attention", "collective_share", "messages", "held"});
  SoftwarePlan software;
  software.name = entry.key;
  for (const Yaml& set : to_sequence(fields.need("sets"))) software.sets.push_back(to_text(set));
  std::vector<std::string> known;
  for (const auto& [name, share] : attention) known.push_back(name);
  software.attention = attention.at(to_choice(fields.need("attention"), known));
  software.collective_share = to_number(fields.need("collective_share"), Sign::positive);
  if (const Yaml messages = fields.find("messages"))
    software.drains = to_choice(messages, {"drain", "overlap"}) == "drain";
  if (const Yaml held = fields.find("held")) software.held = read_held(held);
  return software;
}

void refuse_sets_twice(const Plan& plan, const Yaml& software) {
  std::set<std::string> seen;
  for (const std::string& set : plan.sets())
    if (!seen.insert(set).second)
      throw Refusal(Exit::usage, "listed-twice", software->where,
                    fmt::format("the set `{}` tells of two generations of software", set));
}

// What software may hold although the plan does not: the figure is 0 elsewhere.
constexpr const char* kLaunchWait = "launch_wait";

// Refuses other figures that software holds and the plan does not.
void refuse_held(const Plan& plan, const YamlEntry& software) {
  std::vector<std::string> known{kLaunchWait};
  for (const HeldFigure& held : plan.held) known.push_back(held.kind);
  for (const HeldFigure& held : plan.software.back().held)
    if (std::find(known.begin(), known.end(), held.kind) == known.end())
      throw Refusal(Exit::usage, "unknown-value", software.where,
                    fmt::format("`{}` is not held by the plan", held.kind), suggest(held.kind, known));
}

}  // namespace

const FigurePlan& Plan::figure(const std::string& kind) const {
  const auto position =
      std::find_if(figures.begin(), figures.end(), [&](const FigurePlan& each) { return each.kind == kind; });
  MOTLEY_CHECK(position != figures.end());
  return *position;
}

const SoftwarePlan& Plan::software_named(const std::string& name) const {
  std::vector<std::string> known;
  for (const SoftwarePlan& each : software) {
    if (each.name == name) return each;
    known.push_back(each.name);
  }
  throw Refusal(Exit::usage, "unknown-value", {}, fmt::format("no software `{}` is fitted", name),
                suggest(name, known));
}

std::vector<HeldFigure> Plan::held_of(const std::string& name) const {
  std::vector<HeldFigure> figures_held = held;
  for (const HeldFigure& own : software_named(name).held) {
    const auto same = std::find_if(figures_held.begin(), figures_held.end(),
                                   [&](const HeldFigure& each) { return each.kind == own.kind; });
    if (same == figures_held.end())
      figures_held.push_back(own);
    else
      *same = own;
  }
  return figures_held;
}

bool Plan::launches_wait(const std::string& name) const {
  const std::vector<HeldFigure> figures_held = held_of(name);
  return std::any_of(figures_held.begin(), figures_held.end(),
                     [](const HeldFigure& each) { return each.kind == kLaunchWait && each.value > 0; });
}

double Plan::same_products(const std::string& name) const {
  const auto whole = [](const std::vector<HeldFigure>& figures_held) {
    for (const HeldFigure& each : figures_held)
      if (each.kind == "gemm_backward") return 1 + 2 * each.value;
    return 1.0;
  };
  return whole(held_of(name)) / whole(held);
}

const SoftwarePlan* Plan::of_set(const std::string& set) const {
  for (const SoftwarePlan& each : software)
    if (std::find(each.sets.begin(), each.sets.end(), set) != each.sets.end()) return &each;
  return nullptr;
}

std::vector<std::string> Plan::sets() const {
  std::vector<std::string> all_sets;
  for (const SoftwarePlan& each : software)
    all_sets.insert(all_sets.end(), each.sets.begin(), each.sets.end());
  return all_sets;
}

Plan read_plan(const Yaml& node) {
  const Fields file(node, "a fit",
                    {"error", "rows_of_a_set", "step", "folds", "alike", "figures", "held", "attention",
                     "software", "left_out_by"});
  Plan plan;
  plan.error = to_number(file.need("error"), Sign::positive);
  plan.rows_of_a_set = to_number(file.need("rows_of_a_set"), Sign::positive);
  plan.step = to_number(file.need("step"), Sign::positive);
  plan.folds = static_cast<int>(to_integer(file.need("folds"), {2, 100}));
  const Fields alike(file.need("alike"), "what is alike", {"all", "software", "chip"});
  plan.alike_all = to_number(alike.need("all"), Sign::not_negative);
  plan.alike_software = to_number(alike.need("software"), Sign::not_negative);
  plan.alike_chip = to_number(alike.need("chip"), Sign::not_negative);
  if (plan.alike_all + plan.alike_software + plan.alike_chip >= 1)
    throw Refusal(Exit::usage, "out-of-bounds", file.where("alike"),
                  "the shares of `alike` leave no variance to a single figure",
                  "what is alike must sum up to less than 1");
  for (const YamlEntry& entry : file.need("figures")->entries) {
    plan.figures.push_back(read_figure(entry));
    refuse_priors(plan.figures.back(), entry.where);
  }
  plan.held = read_held(file.need("held"));
  const auto attention = read_attention(file.need("attention"));
  const Yaml software = file.need("software");
  for (const YamlEntry& entry : software->entries) {
    plan.software.push_back(read_software(entry, attention));
    refuse_held(plan, entry);
  }
  std::sort(plan.software.begin(), plan.software.end(),
            [](const SoftwarePlan& a, const SoftwarePlan& b) { return a.name < b.name; });
  refuse_sets_twice(plan, software);
  if (const Yaml by = file.find("left_out_by"))
    for (const YamlEntry& entry : by->entries)
      for (const Yaml& column : to_sequence(entry.value))
        plan.left_out_by[entry.key].push_back(to_text(column));
  return plan;
}

Plan shipped_plan() { return read_plan(read_yaml(data_folder() + "/platforms/published/fit.yaml")); }

}  // namespace motley::fit
