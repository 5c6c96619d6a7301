#include "models/published/printed_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <regex>
#include <string_view>

#include "models/cluster/cluster.hpp"
#include "models/strategy/strategy_fields.hpp"
#include "models/transformer/train_fields.hpp"
#include "models/transformer/transformer_text.hpp"

namespace motley {
namespace {

// What seconds of a step, a rate or a share of the peak can have been measured as, far beyond any run.
constexpr NumberRange kMeasured{1e-9, 1e12};

// The bounds of a count, by its column: those of the keys of a scenario that say the same.
IntegerRange range_of(std::string_view column) {
  static const std::map<std::string_view, IntegerRange> ranges = {{"n_accelerators", kPublishedChips},
                                                                  {"per_node", kChipsOfNode},
                                                                  {"hidden", kWidth},
                                                                  {"heads", kWidth},
                                                                  {"kv_heads", kWidth},
                                                                  {"ffn_hidden", kRows},
                                                                  {"vocab", kRows},
                                                                  {"layers", kLayers},
                                                                  {"seq_len", kTokens},
                                                                  {"global_batch", kBatch},
                                                                  {"micro_batch", kBatch}};
  const auto known = ranges.find(column);
  return known == ranges.end() ? kDegree : known->second;
}

}  // namespace

void pass_over(std::string reason) { throw UnknownRun{std::move(reason)}; }

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string bare_name(const std::string& text) {
  std::string kept;
  for (const char c : lower(text))
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) kept += c;
  return kept;
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

double PrintedCells::number(const char* column) const { return to_number(row_, column, kMeasured); }

std::int64_t PrintedCells::count_or(const char* column, std::int64_t otherwise) const {
  return text(column).empty() ? otherwise : to_count(row_, column, range_of(column));
}

std::int64_t PrintedCells::count(const char* column) const {
  if (text(column).empty()) pass_over(fmt::format("`{}` is not printed", column));
  return count_or(column, 0);
}

std::optional<double> PrintedCells::noted(const char* form, NumberRange range) const {
  std::smatch match;
  if (!std::regex_search(text("notes"), match, std::regex(fmt::format("\\b{}([0-9.]+)", form))))
    return std::nullopt;
  double value = 0;
  const std::string number = match[1];
  if (read_number(number, value) != NumberFault::none || value < range.least || value > range.most)
    throw Refusal(Exit::usage, "bad-csv", where("notes"),
                  fmt::format("`{}{}` among the notes is out of bounds", form, shortened(number)),
                  fmt::format("must be {} to {}", range.least, range.most));
  return value;
}

}  // namespace motley
