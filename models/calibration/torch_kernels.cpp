#include "models/calibration/torch_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "models/base/csv.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

constexpr std::string_view kKernelsHead = "op,variant,m,n,k,groups,format,l2,flops,bytes,median_s,min_s,";
constexpr IntegerRange kSizes{1, std::int64_t{1} << 40};
constexpr NumberRange kFlops{1, 1e20}, kBytes{1, 1e15}, kSeconds{1e-12, 1e6};

// Kernels of the table that are Motley's, by the beginning of their variant. Those of products and attention have a
// shape; the others only move bytes.
struct KernelRow {
  std::string_view op, variant;
  RatedKernel kernel;
  bool has_shape = false;
};
constexpr std::array kKernelRows = {
    KernelRow{"matmul", "", {KernelOp::matmul}, true},
    KernelRow{"matmul_input_gradient", "", {KernelOp::matmul_input_gradient}, true},
    KernelRow{"matmul_weight_gradient", "", {KernelOp::matmul_weight_gradient}, true},
    KernelRow{"grouped_matmul", "equal groups", {KernelOp::grouped_matmul}, true},
    KernelRow{"attention", "causal, flash", {KernelOp::attention}, true},
    KernelRow{"attention_backward", "causal, flash", {KernelOp::attention_backward}, true},
    KernelRow{"norm", "layer", {KernelOp::norm}},
    KernelRow{"norm_backward", "layer", {KernelOp::norm_backward}},
    KernelRow{"norm", "rms", {KernelOp::norm, KernelVariant::rms}},
    KernelRow{"norm_backward", "rms", {KernelOp::norm_backward, KernelVariant::rms}},
    KernelRow{"activation", "gelu", {KernelOp::activation}},
    KernelRow{"activation_backward", "gelu", {KernelOp::activation_backward}},
    KernelRow{"activation", "swiglu", {KernelOp::activation, KernelVariant::gated}},
    KernelRow{"activation_backward", "swiglu", {KernelOp::activation_backward, KernelVariant::gated}},
    KernelRow{"add_residual", "", {KernelOp::add_residual}},
    KernelRow{"scale", "", {KernelOp::scale}},
    KernelRow{"rope", "", {KernelOp::rope}},
    KernelRow{"embed", "", {KernelOp::embed}},
    KernelRow{"embed_backward", "", {KernelOp::embed_backward}},
    KernelRow{"loss_backward", "", {KernelOp::loss_backward}},
    KernelRow{"accumulate", "", {KernelOp::accumulate}},
    KernelRow{"clear", "", {KernelOp::clear}},
};

const KernelRow* row_of(const CsvRow& row) {
  const auto* const known = std::find_if(kKernelRows.begin(), kKernelRows.end(), [&](const KernelRow& each) {
    return each.op == row["op"] && row["variant"].starts_with(each.variant);
  });
  return known == kKernelRows.end() ? nullptr : known;
}

Format to_format(const CsvRow& row) {
  const std::optional<Format> format = parse_format(row["format"]);
  if (format) return *format;
  throw Refusal(Exit::usage, "bad-csv", row.where("format"),
                fmt::format("unknown format `{}`", shortened(row["format"])), "fp32, bf16, ...");
}

class KernelTable {
 public:
  KernelTable(const std::vector<CsvRow>& rows, const std::string& path) : path_(path) {
    for (const CsvRow& row : rows)
      if (row["l2"] == "cold") rows_.push_back(&row);
  }

  Measurements measure() {
    const Format training = format_of_most();
    for (const CsvRow* const row : rows_) add(*row, training);
    if (read_.kernels.empty())
      throw Refusal(Exit::usage, "bad-measurements", {.file = path_, .line = 1, .column = 1},
                    "no row of this table is a kernel of Motley with its shape",
                    "tools/measure-torch writes such rows, with `cold` as l2");
    add_samples(read_, measurements_.samples);
    make_one_job(measurements_.samples);
    return std::move(measurements_);
  }

 private:
  // Kernels that only move bytes have the format of training: that of most products.
  Format format_of_most() const {
    std::map<Format, std::int64_t> counts;
    for (const CsvRow* const row : rows_)
      if (const KernelRow* const known = row_of(*row); known != nullptr && known->has_shape)
        ++counts[to_format(*row)];
    if (counts.empty()) return Format::bf16;
    return std::max_element(counts.begin(), counts.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }

  void add(const CsvRow& row, Format training) {
    const double seconds = to_number(row, "min_s", kSeconds);
    measurements_.gpu_s += seconds;
    const KernelRow* const known = row_of(row);
    if (row["op"] == "optimizer") {
      measurements_.samples.optimizer.push_back({to_number(row, "bytes", kBytes), seconds});
    } else if (row["op"] == "loss") {
      add_loss(row, training, seconds);
    } else if (known == nullptr || (known->has_shape && to_format(row) != training)) {
      UnreadWork& work = measurements_.unread[fmt::format(
          "{} {}{}{}", row["op"], row["format"], row["variant"].empty() ? "" : ": ", row["variant"])];
      ++work.times;
      work.seconds += seconds;
    } else if (known->has_shape) {
      add_sample(known->kernel, training, shape_of(row), seconds);
    } else {
      MeasuredShape moved;
      moved.bytes = to_number(row, "bytes", kBytes);
      add_sample(known->kernel, training, moved, seconds);
    }
  }

  // Assumes: of the time of log_softmax, each of its two passes over the logits takes half.
  void add_loss(const CsvRow& row, Format training, double seconds) {
    MeasuredShape pass;
    pass.bytes = to_number(row, "bytes", kBytes);
    add_sample({KernelOp::logits_maximum}, training, pass, seconds / 2);
    add_sample({KernelOp::logits_sum}, training, pass, seconds / 2);
  }

  static MeasuredShape shape_of(const CsvRow& row) {
    MeasuredShape shape;
    shape.m = to_count(row, "m", kSizes);
    shape.n = to_count(row, "n", kSizes);
    shape.k = to_count(row, "k", kSizes);
    shape.groups = to_count(row, "groups", {0, kSizes.most});
    shape.flops = to_number(row, "flops", kFlops);
    shape.bytes = to_number(row, "bytes", kBytes);
    return shape;
  }

  void add_sample(const RatedKernel& kernel, Format format, const MeasuredShape& shape, double seconds) {
    KernelSample& sample = read_.kernels.emplace_back();
    sample.kernel = kernel;
    sample.format = format;
    sample.shape = shape;
    sample.shape.seconds = seconds;
    sample.times = {seconds};
  }

  const std::string& path_;
  std::vector<const CsvRow*> rows_;
  Samples read_;  // one for each row, those of one shape not yet put together
  Measurements measurements_;
};

}  // namespace

bool is_torch_kernels(const std::string& text) { return text.starts_with(kKernelsHead); }

Measurements read_torch_kernels(const std::string& text, const std::string& path) {
  const std::vector<CsvRow> rows = parse_csv_table(text, path);
  return KernelTable(rows, path).measure();
}

}  // namespace motley
