// Turns both texts into lists of (path, value), and compares these. A value is one scalar, or a list of scalars.
#include "models/explain/key_differences.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/base/yaml_reader.hpp"

namespace motley {
namespace {

using Leaf = std::pair<std::string, std::string>;

bool is_plain(const Yaml& node) { return !node->is_map() && node->kind != YamlNode::Kind::sequence; }

// The label of a list's item: its `name` or `kind`, or its number if it has neither.
std::string label_of(const Yaml& item, std::size_t index) {
  for (const char* key : {"name", "kind"}) {
    const YamlEntry* entry = item->is_map() ? item->find(key) : nullptr;
    if (entry != nullptr && is_plain(entry->value)) return entry->value->text;
  }
  return fmt::to_string(index);
}

void flatten(const Yaml& node, const std::string& path, std::vector<Leaf>& leaves) {
  const auto below = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  if (is_plain(node)) {
    leaves.emplace_back(path, node->text);
    return;
  }
  if (node->is_map()) {
    const YamlEntry* value = node->find("value");
    if (value != nullptr && node->find("source") != nullptr) return flatten(value->value, path, leaves);
    for (const YamlEntry& entry : node->entries)
      if (entry.key != "source") flatten(entry.value, below(entry.key), leaves);
    return;
  }
  if (std::all_of(node->items.begin(), node->items.end(), is_plain)) {
    std::vector<std::string> texts;
    for (const Yaml& item : node->items) texts.push_back(item->text);
    leaves.emplace_back(path, fmt::format("[{}]", fmt::join(texts, ", ")));
    return;
  }
  for (std::size_t i = 0; i < node->items.size(); ++i)
    flatten(node->items[i], below(label_of(node->items[i], i)), leaves);
}

std::vector<Leaf> leaves_of(const std::string& text) {
  std::vector<Leaf> leaves;
  flatten(parse_yaml(text, "text"), "", leaves);
  return leaves;
}

const std::string* find(const std::vector<Leaf>& leaves, const std::string& path) {
  const auto leaf =
      std::find_if(leaves.begin(), leaves.end(), [&](const Leaf& each) { return each.first == path; });
  return leaf == leaves.end() ? nullptr : &leaf->second;
}

}  // namespace

std::vector<KeyDifference> key_differences(const std::string& a, const std::string& b) {
  const std::vector<Leaf> in_a = leaves_of(a), in_b = leaves_of(b);
  std::vector<KeyDifference> list;
  for (const auto& [path, value] : in_a) {
    const std::string* other = find(in_b, path);
    if (other == nullptr || *other != value) list.push_back({path, value, other == nullptr ? "" : *other});
  }
  for (const auto& [path, value] : in_b)
    if (find(in_a, path) == nullptr) list.push_back({path, "", value});
  return list;
}

}  // namespace motley
