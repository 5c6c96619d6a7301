#include "models/calibration/perftest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "models/base/refusal.hpp"
#include "models/calibration/text_lines.hpp"

namespace motley {
namespace {

constexpr double kMostRate = 1e9;
constexpr double kMebibyte = 1048576;  // both "MB/sec" and "MiB/sec" count these
constexpr double kGigabit = 1e9 / 8;

struct Titled {
  std::string_view title;
  TransferKind kind;
};
constexpr Titled kTests[] = {
    {"RDMA_Write BW Test", TransferKind::write_bandwidth},
    {"RDMA_Read BW Test", TransferKind::read_bandwidth},
    {"Send BW Test", TransferKind::send_bandwidth},
    {"RDMA_Write Latency Test", TransferKind::write_latency},
    {"RDMA_Read Latency Test", TransferKind::read_latency},
    {"Send Latency Test", TransferKind::send_latency},
};

constexpr bool is_latency(TransferKind kind) { return kind >= TransferKind::write_latency; }

class PerftestReader {
 public:
  PerftestReader(const std::string& text, const std::string& path) : text_(text), path_(path) {}

  std::vector<TransferSample> read() {
    for (const std::string_view line : lines_of(text_)) {
      ++line_;
      if (line.find(" Test") != std::string_view::npos && line.find(':') == std::string_view::npos)
        take_title(line);
      else if (line.find("#bytes") != std::string_view::npos)
        take_columns(std::string(line));
      else if (figure_ > 0)
        take_row(words_of(line));
    }
    if (samples_.empty()) refuse("no size was measured", "the output of perftest has a row for each size");
    return std::move(samples_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why, const std::string& hint,
                           RefusalSite site = RefusalSite::here()) const {
    throw Refusal(Exit::usage, "bad-measurements", place(), why, hint, site);
  }
  Location place() const { return {.file = path_, .line = line_, .column = 1}; }

  void take_title(std::string_view line) {
    const auto* const test = std::find_if(std::begin(kTests), std::end(kTests), [&](const Titled& each) {
      return line.find(each.title) != std::string_view::npos;
    });
    if (test == std::end(kTests))
      refuse(fmt::format("`{}` is no test that is read", line.substr(line.find_first_not_of(" \t"))),
             "known: bandwidth one way, and latency, of write, read and send");
    kind_ = test->kind;
    figure_ = 0;
  }

  // " #bytes #iterations BW peak[MiB/sec] BW average[MiB/sec] MsgRate[Mpps]", or with "t_typical[usec]", or, of a test
  // that ran for a duration, "t_avg[usec]".
  void take_columns(std::string line) {
    if (!kind_) refuse("nothing says which test this is", "keep the title, `RDMA_Write BW Test`");
    for (auto blank = line.find("BW "); blank != std::string::npos; blank = line.find("BW ", blank))
      line[blank + 2] = '_';
    const auto words = words_of(line);
    const auto column = [&](std::string_view beginning) {
      const auto word = std::find_if(words.begin(), words.end(),
                                     [&](std::string_view each) { return each.starts_with(beginning); });
      return word == words.end() ? std::size_t{0} : static_cast<std::size_t>(word - words.begin());
    };
    figure_ = column(is_latency(*kind_) ? "t_typical[usec]" : "BW_average[");
    if (figure_ == 0 && is_latency(*kind_)) figure_ = column("t_avg[usec]");
    if (figure_ == 0) refuse("the table has no such column as this test prints", "is the file whole?");
    if (is_latency(*kind_)) return;
    const std::string_view unit = words[figure_];
    if (unit.ends_with("[Gb/sec]"))
      rate_unit_ = kGigabit;
    else if (unit.ends_with("[MiB/sec]") || unit.ends_with("[MB/sec]"))
      rate_unit_ = kMebibyte;
    else
      refuse(fmt::format("unknown unit `{}`", unit), "known: MiB/sec, MB/sec, Gb/sec");
  }

  void take_row(const std::vector<std::string_view>& words) {
    if (words.empty() || words[0].find_first_not_of("0123456789") != std::string_view::npos) return;
    if (words.size() <= figure_) refuse("the row has too few columns", "is the file whole?");
    TransferSample sample;
    sample.kind = *kind_;
    sample.bytes = to_measured(words[0], kMostMessageBytes, place());
    if (is_latency(*kind_)) {
      sample.seconds = to_measured(words[figure_], kMostMeasured_us, place()) * 1e-6;
    } else {
      const double rate = to_measured(words[figure_], kMostRate, place()) * rate_unit_;
      if (rate > 0) sample.seconds = sample.bytes / rate;
    }
    if (!(sample.bytes > 0) || !(sample.seconds > 0))
      refuse("a measured time or rate is 0", "measure larger messages");
    samples_.push_back(sample);
  }

  const std::string& text_;
  const std::string& path_;
  int line_ = 0;
  std::optional<TransferKind> kind_;
  std::size_t figure_ = 0;  // the column that holds the result; 0: no table has begun
  double rate_unit_ = kMebibyte;
  std::vector<TransferSample> samples_;
};

}  // namespace

bool is_perftest(const std::string& text) {
  return text.find("#bytes") != std::string::npos && text.find("#iterations") != std::string::npos;
}

std::vector<TransferSample> read_perftest(const std::string& text, const std::string& path) {
  return PerftestReader(text, path).read();
}

}  // namespace motley
