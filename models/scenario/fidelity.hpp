// Fidelity: how finely collectives are imagined. It is a lowering of the Program and of the Sim world, and no part of
// the Strategy. Read next: models/program/collective.hpp.
#pragma once

#include <optional>
#include <string>

#include "models/base/words.hpp"
#include "models/base/yaml_reader.hpp"
#include "models/program/collective.hpp"

namespace motley {

// How often a token goes where several of its experts are. expert: once for each (all_to_all of copies). node: once to
// each other node that has any, along its rail, and inside a node once to each chip that has any; on the way back what
// a chip, and then a node, has of a token is summed before it leaves (DeepEP, github:deepseek-ai/DeepEP; HybridEP).
enum class ExpertCopies : std::uint8_t { expert, node };
template <>
inline constexpr auto kWords<ExpertCopies> = words("expert", "node");

struct Fidelity {
  CollectiveLevel data_parallel = CollectiveLevel::fluid;
  // formula: priced inside their computes, without contention; else they are instructions of their own.
  CollectiveLevel tensor_parallel = CollectiveLevel::formula;
  // Simulate one rank of each class of ranks that must behave alike. Nothing: `motley simulate`
  // does so, and the other commands do not.
  std::optional<bool> fold = {};
  // The algorithm of collectives that are instructions of their own. Where it does not do a kind on a group (ring: an
  // all_to_all), the plain one does. A collective that is priced inside computes is always a ring.
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  ExpertCopies expert_copies = ExpertCopies::expert;
  bool operator==(const Fidelity&) const = default;
};

// `fidelity:` of a scenario; a line a key, which reads back equal.
Fidelity read_fidelity(const Yaml& node);
std::string print(const Fidelity& fidelity);
Fidelity parse_fidelity(const std::string& text);

}  // namespace motley
