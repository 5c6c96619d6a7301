// motley import: makes a scenario of what another framework is given, and lists what the scenario does not hold. Read
// next: models/frameworks/import.hpp.
#include "models/frameworks/import.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/base/data_files.hpp"
#include "models/base/output_file.hpp"
#include "models/base/text_file.hpp"
#include "models/cluster/cluster.hpp"
#include "models/scenario/scenario.hpp"
#include "tools/commands/command.hpp"

namespace motley {
namespace {

struct ImportArguments {
  std::string what, from, cluster, model, name, out;
  std::int64_t sequence = 0, ranks = 0;
  bool json = false;
};

// What is to be imported is a file, or the line itself, which has blanks.
std::string text_to_import(const ImportArguments& options, std::string& file) {
  file = options.what;
  if (options.what == "-" || std::filesystem::exists(options.what) ||
      options.what.find_first_of(" \n") == std::string::npos)
    return read_text_file(options.what);
  file = "line";
  return options.what + "\n";
}

ImportOptions read_options(const ImportArguments& arguments, const std::string& file) {
  ImportOptions options;
  if (arguments.cluster.empty())
    throw Refusal(Exit::usage, "missing-cluster", {},
                  "`motley import` needs --cluster: no framework says on which chips it runs",
                  "as --cluster dgx-a100-4, or a file; `--cluster list` says which ones ship");
  options.cluster = arguments.cluster;
  options.name = !arguments.name.empty() ? arguments.name : file == "line" ? "imported" : stem_of(file);
  const Cluster cluster = load_cluster(arguments.cluster);
  options.chips = arguments.ranks > 0 ? arguments.ranks : cluster.chip_count();
  for (const NodeGroup& group : cluster.groups) options.groups.emplace_back(group.name, group.chip.name);
  if (!arguments.model.empty()) {
    options.model = load_transformer(arguments.model);
    options.model_name = arguments.model;
  }
  options.sequence = arguments.sequence;
  return options;
}

Exit run(const ImportArguments& arguments) {
  const ImportSource source = *parse_word<ImportSource>(arguments.from);
  open_outputs({arguments.out});
  std::string file;
  const std::string text = text_to_import(arguments, file);
  const Imported imported = import_text(source, text, file, read_options(arguments, file));
  const std::string scenario = print_scenario(imported, source);
  const std::string path = arguments.out.empty() ? "imported.yaml" : arguments.out;
  read_scenario(parse_yaml(scenario, path), path);  // refuses what the cluster cannot run
  fmt::print(stderr, "{}", import_report(imported));
  if (!arguments.out.empty()) write_result(scenario, arguments.out);
  if (arguments.json)
    write_result(import_json(imported, source), "");
  else if (arguments.out.empty())
    write_result(scenario, "");
  return Exit::ok;
}

}  // namespace

void add_import(const Command& program) {
  const auto options = std::make_shared<ImportArguments>();
  const Command command = program.subcommand(
      "import", "Make a scenario of a Megatron-LM or torchrun line, FlagScale's YAML, or DeepSpeed's JSON");
  command.option("what", options->what, "a file, - for standard input, or the line itself in quotes")
      .required();
  add_max_input(command);
  std::vector<std::string> sources;
  for (const ImportSource source : every<ImportSource>()) sources.emplace_back(name_of(source));
  command.option("--from", options->from, "what wrote it").required().one_of(sources);
  command.option("--cluster", options->cluster, "the cluster: a name in platforms/, or a file");
  command
      .option("--ranks", options->ranks,
              "ranks that start, where the text does not say it; default: all chips")
      .not_negative();
  command.option("--model", options->model, "deepspeed: a name in scenarios/models/, or a config.json");
  command.option("--sequence", options->sequence, "deepspeed: tokens in a sequence").not_negative();
  command.option("--name", options->name, "name of the scenario; default: that of the file");
  command.option("--out", options->out, "write the scenario to this file instead of stdout");
  command.flag("--json", options->json, "print JSON (schema motley.import/1)");
  command.example("motley import train.sh --from megatron-lm --cluster dgx-a100-4 --out imported.yaml");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
