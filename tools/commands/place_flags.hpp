// The flags by which a user says which rank a process is, for commands whose processes are ranks. Read next:
// hw/launch/place.hpp.
#pragma once

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

}  // namespace motley
