// motley check: compiles a scenario and proves what can be proved before anything runs: every transfer
// has its other side, the Program ends, memory fits. It knows nothing about time. Read next: models/check/check.hpp.
#include "models/check/check.hpp"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/base/json_text.hpp"
#include "models/base/units.hpp"
#include "models/check/memory_text.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/prepare.hpp"
#include "models/scenario/scenario.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/scenario_flags.hpp"

namespace motley {
namespace {

struct CheckArguments {
  ScenarioFlags source;
  bool json = false;
};

std::string to_json(const Program& program, const std::vector<StageMemory>& memory) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const StageMemory& stage : memory)
    stages.push_back({{"stage", stage.stage},
                      {"parameters", stage.parameters},
                      {"gradients", stage.gradients},
                      {"optimizer", stage.optimizer},
                      {"activations_peak", stage.activations_peak},
                      {"logits", stage.logits},
                      {"buffers", stage.buffers},
                      {"buckets", stage.buckets},
                      {"runtime", stage.runtime},
                      {"fragmentation", stage.fragmentation},
                      {"peak", stage.peak},
                      {"capacity", stage.capacity},
                      {"host", stage.host},
                      {"host_capacity", stage.host_capacity}});
  const nlohmann::ordered_json whole = {{"schema", "motley.check/1"},
                                        {"strategy_hash", program.strategy_hash},
                                        {"program_hash", program_hash(program)},
                                        {"ranks", program.rank_count()},
                                        {"memory", stages}};
  return json_text(whole);
}

std::string to_text(const Program& program, const std::vector<StageMemory>& memory) {
  std::string text = fmt::format(
      "{} ranks: every transfer has its other side, the program ends, memory fits\n\n", program.rank_count());
  text += fmt::format("{:<7}{:>12}{:>12}{:>12}{:>14}{:>12}{:>12}{:>12}\n", "stage", "parameters", "gradients",
                      "optimizer", "activations", "beyond", "peak", "capacity");
  for (const StageMemory& stage : memory)
    text += fmt::format("{:<7}{:>12}{:>12}{:>12}{:>14}{:>12}{:>12}{:>12}\n", stage.stage,
                        format_bytes(static_cast<double>(stage.parameters)),
                        format_bytes(static_cast<double>(stage.gradients)),
                        format_bytes(static_cast<double>(stage.optimizer)),
                        format_bytes(static_cast<double>(stage.activations_peak)),
                        format_bytes(static_cast<double>(beyond_tensors(stage))),
                        format_bytes(static_cast<double>(stage.peak)),
                        format_bytes(static_cast<double>(stage.capacity)));
  text += print_memory_notes(memory);
  return text + fmt::format("\nstrategy {}, program {}\n", program.strategy_hash, program_hash(program));
}

Exit run(const CheckArguments& options) {
  const Prepared prepared = prepare(options.source.load());
  write_result(
      options.json ? to_json(prepared.program, prepared.memory) : to_text(prepared.program, prepared.memory),
      "");
  return Exit::ok;
}

}  // namespace

void add_check(const Command& program) {
  const auto options = std::make_shared<CheckArguments>();
  const Command command =
      program.subcommand("check", "Prove that a scenario's Program ends and fits in memory");
  add_scenario(command, options->source);
  add_max_input(command);
  command.flag("--json", options->json, "print JSON (schema motley.check/1)");
  command.example("motley check scenarios/quickstart.yaml");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
