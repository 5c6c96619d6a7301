// Where a rank is found. Read next: hw/launch/rendezvous.hpp, which tells every rank where all others are.
#pragma once

#include <string>

#include "hw/transport/tcp/socket.hpp"

namespace motley {

struct PeerPlace {
  Address address;     // of its listener
  std::string domain;  // memory_domain() of its process; empty: nobody can read it
};

}  // namespace motley
