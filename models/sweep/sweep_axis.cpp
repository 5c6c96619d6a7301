#include "models/sweep/sweep_axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "models/base/refusal.hpp"
#include "models/base/units.hpp"
#include "models/base/yaml_reader.hpp"

namespace motley {
namespace {

[[noreturn]] void refuse_axis(const std::string& text, std::size_t column, const std::string& message,
                              const std::string& hint, RefusalSite site = RefusalSite::here()) {
  throw Refusal(Exit::usage, "bad-setting", {"--set " + shortened(text), 1, static_cast<int>(column) + 1},
                message, hint, site);
}

// A piece of a list, and where it begins.
struct Piece {
  std::string text;
  std::size_t begin = 0;
};

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// Divides at commas that stand in no brackets, braces or quotes.
std::vector<Piece> pieces_of(const std::string& text, std::size_t begin) {
  std::vector<Piece> pieces;
  int depth = 0;
  char quoted = 0;
  std::size_t first = begin;
  for (std::size_t i = begin; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    const bool is_end = i == text.size();
    if (quoted != 0 && !is_end) {
      if (c == quoted) quoted = 0;
    } else if (c == '"' || c == '\'') {
      quoted = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && (depth == 0 || is_end)) {
      pieces.push_back({trimmed(text.substr(first, i - first)), first});
      first = i + 1;
    }
  }
  return pieces;
}

struct Amount {
  double value = 0;
  std::string unit;  // with the space that stands before it
  bool is_whole = false;
};

// Reads a number with the unit behind it. Nothing: it is none.
std::optional<Amount> read_amount(const std::string& text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789.-"), text.size());
  Amount amount;
  if (read_number(text.substr(0, end), amount.value) != NumberFault::none) return std::nullopt;
  amount.unit = text.substr(end);
  amount.is_whole = amount.value == std::floor(amount.value);
  return amount;
}

std::string print_amount(double value, const std::string& unit) {
  return fmt::format("{:.12g}{}", value, unit);
}

// "x2" or "+0.25".
struct AxisStep {
  bool multiplies = false;
  double by = 1;
};

std::optional<AxisStep> read_step(const std::string& text) {
  AxisStep step{.multiplies = text.starts_with('x')};
  if (!step.multiplies && !text.starts_with('+')) return std::nullopt;
  if (read_number(text.substr(1), step.by) != NumberFault::none) return std::nullopt;
  return step.by > (step.multiplies ? 1 : 0) ? std::optional(step) : std::nullopt;
}

// Adds the values of "FIRST..LAST[:STEP]". False: the piece is no range.
bool add_range(const std::string& text, const Piece& piece, std::vector<std::string>& values) {
  constexpr double kMost = 100'000;
  const std::size_t dots = piece.text.find("..");
  if (dots == std::string::npos) return false;
  const std::size_t colon = piece.text.find(':', dots);
  const auto first = read_amount(piece.text.substr(0, dots));
  const auto last =
      read_amount(piece.text.substr(dots + 2, colon == std::string::npos ? colon : colon - dots - 2));
  if (!first || !last) return false;
  if (!first->unit.empty() && first->unit != last->unit)
    refuse_axis(text, piece.begin, fmt::format("the ends of `{}` have two units", piece.text),
                "the unit stands behind the second end: 100..800Gb/s:x2");
  std::optional<AxisStep> step = AxisStep{};
  if (colon != std::string::npos) step = read_step(piece.text.substr(colon + 1));
  if (!step)
    refuse_axis(text, piece.begin + colon + 1, fmt::format("`{}` is no step", piece.text.substr(colon + 1)),
                "`:x2` doubles each time, `:+0.5` adds a half");
  if (colon == std::string::npos && (!last->unit.empty() || !first->is_whole || !last->is_whole))
    refuse_axis(text, piece.begin, fmt::format("`{}` needs a step", piece.text),
                fmt::format("`{}:x2` doubles each time, `{}:+0.5` adds a half", piece.text, piece.text));
  if (first->value > last->value || (step->multiplies && first->value <= 0))
    refuse_axis(text, piece.begin, fmt::format("`{}` has no values", piece.text),
                "the first end is the lower one, above 0 where a step multiplies");
  const double count = step->multiplies ? std::log(last->value / first->value) / std::log(step->by)
                                        : (last->value - first->value) / step->by;
  if (count > kMost)
    refuse_axis(text, piece.begin, fmt::format("`{}` has more than {} values", piece.text, kMost),
                "take a larger step");
  constexpr double kRounding = 1e-9;
  for (int i = 0; i <= static_cast<int>(count + kRounding); ++i)
    values.push_back(print_amount(
        step->multiplies ? first->value * std::pow(step->by, i) : first->value + i * step->by, last->unit));
  return true;
}

}  // namespace

SweepAxis parse_axis(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    refuse_axis(text, 0, "an axis needs a key and values", "as `--set strategy.tensor_parallel=2,4,8`");
  SweepAxis axis{.key = text.substr(0, equals), .values = {}};
  for (const Piece& piece : pieces_of(text, equals + 1)) {
    if (add_range(text, piece, axis.values)) continue;
    if (std::find(axis.values.begin(), axis.values.end(), piece.text) != axis.values.end())
      refuse_axis(text, piece.begin, fmt::format("`{}` is listed twice", shortened(piece.text)),
                  "leave one out");
    axis.values.push_back(piece.text);
  }
  return axis;
}

std::size_t scenario_count(const std::vector<SweepAxis>& axes) {
  std::size_t count = 1;
  for (const SweepAxis& axis : axes) {
    count *= axis.values.size();
    if (count > kMostSweptScenarios)
      throw Refusal(Exit::usage, "bad-setting", {.file = "--set " + axis.key},
                    fmt::format("the sweep has more than {} scenarios", kMostSweptScenarios),
                    "take fewer values of some key");
  }
  return count;
}

std::vector<std::string> values_of(const std::vector<SweepAxis>& axes, std::size_t number) {
  std::vector<std::string> values(axes.size());
  for (std::size_t i = axes.size(); i-- > 0;) {
    values[i] = axes[i].values[number % axes[i].values.size()];
    number /= axes[i].values.size();
  }
  return values;
}

std::vector<std::string> settings_of(const std::vector<SweepAxis>& axes, std::size_t number) {
  std::vector<std::string> settings = values_of(axes, number);
  for (std::size_t i = 0; i < axes.size(); ++i) settings[i] = axes[i].key + "=" + settings[i];
  return settings;
}

SweepShard parse_sweep_shard(const std::string& text) {
  const std::size_t slash = text.find('/');
  std::int64_t index = 0, count = 0;
  const bool reads = slash != std::string::npos &&
                     read_integer(text.substr(0, slash), index) == NumberFault::none &&
                     read_integer(text.substr(slash + 1), count) == NumberFault::none;
  if (!reads || index < 0 || count < 1 || index >= count)
    throw Refusal(Exit::usage, "bad-shard", {.file = "--shard"},
                  fmt::format("`{}` is no part of a sweep", shortened(text)),
                  "the first of four parts is 0/4, the last is 3/4; `auto` takes a launcher's rank");
  return {static_cast<std::size_t>(index), static_cast<std::size_t>(count)};
}

}  // namespace motley
