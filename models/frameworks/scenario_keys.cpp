#include "models/frameworks/scenario_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "models/transformer/transformer_fields.hpp"

namespace motley {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kShortNames = {
    {{"tensor_parallel", "tp"},
     {"pipeline_parallel", "pp"},
     {"data_parallel", "dp"},
     {"context_parallel", "cp"},
     {"expert_parallel", "ep"},
     {"expert_tensor_parallel", "etp"}}};

const YamlEntry* entry_of(const YamlNode& map, std::string_view key) {
  if (const YamlEntry* const entry = map.find(key)) return entry;
  for (const auto& [name, short_name] : kShortNames)
    if (name == key) return map.find(short_name);
  return nullptr;
}

// Finds the key in this map or, depth first, in the templates and stages below it.
const YamlEntry* entry_below(const YamlNode& node, std::string_view key) {
  if (node.is_map()) {
    if (const YamlEntry* const entry = entry_of(node, key)) return entry;
    for (const char* const list : {"templates", "stages"})
      if (const YamlEntry* const items = node.find(list))
        if (const YamlEntry* const entry = entry_below(*items->value, key)) return entry;
  }
  for (const Yaml& item : node.items)
    if (const YamlEntry* const entry = entry_below(*item, key)) return entry;
  return nullptr;
}

}  // namespace

Location ScenarioKeys::find(std::string_view key) const {
  if (!scenario_) return {};
  Location where = scenario_->where;
  const YamlNode* node = scenario_.get();
  while (!key.empty()) {
    const std::size_t dot = std::min(key.find('.'), key.size());
    const YamlEntry* const entry = entry_below(*node, key.substr(0, dot));
    if (entry == nullptr) break;
    where = entry->where;
    node = entry->value.get();
    key.remove_prefix(std::min(dot + 1, key.size()));
  }
  return where;
}

void Wording::refuse(std::string_view key, std::string_view value, const std::string& why,
                     const std::string& hint, RefusalSite site) const {
  throw Refusal(Exit::infeasible, "inexpressible", keys.find(key),
                fmt::format("`{}{}{}`: {} {}", key, value.empty() ? "" : ": ", value, target, why), hint,
                site);
}

ModelVariant variant_of(const Transformer& t) {
  constexpr std::array<std::string_view, 12> kModelKeys = {
      "qk_norm_form",        "norms",          "activation",      "attention_chunk", "full_attention_rope",
      "windowed_rope_theta", "rope_dim",       "attention_sinks", "score_width",     "attention_softcap",
      "logit_softcap",       "embedding_scale"};
  constexpr std::array<std::string_view, 3> kExpertKeys = {"bias", "router_bias", "weighted_inputs"};
  ModelVariant first;
  const auto take = [&](const auto& keys, const char* before, const auto& entry, const auto& value) {
    if (first.key.empty() && std::find(keys.begin(), keys.end(), entry.key) != keys.end())
      first = {fmt::format("{}{}", before, entry.key), entry.text(value)};
  };
  each_shown(TransformerFields{}, t, [&](const auto& entry) { take(kModelKeys, "model.", entry, t); });
  each_shown(ExpertsFields{}, t.experts,
             [&](const auto& entry) { take(kExpertKeys, "model.experts.", entry, t.experts); });
  return first;
}

}  // namespace motley
