#include "models/check/memory_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/base/units.hpp"

namespace motley {
namespace {

std::string bytes(std::int64_t count) { return format_bytes(static_cast<double>(count)); }

double fullness(const StageMemory& stage) {
  return static_cast<double>(stage.peak) / static_cast<double>(std::max<std::int64_t>(stage.capacity, 1));
}

std::string describe_list(const std::vector<std::pair<const char*, std::int64_t>>& figures) {
  std::string text;
  for (const auto& [name, count] : figures)
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, bytes(count));
  return text;
}

}  // namespace

std::int64_t beyond_tensors(const StageMemory& stage) {
  return stage.buffers + stage.buckets + stage.runtime + stage.fragmentation;
}

std::string describe_beyond(const StageMemory& stage) {
  return describe_list({{"communication buffers", stage.buffers},
                        {"copies of buckets", stage.buckets},
                        {"driver and libraries", stage.runtime},
                        {"fragmentation", stage.fragmentation}});
}

std::string describe_memory(const StageMemory& stage) {
  std::string text =
      fmt::format("parameters {}, gradients {}, optimizer {}, activations {}", bytes(stage.parameters),
                  bytes(stage.gradients), bytes(stage.optimizer), bytes(stage.activations_peak));
  if (stage.logits > 0) text += fmt::format(" with logits {}", bytes(stage.logits));
  if (beyond_tensors(stage) > 0) text += ", " + describe_beyond(stage);
  return text;
}

std::string print_memory_notes(const std::vector<StageMemory>& memory) {
  if (memory.empty()) return "";
  std::string text;
  const auto fullest =
      std::max_element(memory.begin(), memory.end(),
                       [](const StageMemory& a, const StageMemory& b) { return fullness(a) < fullness(b); });
  if (beyond_tensors(*fullest) > 0)
    text += fmt::format("  beyond tensors, in stage {}: {}\n", fullest->stage, describe_beyond(*fullest));
  const auto loudest =
      std::max_element(memory.begin(), memory.end(),
                       [](const StageMemory& a, const StageMemory& b) { return a.logits < b.logits; });
  if (loudest->logits > 0)
    text +=
        fmt::format("  logits, of the activations of stage {}: {}\n", loudest->stage, bytes(loudest->logits));
  const auto host =
      std::max_element(memory.begin(), memory.end(),
                       [](const StageMemory& a, const StageMemory& b) { return a.host < b.host; });
  if (host->host > 0)
    text += fmt::format("  offloaded to the memory of one node: {}{}\n", bytes(host->host),
                        host->host_capacity > 0 ? " of " + bytes(host->host_capacity) : "");
  return text;
}

}  // namespace motley
