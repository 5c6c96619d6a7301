#include "tools/commands/measure_transfers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hw/calibration/host_facts.hpp"
#include "hw/calibration/sentinel.hpp"
#include "hw/calibration/time_transfers.hpp"
#include "hw/communicator/communicator.hpp"
#include "hw/launch/rendezvous.hpp"
#include "hw/world/met_ranks.hpp"
#include "tools/commands/answer.hpp"
#include "tools/commands/place_flags.hpp"

namespace motley {
namespace {

std::vector<TransferSample> samples_of(const std::vector<TimedTransfers>& timed, int ranks) {
  std::vector<TransferSample> samples;
  for (const TimedTransfers& each : timed)
    for (const double seconds : each.times)
      if (seconds > 0)
        samples.push_back({.kind = each.kind,
                           .ranks = each.kind == TransferKind::send_latency ? 2 : ranks,
                           .bytes = static_cast<double>(each.bytes),
                           .seconds = seconds,
                           .beside_compute = each.beside_compute});
  return samples;
}

MeasuredTransfers measure_as(const Place& place, const TransferOptions& options) {
  constexpr double kSilence_s = 120;
  RendezvousOptions meeting = rendezvous_of(place, "transfers", kSilence_s);
  meeting.silence_s = kSilence_s;
  meeting.alike = {{"time of each measurement", fmt::format("{} s", options.seconds)}};
  Rendezvous rendezvous(meeting);
  Messenger messenger(messages_after(rendezvous, place, kSilence_s));
  Communicator ranks(messenger, 1, all_ranks(rendezvous));
  Sentinel sentinel;
  TransferTimeOptions timing;
  timing.seconds = options.seconds;
  timing.compute = [&] { sentinel.time(); };
  const std::vector<TimedTransfers> timed = time_transfers(ranks, timing);
  rendezvous.barrier();
  std::set<std::string> hosts;
  for (const PeerPlace& each : rendezvous.places()) hosts.insert(each.address.host);
  MeasuredTransfers measured{
      .samples = {}, .ranks = place.rank_count, .hosts = static_cast<int>(hosts.size())};
  measured.machine = common_machine(rendezvous);
  if (place.rank == kLeader) measured.samples = samples_of(timed, place.rank_count);
  return measured;
}

}  // namespace

std::string common_machine(Rendezvous& rendezvous) {
  const auto machines = rendezvous.gather(machine_kind(host_facts()));
  const bool alike = std::all_of(machines.begin(), machines.end(),
                                 [&](const std::string& each) { return each == machines.front(); });
  return alike && !machines.empty() ? machines.front() : "";
}

MeasuredTransfers measure_transfers(const TransferOptions& options) {
  const std::optional<Place> place = place_of_process(options.place);
  if (!place) return {.samples = {}, .exit = run_own_ranks(static_cast<int>(options.ranks))};
  if (place->rank_count < 2)
    throw Refusal(Exit::usage, "bad-rank-count", {}, "one rank has nobody to exchange bytes with",
                  "motley launch -n 2 -- motley calibrate --transfers FILE");
  return measure_as(*place, options);
}

}  // namespace motley
