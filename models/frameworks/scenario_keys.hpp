// Where the keys of a scenario stand, for exports that must refuse one of them: a target has no word for it. Read next:
// megatron_settings.hpp.
#pragma once

#include <string>
#include <string_view>

#include "models/base/yaml_reader.hpp"
#include "models/transformer/transformer.hpp"

namespace motley {

class ScenarioKeys {
 public:
  ScenarioKeys() = default;  // a job that stands in no file: every location is empty
  explicit ScenarioKeys(Yaml scenario) : scenario_(std::move(scenario)) {}

  // Finds a key such as "strategy.overlap.p2p" or "strategy.tensor_parallel". A key of a stage or template is searched
  // in the explicit form, too. Where the key is not written, the location is that of the nearest key above it.
  Location find(std::string_view key) const;

 private:
  Yaml scenario_;
};

// One export's target and the scenario that it is asked to say.
struct Wording {
  std::string target;  // "Megatron-LM 0.20.0"
  const ScenarioKeys& keys;

  // Throws Refusal("inexpressible"): "`strategy.schedule: zb-h1`: Megatron-LM 0.20.0 has no ...". `written` is the key
  // with its value.
  [[noreturn]] void refuse(std::string_view key, std::string_view value, const std::string& why,
                           const std::string& hint = {}, RefusalSite site = RefusalSite::here()) const;
};

// The first key of the model, with its value, that makes its layers other than those of Llama with windows, experts or
// latent attention: no export has a word for it. Empty: the model has no such key.
struct ModelVariant {
  std::string key, value;
};
ModelVariant variant_of(const Transformer& transformer);

}  // namespace motley
