#include "models/explain/step_spread.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/cluster/variation_text.hpp"

namespace motley {
namespace {

// Stages (and kinds of chips) in which a slow part is simulated; those between cost what the nearest of them does.
constexpr std::size_t kMostSimulated = 8;

// The step as a function of how slow one part is: straight lines between simulated points, the last one continued.
class PartCost {
 public:
  // Slowness is 1/speed. A slower part never makes a shorter step, whatever the simulation's last digits say.
  void add(double slowness, double step_s) {
    if (!points_.empty()) step_s = std::max(step_s, points_.back().second);
    if (points_.empty() || slowness > points_.back().first) points_.emplace_back(slowness, step_s);
  }
  double last_s() const { return points_.back().second; }
  // The largest slowness that a step of `step_s` allows; step_s is at least that of the first point.
  double allowed(double step_s) const {
    double allowed = points_.front().first;
    for (std::size_t i = 1; i < points_.size(); ++i) {
      const auto& [low, low_s] = points_[i - 1];
      const auto& [high, high_s] = points_[i];
      const bool is_last = i + 1 == points_.size();
      if (high_s <= low_s) {
        allowed = is_last ? std::numeric_limits<double>::infinity() : high;
        continue;
      }
      allowed = low + (high - low) * (step_s - low_s) / (high_s - low_s);
      if (step_s < high_s) break;
    }
    return points_.size() == 1 ? std::numeric_limits<double>::infinity() : allowed;
  }

 private:
  std::vector<std::pair<double, double>> points_;
};

// Parts that are called alike: the chips of one stage in a node, or the NICs of a node.
struct PartClass {
  bool nics = false;
  int node = 0;                 // the node of the part that is simulated
  std::vector<int> chips = {};  // its chips
  double count = 0;             // number of such parts
  double typical = 1;           // speed of a part that is not slow
  double middle = 1, rare = 1;  // speed of the slowest of all in half of all draws, and in one of fifty
  PartCost cost = {};
};

// The speeds of parts that are slow as their slowest chip, in nodes with speeds of their own.
class PartSpeeds {
 public:
  explicit PartSpeeds(const Variation& variation) : variation_(variation) {
    constexpr int kNodes = 256;
    if (!variation.nodes.varies()) nodes_ = {1};
    for (int i = 0; nodes_.size() < kNodes && variation.nodes.varies(); ++i)
      nodes_.push_back(variation.nodes.speed_at((i + 0.5) / kNodes));
  }

  double share_below(const PartClass& part, double speed) const {
    if (part.nics) return variation_.nics.share_below(speed);
    double share = 0;
    for (const double node : nodes_) {
      const double of_chip =
          variation_.chips.varies() ? variation_.chips.share_below(speed / node) : (speed > node ? 1.0 : 0.0);
      share +=
          -std::expm1(static_cast<double>(part.chips.size()) * std::log1p(-std::min(of_chip, 1 - 1e-16)));
    }
    return share / static_cast<double>(nodes_.size());
  }

  // The speed of the slowest of all such parts that is passed in `draws` of all draws.
  double slowest(const PartClass& part, double draws) const {
    const double share = -std::expm1(std::log(draws) / part.count);
    double low = kLeastSpeed / kMostSpeed, high = kMostSpeed * kMostSpeed;
    for (int i = 0; i < 80; ++i) {
      const double middle = std::sqrt(low * high);
      (share_below(part, middle) > share ? high : low) = middle;
    }
    return low;
  }

  // The middle speed of a chip whose tensor-parallel group goes at the speed of its slowest member.
  double typical(std::int64_t tensor_parallel) const {
    const double share = 1 - std::pow(0.5, 1 / static_cast<double>(tensor_parallel));
    return variation_.nodes.speed_at(0.5) * variation_.chips.speed_at(share);
  }

 private:
  const Variation& variation_;
  std::vector<double> nodes_;  // equally likely speeds of nodes
};

class StepSpreader {
 public:
  StepSpreader(const Job& job, const Program& program)
      : job_(job), program_(program), variation_(*job.cluster.variation), speeds_(variation_) {
    find_parts();
    for (PartClass& part : parts_) {
      part.middle = std::min(part.typical, speeds_.slowest(part, 0.5));
      part.rare = std::min(part.middle, speeds_.slowest(part, 0.98));
    }
    const std::size_t most = std::min(parts_.size(), kMostSimulated);
    for (std::size_t i = 0; i < most; ++i)
      simulated_.push_back(most == 1 ? 0 : i * (parts_.size() - 1) / (most - 1));
  }

  ExpectedStep run(const Simulation& simulation, const TrialRunner& runner,
                   const ExperimentProgress& progress) {
    std::vector<Experiment> list;
    list.push_back({"every part alike", [&] { return with(usual_cluster()); }, true});
    list.push_back({"every part at its middle speed", [&] { return with(typical_cluster({})); }, true});
    for (const std::size_t i : simulated_)
      for (const double speed : {parts_[i].middle, parts_[i].rare})
        list.push_back({name_of_part(parts_[i]) + " slow",
                        [this, i, speed] {
                          return with(typical_cluster({{&parts_[i], speed}}));
                        },
                        true});
    const std::vector<Trial> trials = Experiments(simulation, runner, progress, list.size()).run(list);
    typical_s_ = trials[1].step_s;
    take_costs(trials);
    StepSpread spread;
    spread.parts = describe_variation();
    spread.simulated = static_cast<std::int64_t>(trials.size());
    spread.alike_s = trials[0].step_s;
    set_steps(spread);
    return representative(std::move(spread));
  }

 private:
  using Place = std::tuple<int, std::int32_t, std::int32_t>;  // group of the cluster, pipeline, stage

  void find_parts() {
    std::map<std::pair<Place, int>, std::vector<int>> chips;  // by place and node
    typical_.assign(at(job_.cluster.chip_count()), 1);
    for (const Rank rank : program_.ranks.ids()) {
      const int chip = program_.ranks[rank].chip;
      const RankProgram& rank_program = program_.program_of(rank);
      chips[{{job_.cluster.chip_group[at(chip)], rank_program.pipeline, rank_program.stage},
             job_.cluster.chip_node[at(chip)]}]
          .push_back(chip);
      typical_[at(chip)] = speeds_.typical(rank_program.tensor_parallel);
    }
    std::map<std::pair<Place, std::size_t>,
             std::vector<const std::pair<const std::pair<Place, int>, std::vector<int>>*>>
        alike;  // by place and number of chips
    std::map<int, Place> nodes;
    for (const auto& each : chips) {
      alike[{each.first.first, each.second.size()}].push_back(&each);
      nodes.try_emplace(each.first.second, each.first.first);
    }
    for (const auto& [key, parts] : alike) {
      if (!variation_.chips.varies() && !variation_.nodes.varies()) break;
      const auto& [place, of_chips] = *parts[parts.size() / 2];
      PartClass part{.node = place.second, .chips = of_chips, .count = static_cast<double>(parts.size())};
      part.typical = typical_[at(of_chips.front())];
      parts_.push_back(std::move(part));
    }
    if (!variation_.nics.varies() || nodes.size() < 2) return;
    std::map<Place, std::vector<int>> nics;
    for (const auto& [node, place] : nodes) nics[place].push_back(node);
    for (const auto& [place, of_nodes] : nics) {
      PartClass part{.nics = true, .node = of_nodes[of_nodes.size() / 2]};
      part.count = static_cast<double>(of_nodes.size());
      part.typical = variation_.nics.speed_at(0.5);
      parts_.push_back(std::move(part));
    }
  }

  Job with(Cluster cluster) const {
    Job job = job_;
    job.cluster = std::move(cluster);
    return job;
  }

  Cluster usual_cluster() const {
    Cluster cluster = job_.cluster;
    cluster.variation.reset();
    return cluster;
  }

  using SlowPart = std::pair<const PartClass*, double>;  // a part and its speed

  // Every part at its middle speed, but these.
  Cluster typical_cluster(const std::vector<SlowPart>& slow_parts) const {
    Cluster cluster = usual_cluster();
    std::vector<double> speeds = typical_;
    std::vector<double> nics(at(cluster.chip_node.back() + 1), variation_.nics.speed_at(0.5));
    for (const auto& [part, speed] : slow_parts) {
      if (part->nics) nics[at(part->node)] = speed;
      for (const int chip : part->chips) speeds[at(chip)] = speed;
    }
    for (std::size_t chip = 0; chip < speeds.size(); ++chip)
      if (speeds[chip] != 1)
        cluster.slow.push_back(Slow{.chip = static_cast<int>(chip), .factor = speeds[chip]});
    for (std::size_t node = 0; node < nics.size(); ++node)
      if (nics[node] != 1) cluster.slow.push_back(Slow{.node = static_cast<int>(node), .nics = nics[node]});
    build_topology(cluster);
    return cluster;
  }

  void take_costs(const std::vector<Trial>& trials) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const auto nearest = static_cast<std::size_t>(
          std::min_element(simulated_.begin(), simulated_.end(),
                           [&](std::size_t a, std::size_t b) { return apart(a, i) < apart(b, i); }) -
          simulated_.begin());
      const PartClass& like = parts_[simulated_[nearest]];
      parts_[i].cost.add(1 / like.typical, typical_s_);
      parts_[i].cost.add(1 / like.middle, trials[2 + 2 * nearest].step_s);
      parts_[i].cost.add(1 / like.rare, trials[3 + 2 * nearest].step_s);
    }
  }

  // How unlike two parts are, as far as their places in the list tell. NICs stand behind all chips.
  std::size_t apart(std::size_t i, std::size_t j) const {
    return (i > j ? i - j : j - i) + (parts_[i].nics == parts_[j].nics ? 0 : parts_.size());
  }

  // Share of draws in which the parts of one sort, NICs or chips, allow that step.
  double share_within(bool nics, double step_s) const {
    if (step_s < typical_s_) return 0;
    double logarithm = 0;
    for (const PartClass& part : parts_) {
      if (part.nics != nics) continue;
      const double allowed = part.cost.allowed(step_s);
      if (!std::isfinite(allowed)) continue;
      logarithm += part.count * std::log1p(-std::min(1.0, speeds_.share_below(part, 1 / allowed)));
    }
    return std::exp(logarithm);
  }

  // The step that this share of draws of one sort does not exceed.
  double step_in(bool nics, double draws) const {
    double low = typical_s_, high = 2 * typical_s_;
    constexpr double kLongest = 1e6;  // times the usual step: a share that no step reaches
    if (share_within(nics, low) >= draws) return low;
    while (share_within(nics, high) < draws && high < kLongest * typical_s_) high *= 2;
    for (int i = 0; i < 50; ++i) {
      const double middle = (low + high) / 2;
      (share_within(nics, middle) < draws ? low : high) = middle;
    }
    return high;
  }

  // Equally likely steps of one sort, ascending.
  std::vector<double> steps_of(bool nics) const {
    constexpr int kSteps = 200;
    const bool any =
        std::any_of(parts_.begin(), parts_.end(), [&](const PartClass& part) { return part.nics == nics; });
    if (!any) return {typical_s_};
    std::vector<double> steps;
    for (int i = 0; i < kSteps; ++i) steps.push_back(step_in(nics, (i + 0.5) / kSteps));
    return steps;
  }

  void set_steps(StepSpread& spread) {
    const std::vector<double> by_chips = steps_of(false), by_nics = steps_of(true);
    std::vector<double> steps;
    for (const double chips_s : by_chips)
      for (const double nics_s : by_nics) steps.push_back(chips_s + nics_s - typical_s_);
    std::sort(steps.begin(), steps.end());
    const auto at_share = [&](double share) {
      return steps[static_cast<std::size_t>(share * static_cast<double>(steps.size()))];
    };
    spread.p5_s = at_share(0.05);
    spread.p50_s = at_share(0.5);
    spread.p95_s = at_share(0.95);
    const auto mean = [](const std::vector<double>& values) {
      return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    };
    mean_chips_s_ = mean(by_chips);
    mean_nics_s_ = mean(by_nics);
    spread.mean_s = mean_chips_s_ + mean_nics_s_ - typical_s_;
  }

  // The part of that sort that costs most where it is slow, and the speed at which it makes the mean step of its sort.
  std::optional<SlowPart> slowest_part(bool nics) const {
    const PartClass* costliest = nullptr;
    for (const std::size_t i : simulated_)
      if (parts_[i].nics == nics &&
          (costliest == nullptr || parts_[i].cost.last_s() > costliest->cost.last_s()))
        costliest = &parts_[i];
    if (costliest == nullptr) return std::nullopt;
    const double slowness = costliest->cost.allowed(nics ? mean_nics_s_ : mean_chips_s_);
    if (!std::isfinite(slowness)) return std::nullopt;
    return SlowPart{costliest, 1 / slowness};
  }

  ExpectedStep representative(StepSpread spread) const {
    std::vector<SlowPart> slow;
    for (const bool nics : {false, true})
      if (const std::optional<SlowPart> part = slowest_part(nics)) {
        slow.push_back(*part);
        spread.slowest.push_back({name_of_part(*part->first), part->second});
      }
    return {std::move(spread), typical_cluster(slow)};
  }

  std::string name_of_part(const PartClass& part) const {
    const std::string& group = job_.cluster.groups[at(group_of_node(part.node))].name;
    if (part.nics) return fmt::format("the NICs of node {} ({})", part.node, group);
    if (part.chips.size() == 1)
      return fmt::format("chip {} of node {} ({})", part.chips.front(), part.node, group);
    return fmt::format("chips {} to {} of node {} ({})", part.chips.front(), part.chips.back(), part.node,
                       group);
  }

  int group_of_node(int node) const {
    const auto& nodes = job_.cluster.chip_node;
    return job_.cluster.chip_group[static_cast<std::size_t>(
        std::lower_bound(nodes.begin(), nodes.end(), node) - nodes.begin())];
  }

  std::string describe_variation() const {
    std::vector<std::string> parts;
    const std::pair<const char*, const Spread&> spreads[] = {
        {"chips", variation_.chips}, {"nodes", variation_.nodes}, {"NICs", variation_.nics}};
    for (const auto& [name, spread] : spreads)
      if (spread.varies()) parts.push_back(fmt::format("{} ({})", name, describe(spread)));
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  const Job& job_;
  const Program& program_;
  const Variation& variation_;
  PartSpeeds speeds_;
  std::vector<double> typical_;  // by chip: its speed where it is not slow
  std::vector<PartClass> parts_;
  std::vector<std::size_t> simulated_;  // parts whose cost is simulated, ascending
  double typical_s_ = 0, mean_chips_s_ = 0, mean_nics_s_ = 0;
};

}  // namespace

bool has_variation(const Job& job) {
  const std::optional<Variation>& variation = job.cluster.variation;
  return variation && (variation->chips.varies() || variation->nodes.varies() || variation->nics.varies());
}

ExpectedStep expect_step(const Job& job, const Program& program, const Simulation& simulation,
                         const TrialRunner& runner, const ExperimentProgress& progress) {
  MOTLEY_CHECK(has_variation(job));
  return StepSpreader(job, program).run(simulation, runner, progress);
}

std::vector<double> drawn_steps(const Job& job, std::int64_t draws, const Simulation& simulation,
                                const TrialRunner& runner, const ExperimentProgress& progress) {
  std::vector<Experiment> list;
  for (std::int64_t i = 0; i < draws; ++i)
    list.push_back({fmt::format("draw {}", i),
                    [&job, i] {
                      Job drawn = job;
                      drawn.cluster = draw_speeds(job.cluster, i);
                      return drawn;
                    },
                    true});
  std::vector<double> steps;
  const std::vector<Trial> trials = Experiments(simulation, runner, progress, list.size()).run(list);
  for (const Trial& trial : trials) steps.push_back(trial.step_s);
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace motley
