// Recompute: which parts of a layer a backward computes again instead of keeping them. Read next:
// models/strategy/strategy.hpp.
#pragma once

#include <cstdint>
#include <string>

#include "models/base/words.hpp"
#include "models/base/yaml_reader.hpp"

namespace motley {

// A part of a layer that can be computed again by itself (Megatron-Core's `--recompute-modules`, 2025).
// norms: the outputs of all norms but those of heads. latent: latent attention's queries, keys and values, from their
// latents. attention: attention's output, from its queries, keys and values (arXiv:2205.05198). router: the scores,
// weights and places of tokens' experts. inner: the dense feed-forward part's first product. activation: the output of
// the feed-forward part's activation function; in a layer with experts, of each expert's.
enum class Module : std::uint8_t { norms, latent, attention, router, inner, activation };
template <>
inline constexpr auto kWords<Module> = words("norms", "latent", "attention", "router", "inner", "activation");

// Some modules, or a whole layer. In YAML: `none`, `selective`, `full`, `alternate`, or a list of modules.
struct Recompute {
  std::uint8_t modules = 0;  // a bit for each module
  bool layer = false;        // everything but the layer's input (Chen et al. 2016, arXiv:1604.06174)
  bool operator==(const Recompute&) const = default;

  constexpr bool has(Module module) const { return (modules & bit(module)) != 0; }
  constexpr void add(Module module) { modules = static_cast<std::uint8_t>(modules | bit(module)); }
  static constexpr std::uint8_t bit(Module module) {
    return static_cast<std::uint8_t>(1U << static_cast<unsigned>(module));
  }

  static const Recompute none, selective, full, alternate;
};

inline constexpr Recompute Recompute::none{};
inline constexpr Recompute Recompute::selective{Recompute::bit(Module::attention)};
inline constexpr Recompute Recompute::full{0, true};
// Assumes: `alternate` stands for PyTorch's selective checkpointing by operation, which computes every second of a
// layer's seven products again (torchtitan, 2024-12): `alternate` keeps 32,768 elements for each token of Llama 3 8B,
// PyTorch's keeps 31,744.
inline constexpr Recompute Recompute::alternate{
    static_cast<std::uint8_t>(Recompute::bit(Module::norms) | Recompute::bit(Module::inner))};

// "full", "[norms, router]".
std::string text_of(const Recompute& recompute);
// Reads either, or the name of one module. Refuses unknown words, an empty list, and a module that is given twice.
Recompute to_recompute(const Yaml& node);

// A Recompute as a field's form (models/base/field_forms.hpp).
struct RecomputeForm {
  std::string text(const Recompute& recompute) const { return text_of(recompute); }
  void read(const Yaml& node, Recompute& recompute) const { recompute = to_recompute(node); }
};

}  // namespace motley
