#include "models/spending_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string_view>

#include "models/refusal.hpp"

namespace motley {
namespace {

constexpr double kMostTokens = 1e18;  // as many steps can be counted one by one

// Four significant digits, in the largest of the units, a thousand apart, that leaves one or more of it.
std::string in_unit(double value, std::array<std::string_view, 4> units) {
  std::size_t unit = 0;
  while (unit + 1 < units.size() && value >= 999.95) {
    value /= 1000;
    ++unit;
  }
  // Beyond the largest unit digits, not powers of ten.
  return (value >= 9999.5 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value)) +
         std::string(units[unit]);
}

std::string dollars(double usd) { return in_unit(usd, {" USD", " k USD", " M USD", " B USD"}); }
std::string energy(double kwh) { return in_unit(kwh, {" kWh", " MWh", " GWh", " TWh"}); }
std::string carbon(double kg) { return in_unit(kg, {" kg CO2e", " t CO2e", " kt CO2e", " Mt CO2e"}); }

std::string names_of(const std::vector<std::string>& names) {
  return fmt::format("`{}`", fmt::join(names, "`, `"));
}

std::string per_step_and_tokens(const std::optional<double>& step, const std::optional<double>& billion,
                                std::string (*print)(double)) {
  return fmt::format("{} a step, {} a billion tokens", print(*step), print(*billion));
}

std::string price_of(const Spending& spending) {
  if (!spending.step.usd) return "unknown: no list price of " + names_of(spending.unpriced);
  return per_step_and_tokens(spending.step.usd, spending.billion_tokens.usd, dollars) +
         ": the chips at their list prices";
}

std::string energy_of(const Spending& spending) {
  if (!spending.step.kwh) return "unknown: no power of " + names_of(spending.unpowered);
  return fmt::format("{}: {}, estimated; at most {} a step, at the chips' design power",
                     per_step_and_tokens(spending.step.kwh, spending.billion_tokens.kwh, energy),
                     spending.beyond_chips ? "chips and what the site says" : "the chips alone",
                     energy(*spending.step.kwh_at_most));
}

// What is missing for the carbon: the chips' power, or the figure of some group's site.
std::string carbon_of(const Spending& spending) {
  if (spending.step.kg_co2e)
    return per_step_and_tokens(spending.step.kg_co2e, spending.billion_tokens.kg_co2e, carbon);
  if (spending.no_carbon.empty()) return "unknown: no power of " + names_of(spending.unpowered);
  return "unknown: no `site: {carbon: ...}` for group " + names_of(spending.no_carbon);
}

}  // namespace

double to_tokens(const Yaml& node) {
  const double tokens = to_quantity(node, Dimension::count, Sign::positive);
  if (tokens < 1 || tokens > kMostTokens)
    throw Refusal(Exit::usage, "out-of-bounds", node->where,
                  fmt::format("`{}` tokens make no run", shortened(node->text)), "must be 1 to 1000000 T");
  return tokens;
}

double to_goodput(const Yaml& node) {
  const double share = to_number(node, Sign::positive);
  if (share > 1)
    throw Refusal(Exit::usage, "out-of-bounds", node->where,
                  fmt::format("`{}` is out of bounds", shortened(node->text)),
                  "the share of the time in which steps are made that count: more than 0, at most 1");
  return share;
}

void add_spending(const Spending& spending, Table& figures) {
  figures.add({"price", price_of(spending)});
  figures.add({"energy", energy_of(spending)});
  if (spending.step.electricity_usd)
    figures.add({"electricity", per_step_and_tokens(spending.step.electricity_usd,
                                                    spending.billion_tokens.electricity_usd, dollars) +
                                    ": beside the price where the chips are one's own"});
  figures.add({"carbon", carbon_of(spending)});
}

std::string print_run(const Spending& spending) {
  if (!spending.run) return "";
  const TrainingRun& run = *spending.run;
  Table rows("ll", {"steps", fmt::format("{}", run.steps)});
  const std::string of_steps = format_seconds(run.seconds * run.goodput);
  rows.add({"time", run.goodput < 1 ? fmt::format("{}: {} of steps at a goodput of {}",
                                                  format_seconds(run.seconds), of_steps, run.goodput)
                                    : of_steps + ": no failures, no evaluation, no checkpoints"});
  rows.add({"price", run.bill.usd ? dollars(*run.bill.usd) : "unknown"});
  rows.add({"energy",
            run.bill.kwh ? fmt::format("{}, at most {}", energy(*run.bill.kwh), energy(*run.bill.kwh_at_most))
                         : "unknown"});
  if (run.bill.electricity_usd) rows.add({"electricity", dollars(*run.bill.electricity_usd)});
  rows.add({"carbon", run.bill.kg_co2e ? carbon(*run.bill.kg_co2e) : "unknown"});
  return fmt::format("the whole run, {} tokens:\n{}\n", format_count(run.tokens), rows.print());
}

}  // namespace motley
