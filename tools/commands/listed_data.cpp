#include "tools/commands/listed_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "models/base/data_files.hpp"
#include "models/base/text_file.hpp"
#include "models/base/units.hpp"
#include "models/scenario/scenario.hpp"
#include "models/schedule/schedule.hpp"

namespace motley {
namespace {

using Json = nlohmann::ordered_json;

struct DataPlace {
  const char* under;
  const char* extension;
};

DataPlace place_of(DataKind kind) {
  switch (kind) {
    case DataKind::chips:
      return {"platforms/chips", ".yaml"};
    case DataKind::clusters:
      return {"platforms", ".yaml"};
    case DataKind::models:
      return {"scenarios/models", ".json"};
    case DataKind::software:
      return {"platforms/software", ".yaml"};
    case DataKind::scenarios:
      return {"scenarios", ".yaml"};
    case DataKind::schedules:
      break;
  }
  return {"scenarios/schedules", ".csv"};
}

// The first sentence of the comment at the top of a file, without its full stop. Empty: there is no such comment.
std::string first_sentence(const std::string& text) {
  std::string comment;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && line.starts_with('#');) {
    const std::size_t begin = line.find_first_not_of("# ");
    if (begin == std::string::npos) break;
    comment += (comment.empty() ? "" : " ") + line.substr(begin);
  }
  for (std::size_t i = 0; i < comment.size(); ++i) {
    const bool ends = i + 1 == comment.size() ||
                      (comment[i + 1] == ' ' && i + 2 < comment.size() && std::isupper(comment[i + 2]) != 0);
    if (comment[i] == '.' && ends) return comment.substr(0, i);
  }
  return comment;
}

// At most about 100 letters, whole words.
std::string cut_short(const std::string& sentence) {
  constexpr std::size_t kMost = 100;
  if (sentence.size() <= kMost) return sentence;
  return sentence.substr(0, sentence.find_last_of(' ', kMost)) + " ...";
}

Json number_or_null(double value) { return value > 0 ? Json(value) : Json(nullptr); }

ListedData listed_chip(const std::string& path) {
  const Chip chip = read_chip(read_yaml(path), stem_of(path));
  // The format in which most models are trained on it: bf16, else fp16, else the first that it has.
  auto peak = chip.peak_flops.find(Format::bf16);
  if (peak == chip.peak_flops.end()) peak = chip.peak_flops.find(Format::fp16);
  if (peak == chip.peak_flops.end()) peak = chip.peak_flops.begin();
  const bool has_peak = peak != chip.peak_flops.end();
  const auto bf16 = chip.peak_flops.find(Format::bf16);
  const std::string says = first_sentence(read_text_file(path));
  return {
      .name = stem_of(path),
      .cells = {chip.vendor, format_bytes(chip.memory_bytes.value),
                has_peak ? format_flops(peak->second.value) : "-",
                has_peak ? std::string(name_of(peak->first)) : "-",
                chip.watts.value > 0 ? fmt::format("{:g} W", chip.watts.value) : "-", cut_short(says)},
      .figures = {{"vendor", chip.vendor},
                  {"family", chip.family},
                  {"kind", chip.kind},
                  {"memory_bytes", chip.memory_bytes.value},
                  {"memory_bandwidth", chip.memory_bandwidth.value},
                  {"bf16_flops", bf16 == chip.peak_flops.end() ? Json(nullptr) : Json(bf16->second.value)},
                  {"watts", number_or_null(chip.watts.value)},
                  {"says", says}}};
}

// Adds the word with a comma before it, unless the list has it.
void add_once(std::vector<std::string>& list, const std::string& word) {
  if (std::find(list.begin(), list.end(), word) == list.end()) list.push_back(word);
}

// What joins the chips of a node, then what joins nodes.
std::string describe_networks(const Cluster& cluster) {
  std::vector<std::string> inside, between;
  for (const NodeGroup& group : cluster.groups) {
    if (group.chips_per_node > 1)
      add_once(inside, fmt::format("{} {}", name_of(group.inside.kind), format_rate(group.inside.bandwidth)));
    if (group.nodes > 1 || cluster.groups.size() > 1)
      for (const Nic& nic : group.nics)
        add_once(between,
                 fmt::format("{} {} x {:g} Gb/s", name_of(nic.kind), nic.count, nic.bandwidth * 8 / 1e9));
  }
  inside.insert(inside.end(), between.begin(), between.end());
  return fmt::format("{}", fmt::join(inside, ", "));
}

// Nothing: the file holds no cluster.
std::optional<ListedData> listed_cluster(const std::string& path) {
  const Yaml node = read_yaml(path);
  if (node->is_map() && node->find("groups") == nullptr && node->find("memory") != nullptr)
    return std::nullopt;  // a chip that was measured
  const Cluster cluster = read_cluster(node, stem_of(path), folder_of(path));
  std::vector<std::string> order;
  std::map<std::string, std::int64_t> count;
  for (const NodeGroup& group : cluster.groups) {
    add_once(order, group.chip.name);
    count[group.chip.name] += std::int64_t{group.nodes} * group.chips_per_node;
  }
  std::vector<std::string> chips;
  Json types = Json::array();
  for (const std::string& chip : order) {
    chips.push_back(fmt::format("{} {}", count[chip], chip));
    types.push_back({{"chip", chip}, {"count", count[chip]}});
  }
  std::int64_t nodes = 0;
  for (const NodeGroup& group : cluster.groups) nodes += group.nodes;
  const std::string networks = describe_networks(cluster);
  return ListedData{.name = stem_of(path),
                    .cells = {std::to_string(cluster.chip_count()), std::to_string(nodes),
                              fmt::format("{}", fmt::join(chips, ", ")), networks},
                    .figures = {{"chips", cluster.chip_count()},
                                {"nodes", nodes},
                                {"types", types},
                                {"networks", networks},
                                {"says", first_sentence(read_text_file(path))}}};
}

ListedData listed_model(const std::string& path) {
  const Transformer model = read_transformer(read_yaml(path), stem_of(path));
  const std::int64_t count = parameter_count(model), active = active_parameter_count(model);
  std::string parameters = format_count(static_cast<double>(count));
  return {.name = stem_of(path),
          .cells = {parameters, active == count ? "" : format_count(static_cast<double>(active)),
                    std::to_string(model.layers), std::to_string(model.max_positions),
                    model.experts.count > 0
                        ? fmt::format("{}, {} experts", name_of(model.family), model.experts.count)
                        : std::string(name_of(model.family))},
          .figures = {{"family", name_of(model.family)},
                      {"parameters", count},
                      {"active_parameters", active},
                      {"layers", model.layers},
                      {"hidden", model.hidden},
                      {"context", model.max_positions},
                      {"experts", model.experts.count},
                      {"says", model.source}}};
}

ListedData listed_software(const std::string& path) {
  const Yaml software = read_yaml(path);
  static_cast<void>(neutral_figures(software));  // refuses mistakes
  std::vector<std::string> chips;
  if (const YamlEntry* on = software->find("on"))
    for (const YamlEntry& chip : on->value->entries) chips.push_back(chip.key);
  const bool any = software->find("any") != nullptr;
  const std::string where = any ? "any chip" : fmt::format("{}", fmt::join(chips, ", "));
  const Yaml interval =
      Fields(software, "software", {"on", "any", "network", "interval", "measured"}).find("interval");
  std::string spread = "-";
  Json low = nullptr, high = nullptr;
  if (interval) {
    const Fields bounds(interval, "an interval", {"low", "high", "source"});
    const double least = to_number(bounds.need("low"), Sign::positive),
                 most = to_number(bounds.need("high"), Sign::positive);
    spread = fmt::format("{:+.0f} % to {:+.0f} %", (least - 1) * 100, (most - 1) * 100);
    low = least;
    high = most;
  }
  return {.name = stem_of(path),
          .cells = {spread, where},
          .figures = {{"chips", chips},
                      {"any_chip", any},
                      {"interval_low", low},
                      {"interval_high", high},
                      {"says", first_sentence(read_text_file(path))}}};
}

ListedData listed_scenario(const std::string& path) {
  const Scenario scenario = read_scenario(read_yaml(path), path, ScenarioUse::plan);
  const std::string says = first_sentence(read_text_file(path));
  const int chips = scenario.job.cluster.chip_count();
  return {.name = stem_of(path),
          .cells = {std::to_string(chips), scenario.job.transformer.name, cut_short(says)},
          .figures = {{"chips", chips},
                      {"model", scenario.job.transformer.name},
                      {"cluster", scenario.job.cluster.name},
                      {"says", says}}};
}

const char* describe(Schedule schedule) {
  switch (schedule) {
    case Schedule::gpipe:
      return "all forwards, then all backwards: simple, and every micro-batch is in memory";
    case Schedule::one_f_one_b:
      return "one forward, one backward: the bubble of gpipe, and few micro-batches in memory";
    case Schedule::interleaved:
      return "1f1b with several chunks of layers a rank: a smaller bubble, more messages";
    case Schedule::zb_h1:
      return "zero bubble: weight gradients fill the bubble of 1f1b, in the memory of 1f1b";
    case Schedule::zb_h2:
      return "zero bubble: nearly no bubble, for twice the memory of 1f1b";
    case Schedule::zb_v:
      return "zero bubble with two chunks a rank, laid in a V: no bubble in the memory of 1f1b";
    case Schedule::dualpipe_v:
      return "DualPipe cut in half, two chunks in a V: a forward and a backward overlap, for experts";
    case Schedule::custom:
      break;
  }
  return "a timetable in a CSV file";
}

DataList columns_of(DataKind kind) {
  switch (kind) {
    case DataKind::chips:
      return {kind, "lrrlrl", {"vendor", "memory", "peak", "format", "power", ""}, {}, {}};
    case DataKind::clusters:
      return {kind, "rrll", {"chips", "nodes", "of which", "joined by"}, {}, {}};
    case DataKind::models:
      return {kind, "rrrrl", {"parameters", "active", "layers", "context", "family"}, {}, {}};
    case DataKind::software:
      return {kind, "rl", {"interval", "figures for"}, {}, {}};
    case DataKind::scenarios:
      return {kind, "rll", {"chips", "model", ""}, {}, {}};
    case DataKind::schedules:
      break;
  }
  return {kind, "l", {""}, {}, {}};
}

std::optional<ListedData> listed_file(DataKind kind, const std::string& path) {
  switch (kind) {
    case DataKind::chips:
      if (read_yaml(path)->find("groups") != nullptr) return std::nullopt;  // a cluster that was measured
      return listed_chip(path);
    case DataKind::clusters:
      return listed_cluster(path);
    case DataKind::models:
      return listed_model(path);
    case DataKind::software:
      return listed_software(path);
    case DataKind::scenarios:
      return listed_scenario(path);
    case DataKind::schedules:
      break;
  }
  return ListedData{.name = fmt::format("{{csv: {}}}", stem_of(path)),
                    .cells = {describe(Schedule::custom)},
                    .figures = {{"says", describe(Schedule::custom)}}};
}

}  // namespace

DataList list_data(DataKind kind) {
  DataList list = columns_of(kind);
  if (kind == DataKind::schedules)
    for (const std::string& name : schedule_names()) {
      const char* says = describe(schedule_named(name));
      list.items.push_back({.name = name, .cells = {says}, .figures = {{"says", says}}});
    }
  const DataPlace place = place_of(kind);
  for (const std::string& path : data_files(place.under, place.extension)) try {
      if (std::optional<ListedData> item = listed_file(kind, path)) list.items.push_back(*std::move(item));
    } catch (const Refusal& refusal) {
      list.unreadable.emplace_back(refusal.what());
    }
  return list;
}

std::vector<std::string> data_names(DataKind kind) {
  if (kind == DataKind::schedules) return schedule_names();
  const DataPlace place = place_of(kind);
  std::vector<std::string> names;
  for (const std::string& path : data_files(place.under, place.extension)) names.push_back(stem_of(path));
  return names;
}

}  // namespace motley
