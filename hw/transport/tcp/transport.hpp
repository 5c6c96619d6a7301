// The TCP transport: one connection for each Link that the Program uses (links_of), so that no transfer waits behind
// another. On a connection from a to b the data flow from a to b, and b's "clear to send" flows back:
//
//   b -> a   ready  {tag, bytes, posted}     once b has posted its recv
//   a -> b   begin  {tag, bytes, posted}, then the bytes
//
// It does not encrypt or authenticate: it is for a cluster's own network. Read next: hw/launch/rendezvous.hpp.
#pragma once

#include <map>
#include <memory>

#include "hw/transport/tcp/socket.hpp"
#include "hw/transport/transport.hpp"

namespace motley {

struct TcpOptions {
  Rank rank;
  std::vector<Link> links;           // the links of all ranks; those between other ranks are ignored
  IdTable<Rank, Address> addresses;  // the address of each rank's listener
  double timeout_s = 300;            // a peer that makes no progress for this time counts as dead
  const Socket* asker =
      nullptr;  // connecting ends when the other end of this one does; null: it waits for peers alone
};

// Connects to every peer that this rank sends to, and accepts every peer that it receives from. All ranks call it at
// the same time. Throws RunFailure, which names the rank that cannot be reached or how many ranks did not connect.
std::unique_ptr<Transport> make_tcp_transport(const Socket& listener, const TcpOptions& options);

}  // namespace motley
