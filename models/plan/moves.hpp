// The moves from a job to its neighbours: jobs on the same cluster, of the same model and global batch, whose
// strategy differs in one thing, or in a few that go together. This is the only list of them in the project: what
// `motley explain` tries (changes.hpp) and what an out-of-memory refusal proposes (remedies.hpp) are selections from
// it. Whether a move is legal, fits or brings anything is not known here. Read next: models/plan/edits.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/plan/edits.hpp"

namespace motley {

enum class MoveKind : std::uint8_t {
  recompute,
  recompute_layers,
  overlap,  // of transfers, gradients or parameters
  sequence_parallel,
  zero,
  resharding,
  micro_batch,
  schedule,
  expert_overlap,  // and, where it needs one, a schedule that can have it
  layers,
  degrees,
  offload,
  combination,  // of what saves memory, on the same degrees or on other ones
};
inline constexpr int kMoveKinds = static_cast<int>(MoveKind::combination) + 1;

struct Move {
  MoveKind kind = MoveKind::recompute;
  std::vector<Edit> edits;  // one after the other; at least one
  std::string what;         // as typed in the scenario of the job it starts from: "zero: 1, recompute: full"
};

// All moves of that kind from this job, and all of every kind in the order of MoveKind. None leaves the strategy as it
// is, and no two make the same of it. The job is legal.
std::vector<Move> moves(const Job& job, MoveKind kind);
std::vector<Move> moves(const Job& job);

// The job after the move. Throws the Refusal that says what is not legal about it.
Job moved(const Job& job, const Move& move);
// Likewise; nothing where it is not legal.
std::optional<Job> apply(const Move& move, const Job& job);

}  // namespace motley
