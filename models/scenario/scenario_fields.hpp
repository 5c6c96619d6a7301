// The fields of `fidelity:` and `world:`, listed once: their keys, and how each is written. Read next:
// models/scenario/scenario.cpp.
#pragma once

#include <array>
#include <limits>
#include <string>
#include <string_view>

#include "models/base/field_forms.hpp"
#include "models/scenario/fidelity.hpp"
#include "models/scenario/scenario.hpp"

namespace motley {

// The algorithms that a scenario may choose.
inline constexpr std::array kAskedAlgorithms = {CollectiveAlgorithm::ring,
                                                CollectiveAlgorithm::tree,
                                                CollectiveAlgorithm::double_binary_tree,
                                                CollectiveAlgorithm::recursive,
                                                CollectiveAlgorithm::hierarchical,
                                                CollectiveAlgorithm::in_switch,
                                                CollectiveAlgorithm::flat,
                                                CollectiveAlgorithm::fastest,
                                                CollectiveAlgorithm::automatic};

struct FidelityFields {
  using Struct = Fidelity;
  constexpr void each(auto&& visit) const {
    visit(field("data_parallel", Word<CollectiveLevel>{}, &Fidelity::data_parallel));
    visit(field("tensor_parallel", Word<CollectiveLevel>{}, &Fidelity::tensor_parallel));
    visit(field("fold", Maybe<Truth>{}, &Fidelity::fold).unless_standard());
    visit(field("algorithm", Word<CollectiveAlgorithm>{kAskedAlgorithms}, &Fidelity::algorithm));
    visit(field("expert_copies", Word<ExpertCopies>{}, &Fidelity::expert_copies).unless_standard());
  }
};

// The path of a file that may not exist yet, searched in `folder` unless it is absolute.
struct FilePath {
  std::string_view folder;
  std::string text(const std::string& path) const { return quote(path); }
  void read(const Yaml& node, std::string& path) const {
    const std::string name = to_text(node);
    path = name.empty() || name[0] == '/' || folder == "." ? name : fmt::format("{}/{}", folder, name);
  }
};

inline constexpr std::int64_t kMostRepeats = 1000;

struct WorldChoiceFields {
  using Struct = WorldChoice;
  std::int64_t rank_count =
      std::numeric_limits<std::int32_t>::max();  // number of ranks of the scenario's strategy
  std::string_view folder = ".";
  constexpr void each(auto&& visit) const {
    visit(field("kind", Word<WorldKind>{}, &WorldChoice::kind).needed());
    visit(field("real_ranks", Several<Index>{{{0, rank_count - 1}}}, &WorldChoice::real_ranks)
              .unless_standard());
    visit(field("stand_for", Word<StandFor>{}, &WorldChoice::stand_for).unless_standard());
    visit(field("contribution", Word<Contribution>{}, &WorldChoice::contribution).unless_standard());
    visit(field("transfers", Word<TransferTimes>{}, &WorldChoice::transfers).unless_standard());
    visit(field("recording", FilePath{folder}, &WorldChoice::recording).unless_standard());
    visit(field("warm_up", Integer{{0, kMostRepeats}}, &WorldChoice::warm_up).unless_standard());
    visit(field("repeats", Integer{{1, kMostRepeats}}, &WorldChoice::repeats).unless_standard());
  }
};

}  // namespace motley
