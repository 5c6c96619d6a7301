// motley compare: two traces of one strategy side by side, instruction by instruction. A scenario stands for the trace
// of its run in its world, so that one command checks the simulator against the real run. Structure is always judged,
// durations only with --within. Read next: models/trace/compare.hpp, runs.hpp.
#include "models/trace/compare.hpp"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "models/base/output_file.hpp"
#include "models/check/check.hpp"
#include "models/trace/timeline.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/expected_speeds.hpp"
#include "tools/commands/memory_limit.hpp"
#include "tools/commands/runs.hpp"
#include "tools/commands/scenario_flags.hpp"

namespace motley {
namespace {

struct CompareArguments {
  std::string a, b;
  std::vector<std::string> settings;  // of its scenarios
  std::optional<double> within;       // percent
  int steps = 3;
  bool json = false;
  std::string out;
  std::string timeline;  // empty: not drawn
  std::string memory;    // empty: not given
};

struct ComparedSide {
  Program program;
  Trace trace;
};

// Whether the path is that of a scenario, or the name of one that ships; all else is a trace.
bool is_scenario_path(const std::string& path) {
  const bool is_name = path.find('.') == std::string::npos;
  return path.ends_with(".yaml") || path.ends_with(".yml") || (is_name && find_scenario(path) != path);
}

// `world`: none means the scenario's own world. `looks_at_training`: whether it refuses, before it runs, what would be
// refused if the scenario really ran.
ComparedSide side_of(const std::string& path, std::optional<WorldKind> world, const CompareArguments& options,
                     bool looks_at_training = false) {
  if (!is_scenario_path(path)) {
    ComparedSide side{.program = read_program_of_trace(path), .trace = read_trace(path)};
    try {
      check_indices(side.program);
    } catch (const Refusal& refusal) {
      throw located(refusal, {.file = path, .line = 1, .column = 1});
    }
    return side;
  }
  Prepared prepared = prepare(load_scenario(path, options.settings));
  const WorldKind kind = world.value_or(prepared.scenario.world.kind);
  if (kind == WorldKind::sim) expect_speeds(prepared, 0);
  const auto announce = [&](const MemoryNeed& need) {
    announce_memory(need, prepared.scenario.job, allowed_memory(options.memory));
  };
  if (looks_at_training)
    announce_training(prepared, all_ranks(prepared.program), allowed_memory(options.memory));
  WorldChoice choice = prepared.scenario.world;
  choice.kind = kind;
  Trace trace =
      kind == WorldKind::real
          ? train_world(prepared, options.steps, options.memory)
          : simulate_world(prepared, {.choice = choice, .records_kernels = true, .announce = announce}, true);
  return {.program = prepared.program, .trace = std::move(trace)};
}

Exit run(const CompareArguments& options) {
  const bool both_worlds = options.b.empty();
  if (both_worlds && !is_scenario_path(options.a))
    throw Refusal(Exit::usage, "missing-option", {}, fmt::format("nothing to compare `{}` with", options.a),
                  "give a second trace or scenario; a scenario alone is compared in both worlds");
  open_outputs({options.timeline, options.out});
  const auto in_both = [&](WorldKind kind) { return both_worlds ? std::optional(kind) : std::nullopt; };
  const ComparedSide a = side_of(options.a, in_both(WorldKind::sim), options, both_worlds);
  const ComparedSide b = side_of(both_worlds ? options.a : options.b, in_both(WorldKind::real), options);
  const Comparison comparison = compare(a.program, a.trace, b.trace);
  if (!options.timeline.empty())
    write_result(timeline_svg(a.program, a.trace, b.trace,
                              {.title = fmt::format("strategy {}: A is {}, B is {}", a.trace.strategy_hash,
                                                    a.trace.world, b.trace.world)}),
                 options.timeline);
  write_result(options.json ? to_json(comparison) : to_text(comparison), options.out);
  if (comparison.same_program && comparison.difference_count > 0) return Exit::mismatch;
  const double apart = std::abs(comparison.b.iteration_s / comparison.a.iteration_s - 1) * 100;
  if (options.within && !(apart <= *options.within))
    throw Refusal(Exit::mismatch, "not-within", {},
                  fmt::format("the iterations are {:.1f} % apart, more than {} %", apart, *options.within));
  return Exit::ok;
}

}  // namespace

void add_compare(const Command& program) {
  const auto options = std::make_shared<CompareArguments>();
  const Command command = program.subcommand("compare", "Compare two traces, instruction by instruction");
  command.option("a", options->a, "a trace, or a scenario, which then runs in its world").required();
  command.option("b", options->b, "a second trace or scenario; default: the real run of the first scenario");
  add_settings(command, options->settings);
  add_max_input(command);
  command.option("--within", options->within, "exit with 4 when the iterations are more percent apart")
      .not_negative();
  command.option("--steps", options->steps, "of a real run; the last is compared").between(1, 1'000'000);
  command.option("--timeline", options->timeline, "draw both on one time axis, as SVG into this file");
  add_memory_limit(command, options->memory);
  command.flag("--json", options->json, "print JSON (schema motley.compare/1)");
  command.option("--out", options->out, "write the result to this file instead of stdout");
  command.example(
      "motley compare scenarios/quickstart-train.yaml\n"
      "  motley compare imagined.json real.json --within 10 --timeline both.svg");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
