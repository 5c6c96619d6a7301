#include "hw/transport/host_id.hpp"

#include <cstdlib>
#include <fstream>
#include <set>

namespace motley {

std::string host_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  const char* const name = std::getenv("MOTLEY_HOST_ID");
  return name == nullptr || *name == '\0' ? id : id + ":" + name;
}

std::string host_of(const std::string& memory_domain) {
  return memory_domain.substr(0, memory_domain.rfind('/'));
}

int ranks_per_host(const std::vector<std::string>& hosts) {
  std::size_t each = 0;
  while (each < hosts.size() && hosts[each] == hosts[0]) ++each;
  if (each == 0 || hosts.size() % each != 0) return 1;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    if (i % each == 0 ? !seen.insert(hosts[i]).second : hosts[i] != hosts[i - 1]) return 1;
  return static_cast<int>(each);
}

}  // namespace motley
