#include "tools/fit/usual.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "models/published/prediction_errors.hpp"
#include "models/scenario/software.hpp"

namespace motley::fit {
namespace {

// The logarithm of the chip's own figure, which a share is relative to.
double log_of_own(const FigureName& name) {
  const ChipSoftware own = load_chip(name.chip).software;
  return std::log(name.kind == "gemm_efficiency" ? own.gemm_efficiency.value
                                                 : own.attention_efficiency.value);
}

// For each software, the mean of the logarithms of that figure over the software's chips.
std::vector<double> logs_of(const Figures& figures, const Eigen::VectorXd& values, const FigurePlan& plan,
                            const std::string& left_out) {
  std::map<std::string, std::vector<double>> by_software;
  for (std::size_t i = 0; i < figures.names().size(); ++i) {
    const FigureName& name = figures.names()[i];
    if (name.kind != plan.kind || name.software == left_out) continue;
    if (name.kind == "layer_launch" && figures.plan().launches_wait(name.software)) continue;
    double own = plan.prior_owner == PriorOf::chip ? log_of_own(name) : 0;
    if (plan.kind == "gemm_efficiency") own += std::log(figures.plan().same_products(name.software));
    by_software[name.software].push_back(values[static_cast<Eigen::Index>(i)] - own);
  }
  std::vector<double> logs;
  for (const auto& [software, each] : by_software) logs.push_back(mean_of(each));
  return logs;
}

double spread_of(const std::vector<double>& logs) {
  const double mean = mean_of(logs);
  double squares = 0;
  for (const double each : logs) squares += (each - mean) * (each - mean);
  return std::sqrt(squares / static_cast<double>(logs.size()));
}

double bias_of_sets(const std::vector<UsualRun>& runs, const std::string& left_out) {
  std::map<std::string, std::vector<double>> by_set;
  for (const UsualRun& run : runs)
    if (run.software != left_out) by_set[run.set].push_back(run.error);
  std::vector<double> means;
  for (const auto& [set, errors] : by_set) means.push_back(mean_of(errors));
  return means.empty() ? 0 : mean_of(means);
}

}  // namespace

double scale_without_bias(const std::vector<UsualRun>& at_one, const std::vector<UsualRun>& at_other,
                          double other, const std::string& left_out) {
  const double bias = bias_of_sets(at_one, left_out),
               slope = (bias_of_sets(at_other, left_out) - bias) / std::log(other);
  return slope < 0 ? std::exp(-bias / slope) : 1;
}

std::string usual_text(const Figures& figures, const Eigen::VectorXd& values, const std::string& left_out,
                       const std::string& month, double gemm_scale) {
  std::string any;
  for (const FigurePlan& plan : figures.plan().figures) {
    if (plan.network() || (plan.fused && !*plan.fused) || plan.drains == true) continue;
    const std::vector<double> logs = logs_of(figures, values, plan, left_out);
    if (logs.empty()) continue;
    double value = std::exp(mean_of(logs));
    const bool scaled = plan.kind == "gemm_efficiency";
    if (scaled) value *= gemm_scale;
    if (plan.prior_owner == PriorOf::chip) value = std::min(value, 1.0);
    const std::string source =
        fmt::format("mean of {} generations of software, {}; they spread by +-{:.0f} %{}", logs.size(), month,
                    100 * spread_of(logs), scaled ? "; scaled so that predictions have no bias" : "");
    any += fmt::format("  {}: {{value: {:.4g}{}, source: {}}}\n", plan.kind, value, plan.seconds ? " s" : "",
                       quote(source));
  }
  for (const HeldFigure& held : figures.plan().held)
    any += fmt::format("  {}: {{value: {}, source: {}}}\n", held.kind, held.value, quote(held.source));
  return "any:\n" + any;
}

}  // namespace motley::fit
