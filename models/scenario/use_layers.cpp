// Compares a job with the job whose layers were measured, and gives the measured layers to the chips.
#include "models/scenario/use_layers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "models/base/data_files.hpp"
#include "models/base/refusal.hpp"
#include "models/cluster/measured_layers.hpp"

namespace motley {
namespace {

// A key in which the job differs from the measured one, and both values.
struct Mismatch {
  std::string key, measured, asked;
};

// Finds the first mismatch. `job` is what the file says of the measured job.
std::optional<Mismatch> find_mismatch(const Fields& job, const Transformer& transformer, const Train& train) {
  const std::vector<std::pair<const char*, std::int64_t>> counts = {{"hidden", transformer.hidden},
                                                                    {"ffn", transformer.ffn},
                                                                    {"heads", transformer.heads},
                                                                    {"vocabulary", transformer.vocabulary},
                                                                    {"sequence", train.sequence}};
  for (const auto& [key, asked] : counts) {
    const std::int64_t measured = to_integer(job.need(key), kPositive);
    if (measured != asked) return Mismatch{key, std::to_string(measured), std::to_string(asked)};
  }
  // TF32 multiplies values that are kept in FP32. How the chip multiplied is part of the measurement.
  const std::string precision = to_choice(job.need("precision"), {"fp32", "bf16", "fp16"});
  const Format kept = train.precision == Format::tf32 ? Format::fp32 : train.precision;
  if (precision != name_of(kept)) return Mismatch{"precision", precision, std::string(name_of(kept))};
  return std::nullopt;
}

Fields open(const Yaml& name, const std::string& folder) {
  const std::string path = find_file(to_text(name), folder, "platforms/layers", ".yaml", name->where);
  return {read_yaml(path, name->where), "measured layers", {"source", "communication", "of", "on"}};
}

Fields measured_job(const Fields& file) {
  return {file.need("of"),
          "what was measured",
          {"hidden", "ffn", "heads", "vocabulary", "sequence", "precision"}};
}

std::vector<std::string> chips_of(const Fields& file) {
  std::vector<std::string> chips;
  for (const YamlEntry& entry : file.need("on")->entries) chips.push_back(entry.key);
  return chips;
}

void give(const Fields& file, NodeGroup& group) {
  group.chip.software.layers = {to_text(file.need("source")), read_communication(file.need("communication")),
                                read_layer_times(file.need("on")->find(group.chip.name)->value)};
}

}  // namespace

void use_layers(const Yaml& name, const std::string& folder, const Transformer& transformer,
                const Train& train, Cluster& cluster) {
  const Fields file = open(name, folder);
  if (const auto mismatch = find_mismatch(measured_job(file), transformer, train))
    throw Refusal(Exit::infeasible, "not-measured", name->where,
                  fmt::format("the layers of `{}` were measured with {} {}, and this job has {}",
                              to_text(name), mismatch->key, mismatch->measured, mismatch->asked),
                  "layers of another job say nothing of this one: leave `layers` out");
  for (const NodeGroup& group : cluster.groups)
    if (!file.need("on")->find(group.chip.name))
      throw Refusal(Exit::infeasible, "not-measured", name->where,
                    fmt::format("`{}` has no layers measured on `{}`", to_text(name), group.chip.name),
                    fmt::format("it has them on {}", fmt::join(chips_of(file), ", ")));
  for (NodeGroup& group : cluster.groups) give(file, group);
}

bool use_layers(const std::string& name, const Transformer& transformer, const Train& train,
                Cluster& cluster) {
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.text = name;
  const Fields file = open(std::make_shared<const YamlNode>(std::move(node)), ".");
  if (find_mismatch(measured_job(file), transformer, train)) return false;
  for (const NodeGroup& group : cluster.groups)
    if (!file.need("on")->find(group.chip.name)) return false;
  for (NodeGroup& group : cluster.groups) give(file, group);
  return true;
}

}  // namespace motley
