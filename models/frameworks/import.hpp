// A scenario from what another framework is given: the line that starts Megatron-LM, FlagScale's YAML, DeepSpeed's
// JSON. Read next: megatron_import.hpp, which reads the arguments that two of them share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/refusal.hpp"
#include "models/frameworks/framework.hpp"
#include "models/strategy/strategy.hpp"
#include "models/transformer/train.hpp"
#include "models/transformer/transformer.hpp"

namespace motley {

// A setting that the scenario does not hold.
struct IgnoredSetting {
  std::string name;  // "--log-interval"
  Location where;
  std::string why;
};

// What the text does not say. Targets that say more than they are asked do not need all of it.
struct ImportOptions {
  std::string name = {};   // of the scenario
  std::string cluster;     // as `cluster:` of a scenario is written
  std::int64_t chips = 0;  // of that cluster: the ranks, where the text does not say how many start
  std::vector<std::pair<std::string, std::string>> groups =
      {};                                 // of the cluster: name, and name of its chips
  std::optional<Transformer> model = {};  // DeepSpeed's JSON has none
  std::string model_name = {};            // the same, as `model:` is written
  std::int64_t sequence = 0;  // tokens of a sequence, which DeepSpeed's JSON does not say; 0: not given
};

struct Imported {
  std::string name, cluster;
  Transformer transformer;
  std::string model_name;  // empty: the model is written out
  Train train;
  Strategy strategy;
  std::vector<IgnoredSetting> ignored;
  std::vector<std::string> notes;  // what was taken for granted: "32 ranks: ..."
};

// Throws Refusal at file:line:column.
Imported import_text(ImportSource source, const std::string& text, const std::string& file,
                     const ImportOptions& options);

// Of one source each.
Imported import_megatron(const std::string& text, const std::string& file, const ImportOptions& options);
Imported import_flagscale(const std::string& text, const std::string& file, const ImportOptions& options);
Imported import_deepspeed(const std::string& text, const std::string& file, const ImportOptions& options);

// The imported scenario as YAML, which read_scenario() reads back to the same model, training shape and strategy.
std::string print_scenario(const Imported& imported, ImportSource source);
std::string import_json(const Imported& imported, ImportSource source);
std::string import_report(const Imported& imported);  // notes and ignored settings, a line each

}  // namespace motley
