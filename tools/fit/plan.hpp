// What the fit takes for granted, platforms/published/fit.yaml: priors, how alike they are, which sets tell of which
// software, how much a row may count. It decides nothing. Read next: tools/fit/figures.hpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/base/yaml_reader.hpp"

namespace motley::fit {

enum class PriorOf : std::uint8_t { all, chip, software };
struct FigurePlan {
  std::string kind;  // "layer_launch"
  PriorOf prior_owner = PriorOf::all;
  double prior = 0;           // PriorOf::all: seconds, or a plain number
  double spread = 0;          // of the logarithm
  bool seconds = false;       // else a plain number
  std::optional<bool> fused;  // of software alone whose attention is, or is not
  bool network() const { return kind == "network"; }
};
struct HeldFigure {
  std::string kind;
  double value = 0;
  std::string source;
};
struct SoftwarePlan {
  std::string name;
  std::vector<std::string> sets;
  std::optional<double> attention;  // the share of the peak over the chip's own; none: not fused
  double collective_share = 1;
};
struct Plan {
  double error = 0, rows_of_a_set = 0, step = 0;
  int folds = 0;
  double alike_all = 0, alike_software = 0, alike_chip = 0;
  std::vector<FigurePlan> figures;  // in the order in which they are written
  std::vector<HeldFigure> held;
  std::vector<SoftwarePlan> software;  // by name
  std::map<std::string, std::vector<std::string>> left_out_by;

  const FigurePlan& figure(const std::string& kind) const;
  const SoftwarePlan& software_named(
      const std::string& software) const;  // refuses ("unknown-value") one that is not there
  const SoftwarePlan* of_set(const std::string& set) const;  // nullptr: its runs take no part
  std::vector<std::string> sets() const;
};

// Refuses keys that are not known, a set that is listed twice, and what is of no use: no folds, no spread.
Plan read_plan(const Yaml& node);
Plan shipped_plan();  // of the data folder

}  // namespace motley::fit
