#include "models/report/coverage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "models/base/refusal.hpp"
#include "models/base/table.hpp"
#include "models/base/units.hpp"
#include "models/cost/compute_cost.hpp"

namespace motley {
namespace {

class Counter {
 public:
  Counter(const Program& program, const Cluster& cluster, const Trace& trace)
      : program_(program), cluster_(cluster), costs_(program, cluster), trace_(trace) {
    for (const StandIn& each : trace.stand_ins) counts_[each.rank] = static_cast<double>(each.count);
  }

  Coverage run() {
    for (const TraceEvent& event : trace_.events) add(event);
    for (auto& [key, missing] : missing_) coverage_.missing.push_back(missing);
    std::stable_sort(coverage_.missing.begin(), coverage_.missing.end(),
                     [](const MissingShape& a, const MissingShape& b) { return a.seconds > b.seconds; });
    return coverage_;
  }

 private:
  double count_of(Rank rank) const {
    const auto known = counts_.find(rank);
    return known == counts_.end() ? 1 : known->second;
  }

  void add(const TraceEvent& event) {
    const Step& step = event.step;
    const double count = count_of(step.rank), seconds = event.end_s - event.matched_s;
    const Instruction& instruction = program_.at(step.rank, step.stream, step.index);
    if (const auto* const optimizer = instruction.as<OptimizerStep>()) {
      add_optimizer(is_measured(*optimizer, step.rank), step.rank, count * seconds);
    } else if (instruction.op() == Op::compute) {
      add_kernels(step.rank, instruction, count, seconds);
    } else {
      coverage_.message_s += count * seconds;
    }
  }

  bool is_measured(const OptimizerStep& optimizer, Rank rank) const {
    const auto& group = cluster_.groups[at(cluster_.chip_group[at(program_.ranks[rank].chip)])];
    if (optimizer.tensors.empty()) return group.chip.software.kernels.optimizer.has_value();
    return group.host && !group.host->measured.empty();
  }

  void add_optimizer(bool is_measured, Rank rank, double seconds) {
    add_seconds(is_measured ? Known::interpolated : Known::assumed, seconds);
    if (is_measured) return;
    coverage_.optimizer_assumed_s += seconds;
    coverage_.optimizer_chip = cluster_.chip_of(program_.ranks[rank].chip).name;
  }

  void add_kernels(Rank rank, const Instruction& instruction, double count, double seconds) {
    const auto& spans = costs_.kernels(rank, instruction);
    if (spans.empty()) return;
    const double priced_s = spans.back().end_s;
    const double scale = priced_s > 0 ? seconds / priced_s : 0;  // slower chips, slowdowns by communication
    const RankProgram& rank_program = program_.program_of(rank);
    const Chip& chip = cluster_.chip_of(program_.ranks[rank].chip);
    const Block& block = rank_program.blocks[instruction.as<Compute>()->block];
    if (spans.front().begin_s > 0) add_seconds(Known::assumed, count * scale * spans.front().begin_s);
    for (const KernelSpan& span : spans) {
      const Kernel& kernel = block.kernels[at(span.kernel)];
      const double kernel_s = scale * (span.end_s - span.begin_s);
      if (is_collective(kernel.op)) {
        coverage_.message_s += count * kernel_s;
        continue;
      }
      const RatedKernel rated = rated_kernel(rank_program, kernel);
      const Known known = how_known(rated, kernel, program_.precision, chip.software.kernels);
      add_seconds(known, count * kernel_s);
      if (known != Known::assumed)
        coverage_.job_off_s += count * kernel_s * chip.software.kernels.between_jobs;
      if (known != Known::measured) add_missing(rated, kernel, known, chip, count, kernel_s);
    }
  }

  void add_missing(const RatedKernel& rated, const Kernel& kernel, Known known, const Chip& chip,
                   double count, double seconds) {
    MissingShape& missing = missing_[{rated, chip.name, shape_of(kernel)}];
    missing.kernel = rated;
    missing.chip = chip.name;
    missing.shape = shape_of(kernel);
    missing.shape.seconds = seconds;
    missing.seconds += count * seconds;
    missing.known = known;
    const auto rate = chip.software.kernels.rates.find(rated);
    if (rate != chip.software.kernels.rates.end()) missing.error = rate->second.error;
    missing.between_jobs = chip.software.kernels.between_jobs;
  }

  void add_seconds(Known known, double seconds) {
    coverage_.kernel_s[static_cast<std::size_t>(known)] += seconds;
  }

  const Program& program_;
  const Cluster& cluster_;
  CostTable costs_;
  const Trace& trace_;
  std::map<Rank, double> counts_;
  std::map<std::tuple<RatedKernel, std::string, MeasuredShape>, MissingShape> missing_;
  Coverage coverage_;
};

std::string how_to_measure(const std::string& chip, const Cluster& cluster, const std::string& scenario) {
  const bool is_host = std::any_of(cluster.groups.begin(), cluster.groups.end(), [&](const NodeGroup& group) {
    return group.chip.name == chip && group.chip.kind == "cpu";
  });
  const std::string measure =
      is_host
          ? fmt::format("`motley calibrate {} --out FILE` measures the shapes of this scenario", scenario)
          : fmt::format("`motley calibrate --from PROFILE --chip {}` reads a profile of this scenario", chip);
  return fmt::format("{}; `motley calibrate {} --chip FILE --missing` lists all that a chip lacks", measure,
                     scenario);
}

// What lies outside all that was measured.
struct Outside {
  const MissingShape* costliest = nullptr;  // null: the optimizer's step alone
  double seconds = 0;
};

Outside outside_of(const Coverage& coverage) {
  Outside outside{.seconds = coverage.optimizer_assumed_s};
  for (const MissingShape& each : coverage.missing) {
    if (each.known != Known::extrapolated && each.known != Known::assumed) continue;
    if (outside.costliest == nullptr) outside.costliest = &each;  // those that take most come first
    outside.seconds += each.seconds;
  }
  return outside;
}

}  // namespace

double Coverage::seconds() const { return std::accumulate(kernel_s.begin(), kernel_s.end(), message_s); }

bool has_measured_kernels(const Cluster& cluster) {
  return std::any_of(cluster.groups.begin(), cluster.groups.end(),
                     [](const NodeGroup& group) { return !group.chip.software.kernels.rates.empty(); });
}

Coverage coverage_of(const Program& program, const Cluster& cluster, const Trace& trace) {
  return Counter(program, cluster, trace).run();
}

void require_measured(const Coverage& coverage, const Cluster& cluster, const std::string& scenario) {
  if (!has_measured_kernels(cluster))
    throw Refusal(
        Exit::mismatch, "not-calibrated", {.file = scenario},
        "no chip of this cluster has measured kernels, so nothing of the prediction rests on them",
        "`motley calibrate --out FILE` writes a chip that has; name that file as the cluster's `chip`");
  const Outside outside = outside_of(coverage);
  if (outside.costliest == nullptr && !(outside.seconds > 0)) return;
  std::string what =
      fmt::format("the optimizer's step on {}, which was not measured", coverage.optimizer_chip);
  std::string chip = coverage.optimizer_chip;
  if (const MissingShape* const shape = outside.costliest) {
    chip = shape->chip;
    what =
        fmt::format("{} on {} with m {}, n {}, k {}, groups {}, {}", name_of(shape->kernel), chip,
                    shape->shape.m, shape->shape.n, shape->shape.k, shape->shape.groups,
                    shape->known == Known::assumed ? "a kind of kernel that was not measured in this format"
                                                   : "a size outside all measured ones");
  }
  throw Refusal(
      Exit::mismatch, "outside-measured", {.file = scenario},
      fmt::format("{} of the busy time rests on kernels outside what was measured, most of it on {}",
                  format_percent(outside.seconds / coverage.seconds()), what),
      how_to_measure(chip, cluster, scenario));
}

std::string describe(const Coverage& coverage) {
  std::vector<std::string> parts;
  for (const Known known : every<Known>())
    if (coverage.share(known) > 0)
      parts.push_back(fmt::format("{} {}", format_percent(coverage.share(known)), name_of(known)));
  if (coverage.message_s > 0)
    parts.push_back(fmt::format("{} messages", format_percent(coverage.message_share())));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string missing_text(const Coverage& coverage, std::size_t most) {
  Table table("lllrrrrrr", {"kernel", "chip", "rests on", "m", "n", "k", "groups", "each", "all"});
  for (std::size_t i = 0; i < std::min(most, coverage.missing.size()); ++i) {
    const MissingShape& each = coverage.missing[i];
    table.add({name_of(each.kernel), each.chip, std::string(name_of(each.known)),
               fmt::to_string(each.shape.m), fmt::to_string(each.shape.n), fmt::to_string(each.shape.k),
               fmt::to_string(each.shape.groups), format_seconds(each.shape.seconds),
               format_seconds(each.seconds)});
  }
  std::string text = table.print();
  if (coverage.missing.size() > most) text += fmt::format("and {} more\n", coverage.missing.size() - most);
  return text;
}

double measured_half_width(const Coverage& coverage, double noise) {
  constexpr double kUnknown = 1.0 / 3, kExtrapolated = 2,
                   kShare80 = 1.28;  // deviations that hold 80 % of a normal
  // The mean of absolute errors of a normal is 0.8 of its deviation.
  constexpr double kDeviation = 1 / 0.8;
  const double whole_s = coverage.seconds();
  if (!(whole_s > 0)) return 0;
  double square = noise * noise;
  const auto add = [&](double seconds, double error) {
    const double off = seconds / whole_s * error;
    square += off * off;
  };
  for (const MissingShape& each : coverage.missing) {
    const bool is_fitted = each.known != Known::assumed && each.error > 0;
    const double own = std::max(0.0, each.error * each.error - each.between_jobs * each.between_jobs);
    const double error = is_fitted ? kDeviation * std::sqrt(own) : kUnknown;
    add(each.seconds, each.known == Known::extrapolated ? kExtrapolated * error : error);
  }
  add(coverage.job_off_s, kDeviation);
  add(coverage.message_s, kUnknown);
  return kShare80 * std::sqrt(square);
}

}  // namespace motley
