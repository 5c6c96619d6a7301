// The TCP transport: one connection per direction and channel that the Program uses (links_of), so that no transfer
// waits behind another. On a connection from a to b the data flow from a to b, and b's "clear to send" flows back:
//
//   b -> a   ready  {tag, bytes, posted}     once b has posted its recv
//   a -> b   begin  {tag, bytes, posted}, then the bytes
//
// It does not encrypt or authenticate: it is for a cluster's own network. Read next: hw/rendezvous.hpp.
#pragma once

#include <map>
#include <memory>

#include "hw/transport/tcp/socket.hpp"
#include "hw/transport/transport.hpp"

namespace motley {

struct TcpOptions {
  Rank rank = 0;
  std::vector<Link> links;         // of all ranks; those of others are left alone
  std::vector<Address> addresses;  // by rank: where its listener is
  double timeout_s = 300;          // without progress, then the peer counts as dead
};

// Connects to every peer this rank sends to, accepts every one it receives from. Every rank calls it at the same
// time; throws RunFailure naming the rank that did not come.
std::unique_ptr<Transport> make_tcp_transport(const Socket& listener, const TcpOptions& options);

}  // namespace motley
