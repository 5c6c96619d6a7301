// What this host has: processors, caches, memory, limits, NICs, as Linux shows them in /proc and /sys. Read next:
// models/calibration/stillness.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace motley {

struct CacheFacts {
  int level = 0;
  std::string kind;  // "Data", "Instruction", "Unified"
  std::int64_t bytes = 0;
  std::int64_t shared = 1;  // processors that share one of them
  bool operator==(const CacheFacts&) const = default;
};
struct NicFacts {
  std::string name;
  bool up = false;
  double bits_per_s = 0;  // 0: the driver does not say, as for loopback
  std::int64_t mtu = 0;
  bool operator==(const NicFacts&) const = default;
};
struct HostFacts {
  std::string processor;           // its name; empty: not known
  std::int64_t processors = 1;     // that this process may use
  double clock_hz = 0;             // of the first processor, now; 0: not known
  std::vector<CacheFacts> caches;  // of the first processor
  std::int64_t numa_nodes = 1;
  std::int64_t memory_bytes = 0, available_bytes = 0;
  std::optional<double> most_processors;          // that the cgroup may use at once
  std::optional<std::int64_t> most_memory_bytes;  // of the cgroup
  std::vector<NicFacts> nics;                     // by name
};

// `root`: where /proc and /sys stand; "" on a real host.
HostFacts host_facts(const std::string& root = "");
// What tells machines apart whose samples must not be blended: "AMD EPYC 9R14, 2 processors, 24 GiB".
std::string machine_name(const HostFacts& facts);
// The same without the number of processors, as which a process may use says nothing of links: "AMD EPYC 9R14, 24 GiB".
std::string machine_kind(const HostFacts& facts);
std::string to_text(const HostFacts& facts);

// Time that this host took from its processes, in seconds since some beginning.
struct TakenTime {
  double stolen_s = 0;     // by other guests of the machine below
  double throttled_s = 0;  // by the cgroup's limit
};
TakenTime taken_time(const std::string& root = "");

}  // namespace motley
