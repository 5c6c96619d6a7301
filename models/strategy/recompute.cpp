#include "models/strategy/recompute.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

constexpr std::array<std::pair<std::string_view, Recompute>, 4> kNamed = {
    std::pair{"none", Recompute::none}, std::pair{"selective", Recompute::selective},
    std::pair{"full", Recompute::full}, std::pair{"alternate", Recompute::alternate}};

}  // namespace

std::string text_of(const Recompute& recompute) {
  for (const auto& [name, named] : kNamed)
    if (recompute == named) return std::string(name);
  std::vector<std::string_view> modules;
  for (const Module module : every<Module>())
    if (recompute.has(module)) modules.push_back(name_of(module));
  return fmt::format("[{}]", fmt::join(modules, ", "));
}

Recompute to_recompute(const Yaml& node) {
  Recompute recompute;
  if (node->is_scalar()) {
    std::vector<std::string> names;
    for (const auto& [name, named] : kNamed) names.emplace_back(name);
    for (const Module module : every<Module>()) names.emplace_back(name_of(module));
    const std::string word = to_choice(node, names);
    for (const auto& [name, named] : kNamed)
      if (word == name) return named;
    recompute.add(*parse_word<Module>(word));
    return recompute;
  }
  for (const Yaml& item : to_sequence(node)) {
    const auto module = to_choice<Module>(item);
    if (recompute.has(module))
      throw Refusal(Exit::usage, "duplicate-value", item->where,
                    fmt::format("`{}` is in the list twice", name_of(module)), "name each module once");
    recompute.add(module);
  }
  if (recompute == Recompute::none)
    throw Refusal(Exit::usage, "empty-list", node->where, "`recompute` is an empty list",
                  "`recompute: none` keeps everything");
  return recompute;
}

}  // namespace motley
