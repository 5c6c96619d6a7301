// The moves from a job to its neighbours: jobs on the same cluster, with the same model and global batch, whose
// strategy differs in one thing, or in a few that belong together. This is the only list of moves: what `motley
// explain` tries (changes.hpp) and what an out-of-memory refusal proposes (remedies.hpp) are selections from it.
// Whether a move is legal, fits or gains anything is not known here. Read next: models/plan/edits.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/plan/edits.hpp"

namespace motley {

enum class MoveKind : std::uint8_t {
  recompute,
  recompute_layers,
  overlap,  // overlap of transfers, gradients or parameters, and the size of their buckets
  sequence_parallel,
  zero,
  sharding,  // over which replicas, and when, what `zero` says is divided and gathered
  resharding,
  micro_batch,
  schedule,
  virtual_stages,
  expert_overlap,  // overlap of experts, and a schedule that allows it if needed
  layers,
  replicas,  // of some stages alone
  degrees,
  experts,  // over how many ranks experts are divided, and where they are weighed
  offload,
  combination,  // several edits that save memory, with the same degrees or others
};
inline constexpr int kMoveKinds = static_cast<int>(MoveKind::combination) + 1;

struct Move {
  MoveKind kind = MoveKind::recompute;
  std::vector<Edit> edits;  // applied in this order; at least one
  std::string what;         // as in the scenario of the job before: "zero: 1, recompute: full"
};

// All moves of that kind from this job, or of every kind in the order of MoveKind. Every move changes the strategy,
// and no two have the same result. The job must be legal.
std::vector<Move> moves(const Job& job, MoveKind kind);
std::vector<Move> moves(const Job& job);

// Returns the job after the move. Throws the Refusal that tells why the move is not legal.
Job moved(const Job& job, const Move& move);
// Returns the job after the move; nothing if the move is not legal.
std::optional<Job> apply(const Move& move, const Job& job);

}  // namespace motley
