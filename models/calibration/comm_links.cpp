#include "models/calibration/comm_links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <vector>

#include "models/base/yaml_reader.hpp"
#include "models/calibration/kernel_fit.hpp"
#include "models/cluster/message_cost.hpp"

namespace motley {
namespace {

constexpr const char* kSchema = "motley.bench_comm/1";
constexpr IntegerRange kRanks{1, 1 << 24};
constexpr std::int64_t kBytesMost = 1'000'000'000'000'000;
constexpr double kSecondsLeast = 1e-12, kSecondsMost = 1e6,
                 kRateMost = 1e18;  // far beyond what can be measured

// The paths in the order in which a run prefers them.
constexpr std::array<std::string_view, 3> kInside = {"shm", "tcp", "verbs"};
constexpr std::array<std::string_view, 3> kBetween = {"verbs", "tcp", "shm"};

[[noreturn]] void refuse(const Location& where, const std::string& why,
                         RefusalSite site = RefusalSite::here()) {
  throw Refusal(Exit::usage, "bad-comm", where, why,
                "motley bench comm --operations message --bytes '8 B,1 MiB,4 MiB' --json", site);
}

// Messages by whether they leave the host, and by the path that was allowed.
using Messages = std::map<std::pair<bool, std::string>, std::vector<TransferSample>>;

void read_call(const Yaml& node, Messages& messages) {
  const Fields call(node, "a call of bench comm",
                    {"operation", "algorithm", "allowed", "path", "memory", "bytes", "seconds", "spread",
                     "algbw_bytes_per_s", "busbw_bytes_per_s", "cpu_s", "chosen", "peer", "leaves_host",
                     "between_hosts_bytes", "predicted_s"});
  if (to_text(call.need("operation")) != "message") return;
  if (call.stands("memory") && to_text(call.need("memory")) != "host") return;  // it is staged, or was pinned
  const std::string path = to_choice(call.need("allowed"), {"tcp", "shm", "verbs"});
  const double seconds = to_number(call.need("seconds"), Sign::positive);
  if (seconds < kSecondsLeast || seconds > kSecondsMost)
    refuse(call.need("seconds")->where, fmt::format("no message takes {} s", seconds));
  messages[{to_bool(call.need("leaves_host")), path}].push_back(
      {.kind = TransferKind::send_latency,
       .ranks = 2,
       .bytes = static_cast<double>(to_integer(call.need("bytes"), {0, kBytesMost})),
       .seconds = seconds});
}

struct PreferredLink {
  LinkFigures figures;
  std::string_view path;
};

PreferredLink link_of(const Messages& messages, bool leaves_host, const Location& where) {
  const char* const what = leaves_host ? "between hosts" : "inside a host";
  for (const std::string_view path : leaves_host ? kBetween : kInside) {
    const auto measured = messages.find({leaves_host, std::string(path)});
    if (measured == messages.end()) continue;
    const auto figures = link_between(measured->second);
    if (!figures || figures->bytes_per_s > kRateMost)
      refuse(where, fmt::format("messages {} ({}) tell no latency and bandwidth: a size below 100 B and two "
                                "above 100 kB are needed, and the largest takes longest",
                                what, path));
    return {*figures, path};
  }
  refuse(where, fmt::format("no messages {} were measured", what));
}

}  // namespace

CommLinks read_comm_links(const std::string& text, const std::string& file) {
  const Fields whole(parse_yaml(text, file), "what bench comm measured",
                     {"schema", "ranks", "hosts", "ranks_per_host", "machine", "calls"});
  if (const std::string schema = to_text(whole.need("schema")); schema != kSchema)
    refuse(whole.need("schema")->where, fmt::format("`{}` is not {}", shortened(schema), kSchema));
  CommLinks links;
  const std::int64_t ranks = to_integer(whole.need("ranks"), kRanks);
  links.hosts = static_cast<int>(to_integer(whole.need("hosts"), kRanks));
  links.ranks_per_host = static_cast<int>(to_integer(whole.need("ranks_per_host"), kRanks));
  if (std::int64_t{links.hosts} * links.ranks_per_host != ranks)
    refuse(whole.need("ranks")->where,
           fmt::format("{} ranks are not {} on each of {} hosts", ranks, links.ranks_per_host, links.hosts));
  if (const Yaml machine = whole.find("machine")) links.machine = to_text(machine);
  Messages messages;
  for (const Yaml& call : to_sequence(whole.need("calls"))) read_call(call, messages);
  const Location where = whole.where("calls");
  if (links.ranks_per_host > 1) links.inside_host = link_of(messages, false, where).figures;
  if (links.hosts > 1) {
    const PreferredLink between = link_of(messages, true, where);
    links.between_hosts = between.figures;
    links.uses_rdma = between.path == "verbs";
  }
  return links;
}

NodeGroup hosts_with(const Chip& chip, const CommLinks& links) {
  NodeGroup hosts;
  hosts.name = "host";
  hosts.chip = chip;
  hosts.nodes = links.hosts;
  hosts.chips_per_node = links.ranks_per_host;
  hosts.inside.kind = FabricKind::loopback;
  if (links.inside_host)
    hosts.inside = {FabricKind::loopback, rounded(links.inside_host->bytes_per_s),
                    rounded(links.inside_host->latency_s)};
  if (!links.between_hosts) return hosts;
  // A chip reaches its NIC through the fabric, which is no bottleneck where nothing else is on it.
  if (!links.inside_host) hosts.inside.bandwidth = rounded(2 * links.between_hosts->bytes_per_s);
  Nic nic;
  nic.kind = links.uses_rdma ? NicKind::roce : NicKind::ethernet;
  nic.count = 1;
  nic.bandwidth = nic.reaches = rounded(links.between_hosts->bytes_per_s);
  nic.latency_s =
      rounded(std::max(0.0, links.between_hosts->latency_s - native_message_cost(nic).software_latency_s));
  hosts.nics = {nic};
  return hosts;
}

}  // namespace motley
