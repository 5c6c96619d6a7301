// motley doctor --peers: by which path ranks send each other small and large messages, and why. Read next:
// hw/communicator/tried_paths.hpp.
#pragma once

#include <string>
#include <vector>

#include "hw/communicator/messenger.hpp"
#include "hw/launch/place.hpp"
#include "models/base/refusal.hpp"

namespace motley {

struct PeersArguments {
  PlaceFlags place;
  int ranks = 2;  // that this command starts, where no launcher has
  bool json = false;
};

// Every rank calls it, or a process that no launcher has started, which then starts the ranks. Rank 0 prints.
Exit report_peers(const PeersArguments& arguments);

}  // namespace motley
