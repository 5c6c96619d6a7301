#include "models/report/spending.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "models/base/index.hpp"

namespace motley {
namespace {

constexpr double kJoulesPerKwh = 3.6e6;

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

// What one group of the cluster uses in a step.
struct GroupUse {
  bool used = false;
  double usd_per_hour = 0;
  double joules = 0, joules_at_most = 0;
  std::set<int> nodes;
};

std::vector<GroupUse> use_of_groups(const Job& job, const Program& program,
                                    const IdTable<Rank, ChipTime>& times, double iteration_s) {
  std::vector<GroupUse> uses(job.cluster.groups.size());
  for (Rank rank : program.ranks.ids()) {
    const std::int32_t chip = program.ranks[rank].chip;
    const std::int32_t group = job.cluster.chip_group[at(chip)];
    const Chip& figures = job.cluster.groups[at(group)].chip;
    GroupUse& use = uses[at(group)];
    use.used = true;
    use.nodes.insert(job.cluster.chip_node[at(chip)]);
    use.usd_per_hour += figures.price_per_hour.value;
    const ChipTime& time = times[rank];
    use.joules += figures.watts.value * (time.computing_s * kComputingPower + time.waiting_s * kWaitingPower +
                                         time.communicating_s * kCommunicatingPower);
    use.joules_at_most += figures.watts.value * iteration_s;
  }
  return uses;
}

// Adds up all groups in use, and lists figures that are unknown.
Bill bill_of_step(const Job& job, const std::vector<GroupUse>& uses, double iteration_s, Spending& spending) {
  double usd = 0, kwh = 0, kwh_at_most = 0, electricity_usd = 0, grams = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (!uses[i].used) continue;
    const NodeGroup& group = job.cluster.groups[i];
    const Site site = job.cluster.site_of(static_cast<int>(i));
    if (group.chip.price_per_hour.value <= 0) add_once(spending.unpriced, group.chip.name);
    if (group.chip.watts.value <= 0) add_once(spending.unpowered, group.chip.name);
    if (!site.electricity) spending.no_electricity.push_back(group.name);
    if (!site.carbon) spending.no_carbon.push_back(group.name);
    spending.beyond_chips |= site.pue != 1 || site.node_watts > 0;
    const double besides = site.node_watts * static_cast<double>(uses[i].nodes.size()) * iteration_s;
    const double group_kwh = (uses[i].joules + besides) * site.pue / kJoulesPerKwh;
    usd += uses[i].usd_per_hour * iteration_s / 3600;
    kwh += group_kwh;
    kwh_at_most += (uses[i].joules_at_most + besides) * site.pue / kJoulesPerKwh;
    electricity_usd += group_kwh * site.electricity.value_or(0);
    grams += group_kwh * site.carbon.value_or(0);
  }
  Bill bill;
  if (spending.unpriced.empty()) bill.usd = usd;
  if (!spending.unpowered.empty()) return bill;
  bill.kwh = kwh;
  bill.kwh_at_most = kwh_at_most;
  if (spending.no_electricity.empty()) bill.electricity_usd = electricity_usd;
  if (spending.no_carbon.empty()) bill.kg_co2e = grams / 1000;
  return bill;
}

bool gives_carbon(const Cluster& cluster) {
  const auto gives = [](const std::optional<Site>& site) { return site && site->carbon; };
  return gives(cluster.site) || std::any_of(cluster.groups.begin(), cluster.groups.end(),
                                            [&](const NodeGroup& group) { return gives(group.site); });
}

}  // namespace

Bill operator*(const Bill& bill, double times) {
  Bill product = bill;
  for (std::optional<double> Bill::*part :
       {&Bill::usd, &Bill::kwh, &Bill::kwh_at_most, &Bill::electricity_usd, &Bill::kg_co2e})
    if (product.*part) *(product.*part) *= times;
  return product;
}

Spending find_spending(const Job& job, const Program& program, const IdTable<Rank, ChipTime>& times,
                       double iteration_s) {
  Spending spending;
  spending.carbon_given = gives_carbon(job.cluster);
  spending.step = bill_of_step(job, use_of_groups(job, program, times, iteration_s), iteration_s, spending);
  const double step_tokens =
      static_cast<double>(program.global_batch) * static_cast<double>(program.sequence);
  spending.billion_tokens = spending.step * (1e9 / step_tokens);
  if (job.train.tokens <= 0) return spending;
  TrainingRun run;
  run.tokens = job.train.tokens;
  run.goodput = job.train.goodput;
  const double steps = std::ceil(run.tokens / step_tokens);
  run.steps = static_cast<std::int64_t>(steps);
  run.seconds = steps * iteration_s / run.goodput;
  run.bill = spending.step * (steps / run.goodput);
  spending.run = run;
  return spending;
}

}  // namespace motley
