#include "models/published/nccl_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/base/index.hpp"
#include "models/base/json_text.hpp"
#include "models/base/refusal.hpp"
#include "models/base/units.hpp"
#include "models/published/collective_errors.hpp"
#include "models/published/prediction_errors.hpp"

namespace motley {
namespace {

constexpr std::int64_t kMostSize_bytes = std::int64_t{1} << 50;

// Whether the payload is one part for each rank.
bool has_parts(NcclOperation operation) {
  switch (operation) {
    case NcclOperation::all_reduce:
    case NcclOperation::broadcast:
    case NcclOperation::reduce:
    case NcclOperation::send_recv:
      return false;
    default:
      return true;
  }
}

bool reduces(NcclOperation operation) {
  return operation == NcclOperation::all_reduce || operation == NcclOperation::reduce_scatter ||
         operation == NcclOperation::reduce;
}

const char* redop_of(NcclOperation operation) {
  return reduces(operation) || operation == NcclOperation::send_recv ? "sum" : "none";
}

int root_of(NcclOperation operation) {
  const auto kind = kind_of(operation);
  return kind && is_rooted(*kind) ? 0 : -1;
}

std::string letters_of(std::string_view text) {
  std::string letters;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)))
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

std::string head_of(const NcclTable& table) {
  std::string text = fmt::format(
      "# Collective test starting: {}\n# predicted by motley, not measured; cluster: {}, software: {}\n",
      nccl_program(table.operation), table.cluster, table.software);
  const std::string step = table.range.factor > 1 ? fmt::format("{}(factor)", table.range.factor)
                                                  : fmt::format("{}(bytes)", table.range.step);
  text += fmt::format("# nThread 1 nGpus 1 minBytes {} maxBytes {} step: {}\n", table.range.least,
                      table.range.most, step);
  text += "#\n# Using devices\n";
  constexpr std::size_t kShown = 64;
  for (std::size_t i = 0; i < std::min(kShown, table.devices.size()); ++i)
    text += fmt::format("#  Rank {:>2} Group  0 on {}\n", i, table.devices[i]);
  if (table.devices.size() > kShown)
    text +=
        fmt::format("#  ...\n#  Rank {:>2} Group  0 on {}\n", table.devices.size() - 1, table.devices.back());
  return text + "#\n";
}

std::string start_of_row(const NcclTable& table, const NcclRow& row) {
  return fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", row.size.bytes, row.size.count, table.type.name,
                     redop_of(table.operation), root_of(table.operation));
}

std::string figures_of(const NcclTable& table, const NcclRow& row, double seconds) {
  const double algbw = row.algbw(seconds);
  return fmt::format("  {}  {}  {}", nccl_figure(seconds * 1e6, 7), nccl_figure(algbw, 6),
                     nccl_figure(algbw * table.bus_factor(), 6));
}

// nccl-tests' columns, and the algorithm. In place a collective has the same prediction.
std::string predicted_rows(const NcclTable& table) {
  const std::string left = fmt::format("{:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "", "", "", "", "");
  std::string text = fmt::format("# {}  {:^31}  {:^31}\n", left, "out-of-place", "in-place");
  const std::string columns = fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "time", "algbw", "busbw", "#wrong");
  const std::string units = fmt::format("  {:>7}  {:>6}  {:>6}", "(us)", "(GB/s)", "(GB/s)");
  text += fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{}{}  {}\n", "size", "count", "type", "redop",
                      "root", columns, columns, "algorithm");
  text += fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{}  {:>6}{}\n", "(B)", "(elements)", "", "", "",
                      units, "", units);
  for (const NcclRow& row : table.rows) {
    const std::string figures = fmt::format("{}  {:>6}", figures_of(table, row, row.seconds), "N/A");
    text += fmt::format("{}{}{}  {}\n", start_of_row(table, row), figures, figures, row.algorithm);
  }
  return text;
}

std::string compared_rows(const NcclTable& table) {
  std::string text = fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:^23}  {:>16}\n", "", "", "", "",
                                 "", "measured", "predicted");
  const std::string columns = fmt::format("  {:>7}  {:>6}  {:>6}", "time", "algbw", "busbw");
  const std::string units = fmt::format("  {:>7}  {:>6}  {:>6}", "(us)", "(GB/s)", "(GB/s)");
  text += fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{}{}  {:>6}  {}\n", "size", "count", "type",
                      "redop", "root", columns, columns, "ratio", "algorithm");
  text += fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{}{}\n", "(B)", "(elements)", "", "", "", units,
                      units);
  for (const NcclRow& row : table.rows)
    text += start_of_row(table, row) + figures_of(table, row, row.measured_s.value()) +
            figures_of(table, row, row.seconds) +
            fmt::format("  {:>6.3f}  {}\n", row.seconds / *row.measured_s, row.algorithm);
  return text;
}

Errors errors_of(const NcclTable& table) {
  Errors errors;
  for (const NcclRow& row : table.rows)
    if (row.measured_s) errors.add(std::to_string(row.size.bytes), row.seconds, *row.measured_s);
  return errors;
}

// What was stated of predictions of these sizes before any was made.
std::string stated_errors() {
  std::string text;
  for (const SizeClass& each : size_classes())
    text += fmt::format("{}{:.0f} % {}", text.empty() ? "" : ", ", each.stated_pct,
                        each.name == "above" ? "above that" : "at sizes " + each.name);
  return text;
}

std::string errors_text(const NcclTable& table) {
  const Errors errors = errors_of(table);
  if (errors.count() == 0) return "";
  return fmt::format("# {:<20} : {:.1f} %, median {:.1f} %, worst {:+.1f} % at {} B, bias {:+.1f} %\n",
                     "Mean error", errors.mean(), errors.median(), errors.worst(), errors.worst_id(),
                     errors.bias());
}

}  // namespace

std::optional<NcclOperation> parse_operation(std::string_view text) {
  std::string wanted = letters_of(text);
  if (wanted.ends_with("perf")) wanted.resize(wanted.size() - 4);
  for (const NcclOperation each : every<NcclOperation>())
    if (letters_of(name_of(each)) == wanted) return each;
  return std::nullopt;
}

std::string nccl_program(NcclOperation operation) {
  if (operation == NcclOperation::all_to_all) return "alltoall_perf";
  if (operation == NcclOperation::send_recv) return "sendrecv_perf";
  return std::string(name_of(operation)) + "_perf";
}

std::optional<CollectiveKind> kind_of(NcclOperation operation) {
  switch (operation) {
    case NcclOperation::all_reduce:
      return CollectiveKind::all_reduce;
    case NcclOperation::all_gather:
      return CollectiveKind::all_gather;
    case NcclOperation::reduce_scatter:
      return CollectiveKind::reduce_scatter;
    case NcclOperation::broadcast:
      return CollectiveKind::broadcast;
    case NcclOperation::reduce:
      return CollectiveKind::reduce;
    case NcclOperation::all_to_all:
      return CollectiveKind::all_to_all;
    case NcclOperation::gather:
      return CollectiveKind::gather;
    case NcclOperation::scatter:
      return CollectiveKind::scatter;
    case NcclOperation::send_recv:
      break;
  }
  return std::nullopt;
}

double bus_factor(NcclOperation operation, int ranks) {
  const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  if (operation == NcclOperation::all_reduce) return 2 * share;
  return has_parts(operation) ? share : 1;
}

const std::vector<NcclType>& nccl_types() {
  static const std::vector<NcclType> types = {{"int8", 1},   {"uint8", 1},    {"int32", 4},  {"uint32", 4},
                                              {"int64", 8},  {"uint64", 8},   {"half", 2},   {"float", 4},
                                              {"double", 8}, {"bfloat16", 2}, {"f8e4m3", 1}, {"f8e5m2", 1}};
  return types;
}

NcclSize nccl_size(NcclOperation operation, std::int64_t asked, const NcclType& type, int ranks) {
  const std::int64_t count = asked / type.bytes;
  if (!has_parts(operation)) return {count * type.bytes, count};
  const std::int64_t part = count / ranks / (16 / type.bytes) * (16 / type.bytes);
  return {part * ranks * type.bytes, part};
}

std::vector<std::int64_t> sizes_of(const SizeRange& range) {
  if (range.least > range.most)
    throw Refusal(Exit::usage, "bad-size-range", {},
                  fmt::format("sizes from {} B to {} B are none", range.least, range.most),
                  "-b is the smallest size and -e the largest");
  if (range.factor == 0 ? range.step < 1 : (range.factor < 2 || range.least < 1))
    throw Refusal(Exit::usage, "bad-size-range", {},
                  fmt::format("sizes from {} B to {} B have no end with factor {} and step {} B", range.least,
                              range.most, range.factor, range.step),
                  "-f 2 with -b 8, or -i 1M");
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = range.least; size <= range.most;) {
    sizes.push_back(size);
    if (sizes.size() > kMostSizes)
      throw Refusal(
          Exit::usage, "bad-size-range", {},
          fmt::format("there are more than {} sizes from {} B to {} B", kMostSizes, range.least, range.most),
          "a larger step -i, or a factor: -f 2");
    if (range.factor > 1 && size > range.most / range.factor) break;
    size = range.factor > 1 ? size * range.factor : size + range.step;
  }
  return sizes;
}

std::int64_t parse_nccl_size(const std::string& text) {
  static const std::string kUnits = "KMG";
  std::string number = text;
  double unit = 1;
  if (!number.empty()) {
    const auto power =
        kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(number.back()))));
    if (power != std::string::npos) {
      unit = std::pow(1024.0, static_cast<double>(power) + 1);
      number.pop_back();
    }
  }
  double value = 0;
  const NumberFault fault = read_number(number, value);
  if (fault != NumberFault::none || value < 0 || value * unit > static_cast<double>(kMostSize_bytes))
    throw Refusal(Exit::usage, "bad-size", {}, fmt::format("`{}` is not a size of a message", text),
                  "as nccl-tests has them, up to 1 PiB: 8, 8K, 8M, 8G");
  return static_cast<std::int64_t>(value * unit);
}

void use_measured(NcclTable& table, const MeasuredTable& log) {
  MOTLEY_CHECK(!log.sizes.empty());
  const Location& where = log.sizes.front().where;
  if (log.operation != table.operation)
    throw Refusal(
        Exit::usage, "other-nccl-log", where,
        fmt::format("the log is of {}, not of {}", name_of(log.operation), name_of(table.operation)),
        fmt::format("motley collective {}", name_of(log.operation)));
  if (log.ranks != table.ranks)
    throw Refusal(Exit::usage, "other-nccl-log", where,
                  fmt::format("the log is of {} ranks, not of {}", log.ranks, table.ranks),
                  fmt::format("--ranks {}", log.ranks));
  for (NcclRow& row : table.rows) {
    const auto measured = std::find_if(log.sizes.begin(), log.sizes.end(), [&](const MeasuredSize& each) {
      return each.bytes == row.size.bytes;
    });
    if (measured == log.sizes.end())
      throw Refusal(Exit::usage, "other-nccl-log", where,
                    fmt::format("the log has no size of {} B: its sizes are from {} B to {} B",
                                row.size.bytes, log.sizes.front().bytes, log.sizes.back().bytes),
                    "leave -b, -e, -f and -i out: the sizes are then those of the log");
    row.measured_s = measured->seconds;
  }
}

double NcclTable::average_busbw() const {
  double sum = 0;
  for (const NcclRow& row : rows) sum += row.algbw(row.seconds) * bus_factor();
  return rows.empty() ? 0 : sum / static_cast<double>(rows.size());
}

std::string nccl_figure(double value, int width) {
  for (const int decimals : {2, 1, 0})
    if (const std::string text = fmt::format("{:{}.{}f}", value, width, decimals);
        text.size() <= static_cast<std::size_t>(width))
      return text;
  return fmt::format("{:{}.{}e}", value, width, width >= 7 ? 1 : 0);
}

std::string to_text(const NcclTable& table) {
  const bool compares = !table.rows.empty() && table.rows.front().measured_s;
  std::string text = head_of(table) + (compares ? compared_rows(table) : predicted_rows(table));
  text += fmt::format("# {:<20} : {:.6g}\n", "Avg bus bandwidth", table.average_busbw());
  text +=
      compares ? errors_text(table) : fmt::format("# {:<20} : {}\n", "Stated mean error", stated_errors());
  return text + fmt::format("#\n# Collective test concluded: {}\n", nccl_program(table.operation));
}

std::string to_json(const NcclTable& table) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const NcclRow& row : table.rows) {
    nlohmann::ordered_json each = {{"bytes", row.size.bytes},
                                   {"count", row.size.count},
                                   {"seconds", row.seconds},
                                   {"algbw_gb_s", row.algbw(row.seconds)},
                                   {"busbw_gb_s", row.algbw(row.seconds) * table.bus_factor()},
                                   {"algorithm", row.algorithm}};
    if (row.measured_s) {
      each["measured_s"] = *row.measured_s;
      each["ratio"] = row.seconds / *row.measured_s;
    }
    rows.push_back(each);
  }
  nlohmann::ordered_json whole = {{"schema", "motley.collective/1"},
                                  {"operation", name_of(table.operation)},
                                  {"cluster", table.cluster},
                                  {"software", table.software},
                                  {"ranks", table.ranks},
                                  {"type", table.type.name},
                                  {"bus_factor", table.bus_factor()},
                                  {"rows", rows},
                                  {"average_busbw_gb_s", table.average_busbw()}};
  if (const Errors errors = errors_of(table); errors.count() > 0)
    whole["errors"] = {{"rows", errors.count()},
                       {"mean_abs_pct", errors.mean()},
                       {"median_abs_pct", errors.median()},
                       {"worst_pct", errors.worst()},
                       {"bias_pct", errors.bias()}};
  return json_text(whole);
}

}  // namespace motley
