#include "tools/commands/measured_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "models/base/table.hpp"
#include "models/base/units.hpp"
#include "models/calibration/kernel_fit.hpp"

namespace motley {
namespace {

constexpr std::size_t kNamed = 8;  // of the operations that are not read, those with the most time

std::string error_text(std::optional<double> error) { return error ? format_percent(*error) : "-"; }

// The keys of a NIC that these fits give: nothing where there are none.
std::string nic_keys(const std::vector<TransferFit>& fits) {
  std::string latency, reaches;
  for (const TransferFit& fit : fits) {
    if (fit.kind == TransferKind::write_latency)
      latency =
          fmt::format("latency: {}", format_exact(rounded(fit.pieces.front().latency_s), Dimension::seconds));
    const double rate = fit.pieces.back().bytes_per_s;
    if (fit.kind == TransferKind::write_bandwidth && rate > 0)
      reaches = fmt::format("reaches: {}", format_exact(rounded(rate), Dimension::bytes_per_second));
  }
  if (latency.empty() || reaches.empty()) return latency + reaches;
  return latency + ", " + reaches;
}

std::string where_they_belong(const std::vector<TransferFit>& fits) {
  std::string text;
  if (const std::string keys = nic_keys(fits); !keys.empty())
    text += fmt::format("for the NIC in a cluster's `nics`: {}\n", keys);
  if (std::any_of(fits.begin(), fits.end(), [](const TransferFit& fit) { return is_collective(fit.kind); }))
    text +=
        "no key of a cluster holds times of collectives: Motley prices them from links, and `motley validate "
        "--collectives` says how well\n";
  return text;
}

using Unread = std::vector<std::pair<std::string, UnreadWork>>;

Unread by_time(const Measurements& measurements) {
  Unread all(measurements.unread.begin(), measurements.unread.end());
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  return all;
}

std::string short_name(const std::string& name) {
  constexpr std::size_t kLongest = 60;
  return name.size() <= kLongest ? name : name.substr(0, kLongest) + "...";
}

}  // namespace

std::string transfers_text(const std::vector<TransferFit>& fits) {
  if (fits.empty()) return "";
  Table table("lrrlllrrrrr", {"transfer", "ranks", "sizes", "from", "latency", "bandwidth", "bus",
                              "mean error", "worst", "held out", "worst"});
  const auto rate = [](double bytes_per_s) { return bytes_per_s > 0 ? format_rate(bytes_per_s) : "-"; };
  for (const TransferFit& fit : fits)
    for (const TransferPiece& piece : fit.pieces) {
      const bool is_first = &piece == &fit.pieces.front(), is_last = &piece == &fit.pieces.back();
      table.add(
          {is_first ? fmt::format("{}{}", name_of(fit.kind), fit.beside_compute ? ", computing" : "") : "",
           is_first ? fmt::to_string(fit.ranks) : "", is_first ? fmt::to_string(fit.sizes) : "",
           format_bytes(piece.from_bytes), piece.latency_s > 0 ? format_seconds(piece.latency_s) : "-",
           rate(piece.bytes_per_s), is_last ? rate(fit.bus_bytes_per_s()) : "",
           is_first ? error_text(fit.mean_error) : "", is_first ? error_text(fit.worst_error) : "",
           is_first ? error_text(fit.held_out_mean) : "", is_first ? error_text(fit.held_out_worst) : ""});
    }
  return fmt::format("transfers: latency + bytes / bandwidth\n\n{}\n{}", table.print(),
                     where_they_belong(fits));
}

std::string unread_text(const Measurements& measurements) {
  if (!(measurements.gpu_s > 0)) return "";
  const Unread all = by_time(measurements);
  double unread_s = 0;
  for (const auto& [name, work] : all) unread_s += work.seconds;
  std::string text =
      fmt::format("profiles: {} of the GPU's {} are in the samples",
                  format_percent(1 - unread_s / measurements.gpu_s), format_seconds(measurements.gpu_s));
  if (all.empty()) return text + "\n";
  text += "; not read:\n";
  Table table("lrr", {"operation", "times", "share"});
  double rest_s = 0;
  std::int64_t rest_times = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [name, work] = all[i];
    if (i < kNamed) {
      table.add(
          {short_name(name), fmt::to_string(work.times), format_percent(work.seconds / measurements.gpu_s)});
      continue;
    }
    rest_s += work.seconds;
    rest_times += work.times;
  }
  if (all.size() > kNamed)
    table.add({fmt::format("{} others", all.size() - kNamed), fmt::to_string(rest_times),
               format_percent(rest_s / measurements.gpu_s)});
  return text + "\n" + table.print();
}

nlohmann::ordered_json transfers_json(const std::vector<TransferFit>& fits) {
  auto json = nlohmann::ordered_json::array();
  const auto error = [](std::optional<double> value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  };
  for (const TransferFit& fit : fits) {
    auto pieces = nlohmann::ordered_json::array();
    for (const TransferPiece& piece : fit.pieces)
      pieces.push_back({{"from_bytes", piece.from_bytes},
                        {"latency_s", piece.latency_s},
                        {"bytes_per_s", piece.bytes_per_s}});
    json.push_back({{"transfer", name_of(fit.kind)},
                    {"ranks", fit.ranks},
                    {"beside_compute", fit.beside_compute},
                    {"sizes", fit.sizes},
                    {"pieces", pieces},
                    {"bus_bytes_per_s", fit.bus_bytes_per_s()},
                    {"mean_error", fit.mean_error},
                    {"worst_error", fit.worst_error},
                    {"held_out_mean", error(fit.held_out_mean)},
                    {"held_out_worst", error(fit.held_out_worst)}});
  }
  return json;
}

nlohmann::ordered_json profile_json(const Measurements& measurements) {
  auto unread = nlohmann::ordered_json::array();
  for (const auto& [name, work] : by_time(measurements))
    unread.push_back({{"operation", name}, {"times", work.times}, {"seconds", work.seconds}});
  return {{"gpu_s", measurements.gpu_s}, {"not_read", unread}};
}

}  // namespace motley
