// motley export: writes a scenario in the words of another framework, or refuses what that framework cannot say. Read
// next: models/frameworks/export.hpp.
#include "models/frameworks/export.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "models/base/output_file.hpp"
#include "models/base/text_file.hpp"
#include "models/plan/prepare.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/scenario_flags.hpp"

namespace motley {
namespace {

struct ExportArguments {
  ScenarioFlags source;
  std::string to, out, hosts;
  bool json = false;
};

std::vector<std::string> read_host_names(const std::string& path) {
  std::vector<std::string> hosts;
  if (path.empty()) return hosts;
  std::istringstream lines(read_text_file(path));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    if (words >> name && !name.starts_with('#')) hosts.push_back(name);
  }
  return hosts;
}

void write_files(const Export& exported, const std::string& out) {
  namespace fs = std::filesystem;
  const bool is_folder = exported.files.size() > 1 || out.ends_with('/') || fs::is_directory(out);
  if (!is_folder) return write_result(exported.files[0].text, out);
  std::error_code error;
  fs::create_directories(out, error);
  for (const ExportedFile& file : exported.files)
    write_result(file.text, (fs::path(out) / file.name).string());
}

std::string text_of(const Export& exported) {
  std::string text;
  for (const ExportedFile& file : exported.files) {
    if (exported.files.size() > 1) text += fmt::format("==> {} <==\n", file.name);
    text += file.text;
  }
  return text;
}

Exit run(const ExportArguments& options) {
  if (!options.out.ends_with('/') && !std::filesystem::is_directory(options.out)) open_outputs({options.out});
  const Yaml root = options.source.read();
  const Scenario scenario = read_scenario(root, options.source.path());
  compile(scenario);  // refuses what cannot run anywhere
  const auto target = parse_word<ExportTarget>(options.to);
  const Export exported =
      export_job(scenario.name, scenario.job, *target, ScenarioKeys(root), {read_host_names(options.hosts)});
  for (const UnsaidKey& key : exported.unsaid)
    fmt::print(stderr, "motley: not said: `{}`: {}\n", key.key, key.why);
  if (options.json)
    write_result(export_json(exported), options.out);
  else if (options.out.empty())
    write_result(text_of(exported), "");
  else
    write_files(exported, options.out);
  return Exit::ok;
}

}  // namespace

void add_export(const Command& program) {
  const auto options = std::make_shared<ExportArguments>();
  const Command command = program.subcommand(
      "export", "Write a scenario in the words of another framework: Megatron-LM, FlagScale, ...");
  add_scenario(command, options->source);
  add_max_input(command);
  std::vector<std::string> targets;
  for (const ExportTarget target : every<ExportTarget>()) targets.emplace_back(name_of(target));
  command.option("--to", options->to, "the framework, or what starts its processes")
      .required()
      .one_of(targets);
  command.option(
      "--hosts", options->hosts,
      "names of hosts, a line each, in the order of the cluster's nodes; default: group and number, a100-3");
  command.option("--out", options->out, "write to this file or folder instead of stdout");
  command.flag("--json", options->json, "print JSON (schema motley.export/1)");
  command.example("motley export scenarios/llama3-8b-128k.yaml --to megatron-lm --out train.sh");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
