// motley simulate: runs a scenario's Program in virtual time and reports how fast it is, where the time goes, what
// memory it takes, and which change of the strategy would help, if one of the few that it also simulates does. With
// --world mixed some ranks really compute, and their durations enter virtual time; --record keeps them for --world
// replay. A launcher may have started a process for each of these ranks: the first one simulates, the others serve it.
// Read next: runs.hpp, trials.hpp, models/report/report.hpp.
#include "sim/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hw/launch/rendezvous.hpp"
#include "hw/world/launched_ranks.hpp"
#include "models/base/json_text.hpp"
#include "models/base/output_file.hpp"
#include "models/explain/advice.hpp"
#include "models/report/coverage.hpp"
#include "models/report/report.hpp"
#include "models/report/spending_text.hpp"
#include "models/sweep/sweep_table.hpp"
#include "models/trace/trace_forms.hpp"
#include "models/transformer/train_text.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/expected_speeds.hpp"
#include "tools/commands/likely_step.hpp"
#include "tools/commands/memory_limit.hpp"
#include "tools/commands/place_flags.hpp"
#include "tools/commands/rank_list.hpp"
#include "tools/commands/runs.hpp"
#include "tools/commands/scenario_flags.hpp"
#include "tools/commands/trials.hpp"

namespace motley {
namespace {

struct SimulateArguments {
  std::vector<std::string> scenarios, settings;
  std::string world, real_ranks, record, tape;     // empty: not given
  std::string stand_for, contribution, transfers;  // empty: not given
  std::string record_contributions, recording;     // empty: not given
  PlaceFlags place;
  double silence_limit_s = kSilenceLimit_s;
  int warm_up = -1, repeats = 0;  // -1, 0: not given
  std::string trace, trace_ranks;
  bool trace_kernels = false, no_trace_kernels = false;
  std::optional<std::string> tokens, goodput;
  bool fold = false, no_fold = false;
  bool no_changes = false, strict = false;
  int draws = 0;
  bool json = false;
  std::string out;
  std::string memory;  // empty: not given
};

template <Worded E>
std::vector<std::string> words_of() {
  return {kWords<E>.begin(), kWords<E>.end()};
}

constexpr std::array kImaginedWorlds = {WorldKind::sim, WorldKind::null, WorldKind::mixed, WorldKind::replay};

// The world that the option names, or else the scenario's. A real scenario is imagined here.
WorldKind kind_of(const SimulateArguments& options, const Scenario& scenario) {
  const WorldKind kind = parse_word<WorldKind>(options.world).value_or(scenario.world.kind);
  return kind == WorldKind::real ? WorldKind::sim : kind;
}

StandFor stand_for(const SimulateArguments& options, const Scenario& scenario) {
  return parse_word<StandFor>(options.stand_for).value_or(scenario.world.stand_for);
}

// Where a launcher has started this process; a process alone is in no launch, and starts all real ranks itself.
std::optional<Place> place_of_launch(const WorldChoice& choice, const PlaceFlags& flags) {
  if (choice.kind != WorldKind::mixed || choice.real_ranks.empty()) return std::nullopt;
  std::optional<Place> place = place_of_process(flags);
  if (!place || place->rank_count == 1) return std::nullopt;
  rank_served(*place, choice.real_ranks);  // refuses a wrong number of processes
  return place;
}

// A trace of as many kernels has about 13 MB, which viewers open at once.
constexpr std::int64_t kMostKernelsUnasked = 50'000;

SimulatedWorld world_of(const SimulateArguments& options, const Prepared& prepared) {
  SimulatedWorld world;
  WorldChoice& choice = world.choice;
  choice = prepared.scenario.world;
  choice.kind = kind_of(options, prepared.scenario);
  if (!options.real_ranks.empty())
    choice.real_ranks = parse_ranks(options.real_ranks, prepared.program.rank_count());
  if (options.warm_up >= 0) choice.warm_up = options.warm_up;
  if (options.repeats > 0) choice.repeats = options.repeats;
  if (const auto given = parse_word<Contribution>(options.contribution)) choice.contribution = *given;
  if (const auto given = parse_word<TransferTimes>(options.transfers)) choice.transfers = *given;
  if (!options.recording.empty()) {
    choice.contribution = Contribution::recorded;
    choice.recording = options.recording;
  }
  choice.stand_for = stand_for(options, prepared.scenario);
  world.record_contributions = options.record_contributions;
  world.tape = options.tape;
  const bool may_record =
      choice.kind == WorldKind::sim && !options.trace.empty() && !options.no_trace_kernels;
  world.records_kernels = options.trace_kernels || may_record;
  if (!options.trace_kernels) world.most_kernels = kMostKernelsUnasked;
  world.place = place_of_launch(choice, options.place);
  world.silence_s = options.silence_limit_s;
  return world;
}

// Folds as the option says, or else the scenario. If neither says so, ranks are folded unless some of them really
// compute for themselves alone or --trace-ranks names some; those of a tape as when it was recorded.
void choose_fold(const SimulateArguments& options, const std::optional<Trace>& tape, Scenario& scenario) {
  std::optional<bool>& fold = scenario.job.fidelity.fold;
  const WorldKind world = kind_of(options, scenario);
  if (options.fold || options.no_fold) fold = options.fold;
  if (fold) return;
  if (world == WorldKind::mixed)
    fold = stand_for(options, scenario) == StandFor::alike;
  else if (world == WorldKind::replay)
    fold = tape && (tape->measured_for_class || !tape->stand_ins.empty());
  else
    fold = options.trace_ranks.empty();
}

// How many changes of the job are simulated for its advice. Those of a large job would take too long, and real ranks
// would have to compute again.
std::size_t changes_to_try(const SimulateArguments& options, const Prepared& prepared) {
  constexpr std::size_t kSmall = 10000, kLarge = 40000;  // at 40,000 a simulation takes about half a second
  if (options.no_changes || kind_of(options, prepared.scenario) != WorldKind::sim) return 0;
  std::size_t size = prepared.program.ranks.size();
  for (const RankProgram& each : prepared.program.rank_programs)
    for (const Stream& stream : each.streams) size += stream.instructions.size();
  return size < kSmall ? 4 : size < kLarge ? 2 : 0;
}

Advice advice_for(const Job& job, const Report& report, const Simulation& simulation, std::size_t most) {
  Job folded = job;
  folded.fidelity.fold = true;
  return advise(folded, report, simulation, {.most = most, .run_trials = run_in_pool});
}

void check_strict(const SimulateArguments& options, const Scenario& scenario) {
  const WorldKind world = kind_of(options, scenario);
  if (options.strict && world != WorldKind::sim)
    throw Refusal(Exit::usage, "conflicting-options", {},
                  fmt::format("--strict is for the sim world, and this is the {} world", name_of(world)),
                  "`--world sim` charges every kernel by the chip's figures");
}

// Refuses options of recordings that mean nothing here.
void check_recordings(const SimulateArguments& options, const Scenario& scenario) {
  const WorldKind world = kind_of(options, scenario);
  for (const auto& [option, given] : {std::pair{"--record-contributions", &options.record_contributions},
                                      {"--recording", &options.recording}})
    if (!given->empty() && world != WorldKind::mixed)
      throw Refusal(
          Exit::usage, "conflicting-options", {},
          fmt::format("{} is for the mixed world, and this is the {} world", option, name_of(world)),
          "`--world mixed --real-rank 0` has rank 0 really compute");
  const auto contribution = parse_word<Contribution>(options.contribution);
  if (contribution == Contribution::recorded && options.recording.empty() && scenario.world.recording.empty())
    throw Refusal(Exit::usage, "missing-option", {}, "--contribution recorded needs a recording",
                  "--recording FILE, which --record-contributions FILE wrote");
  if (contribution.value_or(Contribution::recorded) != Contribution::recorded && !options.recording.empty())
    throw Refusal(Exit::usage, "conflicting-options", {},
                  fmt::format("--recording beside --contribution {}", options.contribution),
                  "with --recording simulated ranks contribute what was recorded");
}

// Bytes of the real ranks that start on this host, as far as this process knows; 0: another process says so.
double announce_held_here(const Prepared& prepared, const SimulatedWorld& world, double allowed) {
  WorldChoice choice = world.choice;
  if (choice.kind != WorldKind::mixed) return 0;
  if (world.place && world.place->rendezvous.host != "127.0.0.1")
    choice.real_ranks = {rank_served(*world.place, choice.real_ranks)};
  else if (world.place && world.place->rank != kLeader)
    return 0;
  return announce_real_ranks(prepared, choice, allowed);
}

// `alone`: this process simulates no other scenario. Nothing: this process served a simulation of another one.
std::optional<Report> simulated(const SimulateArguments& options, const std::string& path, bool alone) {
  require_trace_form(options.trace, protobuf_version());
  Scenario scenario = load_scenario(path, options.settings);
  check_strict(options, scenario);
  check_recordings(options, scenario);
  std::optional<Trace> tape;
  if (kind_of(options, scenario) == WorldKind::replay && !options.tape.empty())
    tape = read_trace(options.tape);
  choose_fold(options, tape, scenario);
  if (options.tokens) scenario.job.train.tokens = to_tokens(node_of("--tokens", *options.tokens));
  if (options.goodput) scenario.job.train.goodput = to_goodput(node_of("--goodput", *options.goodput));
  Prepared prepared = prepare(std::move(scenario));
  std::optional<StepSpread> spread;
  if (kind_of(options, prepared.scenario) == WorldKind::sim) spread = expect_speeds(prepared, options.draws);
  std::vector<Rank> traced;
  if (!options.trace_ranks.empty()) traced = parse_ranks(options.trace_ranks, prepared.program.rank_count());
  // A process simulates only once, so the job is simulated in a child where changes of it follow.
  const std::size_t most = changes_to_try(options, prepared);
  SimulatedWorld world = world_of(options, prepared);
  world.kernel_ranks = traced;
  world.recorded = std::move(tape);
  const double allowed = allowed_memory(options.memory);
  MemoryNeed need;
  if (most > 0 || !alone)
    need = memory_need(prepared.scenario.job, prepared.program);  // the child keeps its own
  const double real_bytes = announce_held_here(prepared, world, allowed);
  if (world.place && world.place->rank != kLeader) {
    serve_world(prepared, world);
    return std::nullopt;
  }
  open_outputs({options.trace, options.record, options.record_contributions, options.out});
  world.announce = [&](const MemoryNeed& announced) {
    announce_memory(announced, prepared.scenario.job, allowed - real_bytes);
    need = announced;
  };
  const Trace trace = simulate_world(prepared, world, most > 0 || !alone);
  const Cluster& cluster = prepared.scenario.job.cluster;
  if (options.strict)
    require_measured(coverage_of(prepared.program, cluster, trace), cluster, prepared.scenario.path);
  if (!options.trace.empty()) write_trace(trace, prepared.program, options.trace, traced);
  if (world.records_kernels && !options.trace_kernels && trace.kernels.empty())
    fmt::print(stderr,
               "motley: {} leaves out the kernels of computes, because they are more than {}: "
               "`--trace-kernels` writes them all, `--fold --trace-ranks 0` those of rank 0\n",
               options.trace, kMostKernelsUnasked);
  if (!options.record.empty()) write_trace(trace, prepared.program, options.record);
  Report report = make_report(prepared.scenario.job, prepared.program, trace, prepared.memory);
  report.simulation_bytes = need.bytes;
  report.scenario = prepared.scenario.name;
  report.measured_s = prepared.scenario.measured_s;
  report.spread = std::move(spread);
  if (kind_of(options, prepared.scenario) != WorldKind::null)
    report.draws = draws_of(prepared.scenario.job, most > 0);
  if (most > 0)
    report.advice =
        advice_for(prepared.scenario.job, report,
                   options.strict ? strict_trial(prepared.scenario.path) : Simulation(simulate_trial), most);
  if (kind_of(options, prepared.scenario) == WorldKind::sim &&
      rests_on_published_runs(prepared.scenario.job.cluster)) {
    report.interval = prepared.scenario.interval;
    if (most > 0) report.own_s = simulate_own_figures(prepared.scenario);
  }
  if (world.choice.kind == WorldKind::sim) add_coverage(prepared, trace, report);
  return report;
}

// Refuses options that name one file, or ranks of one scenario.
void refuse_for_several(const SimulateArguments& options) {
  for (const auto& [option, given] : {std::pair{"--trace", &options.trace},
                                      {"--record", &options.record},
                                      {"--tape", &options.tape},
                                      {"--trace-ranks", &options.trace_ranks},
                                      {"--real-rank", &options.real_ranks},
                                      {"--recording", &options.recording},
                                      {"--record-contributions", &options.record_contributions}})
    if (!given->empty())
      throw Refusal(Exit::usage, "conflicting-options", {},
                    fmt::format("{} is for one scenario, and {} are given", option, options.scenarios.size()),
                    "simulate them one after another");
}

Exit simulate_several(const SimulateArguments& options) {
  refuse_for_several(options);
  SweepTable table{.name = "", .axes = {{"scenario", {}}}, .rows = {}};
  std::string text;
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const std::string& path : options.scenarios) {
    const Report report = *simulated(options, path, false);
    table.rows.push_back({{report.scenario}, figures_of(report), {}, {}});
    text += to_text(report) + "\n";
    results.push_back(nlohmann::ordered_json::parse(to_json(report)));
  }
  const nlohmann::ordered_json whole = {{"schema", "motley.simulations/1"}, {"results", results}};
  write_result(options.json ? json_text(whole) : text + to_text(table), options.out);
  return Exit::ok;
}

Exit run(const SimulateArguments& options) {
  if (options.scenarios.size() > 1) return simulate_several(options);
  const std::optional<Report> report = simulated(options, options.scenarios.at(0), true);
  if (report) write_result(options.json ? to_json(*report) : to_text(*report), options.out);
  return Exit::ok;
}

void add_mixed_options(const Command& command, SimulateArguments& options) {
  command.option(
      "--real-rank", options.real_ranks,
      "mixed: ranks that really compute, for example 0,3; a launcher may start a process for each");
  command
      .option("--stand-for", options.stand_for,
              "mixed: a real rank computes for itself, or for its whole class")
      .one_of(words_of<StandFor>());
  command.option("--warm-up", options.warm_up, "mixed: runs of each compute before it is timed; default: 1")
      .between(0, 1000);
  command
      .option("--repeats", options.repeats,
              "mixed: timed runs of each compute, the median counts; default: 3")
      .between(1, 1000);
  command
      .option("--contribution", options.contribution, "mixed: what simulated ranks seem to send to real ones")
      .one_of(words_of<Contribution>());
  command
      .option("--transfers", options.transfers,
              "mixed: what real ranks alone move takes the fabric's price, or as long as it took; default: "
              "priced")
      .one_of(words_of<TransferTimes>());
  command.option("--record-contributions", options.record_contributions,
                 "mixed: write what real ranks receive, bit for bit, for --recording");
  command.option("--recording", options.recording,
                 "mixed: simulated ranks contribute what this file has, which --record-contributions wrote");
  add_place_flags(command, options.place);
  add_silence_limit(command, options.silence_limit_s);
  command.option("--record", options.record, "mixed: write the tape that --world replay reads");
  command.option("--tape", options.tape, "replay: a tape that --record wrote");
}

}  // namespace

void add_simulate(const Command& program) {
  const auto options = std::make_shared<SimulateArguments>();
  std::vector<std::string> worlds;
  for (const WorldKind kind : kImaginedWorlds) worlds.emplace_back(name_of(kind));
  const Command command = program.subcommand("simulate", "Run a scenario in virtual time: how fast, and why");
  command
      .option("scenario", options->scenarios,
              std::string(kScenarioHelp) + "; a table follows the reports of several")
      .required();
  add_settings(command, options->settings);
  add_max_input(command);
  command.option("--world", options->world, "which world, instead of the scenario's").one_of(worlds);
  add_mixed_options(command, *options);
  command.option("--trace", options->trace, kTraceHelp);
  command.option("--trace-ranks", options->trace_ranks, "only these ranks' events, for example 0-7");
  const Option kernels = command.flag(
      "--trace-kernels", options->trace_kernels,
      "trace the kernels and collectives inside the computes, however many; default: up to 50,000");
  command.flag("--no-trace-kernels", options->no_trace_kernels, "trace none of them").not_with(kernels);
  const Option whole = command.flag("--no-fold", options->no_fold, "simulate every rank");
  command
      .flag("--fold", options->fold,
            "simulate one rank of each class that must behave alike: the default, and as exact; routes by "
            "hash repeat a draw")
      .not_with(whole);
  command.option("--tokens", options->tokens,
                 "tokens of a whole run, for example 15T: prints its days, price, energy");
  command.option("--goodput", options->goodput, "share of the run's time that is not lost; default: 1");
  command.flag("--no-changes", options->no_changes,
               "do not simulate the few other strategies that the advice comes from");
  command.flag(
      "--strict", options->strict,
      "refuse (exit 4) a prediction in which a kernel or the optimizer rests on no measurement of its "
      "chip, or on a size outside the measured ones");
  command
      .option("--draws", options->draws,
              "where speeds vary: also simulate this many draws of the speed of every chip, node and NIC")
      .between(0, 10000);
  add_memory_limit(command, options->memory);
  command.flag("--json", options->json, "print JSON (schema motley.simulate/1)");
  command.option("--out", options->out, "write the result to this file instead of stdout");
  command.example(
      "motley simulate scenarios/quickstart.yaml --trace run.json\n"
      "  motley launch -n 2 -- motley simulate scenarios/quickstart-train.yaml --world mixed --real-rank "
      "0,1\n"
      "  motley simulate quickstart --set strategy.tensor_parallel=8 --set strategy.data_parallel=2\n"
      "  motley simulate on-my-core.yaml --strict    (its chip is one that `motley calibrate` wrote)");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
