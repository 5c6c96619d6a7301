#include "hw/calibration/host_facts.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "models/base/units.hpp"

namespace motley {
namespace {

namespace fs = std::filesystem;

// The first line of a file; empty where it cannot be read.
std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<double> number_of(const std::string& text) {
  std::istringstream words(text);
  double value = 0;
  return words >> value ? std::optional(value) : std::nullopt;
}

// The text behind `key` and a colon or blank, in a file of such lines.
std::string value_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key) || line.size() == key.size()) continue;
    const std::size_t begin = line.find_first_not_of(" \t:", key.size());
    if (begin != key.size() && begin != std::string::npos) return line.substr(begin);
  }
  return "";
}

// "32K" or "8192K", as sysfs writes the sizes of caches.
std::int64_t size_of(const std::string& text) {
  const double number = number_of(text).value_or(0);
  const char unit = text.empty() ? ' ' : text.back();
  return static_cast<std::int64_t>(number * (unit == 'K' ? 1024 : unit == 'M' ? 1024 * 1024 : 1));
}

// How many numbers a list such as "0-3,8" names.
std::int64_t count_of(const std::string& list) {
  std::int64_t count = 0;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    const double first = number_of(part).value_or(0);
    const std::size_t dash = part.find('-');
    const double last = dash == std::string::npos ? first : number_of(part.substr(dash + 1)).value_or(first);
    count += static_cast<std::int64_t>(last - first) + 1;
  }
  return std::max<std::int64_t>(1, count);
}

std::vector<std::string> entries(const std::string& folder, const std::string& prefix) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().filename().string().starts_with(prefix))
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<CacheFacts> caches(const std::string& root) {
  const std::string folder = root + "/sys/devices/system/cpu/cpu0/cache/";
  std::vector<CacheFacts> caches;
  for (const std::string& name : entries(folder, "index")) {
    CacheFacts cache;
    cache.level = static_cast<int>(number_of(line_of(folder + name + "/level")).value_or(0));
    cache.kind = line_of(folder + name + "/type");
    cache.bytes = size_of(line_of(folder + name + "/size"));
    cache.shared = count_of(line_of(folder + name + "/shared_cpu_list"));
    caches.push_back(cache);
  }
  return caches;
}

std::vector<NicFacts> nics(const std::string& root) {
  const std::string folder = root + "/sys/class/net/";
  std::vector<NicFacts> nics;
  for (const std::string& name : entries(folder, "")) {
    NicFacts nic;
    nic.name = name;
    const std::string state = line_of(folder + name + "/operstate");
    nic.up = state == "up" || state == "unknown";  // loopback has no state
    nic.bits_per_s = std::max(0.0, number_of(line_of(folder + name + "/speed")).value_or(0) * 1e6);
    nic.mtu = static_cast<std::int64_t>(number_of(line_of(folder + name + "/mtu")).value_or(0));
    nics.push_back(nic);
  }
  return nics;
}

// The limits of the cgroup in its own namespace, version 2.
void read_limits(const std::string& root, HostFacts& facts) {
  const std::string quota = line_of(root + "/sys/fs/cgroup/cpu.max");  // "150000 100000" or "max 100000"
  std::istringstream words(quota);
  double taken = 0, period = 0;
  if (words >> taken >> period && period > 0) facts.most_processors = taken / period;
  if (const auto most = number_of(line_of(root + "/sys/fs/cgroup/memory.max")))
    facts.most_memory_bytes = static_cast<std::int64_t>(*most);
}

std::int64_t usable_processors() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return 1;
  return std::max(1, CPU_COUNT(&usable));
}

std::string processor_name(const HostFacts& facts) {
  std::string name = facts.processor.empty() ? "unknown processor" : facts.processor;
  std::erase_if(name, [](char each) { return each == ',' || each == '"'; });
  return name;
}

std::string memory_text(const HostFacts& facts) {
  return fmt::format("{:.0f} GiB", static_cast<double>(facts.memory_bytes) / (1 << 30));
}

}  // namespace

HostFacts host_facts(const std::string& root) {
  HostFacts facts;
  const std::string processors = root + "/proc/cpuinfo";
  facts.processor = value_of(processors, "model name");
  facts.processors = usable_processors();
  facts.clock_hz = 1e6 * number_of(value_of(processors, "cpu MHz")).value_or(0);
  const std::string clock = line_of(root + "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq");
  if (const auto kilohertz = number_of(clock)) facts.clock_hz = 1e3 * *kilohertz;
  facts.caches = caches(root);
  facts.numa_nodes = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(entries(root + "/sys/devices/system/node", "node").size()));
  const std::string memory = root + "/proc/meminfo";  // in KiB
  facts.memory_bytes = static_cast<std::int64_t>(1024 * number_of(value_of(memory, "MemTotal")).value_or(0));
  facts.available_bytes =
      static_cast<std::int64_t>(1024 * number_of(value_of(memory, "MemAvailable")).value_or(0));
  read_limits(root, facts);
  facts.nics = nics(root);
  return facts;
}

std::string machine_name(const HostFacts& facts) {
  return fmt::format("{}, {} processor{}, {}", processor_name(facts), facts.processors,
                     facts.processors == 1 ? "" : "s", memory_text(facts));
}

std::string machine_kind(const HostFacts& facts) {
  return fmt::format("{}, {}", processor_name(facts), memory_text(facts));
}

std::string to_text(const HostFacts& facts) {
  std::string text = fmt::format("{}\n", machine_name(facts));
  if (facts.clock_hz > 0) text += fmt::format("  clock    {:.0f} MHz\n", facts.clock_hz / 1e6);
  for (const CacheFacts& cache : facts.caches)
    text += fmt::format("  cache    L{} {}, {}, shared by {}\n", cache.level, cache.kind,
                        format_bytes(static_cast<double>(cache.bytes)), cache.shared);
  text += fmt::format("  memory   {}, {} available, {} NUMA node{}\n",
                      format_bytes(static_cast<double>(facts.memory_bytes)),
                      format_bytes(static_cast<double>(facts.available_bytes)), facts.numa_nodes,
                      facts.numa_nodes == 1 ? "" : "s");
  if (facts.most_processors)
    text += fmt::format("  cgroup   {:g} processors at once\n", *facts.most_processors);
  if (facts.most_memory_bytes)
    text +=
        fmt::format("  cgroup   {} of memory\n", format_bytes(static_cast<double>(*facts.most_memory_bytes)));
  for (const NicFacts& nic : facts.nics)
    text += fmt::format("  NIC      {}, {}{}, MTU {}\n", nic.name, nic.up ? "up" : "down",
                        nic.bits_per_s > 0 ? fmt::format(", {:g} Gb/s", nic.bits_per_s / 1e9) : "", nic.mtu);
  return text;
}

TakenTime taken_time(const std::string& root) {
  TakenTime taken;
  // cpu  user nice system idle iowait irq softirq steal ..., in ticks
  std::istringstream words(value_of(root + "/proc/stat", "cpu"));
  double ticks = 0;
  constexpr int kSteal = 7;
  for (int i = 0; i <= kSteal && words >> ticks; ++i)
    if (i == kSteal) taken.stolen_s = ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  taken.throttled_s =
      1e-6 * number_of(value_of(root + "/sys/fs/cgroup/cpu.stat", "throttled_usec")).value_or(0);
  return taken;
}

}  // namespace motley
