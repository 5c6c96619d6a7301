// motley rehearse: predicts a scenario on this host's measured kernels, really runs some of its steps, and says how far
// the two are apart. Read next: tools/commands/measure_host.hpp, models/report/coverage.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hw/calibration/busy_share.hpp"
#include "hw/calibration/sentinel.hpp"
#include "hw/transport/tcp/socket.hpp"
#include "models/base/data_files.hpp"
#include "models/base/json_text.hpp"
#include "models/base/median.hpp"
#include "models/base/table.hpp"
#include "models/base/units.hpp"
#include "models/calibration/kernel_fit.hpp"
#include "models/calibration/stillness.hpp"
#include "models/report/coverage.hpp"
#include "tools/commands/answer.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/explained_routing.hpp"
#include "tools/commands/measure_host.hpp"
#include "tools/commands/progress.hpp"
#include "tools/commands/runs.hpp"
#include "tools/commands/scenario_flags.hpp"

namespace motley {
namespace {

constexpr int kWarmUpSteps = 1;  // of each run
constexpr int kRoutedSteps = 2;  // before all runs, to see how tokens choose experts

struct RehearseArguments {
  ScenarioFlags source;
  std::string chip, host, out, samples, kernels = "fast", routing = "measured";
  double seconds = 60;
  std::optional<double> within;  // percent
  std::int64_t steps = 8, rounds = 4, seed = 1;
  bool keep_disturbed = false, strict = false, json = false;
};

// Real steps on a machine that kept still.
struct RealSteps {
  std::vector<double> step_s;
  std::int64_t rounds = 0, disturbed = 0;
  std::string last_disturbance;
  // Two halves of the rounds against each other: how far medians of equal runs are apart, as a share.
  double noise = 0;
  // Of the last run: every run trains the same. Nothing: the model has no experts.
  std::optional<MeasuredRouting> routing;
};

// How tokens chose experts before the runs, where the scenario does not say how they do.
struct RoutingBefore {
  ExplainedRouting explained;
  double stated_s = 0;  // the prediction of the scenario as it is
};

struct Rehearsal {
  std::string scenario, strategy_hash, program_hash, chip;
  double predicted_s = 0, uncalibrated_s = 0;
  RealSteps real;
  double measured_s = 0;
  Coverage coverage;
  double half_width = 0;
  std::optional<RoutingBefore> before;      // nothing: the prediction is that of the scenario as it is
  std::optional<ExplainedRouting> routing;  // nothing: how tokens choose experts changes nothing
  double error_of(double seconds) const { return seconds / measured_s - 1; }
  double error() const { return error_of(predicted_s); }
  double uncalibrated_error() const { return error_of(uncalibrated_s); }
  double low_s() const { return predicted_s * std::max(0.0, 1 - half_width); }
  double high_s() const { return predicted_s * (1 + half_width); }
  bool holds() const { return low_s() <= measured_s && measured_s <= high_s(); }
};

KernelLibrary library_of(const RehearseArguments& options) {
  return options.kernels == "reference" ? KernelLibrary::reference : KernelLibrary::fast;
}

// What was measured of this host.
struct HostFigures {
  KernelRates rates;
  std::optional<InsideFabric> inside;  // nothing: the scenario's own
  std::optional<Host> host;            // the same
};

void use(Scenario& scenario, const HostFigures& figures) {
  for (NodeGroup& group : scenario.job.cluster.groups) {
    group.chip.software.kernels = figures.rates;
    if (figures.inside && group.inside.kind == figures.inside->kind) group.inside = *figures.inside;
    if (figures.host && group.host) group.host = figures.host;
  }
  build_topology(scenario.job.cluster);
}

void check_library(const KernelRates& rates, KernelLibrary library, const std::string& file) {
  if (rates.library.empty() || rates.library == describe(library)) return;
  throw Refusal(Exit::usage, "other-library", {.file = file},
                fmt::format("this chip was calibrated with `{}`; these ranks would run `{}`", rates.library,
                            describe(library)),
                "calibrate again, with this build of Motley and the same --kernels");
}

// The speeds of this host's kernels: of the chip that was named, of the scenario's own chip, or measured now.
KernelRates rates_for(const RehearseArguments& options, const Prepared& prepared) {
  const KernelLibrary library = library_of(options);
  if (!options.chip.empty()) {
    const KernelRates rates = load_chip(options.chip).software.kernels;
    if (rates.rates.empty())
      throw Refusal(Exit::usage, "not-calibrated", {.file = options.chip},
                    "this chip has no measured kernels", "`motley calibrate --out FILE` writes one that has");
    check_library(rates, library, options.chip);
    return rates;
  }
  const Chip& chip = prepared.scenario.job.cluster.groups.front().chip;
  if (!chip.software.kernels.rates.empty()) {
    check_library(chip.software.kernels, library, prepared.scenario.path);
    return chip.software.kernels;
  }
  MeasureOptions measure;
  measure.busy_ranks = std::min<std::int64_t>(prepared.program.rank_count(), host_facts().processors);
  measure.seconds = options.seconds;
  measure.library = library;
  measure.seed = static_cast<std::uint64_t>(options.seed);
  measure.samples_path = options.samples;
  measure.keeps_disturbed = options.keep_disturbed;
  measure.scenarios = {&prepared};
  const HostSamples samples = measure_host(chip, measure);
  if (was_interrupted()) throw Interrupted();  // too little was measured to fit anything
  KernelRates rates = fit_kernels(samples.table.samples).rates;
  const SamplesOrigin& origin = samples.table.origin;
  rates.library = origin.library;
  rates.busy = origin.ranks;
  rates.noise = rounded(samples.noise);
  rates.source = fmt::format("{}, {} busy, {}, measured by `motley rehearse`", origin.machine, origin.ranks,
                             origin.library);
  if (!options.out.empty()) {
    Chip calibrated = chip;
    calibrated.software.kernels = rates;
    write_result(print(calibrated, ""), options.out);
  }
  return rates;
}

class RealRuns {
 public:
  RealRuns(const RehearseArguments& options, const Prepared& prepared)
      : options_(options), prepared_(prepared) {}

  RealSteps run() {
    Progress progress("rehearse", options_.rounds);
    constexpr std::int64_t kTriesEach = 3;
    std::vector<double> medians;
    for (std::int64_t tries = 0; result_.rounds < options_.rounds && !was_interrupted(); ++tries) {
      if (tries == kTriesEach * options_.rounds)
        throw Refusal(Exit::mismatch, "never-still", {},
                      fmt::format("this machine does not keep still: {} of {} runs were disturbed; {}",
                                  result_.disturbed, tries, result_.last_disturbance),
                      "end what else runs here, or give it other processors");
      progress.show(result_.rounds, "really training");
      const std::vector<double> steps = run_once();
      if (steps.empty()) continue;
      ++result_.rounds;
      result_.step_s.insert(result_.step_s.end(), steps.begin(), steps.end());
      medians.push_back(median_of(steps));
    }
    result_.noise = noise_of(medians);
    return result_;
  }

 private:
  // Every other run belongs to the same half, so that a drift shows in neither.
  static double noise_of(const std::vector<double>& medians) {
    if (medians.size() < 2) return 0;
    std::vector<double> even, odd;
    for (std::size_t i = 0; i < medians.size(); ++i) (i % 2 == 0 ? even : odd).push_back(medians[i]);
    return std::abs(median_of(even) / median_of(odd) - 1);
  }

  Surroundings before() {
    Surroundings seen;
    seen.before_s = sentinel_.time();
    seen.share_on_processor = share();
    return seen;
  }
  double share() const {
    constexpr double kSeconds = 0.06;
    const std::int64_t ranks = std::min<std::int64_t>(prepared_.program.rank_count(), processors_);
    return least_share_on_processor(ranks, kSeconds);
  }

  // The steps after the first, which warms up; none where the machine did not keep still.
  std::vector<double> run_once() {
    Surroundings seen = before();
    const TakenTime taken = taken_time();
    const double begin_s = monotonic_s();
    const TrainedSteps trained = train_steps(prepared_, static_cast<int>(options_.steps) + kWarmUpSteps,
                                             library_of(options_) == KernelLibrary::reference);
    seen.seconds = monotonic_s() - begin_s;
    const TakenTime now = taken_time();
    seen.taken_s = now.stolen_s - taken.stolen_s + now.throttled_s - taken.throttled_s;
    seen.after_s = sentinel_.time();
    seen.share_on_processor = std::min(seen.share_on_processor, share());
    const std::string disturbance = stillness_.judge(seen);
    if (!disturbance.empty()) {
      ++result_.disturbed;
      result_.last_disturbance = disturbance;
      if (!options_.keep_disturbed) return {};
    }
    result_.routing = trained.routing;
    return {trained.step_s.begin() + kWarmUpSteps, trained.step_s.end()};
  }

  const RehearseArguments& options_;
  const Prepared& prepared_;
  const std::int64_t processors_ = host_facts().processors;
  Sentinel sentinel_;
  Stillness stillness_;
  RealSteps result_;
};

HostFigures figures_for(const RehearseArguments& options, const Prepared& prepared) {
  if (options.host.empty()) return {rates_for(options, prepared), std::nullopt, std::nullopt};
  const NodeGroup node = load_cluster(options.host).groups.front();
  if (node.chip.software.kernels.rates.empty())
    throw Refusal(Exit::usage, "not-calibrated", {.file = options.host},
                  "this cluster has no measured kernels",
                  "`motley calibrate --cluster FILE` writes one that has");
  check_library(node.chip.software.kernels, library_of(options), options.host);
  return {node.chip.software.kernels, node.inside, node.host};
}

double predict(Prepared changed, const HostFigures& figures) {
  use(changed.scenario, figures);
  return step_s(simulate_world(changed, {}, true));
}

std::optional<ExplainedRouting> explained(const MeasuredRouting& routing, std::size_t skipped,
                                          const Prepared& prepared, double predicted_s,
                                          const HostFigures& figures) {
  return explain_routing(routing, skipped, prepared, predicted_s,
                         [&](const Prepared& skewed) { return predict(skewed, figures); });
}

void require_measured_kernels(Prepared prepared, const HostFigures& figures, const std::string& path) {
  use(prepared.scenario, figures);
  const Trace simulated = simulate_world(prepared, {}, true);
  const Cluster& cluster = prepared.scenario.job.cluster;
  require_measured(coverage_of(prepared.program, cluster, simulated), cluster, path);
}

// The load of experts is a matter of the router and the text, as no model of times can know them: it is measured as
// speeds are, by steps of which no time is used. Nothing: the scenario states it, or it changes no time.
std::optional<RoutingBefore> routing_before(const RehearseArguments& options, const Prepared& prepared,
                                            const HostFigures& figures) {
  const Job& job = prepared.scenario.job;
  if (options.routing == "stated" || job.train.expert_skew != 0 || job.transformer.experts.count == 0)
    return std::nullopt;
  const TrainedSteps trained =
      train_steps(prepared, kRoutedSteps, library_of(options) == KernelLibrary::reference);
  if (!trained.routing) return std::nullopt;
  const double stated_s = predict(prepared, figures);
  const auto routing = explained(*trained.routing, 0, prepared, stated_s, figures);
  if (!routing || !routing->predicted_s) return std::nullopt;
  return RoutingBefore{*routing, stated_s};
}

// The scenario with the load that was measured, and by how much a step with it is longer than one with the skew that
// comes nearest.
std::pair<Prepared, double> with_load(Prepared prepared, const std::optional<RoutingBefore>& before) {
  if (!before) return {std::move(prepared), 1};
  const ExplainedRouting& routing = before->explained;
  prepared.scenario.job.train.expert_skew = routing.fitted.skew;
  prepared.program = compile(prepared.scenario);
  return {std::move(prepared), routing.at_load_s ? *routing.at_load_s / *routing.predicted_s : 1};
}

Rehearsal rehearse(const RehearseArguments& options) {
  const Prepared prepared = prepare(options.source.load());
  Rehearsal result;
  result.scenario = prepared.scenario.name;
  result.strategy_hash = prepared.program.strategy_hash;
  result.program_hash = program_hash(prepared.program);
  const HostFigures figures = figures_for(options, prepared);
  result.chip = figures.rates.source;
  result.uncalibrated_s = predict(prepared, {});
  if (options.strict) require_measured_kernels(prepared, figures, prepared.scenario.path);  // before any step
  result.before = routing_before(options, prepared, figures);
  auto [calibrated, longer] = with_load(prepared, result.before);
  use(calibrated.scenario, figures);
  const Trace simulated = simulate_world(calibrated, {}, true);
  result.predicted_s = longer * step_s(simulated);
  result.coverage = coverage_of(calibrated.program, calibrated.scenario.job.cluster, simulated);
  if (options.strict)
    require_measured(result.coverage, calibrated.scenario.job.cluster, prepared.scenario.path);
  result.real = RealRuns(options, prepared).run();
  if (result.real.step_s.empty()) return result;
  result.measured_s = median_of(result.real.step_s);
  result.half_width = measured_half_width(result.coverage, std::max(result.real.noise, figures.rates.noise));
  if (result.real.routing) {
    const double stated_s = result.before ? result.before->stated_s : result.predicted_s;
    result.routing = explained(*result.real.routing, kWarmUpSteps, prepared, stated_s, figures);
  }
  return result;
}

std::string signed_percent(double share) { return fmt::format("{:+.1f} %", 100 * share); }

std::string before_text(const Rehearsal& result) {
  if (!result.before) return "";
  const ExplainedRouting& routing = result.before->explained;
  return fmt::format(
      "  even experts  {:>10}   {}; predicted is with {:.2f} times the even share on the busiest {}, as {} "
      "steps had before\n",
      format_seconds(result.before->stated_s), signed_percent(result.error_of(result.before->stated_s)),
      routing.load(), routing.by_rank ? "rank" : "expert", kRoutedSteps);
}

std::string routing_text(const Rehearsal& result) {
  if (!result.routing) return "";
  const ExplainedRouting& routing = *result.routing;
  std::string text =
      before_text(result) +
      fmt::format("  experts       {:>10}   times the even share on the busiest {}; as stated: {:.2f}\n",
                  fmt::format("{:.2f}", routing.load()), routing.by_rank ? "rank" : "expert",
                  routing.expected);
  const std::string key = fmt::format("`expert_skew: {:g}`", routing.fitted.skew);
  if (!routing.predicted_s) return text + fmt::format("{:27}{} is refused: {}\n", "", key, routing.refused);
  text +=
      fmt::format("  with skew     {:>10}   {} with {}, which predicts {:.2f}{}\n",
                  format_seconds(*routing.predicted_s), signed_percent(result.error_of(*routing.predicted_s)),
                  key, routing.fitted.load, routing.fitted.reached ? "" : ", the most of any skew");
  if (routing.at_load_s)
    text += fmt::format("  in proportion {:>10}   {} at {:.2f}\n", format_seconds(*routing.at_load_s),
                        signed_percent(result.error_of(*routing.at_load_s)), routing.load());
  return text;
}

std::string to_text(const Rehearsal& result) {
  const RealSteps& real = result.real;
  std::string text = fmt::format("{}: strategy {}, program {}\n\n", result.scenario, result.strategy_hash,
                                 result.program_hash);
  text += fmt::format("  predicted     {:>10}   80 % interval {} to {}\n", format_seconds(result.predicted_s),
                      format_seconds(result.low_s()), format_seconds(result.high_s()));
  text += fmt::format("  measured      {:>10}   median of {} steps in {} runs; two halves differ by {}\n",
                      format_seconds(result.measured_s), real.step_s.size(), real.rounds,
                      format_percent(real.noise));
  text += fmt::format("  error         {:>10}   {}\n", signed_percent(result.error()),
                      result.holds() ? "inside the interval" : "outside the interval");
  text += fmt::format("  uncalibrated  {:>10}   {}\n", format_seconds(result.uncalibrated_s),
                      signed_percent(result.uncalibrated_error()));
  text += routing_text(result) + "\n";
  text += fmt::format("the prediction rests on: {}\n", describe(result.coverage));
  if (real.disturbed > 0)
    text += fmt::format("{} runs were disturbed (last: {})\n", real.disturbed, real.last_disturbance);
  return text + fmt::format("kernels: {}\n", result.chip);
}

nlohmann::ordered_json to_json(const ExplainedRouting& routing, const Rehearsal& result) {
  nlohmann::ordered_json json = {
      {"busiest_rank", routing.busiest_rank},         {"busiest_expert", routing.busiest_expert},
      {"by", routing.by_rank ? "rank" : "expert"},    {"expected", routing.expected},
      {"expert_skew", routing.fitted.skew},           {"expert_skew_load", routing.fitted.load},
      {"expert_skew_reaches", routing.fitted.reached}};
  if (!routing.predicted_s) {
    json["refused"] = routing.refused;
    return json;
  }
  json["predicted_s"] = *routing.predicted_s;
  json["error_pct"] = 100 * result.error_of(*routing.predicted_s);
  if (!routing.at_load_s) return json;
  json["predicted_at_load_s"] = *routing.at_load_s;
  json["error_at_load_pct"] = 100 * result.error_of(*routing.at_load_s);
  return json;
}

std::string to_json(const Rehearsal& result) {
  nlohmann::ordered_json json = {{"schema", "motley.rehearse/1"},
                                 {"scenario", result.scenario},
                                 {"strategy_hash", result.strategy_hash},
                                 {"program_hash", result.program_hash},
                                 {"predicted_s", result.predicted_s},
                                 {"measured_s", result.measured_s},
                                 {"error_pct", 100 * result.error()},
                                 {"interval_s", {result.low_s(), result.high_s()}},
                                 {"interval_holds", result.holds()},
                                 {"noise_pct", 100 * result.real.noise},
                                 {"uncalibrated_s", result.uncalibrated_s},
                                 {"uncalibrated_error_pct", 100 * result.uncalibrated_error()},
                                 {"steps_s", result.real.step_s},
                                 {"runs", result.real.rounds},
                                 {"runs_disturbed", result.real.disturbed}};
  if (result.before) {
    auto& before = json["routing_before"] = to_json(result.before->explained, result);
    before["stated_predicted_s"] = result.before->stated_s;
    before["stated_error_pct"] = 100 * result.error_of(result.before->stated_s);
  }
  if (result.routing) json["routing"] = to_json(*result.routing, result);
  auto& coverage = json["coverage"] = nlohmann::ordered_json::object();
  for (const Known known : every<Known>())
    coverage[std::string(name_of(known))] = result.coverage.share(known);
  coverage["messages"] = result.coverage.message_share();
  return json_text(json);
}

void check_options(const RehearseArguments& options) {
  if (options.steps < 1 || options.rounds < 1)
    throw Refusal(Exit::usage, "bad-steps", {},
                  fmt::format("--steps {} --rounds {}", options.steps, options.rounds),
                  "both are at least 1");
}

Exit run(RehearseArguments options) {
  check_options(options);
  options.out = measured_path(options.out);
  note_interrupts();
  const Rehearsal result = rehearse(options);
  if (was_interrupted()) return Exit::interrupted;
  write_result(options.json ? to_json(result) : to_text(result), "");
  if (!options.within || 100 * std::abs(result.error()) <= *options.within) return Exit::ok;
  throw Refusal(Exit::mismatch, "not-within", {},
                fmt::format("the prediction is {} off, more than {:g} %", signed_percent(result.error()),
                            *options.within),
                "`motley compare --world real` shows where");
}

}  // namespace

void add_rehearse(const Command& program) {
  const auto options = std::make_shared<RehearseArguments>();
  const Command command = program.subcommand(
      "rehearse", "Predict a scenario on this host's measured kernels, run steps for real, and compare");
  add_scenario(command, options->source);
  command.option("--chip", options->chip,
                 "a chip that `motley calibrate` wrote; default: measure this host's kernels now");
  command.option("--host", options->host,
                 "a cluster that `motley calibrate --cluster` wrote: its chip and its links are used");
  command.option("--seconds", options->seconds, "how long to measure kernels; default: 60");
  command.option("--out", options->out, "write the chip that was measured to this file, or name");
  command.option("--samples", options->samples,
                 "the table of what was measured, which a later run goes on with");
  command.option("--steps", options->steps, "real steps of a run, after one to warm up; default: 8");
  command.option("--rounds", options->rounds,
                 "real runs, with a look at the machine between them; default: 4");
  command.option("--within", options->within,
                 "fail (exit 4) if the prediction is off by more percent than this");
  command.flag(
      "--strict", options->strict,
      "run no step (exit 4) if a kernel or the optimizer of the prediction rests on no measurement, or "
      "on a size outside the measured ones");
  command.option("--kernels", options->kernels, "reference: plain loops; fast: libraries where there are")
      .one_of({"fast", "reference"});
  command
      .option("--routing", options->routing,
              "where experts are divided and the scenario states no expert_skew: measured: as unevenly as "
              "tokens choose them in two steps before; stated: evenly")
      .one_of({"measured", "stated"});
  command.flag("--keep-disturbed", options->keep_disturbed,
               "count runs although the machine did not keep still");
  command.option("--seed", options->seed, "of the shapes that are drawn; default: 1");
  add_max_input(command);
  command.flag("--json", options->json, "print JSON (schema motley.rehearse/1)");
  command.example("motley rehearse scenarios/quickstart-train.yaml --within 10");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
