#include "tools/fit/figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "models/scenario/scenario.hpp"

namespace motley::fit {
namespace {

double own_figure(const Chip& chip, const std::string& kind) {
  return kind == "gemm_efficiency" ? chip.software.gemm_efficiency.value
                                   : chip.software.attention_efficiency.value;
}

double prior_of(const FigurePlan& figure, const Plan& plan, const SoftwarePlan& software,
                const std::string& chip) {
  switch (figure.prior_owner) {
    case PriorOf::software:
      return software.collective_share;
    case PriorOf::chip:
      return own_figure(load_chip(chip), figure.kind) * (figure.kind == "attention_efficiency"
                                                             ? software.attention.value_or(1)
                                                             : plan.same_products(software.name));
    case PriorOf::all:
      break;
  }
  return figure.prior;
}

double read_value(const FigurePlan& figure, const Yaml& node) {
  const Yaml value = Fields(node, "a figure", {"value", "source"}).need("value");
  return figure.seconds ? to_quantity(value, Dimension::seconds, Sign::positive)
                        : to_number(value, Sign::positive);
}

}  // namespace

Figures::Figures(Plan plan, const std::vector<FitRun>& runs) : plan_(std::move(plan)) {
  std::set<std::pair<std::string, std::string>> on_chips, on_any;
  for (const FitRun& run : runs) {
    on_chips.emplace(run.software, run.chip);
    on_any.emplace(run.software, "");
  }
  std::vector<double> mean, spread;
  for (const FigurePlan& figure : plan_.figures)
    for (const auto& [software, chip] : figure.network() ? on_any : on_chips) {
      const SoftwarePlan& software_plan = plan_.software_named(software);
      if (figure.fused && *figure.fused != software_plan.attention.has_value()) continue;
      if (figure.drains && *figure.drains != software_plan.drains) continue;
      names_.push_back({software, chip, figure.kind});
      mean.push_back(std::log(prior_of(figure, plan_, software_plan, chip)));
      spread.push_back(figure.spread);
    }
  add_prior(mean, spread);
}

void Figures::add_prior(const std::vector<double>& mean, const std::vector<double>& spread) {
  const auto n = static_cast<Eigen::Index>(names_.size());
  prior_.mean = Eigen::Map<const Eigen::VectorXd>(mean.data(), n);
  Eigen::MatrixXd covariance = Eigen::MatrixXd::Zero(n, n);
  for (Eigen::Index i = 0; i < n; ++i)
    for (Eigen::Index j = 0; j < n; ++j) {
      const auto row = static_cast<std::size_t>(i), column = static_cast<std::size_t>(j);
      const FigureName &a = names_[row], &b = names_[column];
      if (a.kind != b.kind) continue;
      double alike = plan_.alike_all;
      if (a.software == b.software) alike += plan_.alike_software;
      if (a.chip == b.chip && !a.chip.empty()) alike += plan_.alike_chip;
      covariance(i, j) = (i == j ? 1 : alike) * spread[row] * spread[column];
    }
  prior_.precision = covariance.llt().solve(Eigen::MatrixXd::Identity(n, n));
}

std::vector<std::string> Figures::software() const {
  std::set<std::string> software_names;
  for (const FigureName& name : names_) software_names.insert(name.software);
  return {software_names.begin(), software_names.end()};
}

Eigen::Index Figures::index(const FigureName& name) const {
  const auto position = std::find(names_.begin(), names_.end(), name);
  return position == names_.end() ? -1 : position - names_.begin();
}

Eigen::Index Figures::index(const FitRun& run, const std::string& kind) const {
  return index({run.software, plan_.figure(kind).network() ? "" : run.chip, kind});
}

Eigen::VectorXd Figures::values_in(const std::string& folder) const {
  Eigen::VectorXd values = prior_.mean;
  std::map<std::string, Yaml> files;
  for (const std::string& software : this->software()) {
    const std::string path = fmt::format("{}/{}.yaml", folder, software);
    if (std::filesystem::is_regular_file(path)) files[software] = read_yaml(path);
  }
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const FigureName& name = names_[i];
    const auto file = files.find(name.software);
    if (file == files.end()) continue;
    const Fields fields(file->second, "software", {"on", "any", "network", "interval", "measured"});
    Yaml from = file->second;
    if (!name.chip.empty()) {
      const YamlEntry* const chip = fields.need("on")->find(name.chip);
      if (chip == nullptr) continue;
      from = chip->value;
    }
    if (const YamlEntry* const figure = from->find(name.kind))
      values[static_cast<Eigen::Index>(i)] = std::log(read_value(plan_.figure(name.kind), figure->value));
  }
  return values;
}

std::string Figures::text(const std::string& software, const Eigen::VectorXd& values,
                          const SourceOf& source_of, const std::string& indent) const {
  std::string network;
  std::map<std::string, std::string> on;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const FigureName& name = names_[i];
    if (name.software != software) continue;
    const auto at = static_cast<Eigen::Index>(i);
    const std::string line =
        fmt::format("{}: {{value: {:.4g}{}, source: {}}}\n", name.kind, std::exp(values[at]),
                    plan_.figure(name.kind).seconds ? " s" : "", quote(source_of(at)));
    if (name.chip.empty())
      network += indent + line;
    else
      on[name.chip] += fmt::format("{}    {}", indent, line);
  }
  std::string text = network + indent + "on:\n";
  for (const auto& [chip, lines] : on) {
    text += fmt::format("{}  {}:\n{}", indent, chip, lines);
    for (const HeldFigure& held : plan_.held_of(software))
      text += fmt::format("{}    {}: {{value: {}, source: {}}}\n", indent, held.kind, held.value,
                          quote(held.source));
  }
  return text;
}

TrialFigures Figures::trial(const Eigen::VectorXd& values) const {
  TrialFigures trial_figures;
  for (const std::string& name : software())
    trial_figures.software[name] =
        parse_yaml(text(name, values, [](Eigen::Index) { return "trial"; }), "trial of " + name);
  return trial_figures;
}

TrialFigures no_figures(const Plan& plan) {
  TrialFigures trial_figures;
  for (const SoftwarePlan& each : plan.software)
    trial_figures.software[each.name] = parse_yaml("on: {}\n", "no figures of " + each.name);
  return trial_figures;
}

}  // namespace motley::fit
