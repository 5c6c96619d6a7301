// motley new: writes a scenario to begin with, from options or, on a terminal, from answers. Its layout is the first
// that fits, by closed forms: a scenario can then be simulated at once, and `motley plan` searches for a faster one.
// Read next: new_scenario.hpp.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "models/base/json_text.hpp"
#include "models/base/units.hpp"
#include "tools/commands/answer.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/listed_data.hpp"
#include "tools/commands/new_scenario.hpp"

namespace motley {
namespace {

struct NewArguments {
  NewScenario asked;
  std::string out;
  bool json = false;
};

// Asks on stderr, because stdout is for the scenario. An empty answer takes what stands in brackets.
std::string answer_to(const std::string& question, const std::string& usual) {
  fmt::print(stderr, "{} [{}]: ", question, usual);
  std::string answer;
  if (!std::getline(std::cin, answer)) throw Interrupted();  // the answers end early
  const std::size_t begin = answer.find_first_not_of(" \t");
  if (begin == std::string::npos) return usual;
  return answer.substr(begin, answer.find_last_not_of(" \t") - begin + 1);
}

// Asks until the answer is a name of that kind, or a path.
std::string name_for(const std::string& question, DataKind kind, const std::string& usual) {
  const std::vector<std::string> names = data_names(kind);
  for (;;) {
    const std::string answer = answer_to(question, usual);
    const bool is_path = answer.find('/') != std::string::npos || answer.find(".json") != std::string::npos ||
                         answer.find(".yaml") != std::string::npos;
    if (is_path || std::find(names.begin(), names.end(), answer) != names.end()) return answer;
    fmt::print(stderr, "  no `{}` is known: {}\n", shortened(answer), suggest(answer, names));
  }
}

std::int64_t number_for(const std::string& question, std::int64_t usual) {
  for (;;) {
    const std::string answer = answer_to(question, std::to_string(usual));
    std::int64_t number = 0;
    if (read_integer(answer, number) == NumberFault::none && number > 0) return number;
    fmt::print(stderr, "  `{}` is no number above 0\n", shortened(answer));
  }
}

bool is_asked_for(const NewScenario& asked) {
  return !asked.model.empty() && (!asked.chip.empty() || !asked.cluster.empty());
}

void ask(NewScenario& asked) {
  if (isatty(STDIN_FILENO) == 0)
    throw Refusal(Exit::usage, "missing-option", {},
                  asked.model.empty() ? "--model says what is trained"
                                      : "--chip or --cluster says on what it is trained",
                  "as `motley new --model llama-3-8b --chip h100-80gb-sxm --nodes 4`");
  if (asked.model.empty())
    asked.model = name_for("model (`motley list models`)", DataKind::models, "llama-3-8b");
  if (asked.chip.empty() && asked.cluster.empty()) {
    asked.chip = name_for("chip (`motley list chips`)", DataKind::chips, "h100-80gb-sxm");
    if (asked.nodes == 0) asked.nodes = number_for("nodes", 4);
  }
}

std::string to_json(const WrittenScenario& written, const std::string& path) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const StageMemory& stage : written.memory)
    stages.push_back({{"stage", stage.stage}, {"peak", stage.peak}, {"capacity", stage.capacity}});
  return json_text({{"schema", "motley.new/1"},
                    {"path", path.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(path)},
                    {"chips", written.chips},
                    {"strategy", written.strategy},
                    {"memory", stages},
                    {"text", written.text}});
}

Exit run(const NewArguments& options) {
  NewScenario asked = options.asked;
  if (!is_asked_for(asked)) ask(asked);
  const WrittenScenario written = write_scenario(asked, options.out.empty() ? "new.yaml" : options.out);
  if (options.json) {
    if (!options.out.empty()) write_result(written.text, options.out);
    write_result(to_json(written, options.out), "");
    return Exit::ok;
  }
  write_result(written.text, options.out);
  if (!options.out.empty())
    fmt::print(stderr, "{}: {} chips, {}; next: motley simulate {}\n", options.out, written.chips,
               written.strategy, options.out);
  return Exit::ok;
}

}  // namespace

void add_new(const Command& program) {
  const auto options = std::make_shared<NewArguments>();
  NewScenario& asked = options->asked;
  const Command command =
      program.subcommand("new", "Write a scenario to begin with, in which comments explain every key");
  command.option("--model", asked.model, "what is trained: a name of `motley list models`, or a config.json");
  const Option cluster =
      command.option("--cluster", asked.cluster, "on what: a name of `motley list clusters`, or a file");
  const Option chip =
      command.option("--chip", asked.chip, "or on nodes of this chip: a name of `motley list chips`");
  const Option nodes = command.option("--nodes", asked.nodes, "with --chip: how many nodes; default: 1");
  const Option per_node = command.option("--chips-per-node", asked.chips_per_node,
                                         "with --chip: chips of a node; default: as in a cluster that ships");
  nodes.between(1, 1 << 20);
  per_node.between(1, 1024);
  for (const Option& each : {chip, nodes, per_node}) each.not_with(cluster);
  command
      .option("--global-batch", asked.global_batch,
              "sequences in a step; default: about 4 M tokens, on processor cores about a thousand")
      .between(1, 1 << 20);
  command
      .option("--sequence", asked.sequence,
              "tokens in a sequence; default: 4096 at most, on processor cores 128")
      .between(1, 1 << 30);
  command.option("--out", options->out, "write the scenario to this file instead of stdout");
  command.flag("--json", options->json, "print JSON with the text in it (schema motley.new/1)");
  command.example(
      "motley new --model llama-3-8b --chip h100-80gb-sxm --nodes 4 --out mine.yaml\n"
      "  motley new --model qwen3-30b-a3b --cluster mixed-fleet --global-batch 1024\n"
      "  motley new                          (on a terminal: it asks)");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
