#include "models/frameworks/launch_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "models/base/index.hpp"
#include "models/base/units.hpp"
#include "models/base/yaml_reader.hpp"

namespace motley {
namespace {

std::size_t script_of(const ShellCommand& command) {
  for (std::size_t i = 0; i < command.words.size(); ++i)
    if (command.words[i].text.ends_with(".py") && !command.words[i].text.starts_with("-")) return i;
  return command.words.size();
}

bool trains(const ShellCommand& command) {
  return script_of(command) < command.words.size() || command.words[0].text.starts_with("--");
}

// Counts that launchers are given, by one name for each meaning.
const std::map<std::string, std::string>& launcher_counts() {
  static const std::map<std::string, std::string> names = {
      {"--nnodes", "nodes"},
      {"--num_nodes", "nodes"},
      {"--nodes", "nodes"},
      {"-N", "nodes"},
      {"--nproc-per-node", "local"},
      {"--nproc_per_node", "local"},
      {"--num_gpus", "local"},
      {"--ntasks-per-node", "tasks"},
      {"--ntasks", "all"},
      {"-n", "all"},
      {"-np", "all"},
      {"--np", "all"},
      {"--gpus-per-node", "gpus"},
  };
  return names;
}

struct Count {
  std::int64_t value = 0;
  Location where;
};

// "2", or "2:2" as torchrun writes a range.
std::optional<std::int64_t> read_count(const ShellWord& word) {
  std::int64_t value = 0;
  const std::string text = word.text.substr(0, word.text.find(':'));
  if (!word.unknown.empty() || read_integer(text, value) != NumberFault::none || value < 1 ||
      value > (1 << 20))
    return std::nullopt;
  return value;
}

void count_ranks(const std::map<std::string, Count>& counts, LaunchLine& line) {
  const auto value_of = [&](const char* name) -> std::int64_t {
    const auto count = counts.find(name);
    return count == counts.end() ? 0 : count->second.value;
  };
  const auto say = [&](std::int64_t ranks, const char* name) {
    line.ranks = ranks;
    line.ranks_where = counts.at(name).where;
  };
  if (const std::int64_t local = value_of("local"))
    say(std::max<std::int64_t>(value_of("nodes"), 1) * local, "local");
  else if (const std::int64_t world = value_of("world"))
    say(world, "world");
  else if (const std::int64_t all = value_of("all"))
    say(all, "all");
  else if (value_of("nodes") > 0 && value_of("tasks") > 0)
    say(value_of("nodes") * value_of("tasks"), "tasks");
}

void read_launcher(const ShellCommand& command, std::size_t script, LaunchLine& line) {
  std::map<std::string, Count> counts;
  for (const ShellWord& word : command.assignments)
    if (word.text.starts_with("WORLD_SIZE=")) {
      ShellWord value = word;
      value.text = word.text.substr(word.text.find('=') + 1);
      if (const auto count = read_count(value)) counts["world"] = {*count, word.where};
    }
  for (std::size_t i = 0; i < script; ++i) {
    const ShellWord& word = command.words[i];
    const std::size_t equals = word.text.find('=');
    const std::string name = word.text.substr(0, equals);
    const auto meaning = launcher_counts().find(name);
    ShellWord value = word;
    const bool in_next = equals == std::string::npos;
    if (!in_next) value.text = word.text.substr(equals + 1);
    if (meaning != launcher_counts().end() && in_next && i + 1 < script) value = command.words[i + 1];
    const auto count = meaning == launcher_counts().end() ? std::nullopt : read_count(value);
    if (count) {
      counts[meaning->second] = {*count, word.where};
      if (in_next) ++i;
    } else {
      line.launcher.push_back(word);
    }
  }
  count_ranks(counts, line);
}

}  // namespace

LaunchLine read_launch_line(const std::string& text, const std::string& file) {
  const std::vector<ShellCommand> commands = parse_shell(text, file);
  const ShellCommand* training = nullptr;
  for (const ShellCommand& command : commands) {
    if (!trains(command)) continue;
    if (training != nullptr)
      throw Refusal(
          Exit::usage, "no-training-command", command.words[0].where,
          fmt::format("a second command that trains; the first is in line {}", training->words[0].where.line),
          "keep the one to import");
    training = &command;
  }
  if (training == nullptr)
    throw Refusal(
        Exit::usage, "no-training-command", {file, 1, 1}, "no command here trains",
        "as `torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 ...`, or the arguments alone");
  const std::size_t script = script_of(*training);
  LaunchLine line;
  line.where = training->words[0].where;
  const bool has_script = script < training->words.size();
  read_launcher(*training, has_script ? script : 0, line);
  line.arguments.assign(training->words.begin() + static_cast<std::ptrdiff_t>(has_script ? script + 1 : 0),
                        training->words.end());
  return line;
}

}  // namespace motley
