// What the fit takes as given, from platforms/published/fit.yaml: priors, how alike they are, which sets used which
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
  double prior = 0;      // PriorOf::all: seconds, or a plain number
  double spread = 0;     // standard deviation of the logarithm
  bool seconds = false;  // true: seconds; false: a plain number
  // Only software with fused (true) or unfused (false) attention has it; none: all.
  std::optional<bool> fused;
  // Only software that drains the chip at the messages of pipelines (true), or does not (false), has it; none: all.
  std::optional<bool> drains;
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
  // Attention's share of the peak, divided by the chip's own; none: not fused.
  std::optional<double> attention;
  double collective_share = 1;
  bool drains = false;           // true: it waits for the chip to have ended before it passes messages on
  std::vector<HeldFigure> held;  // what it holds differently from Plan::held, or beside it
};
struct Plan {
  double error = 0, rows_of_a_set = 0, step = 0;
  int folds = 0;
  double alike_all = 0, alike_software = 0, alike_chip = 0;
  std::vector<FigurePlan> figures;  // in the order in which they are written
  std::vector<HeldFigure> held;
  std::vector<SoftwarePlan> software;  // sorted by name
  std::map<std::string, std::vector<std::string>> left_out_by;

  const FigurePlan& figure(const std::string& kind) const;
  // The figures that no fit moves, as the software holds them.
  std::vector<HeldFigure> held_of(const std::string& software) const;
  // Whether its launches wait for kernels: its launch times then hold what others hide, and are no mean's part.
  bool launches_wait(const std::string& software) const;
  // Throws Refusal("unknown-value") if there is no such software.
  const SoftwarePlan& software_named(const std::string& software) const;
  // A product's forward and two backwards take as long at this times the efficiency, with the software's own
  // gemm_backward, as at that efficiency with the plan's.
  double same_products(const std::string& software) const;
  const SoftwarePlan* of_set(const std::string& set) const;  // nullptr: runs of the set take no part
  std::vector<std::string> sets() const;
};

// Refuses unknown keys, a set that is listed twice, and useless values, such as fewer than two folds or a spread of 0.
Plan read_plan(const Yaml& node);
Plan shipped_plan();  // the plan in the data folder

}  // namespace motley::fit
