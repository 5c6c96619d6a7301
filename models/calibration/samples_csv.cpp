#include "models/calibration/samples_csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

#include "models/base/csv.hpp"
#include "models/base/refusal.hpp"
#include "models/base/units.hpp"

namespace motley {
namespace {

constexpr const char* kColumns =
    "machine,library,ranks,probe,row,rows,kernel,format,m,n,k,groups,flops,bytes,times";
constexpr const char* kOptimizer = "optimizer";
constexpr std::size_t kMostTimes = 250;  // of a row: a cell has at most 8 KiB

std::string joined(const std::vector<double>& times) {
  std::string text;
  const std::size_t stride = (times.size() + kMostTimes - 1) / kMostTimes;
  for (std::size_t i = 0; i < times.size(); i += std::max<std::size_t>(1, stride))
    text += fmt::format("{}{:.9g}", text.empty() ? "" : " ", times[i]);
  return text;
}

// The optimizer's steps have one row for each number of bytes.
std::map<double, std::vector<double>> optimizer_times(const Samples& samples) {
  std::map<double, std::vector<double>> times;
  for (const OptimizerSample& sample : samples.optimizer) times[sample.bytes].push_back(sample.seconds);
  return times;
}

std::map<std::string, RatedKernel> kernels_by_name() {
  std::map<std::string, RatedKernel> kernels;
  for (const RatedKernel& kernel : rated_kernels()) kernels[name_of(kernel)] = kernel;
  return kernels;
}

std::vector<double> to_times(const CsvRow& row) {
  std::vector<double> times;
  std::istringstream words(row["times"]);
  for (std::string word; words >> word;) {
    char* end = nullptr;
    const double value = std::strtod(word.c_str(), &end);
    if (*end != '\0' || !(value > 0) || !(value < 1e6))
      throw Refusal(Exit::usage, "bad-csv", row.where("times"),
                    fmt::format("`{}` is no time in seconds", shortened(word)),
                    "positive numbers, with a space between");
    times.push_back(value);
  }
  if (times.empty())
    throw Refusal(Exit::usage, "bad-csv", row.where("times"), "this shape has no times",
                  "at least one is needed");
  return times;
}

// Rows of one probe, and how many of them the writer meant to write.
struct ProbeRows {
  std::vector<const CsvRow*> rows;
  std::int64_t wanted = 0;
};

void add_row(const CsvRow& row, const std::map<std::string, RatedKernel>& kernels, Samples& samples) {
  constexpr NumberRange kAmount{0, 1e30};
  constexpr IntegerRange kSize{0, std::int64_t{1} << 50};
  const std::vector<double> times = to_times(row);
  const double bytes = to_number(row, "bytes", kAmount);
  if (row["kernel"] == kOptimizer) {
    for (const double seconds : times) samples.optimizer.push_back({bytes, seconds});
    return;
  }
  const auto kernel = kernels.find(row["kernel"]);
  if (kernel == kernels.end())
    throw Refusal(Exit::usage, "bad-csv", row.where("kernel"),
                  fmt::format("unknown kernel `{}`", shortened(row["kernel"])),
                  "the keys of `kernels` in platforms/README.md");
  const std::optional<Format> format = parse_format(row["format"]);
  if (!format)
    throw Refusal(Exit::usage, "bad-csv", row.where("format"),
                  fmt::format("unknown format `{}`", shortened(row["format"])), "fp32, bf16, ...");
  KernelSample sample;
  sample.kernel = kernel->second;
  sample.format = *format;
  sample.shape = {to_count(row, "m", kSize),
                  to_count(row, "n", kSize),
                  to_count(row, "k", kSize),
                  to_count(row, "groups", kSize),
                  to_number(row, "flops", kAmount),
                  bytes,
                  0};
  sample.times = times;
  samples.kernels.push_back(std::move(sample));
}

}  // namespace

std::string samples_csv_head() { return fmt::format("{}\n", kColumns); }

std::string samples_csv_rows(const SamplesOrigin& origin, const std::string& probe, const Samples& samples) {
  const auto optimizer = optimizer_times(samples);
  const std::size_t rows = samples.kernels.size() + optimizer.size();
  std::string text;
  std::size_t row = 0;
  const auto add = [&](const std::string& kernel, const std::string& format, const MeasuredShape& shape,
                       const std::vector<double>& times) {
    text += fmt::format("\"{}\",\"{}\",{},\"{}\",{},{},{},{},{},{},{},{},{:.17g},{:.17g},{}\n",
                        origin.machine, origin.library, origin.ranks, probe, ++row, rows, kernel, format,
                        shape.m, shape.n, shape.k, shape.groups, shape.flops, shape.bytes, joined(times));
  };
  for (const KernelSample& sample : samples.kernels)
    add(name_of(sample.kernel), std::string(name_of(sample.format)), sample.shape, sample.times);
  for (const auto& [bytes, times] : optimizer) {
    MeasuredShape shape;
    shape.bytes = bytes;
    add(kOptimizer, "fp32", shape, times);
  }
  return text;
}

SamplesTable parse_samples_csv(const std::string& whole, const std::string& file) {
  // A writer that was stopped leaves a line without its end.
  const std::size_t end = whole.rfind('\n');
  const std::string text = whole.substr(0, end == std::string::npos ? 0 : end + 1);
  SamplesTable table;
  if (text.substr(0, text.find('\n')) != kColumns)
    throw Refusal(Exit::usage, "bad-csv", {.file = file, .line = 1, .column = 1},
                  "these are no samples of kernels", fmt::format("the first line is `{}`", kColumns));
  const std::vector<CsvRow> rows = parse_csv_table(text, file);
  const auto kernels = kernels_by_name();
  std::map<std::string, ProbeRows> probes;
  bool is_first = true;
  for (const CsvRow& row : rows) {
    const SamplesOrigin origin{row["machine"], row["library"], to_count(row, "ranks", {1, 1 << 20})};
    if (is_first) table.origin = origin;
    is_first = false;
    if (!(origin == table.origin))
      throw Refusal(Exit::usage, "two-origins", row.where("machine"),
                    fmt::format("samples of `{}, {}, {} ranks` stand beside those of `{}, {}, {} ranks`",
                                origin.machine, origin.library, origin.ranks, table.origin.machine,
                                table.origin.library, table.origin.ranks),
                    "a calibration is of one machine, one kernel library and one number of busy ranks");
    ProbeRows& probe = probes[row["probe"]];
    probe.wanted = to_count(row, "rows", {1, 1 << 20});
    probe.rows.push_back(&row);
  }
  Samples rows_of_all, rows_alone;
  for (const auto& [name, probe] : probes) {
    if (static_cast<std::int64_t>(probe.rows.size()) != probe.wanted) continue;
    table.probes.insert(name);
    for (const CsvRow* row : probe.rows)
      add_row(*row, kernels, name.ends_with(kAlone) ? rows_alone : rows_of_all);
  }
  add_samples(rows_of_all, table.samples);
  add_samples(rows_alone, table.alone);
  // A probe that is not complete can only be the last one.
  table.complete_bytes = text.find('\n') + 1;
  for (std::size_t i = 0, line = 0; i < text.size(); ++i) {
    if (text[i] != '\n') continue;
    if (line > 0 && line <= rows.size() && table.probes.contains(rows[line - 1]["probe"]))
      table.complete_bytes = i + 1;
    ++line;
  }
  return table;
}

}  // namespace motley
