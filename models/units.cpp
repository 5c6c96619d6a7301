#include "models/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "models/refusal.hpp"

namespace motley {
namespace {

struct Unit {
  const char* name;
  Dimension dimension;
  double factor;
};

constexpr double kKi = 1024.0, kMi = kKi * 1024.0, kGi = kMi * 1024.0, kTi = kGi * 1024.0;

const std::vector<Unit>& units() {
  static const std::vector<Unit> all = [] {
    std::vector<Unit> list = {{"ns", Dimension::seconds, 1e-9},    {"us", Dimension::seconds, 1e-6},
                              {"ms", Dimension::seconds, 1e-3},    {"s", Dimension::seconds, 1},
                              {"min", Dimension::seconds, 60},     {"h", Dimension::seconds, 3600},
                              {"d", Dimension::seconds, 86400},    {"W", Dimension::watts, 1},
                              {"kW", Dimension::watts, 1e3},       {"USD/h", Dimension::dollars_per_hour, 1},
                              {"FLOP/s", Dimension::flops, 1},     {"kFLOP/s", Dimension::flops, 1e3},
                              {"MFLOP/s", Dimension::flops, 1e6},  {"GFLOP/s", Dimension::flops, 1e9},
                              {"TFLOP/s", Dimension::flops, 1e12}, {"PFLOP/s", Dimension::flops, 1e15}};
    const std::array<std::pair<const char*, double>, 9> sizes = {{{"B", 1},
                                                                  {"kB", 1e3},
                                                                  {"MB", 1e6},
                                                                  {"GB", 1e9},
                                                                  {"TB", 1e12},
                                                                  {"KiB", kKi},
                                                                  {"MiB", kMi},
                                                                  {"GiB", kGi},
                                                                  {"TiB", kTi}}};
    static const std::array<const char*, 9> rates = {"B/s",   "kB/s",  "MB/s",  "GB/s", "TB/s",
                                                     "KiB/s", "MiB/s", "GiB/s", "TiB/s"};
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      list.push_back({sizes[i].first, Dimension::bytes, sizes[i].second});
      list.push_back({rates[i], Dimension::bytes_per_second, sizes[i].second});
    }
    const std::array<std::pair<const char*, double>, 5> bits = {
        {{"b/s", 1}, {"kb/s", 1e3}, {"Mb/s", 1e6}, {"Gb/s", 1e9}, {"Tb/s", 1e12}}};
    for (const auto& [name, factor] : bits) list.push_back({name, Dimension::bytes_per_second, factor / 8});
    return list;
  }();
  return all;
}

std::vector<std::string> names_of(Dimension dimension) {
  std::vector<std::string> names;
  for (const Unit& unit : units())
    if (unit.dimension == dimension) names.emplace_back(unit.name);
  return names;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

bool looks_octal(std::string_view number) {
  return number.size() > 1 && number[0] == '0' && number[1] >= '0' && number[1] <= '9';
}

// Three significant digits and the largest unit that leaves at least 1.
std::string scaled(double value, double step, const std::vector<const char*>& names) {
  std::size_t unit = 0;
  while (unit + 1 < names.size() && std::abs(value) >= step * 0.9995) {
    value /= step;
    ++unit;
  }
  const double size = std::abs(value);
  const int decimals = size >= 100 || value == std::floor(value) ? 0 : size >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, decimals, names[unit]);
}

}  // namespace

std::optional<double> parse_quantity(std::string_view text, Dimension dimension, std::string& why) {
  text = trimmed(text);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view digits = text.substr(0, static_cast<std::size_t>(end - text.data()));
  if (error == std::errc::result_out_of_range)
    why = fmt::format("`{}` overflows", text);
  else if (error != std::errc{})
    why = fmt::format("`{}` does not begin with a number", text);
  else if (!std::isfinite(number))
    why = fmt::format("`{}` is not finite", text);
  else if (looks_octal(digits))
    why = fmt::format("`{}` looks octal: write it without the leading zero", digits);
  else {
    const std::string_view name = trimmed(text.substr(digits.size()));
    const auto known = names_of(dimension);
    for (const Unit& unit : units())
      if (name == unit.name && unit.dimension == dimension) {
        if (std::isfinite(number * unit.factor)) return number * unit.factor;
        why = fmt::format("`{}` overflows", text);
        return std::nullopt;
      }
    why = name.empty() ? fmt::format("`{}` has no unit; known: {}", text, fmt::join(known, ", "))
                       : fmt::format("unknown unit `{}`: {}", name, suggest(name, known));
  }
  return std::nullopt;
}

std::string format_bytes(double bytes) {
  return scaled(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB"});
}
std::string format_rate(double bytes_per_second) {
  return scaled(bytes_per_second, 1000, {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"});
}
std::string format_flops(double flop_per_second) {
  return scaled(flop_per_second, 1000,
                {"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", "EFLOP/s"});
}
std::string format_count(double count) {
  std::string text = scaled(count, 1000, {"", "k", "M", "B", "T"});
  if (text.back() == ' ') text.pop_back();
  return text;
}
std::string format_seconds(double seconds) {
  if (seconds == 0) return "0 s";
  if (std::abs(seconds) >= 1) return scaled(seconds, 1e18, {"s"});
  return scaled(seconds * 1e9, 1000, {"ns", "us", "ms", "s"});
}

std::string format_exact(double value) { return fmt::format("{}", value); }

}  // namespace motley
