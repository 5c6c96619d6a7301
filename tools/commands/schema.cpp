// motley schema: prints the JSON Schema of a kind of file, for editors. Read next: models/scenario/schema.hpp.
#include "models/scenario/schema.hpp"

#include <memory>
#include <string>
#include <vector>

#include "tools/commands/command.hpp"

namespace motley {
namespace {

struct SchemaArguments {
  std::string kind, out;
  bool json = false;  // it is JSON in any case
};

}  // namespace

void add_schema(const Command& program) {
  const auto options = std::make_shared<SchemaArguments>();
  const Command command = program.subcommand(
      "schema",
      "Print the JSON Schema of scenarios, clusters, chips or software, with which editors complete");
  std::vector<std::string> kinds;
  for (const FileKind kind : every<FileKind>()) kinds.emplace_back(name_of(kind));
  command.option("kind", options->kind, "of which files").required().one_of(kinds);
  command.flag("--json", options->json, "print JSON, as without it");
  command.option("--out", options->out, "write to this file instead of stdout");
  command.example(
      "motley schema scenario --out scenario.schema.json\n"
      "  (the first line of a scenario: # yaml-language-server: $schema=scenario.schema.json)");
  command.runs([options] {
    write_result(schema_of(*parse_word<FileKind>(options->kind)), options->out);
    return Exit::ok;
  });
}

}  // namespace motley
