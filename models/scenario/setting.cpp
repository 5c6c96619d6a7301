#include "models/scenario/setting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "models/base/data_files.hpp"
#include "models/cluster/cluster.hpp"
#include "models/cluster/node_text.hpp"
#include "models/strategy/degree_names.hpp"
#include "models/transformer/train_fields.hpp"
#include "models/transformer/transformer.hpp"

namespace motley {
namespace {

constexpr const char* kExample = "as `--set strategy.tensor_parallel=8`";

// An option of its own stands for itself.
std::string file_of(const std::string& text) {
  const std::string line = shortened(text.substr(0, text.find('\n')));
  return text.starts_with("--") ? line : "--set " + line;
}

[[noreturn]] void refuse_setting(const std::string& text, int column, const std::string& message,
                                 const std::string& hint = kExample, RefusalSite site = RefusalSite::here()) {
  throw Refusal(Exit::usage, "bad-setting", {file_of(text), 1, column}, message, hint, site);
}

Yaml null_node(const Location& where) {
  auto node = std::make_shared<YamlNode>();
  node->where = where;
  return node;
}

// The value behind the `=`. It is parsed with as many spaces before it as the key has characters, so that its places
// are those in the setting.
Yaml value_of(const std::string& text, std::size_t begin) {
  const std::string value = text.substr(begin);
  const std::size_t first = value.find_first_not_of(' ');
  if (first == std::string::npos || value.substr(first) == "null" || value.substr(first) == "~")
    return null_node({file_of(text), 1, static_cast<int>(begin) + 1});
  if (value.find('\n') != std::string::npos)
    refuse_setting(text, static_cast<int>(begin) + 1, "the value has several lines",
                   "write lists as `[1, 2]` and maps as `{key: value}`");
  return parse_yaml(std::string(begin, ' ') + value, file_of(text));
}

// The place of a key that no scenario has, but a part of one does: `tp` stands in `strategy`.
std::string whole_key(const std::string& key) {
  if (!other_name(key).empty()) return "strategy." + key;
  for (const std::string& train : keys_of(TrainFields{}))
    if (train == key) return "train." + key;
  return {};
}

// A file in place of its name, with the name that the file gives its content.
Yaml with_name(const Yaml& content, const std::string& name) {
  if (!content->is_map() || content->find("name") != nullptr) return content;
  auto named = std::make_shared<YamlNode>(*content);
  auto value = std::make_shared<YamlNode>();
  value->kind = YamlNode::Kind::scalar;
  value->where = content->where;
  value->text = name;
  value->quoted = true;
  named->entries.push_back({"name", content->where, std::move(value)});
  return named;
}

Yaml scalar(const std::string& text, const Location& where) {
  auto node = std::make_shared<YamlNode>();
  node->kind = YamlNode::Kind::scalar;
  node->where = where;
  node->text = text;
  return node;
}

// The cluster's file. Chips that it names may stand beside it, so their paths take the place of their names.
Yaml open_cluster(const Yaml& name, const std::string& folder) {
  const std::string path = find_file(to_text(name), folder, "platforms", ".yaml", name->where);
  auto cluster = std::make_shared<YamlNode>(*with_name(read_yaml(path, name->where), stem_of(path)));
  for (YamlEntry& entry : cluster->entries) {
    if (entry.key != "groups" || entry.value->kind != YamlNode::Kind::sequence) continue;
    auto groups = std::make_shared<YamlNode>(*entry.value);
    for (Yaml& item : groups->items) {
      auto group = std::make_shared<YamlNode>(*item);
      for (YamlEntry& key : group->entries)
        if (key.key == "chip" && key.value->is_scalar())
          key.value = scalar(
              find_file(key.value->text, folder_of(path), "platforms/chips", ".yaml", key.value->where),
              key.value->where);
      item = std::move(group);
    }
    entry.value = std::move(groups);
  }
  return cluster;
}

Yaml open_chip(const Yaml& name, const std::string& folder) {
  const std::string path = find_file(to_text(name), folder, "platforms/chips", ".yaml", name->where);
  return with_name(read_yaml(path, name->where), stem_of(path));
}

// The model in Motley's own keys, whatever its file has.
Yaml open_model(const Yaml& name, const std::string& folder) {
  const Transformer transformer = find_transformer(to_text(name), folder, name->where);
  return parse_yaml(print(transformer), to_text(name));
}

// One setting, on its way down a scenario.
class Change {
 public:
  Change(const ScenarioSetting& setting, std::string folder)
      : setting_(setting), folder_(std::move(folder)) {}

  Yaml in(const Yaml& node, std::size_t depth) const {
    if (depth == setting_.path.size()) return setting_.value;
    if (depth == 0 && !node->is_map()) return node;  // whoever reads it says that it is no scenario
    switch (node->kind) {
      case YamlNode::Kind::null:
        return in_map(empty_map(node->where), depth);
      case YamlNode::Kind::map:
        return in_map(std::make_shared<YamlNode>(*completed(node, depth)), depth);
      case YamlNode::Kind::sequence:
        return in_list(node, depth);
      case YamlNode::Kind::scalar:
        return in(opened(node, depth), depth);
    }
    return node;
  }

 private:
  static std::shared_ptr<YamlNode> empty_map(const Location& where) {
    auto map = std::make_shared<YamlNode>();
    map->kind = YamlNode::Kind::map;
    map->where = where;
    return map;
  }
  const std::string& part(std::size_t depth) const { return setting_.path[depth]; }
  Location where(std::size_t depth) const {
    return {file_of(setting_.text), setting_.columns[depth] > 0 ? 1 : 0, setting_.columns[depth]};
  }
  std::string above(std::size_t depth) const {
    return setting_.text.substr(0, static_cast<std::size_t>(setting_.columns[depth]) - 2);
  }

  Yaml in_map(const std::shared_ptr<YamlNode>& map, std::size_t depth) const {
    const auto entry = std::find_if(map->entries.begin(), map->entries.end(), [&](const YamlEntry& each) {
      return each.key == part(depth) || (!each.key.empty() && each.key == other_name(part(depth)));
    });
    if (entry == map->entries.end()) {
      map->entries.push_back({part(depth), where(depth), in(null_node(where(depth)), depth + 1)});
    } else if (depth + 1 == setting_.path.size()) {
      *entry = {part(depth), where(depth), setting_.value};
    } else {
      entry->value = in(entry->value, depth + 1);
    }
    return map;
  }

  // A group that leaves its nodes to its chip, with what the usual ones have of the part that is changed below.
  Yaml completed(const Yaml& node, std::size_t depth) const {
    const std::vector<std::string>& path = setting_.path;
    const bool is_group = depth == 3 && path[0] == "cluster" && path[1] == "groups";
    return is_group && depth + 1 < path.size() ? with_usual_part(node, part(depth), folder_) : node;
  }

  // Whether the part names this item: by its number, its name, its kind, or its chip where that is its name.
  bool names(const YamlNode& item, std::size_t number, std::size_t depth) const {
    const std::string& name = part(depth);
    if (name == "*" || name == std::to_string(number)) return true;
    const std::vector<std::string> own = names_of(item);
    return std::find(own.begin(), own.end(), name) != own.end();
  }
  static std::vector<std::string> names_of(const YamlNode& item) {
    std::vector<std::string> names;
    for (const char* const key : {"name", "kind"})
      if (const YamlEntry* const entry = item.find(key)) names.push_back(entry->value->text);
    const YamlEntry* const chip = item.find("chip");
    if (names.empty() && chip != nullptr && chip->value->is_scalar())
      names.push_back(stem_of(chip->value->text));
    return names;
  }

  Yaml in_list(const Yaml& list, std::size_t depth) const {
    auto changed = std::make_shared<YamlNode>(*list);
    bool any = false;
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      if (!names(*list->items[i], i, depth)) continue;
      changed->items[i] = in(list->items[i], depth + 1);
      any = true;
    }
    if (any) return changed;
    const std::size_t count = list->items.size();
    std::vector<std::string> known;
    for (const Yaml& item : list->items)
      for (const std::string& name : names_of(*item)) known.push_back(name);
    throw Refusal(Exit::usage, "no-such-item", where(depth),
                  fmt::format("`{}` has no item `{}`", above(depth), shortened(part(depth))),
                  count == 0      ? "it is empty"
                  : known.empty() ? fmt::format("its items have the numbers 0 to {}", count - 1)
                                  : suggest(part(depth), known));
  }

  // The content of the file that a scalar names.
  Yaml opened(const Yaml& node, std::size_t depth) const {
    const std::vector<std::string>& path = setting_.path;
    if (depth == 1 && path[0] == "model") return open_model(node, folder_);
    if (depth == 1 && path[0] == "cluster") return open_cluster(node, folder_);
    if (depth == 4 && path[0] == "cluster" && path[3] == "chip") return open_chip(node, folder_);
    throw Refusal(Exit::usage, "not-a-map", where(depth),
                  fmt::format("`{}` is {}, which has no keys", above(depth), describe(node)),
                  fmt::format("`{}=...` sets it", above(depth)));
  }

  const ScenarioSetting& setting_;
  std::string folder_;
};

// A scalar or key that reads back as it was written: plain where it was and can be.
std::string print_word(const std::string& text, bool quoted) {
  const bool is_plain = !quoted && !text.empty() &&
                        text.find_first_of(":#{}[],&*!|>'\"%@`\n\t\r") == std::string::npos &&
                        text.find_first_of(" -?") != 0 && text.back() != ' ';
  return is_plain ? text : quote(text);
}

std::string print_flow_node(const YamlNode& node) {
  std::string text;
  switch (node.kind) {
    case YamlNode::Kind::null:
      return "null";
    case YamlNode::Kind::scalar:
      return print_word(node.text, node.quoted);
    case YamlNode::Kind::sequence:
      for (const Yaml& item : node.items) text += (text.empty() ? "" : ", ") + print_flow_node(*item);
      return fmt::format("[{}]", text);
    case YamlNode::Kind::map:
      for (const YamlEntry& entry : node.entries) {
        text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", print_word(entry.key, false),
                            print_flow_node(*entry.value));
      }
      return fmt::format("{{{}}}", text);
  }
  return text;
}

}  // namespace

ScenarioSetting parse_setting(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) refuse_setting(text, 1, "a setting without `=`");
  ScenarioSetting setting{.text = text, .path = {}, .columns = {}, .value = value_of(text, equals + 1)};
  for (std::size_t begin = 0; begin <= equals;) {
    const std::size_t end = std::min(text.find('.', begin), equals);
    if (end == begin) refuse_setting(text, static_cast<int>(begin) + 1, "a key is empty here");
    setting.path.push_back(text.substr(begin, end - begin));
    setting.columns.push_back(static_cast<int>(begin) + 1);
    begin = end + 1;
  }
  if (const std::string whole = whole_key(setting.path[0]); setting.path.size() == 1 && !whole.empty())
    refuse_setting(text, 1, fmt::format("a scenario has no key `{}`", setting.path[0]),
                   fmt::format("did you mean `{}`?", whole));
  return setting;
}

std::vector<ScenarioSetting> parse_settings(const std::vector<std::string>& texts) {
  std::vector<ScenarioSetting> settings;
  for (const std::string& text : texts) settings.push_back(parse_setting(text));
  return settings;
}

Yaml with_settings(const Yaml& scenario, const std::string& path,
                   const std::vector<ScenarioSetting>& settings) {
  Yaml changed = scenario;
  for (const ScenarioSetting& setting : settings) changed = Change(setting, folder_of(path)).in(changed, 0);
  return changed;
}

std::string print_yaml(const Yaml& node) {
  if (!node->is_map()) return print_flow_node(*node) + "\n";
  std::string text;
  for (const YamlEntry& entry : node->entries) {
    text += fmt::format("{}: {}\n", print_word(entry.key, false), print_flow_node(*entry.value));
  }
  return text;
}

}  // namespace motley
