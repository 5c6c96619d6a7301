// motley list: says which chips, clusters, models, software, scenarios and schedules there are, a line each, with their
// key figures. Read next: listed_data.hpp.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <vector>

#include "models/base/json_text.hpp"
#include "models/base/table.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/listed_data.hpp"

namespace motley {
namespace {

struct ListArguments {
  std::string kind;  // empty: the kinds themselves
  bool json = false, names = false;
};

const char* what_for(DataKind kind) {
  switch (kind) {
    case DataKind::chips:
      return "`chip:` of a cluster, `--chip`";
    case DataKind::clusters:
      return "`cluster:` of a scenario";
    case DataKind::models:
      return "`model:` of a scenario";
    case DataKind::software:
      return "`software:` of a scenario";
    case DataKind::scenarios:
      return "motley simulate, and most other commands";
    case DataKind::schedules:
      break;
  }
  return "`schedule:` of a strategy";
}

std::string to_text(const DataList& list) {
  std::vector<std::string> header = {list.kind == DataKind::software ? "software" : "name"};
  header.insert(header.end(), list.columns.begin(), list.columns.end());
  Table table("l" + list.aligned, header);
  for (const ListedData& item : list.items) {
    std::vector<std::string> row = {item.name};
    row.insert(row.end(), item.cells.begin(), item.cells.end());
    table.add(row);
  }
  return table.print(0);
}

std::string to_json(const DataList& list) {
  nlohmann::ordered_json items = nlohmann::ordered_json::array();
  for (const ListedData& item : list.items) {
    nlohmann::ordered_json each = {{"name", item.name}};
    each.update(item.figures);
    items.push_back(each);
  }
  return json_text({{"schema", "motley.list/1"}, {"kind", name_of(list.kind)}, {"items", items}});
}

DataList read_list(DataKind kind) {
  DataList list = list_data(kind);
  for (const std::string& why : list.unreadable) spdlog::warn("left out, as it cannot be read: {}", why);
  return list;
}

std::string list_kinds(bool json) {
  Table table("rll", {"", "kind", "for"});
  nlohmann::ordered_json kinds = nlohmann::ordered_json::array();
  for (const DataKind kind : every<DataKind>()) {
    const std::size_t count = read_list(kind).items.size();
    table.add({std::to_string(count), std::string(name_of(kind)), what_for(kind)});
    kinds.push_back({{"kind", name_of(kind)}, {"count", count}});
  }
  if (json) return json_text({{"schema", "motley.list/1"}, {"kinds", kinds}});
  return table.print(0) + "\n`motley list KIND` lists one of them.\n";
}

std::string names_of(DataKind kind) {
  std::string text;
  for (const std::string& name : data_names(kind)) text += name + "\n";
  return text;
}

Exit run(const ListArguments& options) {
  if (options.names && options.kind.empty())
    throw Refusal(Exit::usage, "missing-option", {}, "--names needs a kind", "motley list scenarios --names");
  if (options.kind.empty()) {
    write_result(list_kinds(options.json), "");
    return Exit::ok;
  }
  const DataKind kind = *parse_word<DataKind>(options.kind);
  if (options.names && !options.json) {
    write_result(names_of(kind), "");
    return Exit::ok;
  }
  const DataList list = read_list(kind);
  write_result(options.json ? to_json(list) : to_text(list), "");
  return Exit::ok;
}

}  // namespace

void add_list(const Command& program) {
  const auto options = std::make_shared<ListArguments>();
  const Command command = program.subcommand(
      "list", "List the chips, clusters, models, software, scenarios and schedules there are");
  std::vector<std::string> kinds;
  for (const DataKind kind : every<DataKind>()) kinds.emplace_back(name_of(kind));
  command.option("kind", options->kind, "what to list; default: how many there are of each kind")
      .one_of(kinds);
  command.flag("--names", options->names, "print the names alone, and read no file");
  command.flag("--json", options->json, "print JSON (schema motley.list/1)");
  command.example("motley list chips");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
