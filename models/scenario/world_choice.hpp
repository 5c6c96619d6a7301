// In which world a scenario runs, and what of it is real. Read next: models/scenario/scenario.hpp,
// hw/rank/executor.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/base/words.hpp"
#include "models/program/program.hpp"

namespace motley {

// Where a scenario runs. sim: in virtual time. real: processes train. mixed: in virtual time, but some ranks really
// compute. replay: mixed, with durations of the real ranks from a recorded trace. null: nothing takes time.
enum class WorldKind : std::uint8_t { sim, real, mixed, replay, null };
template <>
inline constexpr auto kWords<WorldKind> = words("sim", "real", "mixed", "replay", "null");

// For whom a real rank computes: for itself alone, or also for all ranks that must behave like it.
enum class StandFor : std::uint8_t { rank, alike };
template <>
inline constexpr auto kWords<StandFor> = words("rank", "class");

// What a real rank gets in place of what simulated ranks would have sent: small numbers of both signs, zeros, or what
// it got when they were real, from a recording.
enum class Contribution : std::uint8_t { made_up, zeros, recorded };
template <>
inline constexpr auto kWords<Contribution> = words("made_up", "zeros", "recorded");

// The time of a transfer or collective among real ranks alone: the price on the scenario's fabric, or what moving it
// took.
enum class TransferTimes : std::uint8_t { priced, measured };
template <>
inline constexpr auto kWords<TransferTimes> = words("priced", "measured");

// How often a real rank computes what is timed, each time from the same state: first without a clock, then with one.
// The median counts, or the faster of the two in the middle.
struct Repeats {
  std::int32_t warm_up = 1;
  std::int32_t timed = 3;
  bool operator==(const Repeats&) const = default;
};

struct WorldChoice {
  WorldKind kind = WorldKind::sim;
  std::vector<Rank> real_ranks;  // mixed: the ranks that really compute
  StandFor stand_for = StandFor::rank;
  Contribution contribution = Contribution::made_up;
  TransferTimes transfers = TransferTimes::priced;
  std::string recording = {};  // recorded: the path of the recording
  std::int32_t warm_up = Repeats{}.warm_up, repeats = Repeats{}.timed;
  bool operator==(const WorldChoice&) const = default;
};

}  // namespace motley
