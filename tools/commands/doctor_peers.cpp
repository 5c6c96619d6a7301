#include "tools/commands/doctor_peers.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "hw/communicator/tried_paths.hpp"
#include "hw/launch/rendezvous.hpp"
#include "hw/world/met_ranks.hpp"
#include "models/base/json_text.hpp"
#include "models/base/units.hpp"
#include "tools/commands/answer.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/place_flags.hpp"

namespace motley {
namespace {

using nlohmann::ordered_json;

std::string packed(const TriedPaths& tried) {
  ordered_json peers = ordered_json::object();
  for (const auto& [peer, why] : tried.unread)
    peers[fmt::format("{}", peer)] = {name_of(tried.small.at(peer)), name_of(tried.large.at(peer)), why};
  peers["notes"] = tried.notes;
  return peers.dump();
}

// One entry for each rank that sends and each that receives, by both. The receiver knows why it reads no memory.
ordered_json pairs_of(const IdTable<Rank, ordered_json>& peers) {
  ordered_json pairs = ordered_json::array();
  for (const Rank from : peers.ids())
    for (const Rank to : peers.ids()) {
      if (from == to) continue;
      const ordered_json& sent = peers[from][fmt::format("{}", to)];
      const std::string large = sent[1], unread = peers[to][fmt::format("{}", from)][2];
      std::string why = unread;
      if (large == name_of(Path::shm))
        why = fmt::format("one host: rank {} reads the memory of rank {}", to, from);
      if (large == name_of(Path::verbs)) why += ", and both ends have RDMA";
      pairs.push_back(
          {{"from", from.value()}, {"to", to.value()}, {"small", sent[0]}, {"large", large}, {"why", why}});
    }
  return pairs;
}

ordered_json notes_of(const IdTable<Rank, ordered_json>& peers) {
  ordered_json notes = ordered_json::array();
  for (const Rank rank : peers.ids())
    for (const ordered_json& note : peers[rank]["notes"])
      notes.push_back({{"rank", rank.value()}, {"note", note}});
  return notes;
}

std::string to_text(const ordered_json& pairs, const ordered_json& notes) {
  std::string text = fmt::format("{:>6} {:>6}  {:<6} {:<6} {}\n", "from", "to", "small", "large", "why");
  for (const ordered_json& pair : pairs)
    text += fmt::format("{:>6} {:>6}  {:<6} {:<6} {}\n", pair["from"].get<int>(), pair["to"].get<int>(),
                        pair["small"].get<std::string>(), pair["large"].get<std::string>(),
                        pair["why"].get<std::string>());
  text += fmt::format(
      "\nsmall: {}, large: {}, each sent just now; tcp: through a connection,\n"
      "shm: out of the sender's memory, or a file that both map; verbs: by RDMA.\n",
      format_bytes(TriedPaths::kSmall), format_bytes(TriedPaths::kLarge));
  for (const ordered_json& note : notes)
    text += fmt::format("rank {}: {}\n", note["rank"].get<int>(), note["note"].get<std::string>());
  return text;
}

Exit report_as(const Place& place, bool json) {
  constexpr double kSilence_s = 60;
  RendezvousOptions meeting = rendezvous_of(place, "doctor peers", kSilence_s);
  meeting.silence_s = kSilence_s;
  Rendezvous rendezvous(meeting);
  const IdTable<Rank, std::string> answers =
      rendezvous.gather(packed(try_paths(messages_after(rendezvous, place, kSilence_s))));
  if (place.rank != kLeader) return Exit::ok;
  IdTable<Rank, ordered_json> peers;
  for (const std::string& answer : answers) peers.add(ordered_json::parse(answer));
  const ordered_json pairs = pairs_of(peers), notes = notes_of(peers);
  write_result(json ? json_text({{"schema", "motley.doctor_peers/1"},
                                 {"ranks", place.rank_count},
                                 {"small_bytes", TriedPaths::kSmall},
                                 {"large_bytes", TriedPaths::kLarge},
                                 {"pairs", pairs},
                                 {"notes", notes}})
                    : to_text(pairs, notes),
               "");
  return Exit::ok;
}

}  // namespace

Exit report_peers(const PeersArguments& arguments) {
  const std::optional<Place> place = place_of_process(arguments.place);
  if (place && place->rank_count > 1) return report_as(*place, arguments.json);
  if (place || arguments.ranks < 2)
    throw Refusal(Exit::usage, "bad-rank-count", {}, "one rank has no peers", "motley doctor --peers -n 2");
  return run_own_ranks(arguments.ranks);
}

}  // namespace motley
