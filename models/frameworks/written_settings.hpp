// Settings as somebody wrote them, each with its place: an importer reads some of them, and those that it did not read
// are listed afterwards. Read next: megatron_import.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/base/yaml_reader.hpp"

namespace motley {

struct WrittenValue {
  std::string text;
  Location where;
  std::string unknown;  // a variable that the text does not define; empty: the value is known
};

struct WrittenSetting {
  Location where;
  std::vector<WrittenValue> values;
};

class WrittenSettings {
 public:
  // `form`: how names are written in messages: --tensor-model-parallel-size, or tensor_model_parallel_size.
  enum class Form : std::uint8_t { flags, keys };
  explicit WrittenSettings(Location where, Form form = Form::flags) : where_(std::move(where)), form_(form) {}

  void add(const std::string& name, WrittenSetting setting);

  // Each of these reads a setting, which is then not listed as ignored. A setting that is absent has the given value,
  // or none. Refuse a value of another type ("wrong-type" and the others of yaml_reader.hpp) and a variable that the
  // text does not define ("undefined-variable").
  bool flag(const std::string& name);
  std::optional<std::int64_t> integer(const std::string& name, IntegerRange range);
  std::int64_t integer(const std::string& name, IntegerRange range, std::int64_t absent);
  std::int64_t needed_integer(const std::string& name, IntegerRange range);  // refuses ("missing-setting")
  double number(const std::string& name, Sign sign, double absent);
  std::optional<std::string> text(const std::string& name);
  std::string choice(const std::string& name, const std::vector<std::string>& choices);  // absent: the first
  std::vector<std::string> words(const std::string& name);

  // The setting's only value, which does not read it; empty: it has none.
  std::string only_text(const std::string& name) const;
  bool has(const std::string& name) const { return settings_.contains(name); }
  // Location of the setting; of the whole where it is absent.
  Location where(const std::string& name) const;
  std::string as_written(std::string name) const;
  const std::map<std::string, WrittenSetting>& all() const { return settings_; }
  std::vector<std::string> not_read() const;  // in the order of the text
  [[noreturn]] void refuse_missing(const std::string& name, const std::string& hint) const;

 private:
  const WrittenSetting* read(const std::string& name);
  Yaml only_value(const std::string& name, const WrittenSetting& setting) const;

  Location where_;
  Form form_;
  std::map<std::string, WrittenSetting> settings_;
  std::set<std::string> read_;
};

// A scalar of YAML that stands there.
Yaml scalar_at(const std::string& text, const Location& where);

}  // namespace motley
