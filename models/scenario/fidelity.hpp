// Fidelity: the level of detail of simulated collectives. It directs how the Program is lowered and how the Sim world
// prices it, and is no part of the Strategy. Read next: models/program/collective.hpp.
#pragma once

#include <optional>
#include <string>

#include "models/base/words.hpp"
#include "models/base/yaml_reader.hpp"
#include "models/program/collective.hpp"

namespace motley {

// How often a token is sent when several of its experts are elsewhere. expert: once for each expert (all_to_all of
// copies). node: once to each other node that has any of its experts, along the rail, and inside that node once to
// each chip that has any; on the way back each chip, and then each node, sums its results of a token before it sends
// them (DeepEP, github:deepseek-ai/DeepEP; HybridEP).
enum class ExpertCopies : std::uint8_t { expert, node };
template <>
inline constexpr auto kWords<ExpertCopies> = words("expert", "node");

struct Fidelity {
  CollectiveLevel data_parallel = CollectiveLevel::fluid;
  // formula: priced inside computes, without contention. Other levels: instructions of their own.
  CollectiveLevel tensor_parallel = CollectiveLevel::formula;
  // Whether to simulate one rank of each class of ranks that must behave alike. Nothing: `motley simulate` does so,
  // and the other commands do not.
  std::optional<bool> fold = {};
  // The algorithm of collectives that are instructions of their own. Where it cannot do a kind on a group (ring: an
  // all_to_all), the plain algorithm does. A collective that is priced inside computes is a ring. Instead of either
  // ring, a tensor-parallel sum goes through a switch that reduces, where that is sooner.
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  ExpertCopies expert_copies = ExpertCopies::expert;
  bool operator==(const Fidelity&) const = default;
};

// Read and print `fidelity:` of a scenario. print() writes one line for each key, which parse_fidelity() reads back
// equal.
Fidelity read_fidelity(const Yaml& node);
std::string print(const Fidelity& fidelity);
Fidelity parse_fidelity(const std::string& text);

}  // namespace motley
