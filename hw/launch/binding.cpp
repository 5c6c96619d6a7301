#include "hw/launch/binding.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "models/base/json_text.hpp"
#include "models/base/refusal.hpp"
#include "models/base/yaml_reader.hpp"

namespace motley {
namespace {

constexpr std::int64_t kMostRanks = 65'536, kMostProcessors = 65'536;

// Reads "3", "0-3" or "0-3,8". Nothing: the text is no such list.
std::optional<std::vector<int>> read_processors(const std::string& text) {
  std::vector<int> numbers;
  std::size_t at = 0;
  const auto number = [&]() -> std::optional<int> {
    int value = 0;
    const std::size_t begin = at;
    for (; at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0; ++at)
      if (value = value * 10 + (text[at] - '0'); value >= kMostProcessors) return std::nullopt;
    return at == begin ? std::nullopt : std::optional(value);
  };
  while (true) {
    const auto first = number();
    if (!first) return std::nullopt;
    auto last = first;
    if (at < text.size() && text[at] == '-') {
      ++at;
      last = number();
    }
    if (!last || *last < *first) return std::nullopt;
    for (int i = *first; i <= *last; ++i) numbers.push_back(i);
    if (at == text.size()) break;
    if (text[at++] != ',') return std::nullopt;
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

std::string print_processors(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (end - i > 1) text += fmt::format("-{}", numbers[end - 1]);
    i = end;
  }
  return text;
}

[[noreturn]] void refuse_binding(const Location& where, const std::string& why, const std::string& hint,
                                 RefusalSite site = RefusalSite::here()) {
  throw Refusal(Exit::usage, "bad-binding", where, why, hint, site);
}

// Reads the ranks of a file, one after the other.
class BindingReader {
 public:
  explicit BindingReader(std::size_t rank_count) : usable_(usable_processors()), binding_(rank_count) {}

  void take(const Yaml& item) {
    const Fields fields(item, "a rank's binding", {"rank", "host", "processors", "device", "nic"});
    const std::int64_t number = to_integer(fields.need("rank"), {0, kMostRanks});
    if (number >= static_cast<std::int64_t>(binding_.size()))
      refuse_binding(fields.need("rank")->where, fmt::format("rank {} of {} ranks", number, binding_.size()),
                     "ranks count from 0 to one less than their number");
    if (!seen_.insert(number).second)
      refuse_binding(fields.need("rank")->where, fmt::format("rank {} stands here twice", number),
                     "one entry for each rank");
    const Rank rank(number);
    RankBinding& mine = binding_[rank];
    if (const Yaml host = fields.find("host")) mine.host = read_host(host);
    if (const Yaml device = fields.find("device")) mine.device = to_integer(device, {0, kMostProcessors});
    if (const Yaml nic = fields.find("nic")) mine.nic = to_text(nic);
    if (const Yaml processors = fields.find("processors")) take_processors(rank, processors);
  }
  Binding binding() && { return std::move(binding_); }

 private:
  const std::vector<int> usable_;
  Binding binding_;
  std::set<std::int64_t> seen_;
  std::map<std::pair<std::string, int>, Rank> owners_;  // by host and processor

  static std::string read_host(const Yaml& node) {
    std::string host = to_text(node);
    if (host.empty() || host.starts_with('-'))
      refuse_binding(node->where, fmt::format("`{}` is no host", shortened(host)), "a name as ssh takes it");
    return host;
  }
  void take_processors(Rank rank, const Yaml& node) {
    RankBinding& mine = binding_[rank];
    const auto numbers = read_processors(to_text(node));
    if (!numbers)
      refuse_binding(node->where, fmt::format("`{}` is no list of processors", shortened(node->text)),
                     "for example 0-3 or 0-3,8");
    const bool here = is_this_host(mine.host);
    for (const int each : *numbers) {
      if (here && !usable_.empty() && !std::binary_search(usable_.begin(), usable_.end(), each))
        refuse_binding(node->where, fmt::format("this process may not use a processor {}", each),
                       fmt::format("it may use {}", print_processors(usable_)));
      const auto [owner, is_new] = owners_.try_emplace({here ? "localhost" : mine.host, each}, rank);
      if (!is_new)
        refuse_binding(node->where,
                       fmt::format("rank {} is on processor {} of {}, and so is rank {}", rank, each,
                                   mine.host, owner->second),
                       "give each rank processors of its own");
    }
    mine.processors = *numbers;
  }
};

}  // namespace

bool is_this_host(const std::string& name) {
  if (name == "localhost" || name == "::1" || name.starts_with("127.")) return true;
  std::array<char, 256> own{};
  if (gethostname(own.data(), own.size() - 1) != 0) return false;
  const std::string full = own.data();
  return name == full || name == full.substr(0, full.find('.'));
}

std::vector<int> usable_processors() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return {};
  std::vector<int> numbers;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &usable)) numbers.push_back(i);
  return numbers;
}

Binding read_hosts(const std::string& list) {
  Binding binding;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string entry = list.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t colon = std::min(entry.rfind(':'), entry.size());
    std::string host = entry.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) {  // an IPv6 address
      host.pop_back();
      host.erase(host.begin());
    }
    const std::string count = colon < entry.size() ? entry.substr(colon + 1) : "1";
    const bool counts = !count.empty() && count.size() <= 4 &&
                        std::all_of(count.begin(), count.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (host.empty() || host.starts_with('-') || !counts || std::stoi(count) == 0)
      throw Refusal(Exit::usage, "bad-hosts", {},
                    fmt::format("--hosts: `{}` is no host:ranks", shortened(entry)), "for example a:2,b:2");
    if (static_cast<std::int64_t>(binding.size()) + std::stoi(count) > kMostRanks)
      throw Refusal(Exit::usage, "bad-hosts", {},
                    fmt::format("--hosts: there are more than {} ranks", kMostRanks), "for example a:2,b:2");
    for (int i = 0; i < std::stoi(count); ++i) binding.add({.host = host});
  }
  return binding;
}

Binding parse_binding(const std::string& text, const std::string& file) {
  const Fields whole(parse_yaml(text, file), "a binding", {"schema", "ranks"});
  const auto& items = to_sequence(whole.need("ranks"));
  if (items.empty()) refuse_binding(whole.where("ranks"), "a binding of no ranks", "one entry for each rank");
  BindingReader reader(items.size());
  for (const Yaml& item : items) reader.take(item);
  return std::move(reader).binding();
}

Binding bound_evenly(Binding binding) {
  std::vector<Rank> here;
  for (const Rank rank : binding.ids()) {
    if (!binding[rank].processors.empty()) return binding;
    if (is_this_host(binding[rank].host)) here.push_back(rank);
  }
  const std::vector<int> usable = usable_processors();
  const std::size_t each = here.empty() ? 0 : usable.size() / here.size();
  for (std::size_t i = 0; i < here.size(); ++i) {
    const auto first = usable.begin() + static_cast<std::ptrdiff_t>(i * each);
    binding[here[i]].processors.assign(first, first + static_cast<std::ptrdiff_t>(each));
  }
  return binding;
}

std::string print(const Binding& binding) {
  std::string text = "ranks:\n";
  for (const Rank rank : binding.ids()) {
    const RankBinding& mine = binding[rank];
    text += fmt::format("  - {{rank: {}, host: {}", rank, quote(mine.host));
    if (!mine.processors.empty())
      text += fmt::format(", processors: {}", quote(print_processors(mine.processors)));
    if (mine.device) text += fmt::format(", device: {}", *mine.device);
    if (!mine.nic.empty()) text += fmt::format(", nic: {}", quote(mine.nic));
    text += "}\n";
  }
  return text;
}

std::string print_as_json(const Binding& binding) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const Rank rank : binding.ids()) {
    const RankBinding& mine = binding[rank];
    nlohmann::ordered_json entry = {{"rank", rank.value()}, {"host", mine.host}};
    if (!mine.processors.empty()) entry["processors"] = print_processors(mine.processors);
    if (mine.device) entry["device"] = *mine.device;
    if (!mine.nic.empty()) entry["nic"] = mine.nic;
    ranks.push_back(entry);
  }
  return json_text({{"schema", "motley.binding/1"}, {"ranks", ranks}});
}

}  // namespace motley
