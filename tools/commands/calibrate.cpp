// motley calibrate: fits the speeds of a chip's kernels to traces of real runs, says how wrong they are on shapes that
// the fit has not seen, and writes a chip that scenarios may name. Read next: models/calibration/kernel_fit.hpp.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/json_text.hpp"
#include "models/base/table.hpp"
#include "models/base/units.hpp"
#include "models/calibration/kernel_fit.hpp"
#include "models/calibration/measured_files.hpp"
#include "models/calibration/transfer_fit.hpp"
#include "models/cluster/chip.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/measured_text.hpp"

namespace motley {
namespace {

struct CalibrateArguments {
  std::vector<std::string> from;
  std::string chip, name, source, out;
  bool json = false;
};

struct Calibrated {
  Chip chip;
  Measurements measured;
  KernelFit fit;
  std::vector<TransferFit> transfers;
};

Calibrated calibrate(const CalibrateArguments& options) {
  Calibrated result;
  result.chip = load_chip(options.chip);
  for (const std::string& path : options.from) add_measurements(read_measurements(path), result.measured);
  result.transfers = fit_transfers(result.measured.transfers);
  result.fit = fit_kernels(result.measured.samples);
  result.fit.rates.source = options.source;
  if (!result.fit.rates.rates.empty() || result.fit.rates.optimizer)
    result.chip.software.kernels = result.fit.rates;
  if (!options.name.empty()) result.chip.name = options.name;
  return result;
}

std::string percent_or_dash(std::optional<double> error) { return error ? format_percent(*error) : "-"; }

std::string to_text(const Calibrated& result) {
  Table table("lrlllrrrr", {"kernel", "shapes", "overhead", "flops", "bandwidth", "mean error", "worst",
                            "held out", "worst"});
  for (const OpFit& each : result.fit.ops) {
    const auto cell = [](double value, std::string (*print)(double)) {
      return value > 0 ? print(value) : "-";
    };
    table.add({std::string(name_of(each.op)), fmt::to_string(each.shapes),
               cell(each.rate.overhead_s, format_seconds), cell(each.rate.flops_per_s, format_flops),
               cell(each.rate.bytes_per_s, format_rate), percent_or_dash(each.mean_error),
               percent_or_dash(each.worst_error), percent_or_dash(each.held_out_mean),
               percent_or_dash(each.held_out_worst)});
  }
  std::string text = fmt::format(
      "{}: speeds of {} kinds of kernels, from {} shapes\n\n{}\n"
      "held out: each shape predicted by a fit to the others; `-`: there are fewer than three\n",
      result.chip.name, result.fit.ops.size(), result.measured.samples.kernels.size(), table.print());
  if (result.fit.rates.optimizer)
    text +=
        fmt::format("optimizer: {}, from {} steps\n", format_rate(result.fit.rates.optimizer->bytes_per_s),
                    result.measured.samples.optimizer.size());
  for (const std::string& more : {unread_text(result.measured), transfers_text(result.transfers)})
    if (!more.empty()) text += "\n" + more;
  return text;
}

std::string to_json(const Calibrated& result) {
  nlohmann::ordered_json json = {{"schema", "motley.calibrate/1"}, {"chip", result.chip.name}};
  auto& kernels = json["kernels"] = nlohmann::ordered_json::array();
  const auto error = [](std::optional<double> value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  };
  for (const OpFit& each : result.fit.ops)
    kernels.push_back({{"op", name_of(each.op)},
                       {"shapes", each.shapes},
                       {"overhead_s", each.rate.overhead_s},
                       {"flops_per_s", each.rate.flops_per_s},
                       {"bytes_per_s", each.rate.bytes_per_s},
                       {"mean_error", each.mean_error},
                       {"worst_error", each.worst_error},
                       {"held_out_mean", error(each.held_out_mean)},
                       {"held_out_worst", error(each.held_out_worst)}});
  if (result.fit.rates.optimizer) json["optimizer_bytes_per_s"] = result.fit.rates.optimizer->bytes_per_s;
  if (result.measured.gpu_s > 0) json["profile"] = profile_json(result.measured);
  if (!result.transfers.empty()) json["transfers"] = transfers_json(result.transfers);
  return json_text(json);
}

Exit run(const CalibrateArguments& options) {
  const Calibrated result = calibrate(options);
  if (!options.out.empty()) write_result(print(result.chip, ""), options.out);
  write_result(options.json ? to_json(result) : to_text(result), "");
  return Exit::ok;
}

}  // namespace

void add_calibrate(const Command& program) {
  const auto options = std::make_shared<CalibrateArguments>();
  const Command command =
      program.subcommand("calibrate", "Fit the speeds of a chip's kernels to traces of real runs");
  command
      .option("--from", options->from,
              "traces of `motley train --trace FILE --trace-kernels`, torch.profiler's traces with shapes, "
              "output "
              "of nccl-tests and perftest")
      .required();
  command.option("--chip", options->chip, "the chip that ran: a name in platforms/chips/, or a file")
      .required();
  command.option("--source", options->source, "where and when it was measured, for the file").required();
  command.option("--name", options->name, "the name of the calibrated chip; default: that of the chip");
  command.option("--out", options->out, "write the calibrated chip to this file, for `chip:` of a cluster");
  add_max_input(command);
  command.flag("--json", options->json, "print JSON (schema motley.calibrate/1)");
  command.example(
      "motley calibrate --from run.json --chip host-core --source \"my host, 2026-11\" --out my-core.yaml");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
