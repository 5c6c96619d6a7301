#include "models/frameworks/import.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "models/base/json_text.hpp"
#include "models/base/yaml_reader.hpp"
#include "models/frameworks/megatron_import.hpp"
#include "models/transformer/train_text.hpp"
#include "models/transformer/transformer_text.hpp"

namespace motley {
namespace {

std::string indented(const std::string& text) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) result += "  " + line + "\n";
  return result;
}

std::string place(const Location& where) {
  return fmt::format("{}:{}:{}", where.file, where.line, where.column);
}

}  // namespace

Imported import_text(ImportSource source, const std::string& text, const std::string& file,
                     const ImportOptions& options) {
  switch (source) {
    case ImportSource::flagscale:
      return import_flagscale(text, file, options);
    case ImportSource::deepspeed:
      return import_deepspeed(text, file, options);
    default:
      return import_megatron(text, file, options);
  }
}

std::string print_scenario(const Imported& imported, ImportSource source) {
  std::string text = fmt::format("# Imported from {} by Motley.\n", name_of(source));
  text += fmt::format("name: {}\n", quote(imported.name));
  Transformer transformer = imported.transformer;
  const double weight = transformer.extra_prediction_weight;
  transformer.extra_prediction_weight = 0;
  text += imported.model_name.empty() ? "model:\n" + indented(print(transformer))
                                      : fmt::format("model: {}\n", quote(imported.model_name));
  text += fmt::format("cluster: {}\n", quote(imported.cluster));
  text += "train:\n" + indented(print(imported.train));
  if (weight > 0) text += fmt::format("  extra_prediction_weight: {}\n", format_exact(weight));
  return text + "strategy:\n" + indented(print(imported.strategy));
}

std::string import_report(const Imported& imported) {
  std::string text = fmt::format("{}: {}, {} ranks\n", imported.name, degrees_of(imported.strategy),
                                 imported.strategy.rank_count());
  for (const std::string& note : imported.notes) text += fmt::format("note: {}\n", note);
  for (const IgnoredSetting& each : imported.ignored)
    text += fmt::format("ignored: {} at {}: {}\n", each.name, place(each.where), each.why);
  return text;
}

std::string import_json(const Imported& imported, ImportSource source) {
  nlohmann::ordered_json ignored = nlohmann::ordered_json::array();
  for (const IgnoredSetting& each : imported.ignored)
    ignored.push_back(
        {{"name", each.name}, {"line", each.where.line}, {"column", each.where.column}, {"why", each.why}});
  return json_text({{"schema", "motley.import/1"},
                    {"from", name_of(source)},
                    {"name", imported.name},
                    {"ranks", imported.strategy.rank_count()},
                    {"strategy_hash", strategy_hash(imported.transformer, imported.train, imported.strategy)},
                    {"notes", imported.notes},
                    {"ignored", ignored},
                    {"scenario", print_scenario(imported, source)}});
}

}  // namespace motley
