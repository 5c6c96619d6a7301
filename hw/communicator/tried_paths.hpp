// By which paths a rank's messages go, found by sending some: what a rank believes of its peers before it has tried may
// not hold. Read next: hw/communicator/messenger.hpp.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "hw/communicator/messenger.hpp"

namespace motley {

struct TriedPaths {
  static constexpr std::size_t kSmall = 64, kLarge = std::size_t{1} << 20U;  // bytes
  std::map<Rank, Path> small, large;   // of what this rank sent, to each other
  std::map<Rank, std::string> unread;  // as Messenger::why_not_memory(), of each other
  std::vector<std::string> notes;      // what else MessengerOptions::on_note was told
};

// Every rank calls it at the same time. It sends a message of each size to each other rank.
TriedPaths try_paths(MessengerOptions options);

}  // namespace motley
