#include "models/calibration/nccl_tests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "models/base/data_files.hpp"
#include "models/base/refusal.hpp"
#include "models/calibration/text_lines.hpp"

namespace motley {
namespace {

constexpr double kMostRanks = 1e7;

struct Named {
  std::string_view program;
  TransferKind kind;
};
// A name that is a part of another one stands behind it.
constexpr Named kPrograms[] = {
    {"all_reduce", TransferKind::all_reduce},
    {"all_gather", TransferKind::all_gather},
    {"reduce_scatter", TransferKind::reduce_scatter},
    {"alltoall", TransferKind::all_to_all},
    {"broadcast", TransferKind::broadcast},
    {"sendrecv", TransferKind::send_recv},
    {"scatter", TransferKind::scatter},
    {"gather", TransferKind::gather},
    {"reduce", TransferKind::reduce},
};

std::optional<TransferKind> kind_in(std::string_view name) {
  for (const Named& each : kPrograms)
    if (name.find(each.program) != std::string_view::npos) return each.kind;
  return std::nullopt;
}

// What mpirun writes before each line: [1,0]<stdout>:
bool is_tag(std::string_view word) { return word.starts_with('[') && word.ends_with("<stdout>:"); }

class NcclTestsReader {
 public:
  NcclTestsReader(const std::string& text, const std::string& path) : text_(text), path_(path) {
    kind_ = kind_in(stem_of(path));
  }

  std::vector<NcclTestsRow> read() {
    for (const std::string_view line : lines_of(text_)) {
      ++line_;
      auto words = words_of(line);
      if (!words.empty() && is_tag(words[0])) words.erase(words.begin());
      if (words.empty()) continue;
      if (words[0].starts_with('#'))
        take_comment(line, words);
      else if (!times_.empty() && words[0].find_first_not_of("0123456789") == std::string_view::npos)
        take_row(words);
    }
    if (!has_time_) refuse("no size was measured", "the output of nccl-tests has a row for each size");
    return std::move(rows_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why, const std::string& hint,
                           RefusalSite site = RefusalSite::here()) const {
    throw Refusal(Exit::usage, "bad-measurements", place(), why, hint, site);
  }
  Location place() const { return {.file = path_, .line = line_, .column = 1}; }

  void take_comment(std::string_view line, const std::vector<std::string_view>& words) {
    constexpr std::string_view kStarts = "Collective test starting:";
    if (const auto start = line.find(kStarts); start != std::string_view::npos) {
      kind_ = kind_in(line.substr(start + kStarts.size()));
      if (!kind_)
        refuse(fmt::format("unknown test `{}`", words.back()),
               "known: all_reduce, all_gather, reduce_scatter, alltoall, broadcast, reduce, gather, scatter, "
               "sendrecv");
    } else if (words.size() > 2 && words[1] == "Using" && words[2] == "devices") {
      ranks_.clear();
      times_.clear();
    } else if (words.size() > 2 && words[1] == "Rank") {
      ranks_.insert(static_cast<int>(to_measured(words[2], kMostRanks, place())));
    } else if (std::find(words.begin(), words.end(), "algbw") != words.end()) {
      take_columns(words);
    }
  }

  // "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong"
  void take_columns(const std::vector<std::string_view>& words) {
    times_.clear();
    wrong_.clear();
    columns_ = words.size() - 1;
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (words[i] == "time") times_.push_back(i - 1);
      if (words[i] == "#wrong") wrong_.push_back(i - 1);
      if (words[i] == "cputime") refuse("these are times of the processor", "run without `-C`");
    }
    if (words.size() < 2 || words[1] != "size" || times_.empty())
      refuse("the table has no columns `size` and `time`",
             "the file holds what nccl-tests printed, unchanged");
    if (!kind_)
      refuse("nothing says which collective this is",
             "name the file as the program, all_reduce_perf.txt, or use nccl-tests 2.17 or later");
    if (ranks_.empty()) refuse("no rank is listed", "keep the lines `#  Rank  0 ...`");
  }

  void take_row(std::vector<std::string_view> words) {
    // Old versions leave the column `redop` blank for collectives that do not reduce.
    constexpr std::size_t kReduceColumn = 3;
    if (words.size() + 1 == columns_) words.insert(words.begin() + kReduceColumn, "");
    if (words.size() < columns_)
      refuse(fmt::format("{} of {} columns", words.size(), columns_), "is the file whole?");
    for (const std::size_t column : wrong_)
      if (words[column] != "N/A" && to_measured(words[column], kMostMessageBytes, place()) > 0)
        refuse(fmt::format("{} values of the result are wrong", words[column]),
               "such a run is no measurement");
    NcclTestsRow row{.kind = *kind_, .ranks = *ranks_.rbegin() + 1, .bytes = 0, .seconds = {}, .line = line_};
    row.bytes = to_measured(words[0], kMostMessageBytes, place());
    for (const std::size_t time : times_) {
      row.seconds.push_back(to_measured(words[time], kMostMeasured_us, place()) * 1e-6);
      has_time_ = has_time_ || (row.seconds.back() > 0 && row.bytes > 0);
    }
    rows_.push_back(std::move(row));
  }

  const std::string& text_;
  const std::string& path_;
  int line_ = 0;
  std::optional<TransferKind> kind_;
  std::set<int> ranks_;
  std::vector<std::size_t> times_, wrong_;  // the columns that hold times, and counts of wrong values
  std::size_t columns_ = 0;
  bool has_time_ = false;
  std::vector<NcclTestsRow> rows_;
};

}  // namespace

bool is_nccl_tests(const std::string& text) {
  return text.find("# nThread ") != std::string::npos ||
         text.find("# Collective test starting") != std::string::npos;
}

std::vector<NcclTestsRow> read_nccl_rows(const std::string& text, const std::string& path) {
  return NcclTestsReader(text, path).read();
}

std::vector<TransferSample> read_nccl_tests(const std::string& text, const std::string& path) {
  std::vector<TransferSample> samples;
  for (const NcclTestsRow& row : read_nccl_rows(text, path))
    for (const double seconds : row.seconds)
      if (seconds > 0 && row.bytes > 0)
        samples.push_back({.kind = row.kind, .ranks = row.ranks, .bytes = row.bytes, .seconds = seconds});
  return samples;
}

}  // namespace motley
