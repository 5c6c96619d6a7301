// Fuzz target: a text is imported as each source would write it; what is imported is printed as a scenario, and its
// model, training shape and strategy read back equal.
#include <fmt/format.h>

#include "models/frameworks/import.hpp"
#include "models/strategy/strategy_complaint.hpp"
#include "models/transformer/train_text.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {
namespace {

void import_from(ImportSource source, const std::string& input) {
  static const Transformer model = load_transformer("tiny-gpt2");
  ImportOptions options{.name = "input", .cluster = "host-4", .chips = 32};
  options.groups = {{"a", "a100-80gb-sxm"}, {"b", "h100-80gb-sxm"}};
  if (source == ImportSource::deepspeed) {
    options.model = model;
    options.model_name = "tiny-gpt2";
    options.sequence = 64;
  }
  const Imported imported = import_text(source, input, "input", options);
  check_finite(import_report(imported));
  const Yaml scenario = parse_yaml(print_scenario(imported, source), "input.yaml");
  MOTLEY_CHECK(read_strategy(scenario->find("strategy")->value, imported.transformer, imported.train) ==
               imported.strategy);
  MOTLEY_CHECK(parse_train(print(imported.train)) == imported.train);
  MOTLEY_CHECK(parse_transformer(print(imported.transformer)) == imported.transformer);
}

}  // namespace

void take(const std::string& input) {
  for (const ImportSource source : every<ImportSource>()) {
    try {
      import_from(source, input);
    } catch (const Refusal&) {
      continue;  // another source may have written it
    }
  }
}

}  // namespace motley::tests
