#include "models/report/spending_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <initializer_list>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Three significant digits, in the largest unit (each is a thousand of the one before) in which the value is 1 or
// more.
std::string in_unit(double value, std::initializer_list<const char*> units) {
  const auto* unit = units.begin();
  for (; unit + 1 != units.end() && value >= 999.5; ++unit) value /= 1000;
  return (value >= 999.5 ? fmt::format("{:.0f} ", value) : fmt::format("{:.3g} ", value)) + *unit;
}

// Writes a count with separators: "3,814,698".
std::string grouped(std::int64_t count) {
  return count < 1000 ? fmt::to_string(count) : fmt::format("{},{:03}", grouped(count / 1000), count % 1000);
}

std::string dollars(double usd) {
  if (usd < 999.5) return fmt::format("{:.3g} USD", usd);
  if (usd >= 999500) return in_unit(usd / 1e6, {"M USD", "B USD"});
  const double rounded = usd < 9995 ? 10 : usd < 99950 ? 100 : 1000;
  return grouped(static_cast<std::int64_t>(std::llround(usd / rounded) * rounded)) + " USD";
}

std::string energy(double kwh) { return in_unit(kwh, {"kWh", "MWh", "GWh", "TWh"}); }
std::string carbon(double kg) { return in_unit(kg, {"kg CO2e", "t CO2e", "kt CO2e", "Mt CO2e"}); }

std::string names_of(const std::vector<std::string>& names) {
  return fmt::format("`{}`", fmt::join(names, "`, `"));
}

// " (124 USD to 156 USD)": a value that grows with the step, at both ends of the step's interval.
template <class Print>
std::string both_ends(double value, const std::optional<Interval>& interval, Print print) {
  return interval ? fmt::format(" ({} to {})", print(value * interval->low), print(value * interval->high))
                  : "";
}

std::string price_of(const Spending& spending, const std::optional<Interval>& interval) {
  if (!spending.step.usd) return "unknown: no list price of " + names_of(spending.unpriced);
  const double billion = *spending.billion_tokens.usd;
  return fmt::format("{} a step, {}{} a billion tokens: the chips at their list prices",
                     dollars(*spending.step.usd), dollars(billion), both_ends(billion, interval, dollars));
}

std::string energy_of(const Spending& spending) {
  if (!spending.step.kwh) return "unknown: no power of " + names_of(spending.unpowered);
  return fmt::format("{} a step (at most {}), {} a billion tokens: estimated, {}", energy(*spending.step.kwh),
                     energy(*spending.step.kwh_at_most), energy(*spending.billion_tokens.kwh),
                     spending.beyond_chips ? "with what the site says" : "the chips alone");
}

// The carbon, or what is missing for it: the chips' power, or the figure of some group's site.
std::string carbon_of(const Spending& spending) {
  if (spending.step.kg_co2e)
    return fmt::format("{} a step, {} a billion tokens", carbon(*spending.step.kg_co2e),
                       carbon(*spending.billion_tokens.kg_co2e));
  if (spending.no_carbon.empty()) return "unknown: no power of " + names_of(spending.unpowered);
  if (!spending.carbon_given)
    return "unknown: neither the scenario nor the cluster has `site: {carbon: ...}`";
  return "unknown: no `site: {carbon: ...}` for group " + names_of(spending.no_carbon);
}

}  // namespace

void add_spending(const Spending& spending, Table& figures, const std::optional<Interval>& interval) {
  figures.add({"price", price_of(spending, interval)});
  figures.add({"energy", energy_of(spending)});
  if (spending.step.electricity_usd)
    figures.add(
        {"electricity", fmt::format("{} a step, {} a billion tokens: if it is paid separately from the rent",
                                    dollars(*spending.step.electricity_usd),
                                    dollars(*spending.billion_tokens.electricity_usd))});
  figures.add({"carbon", carbon_of(spending)});
}

std::string print_run(const Spending& spending, const std::optional<Interval>& interval) {
  if (!spending.run) return "";
  const TrainingRun& run = *spending.run;
  Table rows("ll", {"steps", grouped(run.steps)});
  const std::string of_steps = format_seconds(run.seconds * run.goodput),
                    time = format_seconds(run.seconds) + both_ends(run.seconds, interval, format_seconds);
  rows.add({"time", run.goodput < 1
                        ? fmt::format("{}: {} of steps at a goodput of {}", time, of_steps, run.goodput)
                        : time + ": no failures, no evaluation, no checkpoints"});
  rows.add({"price",
            run.bill.usd ? dollars(*run.bill.usd) + both_ends(*run.bill.usd, interval, dollars) : "unknown"});
  rows.add({"energy",
            run.bill.kwh ? fmt::format("{}, at most {}", energy(*run.bill.kwh), energy(*run.bill.kwh_at_most))
                         : "unknown"});
  if (run.bill.electricity_usd) rows.add({"electricity", dollars(*run.bill.electricity_usd)});
  rows.add({"carbon", run.bill.kg_co2e ? carbon(*run.bill.kg_co2e) : "unknown"});
  return fmt::format("the whole run, {} tokens:\n{}\n", format_count(run.tokens), rows.print());
}

}  // namespace motley
