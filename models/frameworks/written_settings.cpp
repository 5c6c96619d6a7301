#include "models/frameworks/written_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace motley {

Yaml scalar_at(const std::string& text, const Location& where) {
  auto node = std::make_shared<YamlNode>();
  node->kind = YamlNode::Kind::scalar;
  node->text = text;
  node->where = where;
  return node;
}

void WrittenSettings::add(const std::string& name, WrittenSetting setting) {
  settings_[name] = std::move(setting);
}

const WrittenSetting* WrittenSettings::read(const std::string& name) {
  read_.insert(name);
  const auto setting = settings_.find(name);
  return setting == settings_.end() ? nullptr : &setting->second;
}

Location WrittenSettings::where(const std::string& name) const {
  const auto setting = settings_.find(name);
  return setting == settings_.end() ? where_ : setting->second.where;
}

namespace {

void refuse_unknown(const std::string& name, const WrittenValue& value) {
  if (value.unknown.empty()) return;
  throw Refusal(
      Exit::usage, "undefined-variable", value.where,
      fmt::format("the value of {} is in `{}`, which the text does not define", name, value.unknown),
      "write the value, or a line that sets the variable above");
}

}  // namespace

Yaml WrittenSettings::only_value(const std::string& name, const WrittenSetting& setting) const {
  if (setting.values.size() != 1)
    throw Refusal(
        Exit::usage, "wrong-number-of-values", setting.where,
        fmt::format("{} has {} values where one is wanted", as_written(name), setting.values.size()));
  refuse_unknown(as_written(name), setting.values[0]);
  return scalar_at(setting.values[0].text, setting.values[0].where);
}

bool WrittenSettings::flag(const std::string& name) {
  const WrittenSetting* const setting = read(name);
  if (setting == nullptr) return false;
  return setting->values.empty() || to_bool(only_value(name, *setting));
}

std::optional<std::int64_t> WrittenSettings::integer(const std::string& name, IntegerRange range) {
  const WrittenSetting* const setting = read(name);
  if (setting == nullptr) return std::nullopt;
  return to_integer(only_value(name, *setting), range);
}

std::int64_t WrittenSettings::integer(const std::string& name, IntegerRange range, std::int64_t absent) {
  return integer(name, range).value_or(absent);
}

std::int64_t WrittenSettings::needed_integer(const std::string& name, IntegerRange range) {
  if (!has(name)) refuse_missing(name, {});
  return *integer(name, range);
}

double WrittenSettings::number(const std::string& name, Sign sign, double absent) {
  const WrittenSetting* const setting = read(name);
  return setting == nullptr ? absent : to_number(only_value(name, *setting), sign);
}

std::optional<std::string> WrittenSettings::text(const std::string& name) {
  const WrittenSetting* const setting = read(name);
  if (setting == nullptr) return std::nullopt;
  return only_value(name, *setting)->text;
}

std::string WrittenSettings::choice(const std::string& name, const std::vector<std::string>& choices) {
  const WrittenSetting* const setting = read(name);
  return setting == nullptr ? choices.at(0) : to_choice(only_value(name, *setting), choices);
}

std::vector<std::string> WrittenSettings::words(const std::string& name) {
  std::vector<std::string> words;
  const WrittenSetting* const setting = read(name);
  if (setting == nullptr) return words;
  for (const WrittenValue& value : setting->values) {
    refuse_unknown(as_written(name), value);
    words.push_back(value.text);
  }
  return words;
}

std::string WrittenSettings::as_written(std::string name) const {
  if (form_ == Form::flags) return "--" + name;
  std::replace(name.begin(), name.end(), '-', '_');
  return fmt::format("`{}`", name);
}

std::string WrittenSettings::only_text(const std::string& name) const {
  const auto setting = settings_.find(name);
  return setting == settings_.end() || setting->second.values.size() != 1 ? ""
                                                                          : setting->second.values[0].text;
}

std::vector<std::string> WrittenSettings::not_read() const {
  std::vector<std::string> names;
  for (const auto& [name, setting] : settings_)
    if (!read_.contains(name)) names.push_back(name);
  std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    const Location &left = settings_.at(a).where, &right = settings_.at(b).where;
    return std::tie(left.line, left.column) < std::tie(right.line, right.column);
  });
  return names;
}

void WrittenSettings::refuse_missing(const std::string& name, const std::string& hint) const {
  throw Refusal(Exit::usage, "missing-setting", where_, fmt::format("{} is missing", as_written(name)), hint);
}

}  // namespace motley
