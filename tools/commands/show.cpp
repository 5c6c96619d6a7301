// motley show: prints any stage of the way from a scenario to its Program, with the values that were filled in.
// It simulates nothing; only some stages predict costs. Read next: models/compile/compile.hpp,
// models/cost/costs_text.hpp.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "models/base/data_files.hpp"
#include "models/base/json_text.hpp"
#include "models/base/text_file.hpp"
#include "models/base/units.hpp"
#include "models/cluster/formats_text.hpp"
#include "models/compile/compile.hpp"
#include "models/compile/predicted_order.hpp"
#include "models/cost/collectives_text.hpp"
#include "models/cost/costs_text.hpp"
#include "models/plan/prepare.hpp"
#include "models/scenario/scenario.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/scenario_flags.hpp"

namespace motley {
namespace {

using Json = nlohmann::ordered_json;

struct ShowArguments {
  std::string what;
  std::vector<std::string> settings;  // of a scenario
  bool json = false;
  bool passes = false;
  bool csv = false;
  int pipeline = 0;
  std::string out;
};

// Whether the file is a scenario: only scenarios have the key `cluster` at the left margin.
bool names_a_cluster(const std::string& what) {
  if (!is_text_source(what)) return false;
  std::istringstream file(read_text_file(what));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("cluster:")) return true;
  return false;
}

std::string dump(const Json& json) { return json_text(json); }

std::string counted(std::int64_t count, const char* what) {
  return fmt::format("{} {} ({})", count, what, format_count(static_cast<double>(count)));
}

std::string describe_active(const Transformer& t) {
  const std::int64_t active = active_parameter_count(t), table = t.vocabulary * t.hidden;
  std::string text = fmt::format("# active for each token: {}", counted(active, "parameters"));
  if (!t.tied_embeddings)
    text += fmt::format("; without the embedding table (a token reads one row of it): {}",
                        format_count(static_cast<double>(active - table)));
  text += "\n";
  if (t.extra_predictions > 0)
    text += fmt::format("# not counted: {} for multi-token prediction, which {}\n",
                        counted(extra_prediction_count(t), "parameters"),
                        t.trained_extra() > 0 ? "are trained, too" : "are not used");
  if (t.lora.used())
    text += fmt::format("# trained: {} of adapters; all other parameters are frozen\n",
                        counted(trained_parameter_count(t), "parameters"));
  return text;
}

std::string show_model(const ShowArguments& options) {
  const Transformer transformer = names_a_cluster(options.what)
                                      ? load_scenario(options.what, options.settings).job.transformer
                                      : load_transformer(options.what);
  const std::int64_t count = parameter_count(transformer);
  if (options.json) {
    Json list = Json::array();
    for (const Parameter& parameter : parameters(transformer))
      list.push_back({{"name", parameter.name}, {"shape", parameter.shape}, {"layer", parameter.layer}});
    return dump({{"schema", "motley.model/1"},
                 {"name", transformer.name},
                 {"parameter_count", count},
                 {"active_parameter_count", active_parameter_count(transformer)},
                 {"extra_prediction_count", extra_prediction_count(transformer)},
                 {"text", print(transformer)},
                 {"trained_parameter_count", trained_parameter_count(transformer)},
                 {"flop_formula", flop_formula(transformer)},
                 {"parameters", list}});
  }
  return print(transformer) +
         fmt::format(
             "# {}\n{}# a sequence of {} tokens takes {:.4g} FLOP forward and backward\n"
             "# FLOP formula: {}\n",
             counted(count, "parameters"), describe_active(transformer), transformer.max_positions,
             model_flops_per_sequence(transformer, transformer.max_positions), flop_formula(transformer));
}

std::string show_cluster(const ShowArguments& options) {
  const Cluster cluster = names_a_cluster(options.what)
                              ? load_scenario(options.what, options.settings).job.cluster
                              : load_cluster(options.what);
  Json routes = Json::array();
  std::string text = print(cluster);
  text += fmt::format("# {} chips, {} directed links\n", cluster.chip_count(), cluster.link_count);
  text +=
      "# A flow inside a node takes the fabric of the node. A flow between nodes takes NICs of the kind\n"
      "# that joins the two groups: it leaves by the ports nearest to its source and arrives at those\n"
      "# nearest to its destination. From leaf to leaf it takes the spine that a hash of the two ports\n"
      "# chooses (ecmp), or all spines (adaptive). Through a dragonfly it takes the only shortest route.\n"
      "# Between sites it takes the link that joins them.\n";
  int previous_group = -1;
  for (int chip = 1; chip < cluster.chip_count(); ++chip) {
    const bool another_node = cluster.chip_node[static_cast<std::size_t>(chip)] !=
                              cluster.chip_node[static_cast<std::size_t>(chip) - 1];
    const int group = cluster.chip_group[static_cast<std::size_t>(chip)];
    if (chip != 1 && !(another_node && group != previous_group)) continue;
    if (another_node) previous_group = group;
    const std::vector<int> ends = {0, chip};
    const Route chip_route = route(cluster, 0, chip, choose_carrier(cluster, ends).carrier);
    const std::string transport = transport_between(cluster, 0, chip);
    text +=
        fmt::format("# chip 0 to chip {}: {} links, {} for one flow, {}, {}\n", chip, chip_route.links.size(),
                    format_rate(chip_route.rate), format_seconds(chip_route.latency_s), transport);
    routes.push_back({{"from", 0},
                      {"to", chip},
                      {"links", chip_route.links.size()},
                      {"bandwidth", chip_route.bandwidth},
                      {"rate", chip_route.rate},
                      {"transport", transport},
                      {"latency_s", chip_route.latency_s}});
  }
  if (!options.json) return text;
  return dump({{"schema", "motley.cluster/1"},
               {"name", cluster.name},
               {"chips", cluster.chip_count()},
               {"links", cluster.link_count},
               {"text", print(cluster)},
               {"routes", routes}});
}

std::string show_strategy(const ShowArguments& options) {
  const Scenario scenario = load_scenario(options.what, options.settings);
  const Strategy& strategy = scenario.job.strategy;
  const std::string hash = strategy_hash(scenario.job.transformer, scenario.job.train, strategy);
  if (options.json)
    return dump({{"schema", "motley.strategy/1"},
                 {"strategy_hash", hash},
                 {"tp", strategy.tp()},
                 {"pp", strategy.pp()},
                 {"dp", strategy.dp()},
                 {"cp", strategy.cp()},
                 {"ranks", strategy.rank_count()},
                 {"text", print(strategy)}});
  return print(strategy) +
         fmt::format("# strategy {}: {} = {} ranks\n", hash, degrees_of(strategy), strategy.rank_count());
}

std::string show_program(const ShowArguments& options) {
  const Scenario scenario = load_scenario(options.what, options.settings);
  if (options.passes) {
    std::string text;
    for (const CompilePass& pass : compile_passes()) text += fmt::format("{:<20} {}\n", pass.name, pass.does);
    return text;
  }
  const Program program = compile(scenario);
  if (!options.json) return print(program);
  std::int64_t instructions = 0;
  for (const RankEntry& rank : program.ranks)
    for (const Stream& stream : program.rank_programs[rank.rank_program].streams)
      instructions += static_cast<std::int64_t>(stream.instructions.size());
  return dump({{"schema", "motley.program/1"},
               {"strategy_hash", program.strategy_hash},
               {"program_hash", program_hash(program)},
               {"ranks", program.rank_count()},
               {"classes", program.rank_programs.size()},
               {"instructions", instructions},
               {"text", print(program)}});
}

// What the chips or links of the scenario's cluster cannot be asked is told at the key that names the cluster.
auto asking_cluster(const Scenario& scenario, const auto& ask) {
  try {
    return ask();
  } catch (const Refusal& refusal) {
    throw located(refusal, scenario.cluster_location);
  }
}

std::string show_costs(const ShowArguments& options) {
  const Scenario scenario = load_scenario(options.what, options.settings);
  const Program program = compile(scenario);
  const std::vector<PassCost> passes =
      asking_cluster(scenario, [&] { return price_passes(scenario.job, program); });
  const std::vector<ListedCarrier> carriers =
      asking_cluster(scenario, [&] { return list_carriers(scenario.job, program); });
  if (options.json) return costs_json(passes, carriers);
  return carriers.empty() ? costs_text(passes) : carriers_text(carriers) + "\n" + costs_text(passes);
}

// The schedule of one of the strategy's pipelines: the order in its Program, with predicted durations.
std::string show_schedule(const ShowArguments& options) {
  const Scenario scenario = load_scenario(options.what, options.settings);
  const Strategy& strategy = scenario.job.strategy;
  if (options.pipeline >= static_cast<int>(strategy.templates.size()))
    throw Refusal(Exit::usage, "no-such-pipeline", {},
                  fmt::format("--pipeline {}: the number of templates in the strategy is {}",
                              options.pipeline, strategy.templates.size()),
                  "templates are numbered from 0, in the order of the strategy");
  const Program program = compile(scenario);
  const Timetable timetable = timetable_of(program, options.pipeline);
  if (options.csv) return to_csv(timetable);
  const ScheduleTimes times = asking_cluster(
      scenario, [&] { return predicted_times(program, scenario.job.cluster, options.pipeline); });
  const auto result = evaluate(timetable, times, strategy.p2p_buffers).value();
  Json ranks = Json::array();
  std::string text = to_grid(timetable, times);
  text += fmt::format(
      "# {}: the pipeline takes {} if each transfer takes {} and shares no link with others\n",
      name_of(strategy.schedule), format_seconds(result.makespan_s), format_seconds(times.transfer_s));
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    const RankTimes& rank_times = result.ranks[rank];
    const double waits = 1 - rank_times.busy_s / result.makespan_s;
    text += fmt::format("# rank {}: computes {}, waits {:.1f} %, has at most {} micro-batches in flight\n",
                        rank, format_seconds(rank_times.busy_s), 100 * waits, rank_times.in_flight);
    ranks.push_back({{"rank", rank},
                     {"busy_s", rank_times.busy_s},
                     {"waits", waits},
                     {"in_flight", rank_times.in_flight}});
  }
  if (!options.json) return text;
  return dump({{"schema", "motley.schedule/1"},
               {"schedule", name_of(strategy.schedule)},
               {"makespan_s", result.makespan_s},
               {"transfer_s", times.transfer_s},
               {"csv", to_csv(timetable)},
               {"ranks", ranks}});
}

std::string show_collectives(const ShowArguments& options) {
  const Scenario scenario = load_scenario(options.what, options.settings);
  const Program program = compile(scenario);
  const auto listed = asking_cluster(scenario, [&] { return list_collectives(scenario.job, program); });
  return options.json ? collectives_json(listed) : collectives_text(listed);
}

// The chips of a scenario or cluster, the one chip that is named, or all chips that ship.
std::vector<Chip> chips_of(const ShowArguments& options) {
  const std::string& what = options.what;
  std::vector<Chip> chips;
  for (const std::string& path : data_files("platforms/chips", ".yaml"))
    if ((what == "all" || what == stem_of(path)) && folder_of(path).ends_with("chips"))
      chips.push_back(load_chip(path));
  if (!chips.empty()) return chips;
  const Cluster cluster =
      names_a_cluster(what) ? load_scenario(what, options.settings).job.cluster : load_cluster(what);
  std::set<std::string> names;
  for (const NodeGroup& group : cluster.groups)
    if (names.insert(group.chip.name).second) chips.push_back(group.chip);
  return chips;
}

std::string show_formats(const ShowArguments& options) {
  const std::vector<Chip> chips = chips_of(options);
  return options.json ? formats_json(chips) : formats_text(chips);
}

struct ShownPart {
  const char* name;
  const char* description;
  const char* what;
  std::string (*show)(const ShowArguments&);
};
constexpr ShownPart kParts[] = {
    {"model", "The Transformer: its figures, parameters and FLOP formula",
     "a scenario, a shipped model's name, or a config.json", show_model},
    {"cluster", "The Cluster: its groups and links, and how routes are chosen",
     "a scenario, or a cluster's name or file", show_cluster},
    {"strategy", "The Strategy, written out in full", "a scenario", show_strategy},
    {"schedule", "The schedule: one row for each rank, with its computes in order", "a scenario",
     show_schedule},
    {"program", "The Program: the instructions of every rank, as text that Motley can read back",
     "a scenario", show_program},
    {"costs", "The cost of every kind of kernel, and what bounds it (compute, memory, overhead or network)",
     "a scenario", show_costs},
    {"formats", "The peak rate of matrix products on each chip, for every number format",
     "a scenario, a cluster, a chip, or `all`", show_formats},
    {"collectives", "The algorithm of every collective, its time, and why it was chosen", "a scenario",
     show_collectives},
};

}  // namespace

void add_show(const Command& program) {
  const Command command =
      program.subcommand("show", "Print a part of a scenario, or what Motley derives from it");
  command.example("motley show program scenarios/quickstart.yaml");
  for (const ShownPart& part : kParts) {
    const auto options = std::make_shared<ShowArguments>();
    const Command shown = command.subcommand(part.name, part.description);
    shown.option("what", options->what, part.what).required();
    add_settings(shown, options->settings);
    add_max_input(shown);
    shown.flag("--json", options->json, fmt::format("print JSON (schema motley.{}/1)", part.name));
    shown.option("--out", options->out, "write to this file instead of stdout");
    if (part.show == show_program)
      shown.flag("--passes", options->passes, "list the passes of the compiler instead");
    if (part.show == show_schedule) {
      shown.flag("--csv", options->csv, "print CSV that PyTorch's pipelining and torchtitan can read");
      shown
          .option("--pipeline", options->pipeline,
                  "which template of the strategy to show; default: 0, the first")
          .not_negative();
    }
    shown.example(fmt::format("motley show {} scenarios/quickstart.yaml", part.name));
    shown.runs([options, part] {
      write_result(part.show(*options), options->out);
      return Exit::ok;
    });
  }
}

}  // namespace motley
