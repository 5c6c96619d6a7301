#include "hw/communicator/tried_paths.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "hw/transport/transport.hpp"

namespace motley {

TriedPaths try_paths(MessengerOptions options) {
  TriedPaths tried;
  const auto count = static_cast<std::int64_t>(options.peers.size()) + 1;
  // A message that nobody could take out of memory is sent anew by another path: the last one counts.
  options.on_send = [&tried](const SendOrder& order, Path path) {
    (bytes_in(order.pieces) == TriedPaths::kSmall ? tried.small : tried.large)[order.to] = path;
  };
  options.on_note = [&tried](const std::string& what) { tried.notes.push_back(what); };
  Messenger messenger(std::move(options));
  const std::int64_t mine = messenger.rank().value();
  std::vector<std::byte> outgoing(TriedPaths::kLarge), incoming(TriedPaths::kLarge);
  for (std::int64_t ahead = 1; ahead < count; ++ahead)
    for (const std::size_t bytes : {TriedPaths::kSmall, TriedPaths::kLarge}) {
      const Rank to((mine + ahead) % count), from((mine + count - ahead) % count);
      const MessageKey key{1, static_cast<std::uint64_t>(ahead), bytes};
      ReceiveOrder receive{from, key, {}, std::span(incoming).first(bytes), {}};
      SendOrder send{to, key, {}, {std::span(outgoing).first(bytes)}, false, {}};
      const Request coming = messenger.post(std::move(receive)), going = messenger.post(std::move(send));
      messenger.wait(coming);
      messenger.wait(going);
    }
  for (std::int64_t other = 0; other < count; ++other)
    if (other != mine) tried.unread[Rank(other)] = messenger.why_not_memory(Rank(other));
  std::erase_if(tried.notes, [&](const std::string& note) {
    return std::any_of(tried.unread.begin(), tried.unread.end(),
                       [&](const auto& each) { return each.second == note; });
  });
  return tried;
}

}  // namespace motley
