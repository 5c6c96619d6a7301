#include "tools/fit/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "models/scenario.hpp"

namespace motley::fit {
namespace {

FigurePlan read_figure(const YamlEntry& entry) {
  const Fields of(entry.value, "a figure", {"prior", "spread", "attention"});
  FigurePlan made;
  made.kind = entry.key;
  made.spread = to_number(of.need("spread"), Sign::positive);
  const Yaml prior = of.need("prior");
  const std::string text = to_text(prior);
  if (text == "chip" || text == "software") {
    made.of = text == "chip" ? PriorOf::chip : PriorOf::software;
  } else {
    made.seconds = text.find(' ') != std::string::npos;
    made.prior = made.seconds ? to_quantity(prior, Dimension::seconds, Sign::positive)
                              : to_number(prior, Sign::positive);
  }
  if (const Yaml attention = of.find("attention"))
    made.fused = to_choice(attention, {"fused", "unfused"}) == "fused";
  return made;
}

// By the prior's name, as attention_efficiency and gemm_efficiency alone are a chip's own and known of every one.
void refuse_priors(const FigurePlan& figure, const Location& where) {
  const std::vector<std::string> of_chip = {"gemm_efficiency", "attention_efficiency"};
  if (figure.of == PriorOf::chip && std::find(of_chip.begin(), of_chip.end(), figure.kind) == of_chip.end())
    throw Refusal(Exit::usage, "unknown-value", where,
                  fmt::format("no chip has a `{}` of its own", figure.kind), suggest(figure.kind, of_chip));
  if (figure.of == PriorOf::software && figure.kind != "collective_share")
    throw Refusal(Exit::usage, "unknown-value", where, fmt::format("software says no `{}`", figure.kind),
                  suggest(figure.kind, {"collective_share"}));
}

std::map<std::string, std::optional<double>> read_attention(const Yaml& node) {
  std::map<std::string, std::optional<double>> made;
  for (const YamlEntry& entry : node->entries)
    made[entry.key] = entry.value->is_scalar() && entry.value->text == "unfused"
                          ? std::nullopt
                          : std::optional(to_number(entry.value, Sign::positive));
  return made;
}

SoftwarePlan read_software(const YamlEntry& entry,
                           const std::map<std::string, std::optional<double>>& attention) {
  const Fields of(entry.value, "software", {"sets", "attention", "collective_share"});
  SoftwarePlan made;
  made.name = entry.key;
  for (const Yaml& set : to_sequence(of.need("sets"))) made.sets.push_back(to_text(set));
  std::vector<std::string> known;
  for (const auto& [name, share] : attention) known.push_back(name);
  made.attention = attention.at(to_choice(of.need("attention"), known));
  made.collective_share = to_number(of.need("collective_share"), Sign::positive);
  return made;
}

void refuse_sets_twice(const Plan& plan, const Yaml& software) {
  std::set<std::string> seen;
  for (const std::string& set : plan.sets())
    if (!seen.insert(set).second)
      throw Refusal(Exit::usage, "listed-twice", software->where,
                    fmt::format("the set `{}` tells of two generations of software", set));
}

}  // namespace

const FigurePlan& Plan::figure(const std::string& kind) const {
  const auto found =
      std::find_if(figures.begin(), figures.end(), [&](const FigurePlan& each) { return each.kind == kind; });
  MOTLEY_CHECK(found != figures.end());
  return *found;
}

const SoftwarePlan& Plan::of(const std::string& name) const {
  std::vector<std::string> known;
  for (const SoftwarePlan& each : software) {
    if (each.name == name) return each;
    known.push_back(each.name);
  }
  throw Refusal(Exit::usage, "unknown-value", {}, fmt::format("no software `{}` is fitted", name),
                suggest(name, known));
}

const SoftwarePlan* Plan::of_set(const std::string& set) const {
  for (const SoftwarePlan& each : software)
    if (std::find(each.sets.begin(), each.sets.end(), set) != each.sets.end()) return &each;
  return nullptr;
}

std::vector<std::string> Plan::sets() const {
  std::vector<std::string> made;
  for (const SoftwarePlan& each : software) made.insert(made.end(), each.sets.begin(), each.sets.end());
  return made;
}

Plan read_plan(const Yaml& node) {
  const Fields file(node, "a fit",
                    {"error", "rows_of_a_set", "step", "folds", "alike", "figures", "held", "attention",
                     "software", "left_out_by"});
  Plan made;
  made.error = to_number(file.need("error"), Sign::positive);
  made.rows_of_a_set = to_number(file.need("rows_of_a_set"), Sign::positive);
  made.step = to_number(file.need("step"), Sign::positive);
  made.folds = static_cast<int>(to_integer(file.need("folds"), {2, 100}));
  const Fields alike(file.need("alike"), "what is alike", {"all", "software", "chip"});
  made.alike_all = to_number(alike.need("all"), Sign::not_negative);
  made.alike_software = to_number(alike.need("software"), Sign::not_negative);
  made.alike_chip = to_number(alike.need("chip"), Sign::not_negative);
  if (made.alike_all + made.alike_software + made.alike_chip >= 1)
    throw Refusal(Exit::usage, "out-of-bounds", file.where("alike"),
                  "nothing of the priors' variance is a figure's own",
                  "what is alike must sum up to less than 1");
  for (const YamlEntry& entry : file.need("figures")->entries) {
    made.figures.push_back(read_figure(entry));
    refuse_priors(made.figures.back(), entry.where);
  }
  for (const YamlEntry& entry : file.need("held")->entries) {
    const Fields of(entry.value, "a figure", {"value", "source"});
    made.held.push_back({entry.key, to_number(of.need("value"), Sign::positive), to_text(of.need("source"))});
  }
  const auto attention = read_attention(file.need("attention"));
  const Yaml software = file.need("software");
  for (const YamlEntry& entry : software->entries) made.software.push_back(read_software(entry, attention));
  std::sort(made.software.begin(), made.software.end(),
            [](const SoftwarePlan& a, const SoftwarePlan& b) { return a.name < b.name; });
  refuse_sets_twice(made, software);
  if (const Yaml by = file.find("left_out_by"))
    for (const YamlEntry& entry : by->entries)
      for (const Yaml& column : to_sequence(entry.value))
        made.left_out_by[entry.key].push_back(to_text(column));
  return made;
}

Plan shipped_plan() { return read_plan(read_yaml(data_folder() + "/platforms/published/fit.yaml")); }

}  // namespace motley::fit
