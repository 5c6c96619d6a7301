#include "models/calibration/transfers_csv.hpp"

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "models/base/csv.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

constexpr std::string_view kTransferColumns = "transfer,ranks,beside_compute,bytes,seconds";

TransferSample to_transfer(const CsvRow& row) {
  const std::optional<TransferKind> kind = parse_word<TransferKind>(row["transfer"]);
  if (!kind)
    throw Refusal(Exit::usage, "bad-csv", row.where("transfer"),
                  fmt::format("unknown transfer `{}`", shortened(row["transfer"])),
                  fmt::format("known: {}", fmt::join(kWords<TransferKind>, ", ")));
  if (row["beside_compute"] != "yes" && row["beside_compute"] != "no")
    throw Refusal(Exit::usage, "bad-csv", row.where("beside_compute"),
                  fmt::format("`{}` is neither", shortened(row["beside_compute"])), "yes or no");
  return {.kind = *kind,
          .ranks = static_cast<int>(to_count(row, "ranks", {2, 1 << 24})),
          .bytes = to_number(row, "bytes", {0, 1e15}),
          .seconds = to_number(row, "seconds", {1e-12, 1e6}),
          .beside_compute = row["beside_compute"] == "yes"};
}

}  // namespace

std::string print_transfers(const std::vector<TransferSample>& samples) {
  std::string text = fmt::format("{}\n", kTransferColumns);
  for (const TransferSample& each : samples)
    text += fmt::format("{},{},{},{},{}\n", name_of(each.kind), each.ranks,
                        each.beside_compute ? "yes" : "no", each.bytes, each.seconds);
  return text;
}

bool is_transfers_csv(const std::string& text) { return text.starts_with(kTransferColumns); }

std::vector<TransferSample> read_transfers_csv(const std::string& text, const std::string& path) {
  std::vector<TransferSample> samples;
  for (const CsvRow& row : parse_csv_table(text, path)) samples.push_back(to_transfer(row));
  return samples;
}

}  // namespace motley
