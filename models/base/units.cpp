// Quantities as people write them, and numbers as people and files write them. Neither a locale nor an implied unit
// is used, and nothing is guessed. Read next: models/base/yaml_reader.hpp.
#include "models/base/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t skip_digits(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

// Length of the decimal number at the beginning of `text`; 0 when there is none.
std::size_t number_length(std::string_view text) {
  const std::size_t first = !text.empty() && text[0] == '-' ? 1 : 0;
  std::size_t at = skip_digits(text, first);
  if (at == first) return 0;
  if (at + 1 < text.size() && text[at] == '.' && is_digit(text[at + 1])) at = skip_digits(text, at + 1);
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    std::size_t exponent = at + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    const std::size_t end = skip_digits(text, exponent);
    if (end > exponent) at = end;
  }
  return at;
}

bool looks_octal(std::string_view number) {
  const std::size_t first = !number.empty() && number[0] == '-' ? 1 : 0;
  return number.size() > first + 1 && number[first] == '0' && is_digit(number[first + 1]);
}

bool names_no_number(std::string_view text) {
  std::string lower;
  for (char c : text)
    if (c != '.' && c != '+' && c != '-')
      lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower == "nan" || lower == "inf" || lower == "infinity";
}

// A unit is numerator/denominator of the base unit: 3 us = 3/1e6 s is the double nearest to 3e-6,
// which 3*1e-6 need not be.
struct Unit {
  std::string_view name;
  double numerator = 1, denominator = 1;
};

constexpr std::array kSeconds = {Unit{"ns", 1, 1e9}, Unit{"us", 1, 1e6}, Unit{"ms", 1, 1e3}, Unit{"s"},
                                 Unit{"min", 60},    Unit{"h", 3600},    Unit{"d", 86400}};
constexpr std::array kBytes = {Unit{"B"},
                               Unit{"kB", 1e3},
                               Unit{"MB", 1e6},
                               Unit{"GB", 1e9},
                               Unit{"TB", 1e12},
                               Unit{"KiB", 1024.0},
                               Unit{"MiB", 1048576.0},
                               Unit{"GiB", 1073741824.0},
                               Unit{"TiB", 1099511627776.0}};
constexpr std::array kBytesPerSecond = {Unit{"B/s"},
                                        Unit{"kB/s", 1e3},
                                        Unit{"MB/s", 1e6},
                                        Unit{"GB/s", 1e9},
                                        Unit{"TB/s", 1e12},
                                        Unit{"KiB/s", 1024.0},
                                        Unit{"MiB/s", 1048576.0},
                                        Unit{"GiB/s", 1073741824.0},
                                        Unit{"TiB/s", 1099511627776.0},
                                        Unit{"b/s", 1, 8},
                                        Unit{"kb/s", 1e3, 8},
                                        Unit{"Mb/s", 1e6, 8},
                                        Unit{"Gb/s", 1e9, 8},
                                        Unit{"Tb/s", 1e12, 8}};
constexpr std::array kFlops = {Unit{"FLOP/s"},       Unit{"kFLOP/s", 1e3},  Unit{"MFLOP/s", 1e6},
                               Unit{"GFLOP/s", 1e9}, Unit{"TFLOP/s", 1e12}, Unit{"PFLOP/s", 1e15}};
constexpr std::array kWatts = {Unit{"W"}, Unit{"kW", 1e3}};
constexpr std::array kDollars = {Unit{"USD"}};
constexpr std::array kDollarsPerHour = {Unit{"USD/h"}};
constexpr std::array kDollarsPerEnergy = {Unit{"USD/kWh"}, Unit{"USD/MWh", 1, 1e3}};
constexpr std::array kCarbonPerEnergy = {Unit{"g/kWh"}, Unit{"kg/kWh", 1e3}, Unit{"kg/MWh"},
                                         Unit{"t/MWh", 1e3}};
constexpr std::array kCount = {Unit{""}, Unit{"k", 1e3}, Unit{"M", 1e6}, Unit{"B", 1e9}, Unit{"T", 1e12}};

std::span<const Unit> units_of(Dimension dimension) {
  switch (dimension) {
    case Dimension::seconds:
      return kSeconds;
    case Dimension::bytes:
      return kBytes;
    case Dimension::bytes_per_second:
      return kBytesPerSecond;
    case Dimension::flops:
      return kFlops;
    case Dimension::watts:
      return kWatts;
    case Dimension::dollars:
      return kDollars;
    case Dimension::dollars_per_hour:
      return kDollarsPerHour;
    case Dimension::dollars_per_energy:
      return kDollarsPerEnergy;
    case Dimension::carbon_per_energy:
      return kCarbonPerEnergy;
    case Dimension::count:
      return kCount;
  }
  return {};
}

std::string list_units(Dimension dimension) {
  std::string list;
  for (const Unit& unit : units_of(dimension))
    if (!unit.name.empty()) list += (list.empty() ? "" : ", ") + std::string(unit.name);
  return list;
}

// No figure that people read is infinite or NaN: what led to it cannot be believed either.
void refuse_not_finite(double figure) {
  if (!std::isfinite(figure))
    throw Refusal(Exit::infeasible, "not-finite", {}, fmt::format("a figure of the result is {}", figure),
                  "are the figures of chips and networks in the right units?");
}

// Three significant digits of a value in [1, 1000); all digits before the point for a larger value.
std::string three_digits(double value) {
  const double size = std::fabs(value);
  if (size < 9.995) return fmt::format("{:.2f}", value);
  if (size < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

// Takes the next larger unit while the value would print as `step` or more.
std::string with_unit(double value, double step, std::span<const std::string_view> units) {
  std::size_t unit = 0;
  while (unit + 1 < units.size() && std::fabs(value) >= step - 0.5) {
    value /= step;
    ++unit;
  }
  if (unit == 0 && value == std::floor(value)) return fmt::format("{:.0f} {}", value, units[0]);
  return fmt::format("{} {}", three_digits(value), units[unit]);
}

}  // namespace

std::vector<std::string_view> unit_names(Dimension dimension) {
  std::vector<std::string_view> names;
  for (const Unit& unit : units_of(dimension)) names.push_back(unit.name);
  return names;
}

NumberRange bounds_of(Dimension dimension) {
  switch (dimension) {
    case Dimension::seconds:
      return {1e-15, 1e12};
    case Dimension::bytes:
    case Dimension::bytes_per_second:
      return {1e-12, 1e18};
    case Dimension::flops:
      return {1e-12, 1e24};
    case Dimension::count:
      return {1e-12, 1e21};
    case Dimension::watts:
    case Dimension::dollars:
    case Dimension::dollars_per_hour:
    case Dimension::dollars_per_energy:
    case Dimension::carbon_per_energy:
      return {1e-12, 1e12};
  }
  return {};
}

NumberFault read_number(std::string_view text, double& value) {
  if (names_no_number(text)) return NumberFault::not_finite;
  if (text.empty() || number_length(text) != text.size()) return NumberFault::not_a_number;
  if (looks_octal(text)) return NumberFault::octal;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return NumberFault::out_of_range;
  if (error != std::errc{} || end != text.data() + text.size()) return NumberFault::not_a_number;
  return NumberFault::none;
}

NumberFault read_integer(std::string_view text, std::int64_t& value) {
  double real = 0;
  const NumberFault fault = read_number(text, real);
  if (fault != NumberFault::none) return fault;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return NumberFault::out_of_range;
  if (error != std::errc{} || end != text.data() + text.size()) return NumberFault::not_a_number;
  return NumberFault::none;
}

namespace {

// Reads a quantity of any size.
NumberFault read_unbounded(std::string_view text, Dimension dimension, double& value, std::string& hint) {
  const std::size_t length = number_length(text);
  std::size_t unit_at = length;
  while (unit_at < text.size() && text[unit_at] == ' ') ++unit_at;
  if (length == 0) {
    hint = "write a number and its unit: " + list_units(dimension);
    const std::string_view first = text.substr(0, text.find(' '));
    return names_no_number(first) ? NumberFault::not_finite : NumberFault::not_a_number;
  }
  const NumberFault fault = read_number(text.substr(0, length), value);
  if (fault != NumberFault::none) return fault;
  const std::string_view written = text.substr(unit_at);
  hint = "units: " + list_units(dimension);
  if (written.empty() && dimension != Dimension::count) return NumberFault::missing_unit;
  for (const Unit& unit : units_of(dimension)) {
    if (unit.name != written) continue;
    value = value * unit.numerator / unit.denominator;
    return std::isfinite(value) ? NumberFault::none : NumberFault::out_of_range;
  }
  return NumberFault::unknown_unit;
}

}  // namespace

NumberFault read_quantity(std::string_view text, Dimension dimension, double& value, std::string& hint) {
  const NumberFault fault = read_unbounded(text, dimension, value, hint);
  const NumberRange bounds = bounds_of(dimension);
  const double size = std::fabs(value);
  if (fault != NumberFault::none || value == 0 || (size >= bounds.least && size <= bounds.most)) return fault;
  const auto base =
      std::find_if(units_of(dimension).begin(), units_of(dimension).end(),
                   [](const Unit& unit) { return unit.numerator == 1 && unit.denominator == 1; });
  hint = fmt::format("must be {:g} to {:g} {}", bounds.least, bounds.most, base->name);
  return NumberFault::out_of_bounds;
}

std::string describe(NumberFault fault, std::string_view text) {
  switch (fault) {
    case NumberFault::none:
      return fmt::format("`{}` is fine", text);
    case NumberFault::not_a_number:
      return fmt::format("`{}` is not a number", text);
    case NumberFault::octal:
      return fmt::format("`{}` looks octal: YAML readers disagree on its value", text);
    case NumberFault::out_of_range:
      return fmt::format("`{}` is too large or too small to hold", text);
    case NumberFault::not_finite:
      return fmt::format("`{}` is not a finite number", text);
    case NumberFault::missing_unit:
      return fmt::format("`{}` has no unit", text);
    case NumberFault::unknown_unit:
      return fmt::format("`{}` has a unit that does not fit here", text);
    case NumberFault::out_of_bounds:
      return fmt::format("`{}` is out of bounds", text);
  }
  return {};
}

std::optional<double> parse_quantity(std::string_view text, Dimension dimension, std::string& why) {
  double value = 0;
  std::string hint;
  const NumberFault fault = read_quantity(text, dimension, value, hint);
  if (fault == NumberFault::none) return value;
  why = describe(fault, text) + (hint.empty() ? "" : "; " + hint);
  return std::nullopt;
}

std::string format_bytes(double bytes) {
  refuse_not_finite(bytes);
  static constexpr std::array<std::string_view, 6> units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  return with_unit(bytes, 1024, units);
}

std::string format_seconds(double seconds) {
  refuse_not_finite(seconds);
  const double size = std::fabs(seconds);
  if (seconds == 0) return "0 s";
  if (size < 0.9995e-6) return three_digits(seconds * 1e9) + " ns";
  if (size < 0.9995e-3) return three_digits(seconds * 1e6) + " us";
  if (size < 0.9995) return three_digits(seconds * 1e3) + " ms";
  if (size < 120) return three_digits(seconds) + " s";
  if (size < 7200) return three_digits(seconds / 60) + " min";
  if (size < 172800) return three_digits(seconds / 3600) + " h";
  return three_digits(seconds / 86400) + " d";
}

std::string format_rate(double bytes_per_second) {
  refuse_not_finite(bytes_per_second);
  static constexpr std::array<std::string_view, 6> units = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"};
  return with_unit(bytes_per_second, 1000, units);
}

std::string format_flops(double flop_per_second) {
  refuse_not_finite(flop_per_second);
  static constexpr std::array<std::string_view, 7> units = {"FLOP/s",  "kFLOP/s", "MFLOP/s", "GFLOP/s",
                                                            "TFLOP/s", "PFLOP/s", "EFLOP/s"};
  return with_unit(flop_per_second, 1000, units);
}

std::string format_count(double count) {
  refuse_not_finite(count);
  static constexpr std::array<std::string_view, 5> units = {"", " k", " M", " B", " T"};
  std::size_t unit = 0;
  while (unit + 1 < units.size() && std::fabs(count) >= 999.95) {
    count /= 1000;
    ++unit;
  }
  if (unit == 0 && count == std::floor(count)) return fmt::format("{:.0f}", count);
  return fmt::format("{:.1f}{}", count, units[unit]);
}

std::string format_exact(double value) { return fmt::format("{}", value); }

// The shortest text with one of the dimension's units that `takes` that reads back as the value; empty: none does.
static std::string shortest_text(double value, Dimension dimension, bool (*takes)(const Unit&)) {
  std::string shortest;
  const auto offer = [&](const Unit& unit) {
    const double number = value * unit.denominator / unit.numerator;
    // The text with fewer digits is tried first: it need not read back, as 2e-6 * 1e6 need not be 2.
    for (const std::string& digits : {fmt::format("{:.12g}", number), fmt::format("{}", number)}) {
      const std::string text = fmt::format("{}{}{}", digits, unit.name.empty() ? "" : " ", unit.name);
      double read = 0;
      std::string hint;
      if (read_unbounded(text, dimension, read, hint) != NumberFault::none || read != value) continue;
      if (shortest.empty() || text.size() < shortest.size()) shortest = text;
    }
  };
  for (const Unit& unit : units_of(dimension))  // the base unit always reads back
    if (takes(unit) && unit.numerator == 1 && unit.denominator == 1) offer(unit);
  for (const Unit& unit : units_of(dimension))
    if (takes(unit)) offer(unit);
  return shortest;
}

std::string format_exact(double value, Dimension dimension) {
  return shortest_text(value, dimension, [](const Unit&) { return true; });
}

std::string format_line_rate(double bytes_per_second) {
  constexpr double kLeast = 1e5;  // below, people count single bytes
  if (bytes_per_second >= kLeast)
    if (const std::string text = shortest_text(bytes_per_second, Dimension::bytes_per_second,
                                               [](const Unit& unit) { return unit.name.ends_with("b/s"); });
        !text.empty())
      return text;
  return format_exact(bytes_per_second, Dimension::bytes_per_second);
}

}  // namespace motley
