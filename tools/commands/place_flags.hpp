// The flags by which a user says which rank a process is, for commands whose processes are ranks. Read next:
// hw/launch/place.hpp.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "hw/launch/place.hpp"
#include "tools/commands/command_line.hpp"

namespace motley {

inline void add_place_flags(const Command& command, PlaceFlags& flags) {
  command.option("--rank", flags.rank, "which rank this process is, from 0, where no launcher says so");
  command.option("--ranks-in-all", flags.rank_count, "how many ranks there are, with --rank");
  command.option("--rendezvous", flags.rendezvous, "host:port where rank 0 listens and the ranks meet");
}

inline std::optional<Place> place_of_process(const PlaceFlags& flags) {
  return place_from([](const char* name) { return std::getenv(name); }, flags);
}

inline constexpr double kSilenceLimit_s = 300;

inline void add_silence_limit(const Command& command, double& silence_s) {
  command
      .option("--silence-limit", silence_s,
              "seconds after which a rank that gives no sign of life counts as dead; one that computes lives")
      .between(0.5, 86400.0);
}

// For how long ranks wait for each other to start. Who has met is watched; who has not come must do so in time.
inline double start_limit_s(double silence_s) {
  constexpr double kUsual_s = 120,
                   kFurther_s = 6;  // ranks may start as far apart beyond a short limit of silence
  return std::min(kUsual_s, silence_s + kFurther_s);
}

}  // namespace motley
