// motley plan: finds a strategy for a scenario and says how far from the best possible it can be. Every strategy that
// closed forms propose is simulated in a child process, as many at once as there are processors. Read next:
// models/plan/planner.hpp, trials.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "models/base/data_files.hpp"
#include "models/base/output_file.hpp"
#include "models/base/text_file.hpp"
#include "models/frameworks/runnable.hpp"
#include "models/plan/ablation.hpp"
#include "models/plan/pareto.hpp"
#include "models/plan/plan_file.hpp"
#include "models/plan/plan_text.hpp"
#include "models/plan/planner.hpp"
#include "models/plan/policies_text.hpp"
#include "models/plan/purchase_text.hpp"
#include "models/scenario/plan_request_fields.hpp"
#include "models/scenario/scenario.hpp"
#include "models/scenario/setting.hpp"
#include "sim/workers/pool.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/memory_limit.hpp"
#include "tools/commands/progress.hpp"
#include "tools/commands/scenario_flags.hpp"
#include "tools/commands/trials.hpp"

namespace motley {
namespace {

// Share of a time limit in which closed forms are searched; the rest is for simulations.
constexpr double kSearchShare = 0.5;
// The same for the very first strategies.
constexpr double kFirstShare = 0.4;

struct PlanArguments {
  ScenarioFlags source;
  std::optional<std::string> policy, objective, time_limit, evaluations, tokens, deadline, budget;
  std::optional<std::string> pareto, target, ablate;
  bool baselines = false;
  bool json = false;
  std::string buy, out, report;
};

template <class Form, class Value>
void use_option(const std::string& option, const std::optional<std::string>& text, const Form& form,
                Value& value) {
  if (text) form.read(node_of(option, *text), value);
}

// The objectives of --pareto: "time,price".
std::vector<PlanObjective> objectives_of(const PlanArguments& options) {
  std::vector<PlanObjective> objectives;
  if (!options.pareto) return objectives;
  std::string text = *options.pareto;
  std::replace(text.begin(), text.end(), ',', ' ');
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const Yaml node = node_of("--pareto", word);
    Word<PlanObjective>{}.read(node, objectives.emplace_back());
    if (std::count(objectives.begin(), objectives.end(), objectives.back()) > 1)
      throw Refusal(Exit::usage, "listed-twice", node->where,
                    fmt::format("objective `{}` is listed twice", word), "as `--pareto time,price`");
  }
  if (objectives.size() < 2)
    throw Refusal(Exit::usage, "one-objective", {.file = "--pareto"}, "a front needs two objectives or more",
                  "as `--pareto time,price`; `--objective` plans by one");
  return objectives;
}

// The scenario's request, with what the command line says in its place; refused where the job cannot be asked it.
PlanRequest asked(const PlanArguments& options, const Scenario& scenario) {
  PlanRequest request = scenario.plan;
  use_option("--policy", options.policy, Word<PlanPolicy>{}, request.policy);
  use_option("--objective", options.objective, Word<PlanObjective>{}, request.objective);
  use_option("--time-limit", options.time_limit, PositiveSeconds{}, request.time_limit_s);
  use_option("--evaluations", options.evaluations, Integer{kEvaluations}, request.evaluations);
  use_option("--ablate", options.ablate, Ablations{}, request.ablate);
  use_option("--tokens", options.tokens, PositiveTokens{}, request.tokens);
  use_option("--deadline", options.deadline, PositiveSeconds{}, request.deadline_s);
  use_option("--budget", options.budget, PositiveDollars{}, request.budget_usd);
  use_option("--target", options.target, Word<PlanTarget>{}, request.target);
  PlanPlaces places = scenario.plan_places;
  for (const auto& [key, text] : {std::pair{"objective", &options.objective},
                                  {"deadline", &options.deadline},
                                  {"budget", &options.budget}})
    if (*text) places.keys[key] = {.file = fmt::format("--{}", key)};
  check_request(request, places, scenario.job);
  for (const PlanObjective objective : objectives_of(options)) {
    PlanRequest by_objective = request;
    by_objective.objective = objective;
    places.keys["objective"] = {.file = "--pareto"};
    check_request(by_objective, places, scenario.job);
  }
  return request;
}

// The scenario's text, whose strategy a plan replaces, and the text's map.
struct ScenarioText {
  std::string text;
  Yaml root;
};

// `changed`: the scenario with its settings. Without any it is as its file has it, comments too.
ScenarioText text_to_rewrite(const ScenarioFlags& source, const Yaml& changed, const std::string& unchanged) {
  std::string text = source.settings.empty() ? unchanged : print_yaml(changed);
  Yaml root = parse_yaml(text, source.path());
  return {std::move(text), std::move(root)};
}

// Writes the planned scenario. What was written must read back as what was planned: a path in the scenario, for
// example, may mean another file beside --out.
void write_planned(const ScenarioText& source, const Plan& plan, const std::string& path) {
  const auto& [text, root] = source;
  std::string planned = with_strategy(text, root, plan.job.strategy);
  Scenario again = read_scenario(parse_yaml(planned, path), path);
  const TransportPolicy transport = plan.job.cluster.transport;
  if (again.job.cluster.transport != transport) {
    planned = with_strategy(text, root, plan.job.strategy, transport);
    again = read_scenario(parse_yaml(planned, path), path);
  }
  Cluster cluster = again.job.cluster;
  cluster.name = plan.job.cluster.name;  // one that is written inline has the name of its file
  again.job.transformer.name = plan.job.transformer.name;
  if (again.job.strategy != plan.job.strategy || again.job.transformer != plan.job.transformer ||
      again.job.train != plan.job.train || !(cluster == plan.job.cluster))
    throw Refusal(Exit::usage, "other-folder", {.file = path},
                  "the scenario would mean another job there, because it names files beside it",
                  "write it into the folder of the scenario");
  write_result(planned, path);
}

bool is_without_rdma(const PlanRequest& request) {
  return std::find(request.ablate.begin(), request.ablate.end(), Ablation::sockets) != request.ablate.end();
}

// A scenario's file can say another strategy and transport, but not another cluster.
void refuse_to_write_without_rdma(const PlanRequest& request, const std::string& out) {
  if (is_without_rdma(request) && !out.empty())
    throw Refusal(Exit::usage, "ablated-cluster", {.file = "--out"},
                  "a plan without RDMA is one for another cluster, which the scenario does not name",
                  "leave out `sockets`, or write `transport: sockets` into the scenario");
}

// Plans what the target runs, and nothing else.
void run_by(ExportTarget target, PlanLimits& limits) {
  limits.as_run = [target](const Job& job) { return runnable_job(job, target); };
  limits.form.has_unlike_templates = false;  // all of them give every replica the same stages
  limits.form.recomputes_modules = false;    // they have the modules of experts alone, and not of some layers
  if (target == ExportTarget::flagscale) limits.form.most_chunks = 1;
  if (target == ExportTarget::flagscale || target == ExportTarget::megatron_lm ||
      target == ExportTarget::megatron_bridge)
    limits.form.splits_backward = false;
  if (target == ExportTarget::megatron_lm || target == ExportTarget::megatron_bridge ||
      target == ExportTarget::torchtitan)
    limits.form.has_unlike_cuts = limits.form.has_unlike_replicas = false;
  // FSDP reduces while backwards run. The others gather beside computation only if gradients overlap, or never.
  limits.form.reduces_last = limits.form.gathers_last = target != ExportTarget::torchtitan;
}

// The time since a search began.
class PlanClock {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  // Whether more jobs, if they take as long as the last ones, end less after the limit than it is away now.
  bool may_judge(double limit_s) const { return seconds() + last_s_ / 2 < limit_s; }
  // A judge that is timed. The clock must outlive it.
  template <class... Arguments>
  auto timed(std::function<std::vector<Verdict>(Arguments...)> judge) {
    return [this, judge = std::move(judge)](Arguments... arguments) {
      const double begin_s = seconds();
      std::vector<Verdict> verdicts = judge(arguments...);
      last_s_ = seconds() - begin_s;
      return verdicts;
    };
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin_ = Clock::now();
  double last_s_ = 0;  // of the jobs that were judged together last
};

Exit run(const PlanArguments& options) {
  PlanClock clock;
  open_outputs({options.out, options.report});
  const std::string path = options.source.path(), text = read_text_file(path);
  const Yaml changed = with_settings(parse_yaml(text, path), path, parse_settings(options.source.settings));
  const ScenarioText source = text_to_rewrite(options.source, changed, text);
  Scenario scenario = read_scenario(changed, path, ScenarioUse::plan);
  const PlanRequest request = asked(options, scenario);
  refuse_to_write_without_rdma(request, options.out);
  if (is_without_rdma(request)) use_ethernet_alone(scenario.job.cluster);
  scenario.job.fidelity.fold = true;
  PlanLimits limits;
  limits.ablate = request.ablate;
  limits.policy = request.policy;
  limits.evaluations = static_cast<std::size_t>(request.evaluations);
  limits.pins = request.pins;
  // The clock is looked at as soon as every processor had its turn.
  if (request.time_limit_s > 0) limits.together = std::clamp<std::size_t>(pool::processors(), 2, 8);
  if (const auto target = parse_word<ExportTarget>(name_of(request.target))) run_by(*target, limits);
  limits.goal = goal_of(request, scenario.job);
  const Judge judge = clock.timed(judge_in_pool(limits.goal.needs_bill()));
  limits.judge_below = clock.timed(judge_below_in_pool());
  note_interrupts();
  limits.has_time = [&] {
    return !was_interrupted() && (request.time_limit_s <= 0 || clock.may_judge(request.time_limit_s));
  };
  Progress progress("strategy", request.evaluations);
  limits.progress = [&](std::size_t judged, double best, double bound) {
    progress.show(static_cast<std::int64_t>(judged), describe_progress(request.objective, best, bound));
  };
  if (options.pareto) {
    const ParetoFront front = plan_front(scenario.job, judge_in_pool(true), limits, objectives_of(options));
    write_result(options.json ? to_json(scenario.name, front) : to_text(scenario.name, front),
                 options.report);
    return was_interrupted() ? Exit::interrupted : Exit::ok;
  }
  if (!options.buy.empty()) {
    const PriceList list = read_price_list(read_yaml(options.buy), options.buy, scenario.job.cluster);
    const Purchases purchases = plan_purchases(scenario.job, list, judge, limits);
    write_result(options.json ? to_json(scenario.name, purchases, limits.goal)
                              : to_text(scenario.name, purchases, limits.goal),
                 options.report);
    return was_interrupted() ? Exit::interrupted : Exit::ok;
  }
  if (request.policy == PlanPolicy::all) {
    PoliciesReport report{scenario.name, request, plan_by_all(scenario.job, judge, limits)};
    report.search_s = clock.seconds();
    limits.policy = PlanPolicy::optimal;
    if (options.baselines) report.baselines = plan_baselines(scenario.job, judge, limits);
    if (!options.out.empty()) write_planned(source, *best_plan(report), options.out);
    write_result(options.json ? to_json(report) : to_text(report), options.report);
    return was_interrupted() ? Exit::interrupted : Exit::ok;
  }
  PlanLimits with_change = limits;
  with_change.suggests = true;
  const auto has_share = [&](double share) {
    return !was_interrupted() &&
           (request.time_limit_s <= 0 || clock.seconds() < share * request.time_limit_s);
  };
  with_change.has_search_time = [&] { return has_share(kSearchShare); };
  with_change.has_first_time = [&] { return has_share(kFirstShare); };
  PlanReport report{scenario.name, request, plan(scenario.job, judge, with_change)};
  report.search_s = clock.seconds();
  if (options.baselines) report.baselines = plan_baselines(scenario.job, judge, limits);
  if (!options.out.empty()) write_planned(source, report.plan, options.out);
  write_result(options.json ? to_json(report) : to_text(report), options.report);
  return was_interrupted() ? Exit::interrupted : Exit::ok;
}

}  // namespace

void add_plan(const Command& program) {
  const auto options = std::make_shared<PlanArguments>();
  const Command command =
      program.subcommand("plan", "Find a strategy for a scenario, and say how far from the best it can be");
  add_scenario(command, options->source);
  add_max_input(command);
  command.option(
      "--policy", options->policy,
      "optimal (default), holmes, hethub, heteroauto, megatron, megatron-llama, megatron-deepspeed; "
      "all: side by side");
  command.option(
      "--ablate", options->ablate,
      "what the plan must do without, with commas: uniform-layers, uniform-recompute, naive-resharding, "
      "gathered-resharding, no-overlap, sockets");
  command.option("--objective", options->objective,
                 "what a token shall take least of: time (default), price (rent), energy or carbon");
  command.option("--tokens", options->tokens, "tokens of the whole run, for --deadline and --budget");
  command.option("--deadline", options->deadline, "most time of the whole run, for example 30d");
  command.option("--budget", options->budget, "most rent of the whole run, for example 500000USD");
  command.option("--time-limit", options->time_limit,
                 "stop after this time, for example 10s, with the best strategy until then");
  command.option("--evaluations", options->evaluations, "strategies to simulate at most; default: 400");
  command.option(
      "--target", options->target,
      "plan what this framework runs: megatron-lm, megatron-bridge, flagscale, torchtitan, deepspeed");
  const Option pareto =
      command.option("--pareto", options->pareto,
                     "objectives, for example time,price: print strategies of which none is worse in all");
  command
      .option(
          "--buy", options->buy,
          "a price list (YAML): plan with every addition of its nodes, with nothing, and without each group")
      .not_with(pareto);
  command.flag("--baselines", options->baselines,
               "plan each group of chips alone, too, and say what share of their sum the plan reaches");
  command.option("--out", options->out, "write the scenario with the chosen strategy to this file");
  command.flag("--json", options->json,
               "print JSON (schema motley.plan/1; with --policy all: motley.policies/1)");
  command.option("--report", options->report, "write the result to this file instead of stdout");
  command.example(
      "motley plan scenarios/h2-four-types-1024.yaml --out planned.yaml\n"
      "  motley plan scenarios/holmes-hybrid.yaml --policy all\n"
      "  motley plan scenarios/mixed-fleet.yaml --objective price --tokens 2T --deadline 400d\n"
      "  motley plan scenarios/mixed-fleet.yaml --pareto time,price\n"
      "  motley plan scenarios/mixed-fleet.yaml --objective price --buy scenarios/prices/mixed-fleet.yaml");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
