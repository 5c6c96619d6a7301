// motley calibrate: measures the kernels of this host, or reads those of real runs, fits the speed of each kind, says
// how wrong it is on shapes that the fit has not seen, and writes a chip that scenarios may name. Read next:
// tools/commands/measure_host.hpp, models/calibration/kernel_fit.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/data_files.hpp"
#include "models/base/json_text.hpp"
#include "models/base/table.hpp"
#include "models/base/text_file.hpp"
#include "models/base/units.hpp"
#include "models/calibration/alone_fit.hpp"
#include "models/calibration/comm_links.hpp"
#include "models/calibration/kernel_fit.hpp"
#include "models/calibration/link_fit.hpp"
#include "models/calibration/measured_files.hpp"
#include "models/calibration/transfer_fit.hpp"
#include "models/calibration/transfers_csv.hpp"
#include "models/cluster/chip.hpp"
#include "models/report/coverage.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/measure_copies.hpp"
#include "tools/commands/measure_host.hpp"
#include "tools/commands/measure_links.hpp"
#include "tools/commands/measure_transfers.hpp"
#include "tools/commands/measured_text.hpp"
#include "tools/commands/place_flags.hpp"
#include "tools/commands/runs.hpp"
#include "tools/commands/scenario_flags.hpp"

namespace motley {
namespace {

struct CalibrateArguments {
  std::vector<std::string> scenarios, settings, from;
  std::string chip = "host-core", name, source, out, cluster, transfers, comm, samples, kernels = "fast";
  std::int64_t ranks = 0, seed = 1;  // ranks 0: as many as processors
  double seconds = 90;
  PlaceFlags place;
  bool keep_disturbed = false, missing = false, json = false;
};

struct Calibrated {
  Chip chip;
  Samples samples;
  KernelFit fit;
  std::optional<HostSamples> measured;
  AloneFit alone;
  Measurements files;
  std::vector<TransferFit> transfers;
  std::optional<LinkFit> links;
  std::optional<CopyFit> copies;
  Cluster cluster;  // of this host, where its links were measured
};

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

// The table of samples lies beside the chip: "core.yaml", "core.csv".
std::string samples_path(const CalibrateArguments& options) {
  if (!options.samples.empty() || options.out.empty()) return options.samples;
  return std::filesystem::path(options.out).replace_extension(".csv").string();
}

HostSamples measure(const CalibrateArguments& options, const Chip& chip) {
  std::vector<Prepared> scenarios;
  for (const std::string& path : options.scenarios)
    scenarios.push_back(prepare(load_scenario(path, options.settings)));
  MeasureOptions chosen;
  for (const Prepared& each : scenarios) chosen.scenarios.push_back(&each);
  chosen.busy_ranks = options.ranks > 0 ? options.ranks : host_facts().processors;
  chosen.alone_every = 3;
  chosen.seconds = options.seconds;
  chosen.library = options.kernels == "reference" ? KernelLibrary::reference : KernelLibrary::fast;
  chosen.seed = static_cast<std::uint64_t>(options.seed);
  chosen.samples_path = samples_path(options);
  chosen.keeps_disturbed = options.keep_disturbed;
  note_interrupts();
  return measure_host(chip, chosen);
}

// A cluster of this host: as many ranks as were busy, with the speeds that were measured. The longer kernels were to be
// measured, the more often its small jobs run.
void measure_cluster(const CalibrateArguments& options, Calibrated& result) {
  constexpr double kMostTimes = 5, kSecondsEach = 15;
  const auto times = static_cast<std::int64_t>(std::clamp(options.seconds / kSecondsEach, 1.0, kMostTimes));
  NodeGroup node;
  node.name = "host";
  node.nodes = 1;
  node.chip = result.chip;
  node.chips_per_node = static_cast<int>(std::max<std::int64_t>(2, result.measured->table.origin.ranks));
  node.inside.kind = FabricKind::loopback;
  result.links = measure_links(node, times);
  if (!result.links) throw RunFailure("the transfers between two ranks fit no latency and bandwidth");
  node.inside.latency_s = rounded(result.links->latency_s);
  node.inside.bandwidth = rounded(result.links->bytes_per_s);
  result.copies = measure_copies(node, times);
  if (!result.copies) throw RunFailure("no copy between chips and host took any time");
  const Host& host = result.copies->host;
  node.host = {host.memory, rounded(host.memory_bandwidth), rounded(host.link),
               result.chip.software.kernels.source};
  result.cluster.name = stem_of(options.cluster);
  result.cluster.groups = {node};
  result.cluster.links_measured_on = machine_kind(result.measured->host);
}

bool has_unlike_formats(const Samples& samples) {
  const std::vector<KernelSample>& kernels = samples.kernels;
  return std::any_of(kernels.begin(), kernels.end(),
                     [&](const KernelSample& each) { return each.format != kernels.front().format; });
}

Calibrated calibrate(const CalibrateArguments& options) {
  Calibrated result;
  Location other_format;  // the first file with kernels of another format than those before
  result.chip = load_chip(options.chip);
  if (options.from.empty()) {
    result.measured = measure(options, result.chip);
    result.samples = result.measured->table.samples;
  } else {
    for (const std::string& path : options.from) {
      add_measurements(read_measurements(path), result.files);
      if (other_format.file.empty() && has_unlike_formats(result.files.samples)) other_format.file = path;
    }
    result.samples = result.files.samples;
    result.transfers = fit_transfers(result.files.transfers);
  }
  result.fit = fit_kernels(result.samples, other_format);
  KernelRates& rates = result.fit.rates;
  rates.source = options.source;
  if (result.measured) {
    const SamplesOrigin& origin = result.measured->table.origin;
    rates.library = origin.library;
    rates.noise = rounded(result.measured->noise);
    result.alone = fit_alone(result.samples, result.measured->table.alone, origin.ranks, rates);
    const double clock_hz = result.measured->host.clock_hz;
    const std::string clock = clock_hz > 0 ? fmt::format(" at {:.0f} MHz", clock_hz / 1e6) : "";
    if (options.source.empty())
      rates.source = fmt::format("{}{}, {} busy, {}, measured {}", origin.machine, clock, origin.ranks,
                                 origin.library, today());
  }
  if (!rates.rates.empty() || rates.optimizer) result.chip.software.kernels = rates;
  if (!options.name.empty())
    result.chip.name = options.name;
  else if (!options.out.empty())
    result.chip.name = std::filesystem::path(options.out).stem().string();
  if (!options.cluster.empty()) measure_cluster(options, result);
  return result;
}

// The cluster of the ranks that a launcher started, whose kernels are known before.
Cluster cluster_of(const std::string& name, const Chip& chip, const MeasuredTransfers& measured) {
  const auto link = link_between(*measured.samples);
  if (!link) throw RunFailure("messages between the first two ranks are not slower the larger they are");
  if (measured.ranks % measured.hosts != 0)
    throw RunFailure(fmt::format("{} ranks on {} hosts: a cluster's file wants as many on each host",
                                 measured.ranks, measured.hosts));
  CommLinks links{.hosts = measured.hosts, .ranks_per_host = measured.ranks / measured.hosts};
  links.inside_host = link;
  if (links.hosts > 1) links.between_hosts = link;
  Cluster cluster;
  cluster.name = name;
  cluster.groups = {hosts_with(chip, links)};
  cluster.links_measured_on = measured.machine;
  return cluster;
}

std::string percent_or_dash(std::optional<double> error) { return error ? format_percent(*error) : "-"; }

std::string table_of(const Calibrated& result) {
  double all_s = 0;
  for (const OpFit& each : result.fit.ops) all_s += each.seconds;
  std::vector<OpFit> by_time = result.fit.ops;
  std::stable_sort(by_time.begin(), by_time.end(),
                   [](const OpFit& a, const OpFit& b) { return a.seconds > b.seconds; });
  Table table("lrrlllrrrrr", {"kernel", "of time", "shapes", "overhead", "flops", "bandwidth", "pairs",
                              "mean error", "worst", "held out", "worst"});
  for (const OpFit& each : by_time) {
    const auto cell = [](double value, std::string (*print)(double)) {
      return value > 0 ? print(value) : "-";
    };
    table.add({name_of(each.kernel), format_percent(all_s > 0 ? each.seconds / all_s : 0),
               fmt::to_string(each.shapes), cell(each.rate.overhead_s, format_seconds),
               cell(each.rate.flops_per_s, format_flops), cell(each.rate.bytes_per_s, format_rate),
               each.rate.pairs_per_s > 0 ? fmt::format("{:.0f} M/s", each.rate.pairs_per_s / 1e6) : "-",
               percent_or_dash(each.mean_error), percent_or_dash(each.worst_error),
               percent_or_dash(each.held_out_mean), percent_or_dash(each.held_out_worst)});
  }
  return table.print();
}

std::string measured_text(const HostSamples& measured) {
  std::string text =
      fmt::format("{}\n{} probes measured, beside {} busy rank{}", to_text(measured.host), measured.probes,
                  measured.table.origin.ranks - 1, measured.table.origin.ranks == 2 ? "" : "s");
  if (measured.kept_before > 0) text += fmt::format(", {} were there before", measured.kept_before);
  if (measured.disturbed > 0)
    text += fmt::format("; {} measurements were disturbed (last: {})", measured.disturbed,
                        measured.last_disturbance);
  return text + "\n\n";
}

std::string links_text(const LinkFit& links) {
  std::string text = fmt::format(
      "\nlinks: {} a message, {}, from {} transfers between two ranks; mean error {}, worst {}, held out "
      "{}\n",
      format_seconds(links.latency_s), format_rate(links.bytes_per_s), links.transfers,
      format_percent(links.mean_error), format_percent(links.worst_error),
      percent_or_dash(links.held_out_mean));
  for (const TransferErrors& each : links.by_kind)
    if (each.transfers > 0)
      text +=
          fmt::format("  {:<17} {:>3} transfers, mean error {}, median of predicted / measured - 1 {}\n",
                      each.kind, each.transfers, format_percent(each.mean_error), format_percent(each.bias));
  return text;
}

std::string copies_text(const CopyFit& copies) {
  return fmt::format(
      "copies between chip and host: {} for each rank, from {} copies; off by {} of their time\n"
      "optimizer steps on the host: {} of memory, from {} steps; off by {} of their time\n",
      format_rate(copies.host.link), copies.copies, format_percent(copies.copies_error),
      format_rate(copies.host.memory_bandwidth), copies.steps, format_percent(copies.steps_error));
}

std::string to_text(const Calibrated& result) {
  std::string text = result.measured ? measured_text(*result.measured) : "";
  if (!result.fit.ops.empty() || result.transfers.empty())
    text += fmt::format(
        "{}: speeds of {} kinds of kernels, from {} shapes\n\n{}\n"
        "held out: each shape predicted by a fit to others; `-`: there are fewer than three\n",
        result.chip.name, result.fit.ops.size(), result.samples.kernels.size(), table_of(result));
  if (result.fit.rates.optimizer)
    text +=
        fmt::format("optimizer: {}, from {} steps\n", format_rate(result.fit.rates.optimizer->bytes_per_s),
                    result.samples.optimizer.size());
  if (result.alone.shapes > 0)
    text += fmt::format("alone: a kernel takes {} of its time among {} busy ranks, by {} shapes\n",
                        format_percent(result.alone.share), result.fit.rates.busy, result.alone.shapes);
  for (const std::string& more : {unread_text(result.files), transfers_text(result.transfers)})
    if (!more.empty()) text += "\n" + more;
  if (result.links) text += links_text(*result.links);
  if (result.copies) text += copies_text(*result.copies);
  return text;
}

std::string to_json(const Calibrated& result) {
  nlohmann::ordered_json json = {{"schema", "motley.calibrate/1"}, {"chip", result.chip.name}};
  if (const auto& measured = result.measured) {
    json["machine"] = measured->table.origin.machine;
    json["library"] = measured->table.origin.library;
    json["busy_ranks"] = measured->table.origin.ranks;
    json["probes"] = measured->probes;
    json["probes_kept"] = measured->kept_before;
    json["disturbed"] = measured->disturbed;
  }
  auto& kernels = json["kernels"] = nlohmann::ordered_json::array();
  const auto error = [](std::optional<double> value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  };
  for (const OpFit& each : result.fit.ops)
    kernels.push_back({{"kernel", name_of(each.kernel)},
                       {"seconds", each.seconds},
                       {"shapes", each.shapes},
                       {"overhead_s", each.rate.overhead_s},
                       {"flops_per_s", each.rate.flops_per_s},
                       {"bytes_per_s", each.rate.bytes_per_s},
                       {"pairs_per_s", each.rate.pairs_per_s},
                       {"mean_error", each.mean_error},
                       {"worst_error", each.worst_error},
                       {"held_out_mean", error(each.held_out_mean)},
                       {"held_out_worst", error(each.held_out_worst)}});
  if (result.fit.rates.optimizer) json["optimizer_bytes_per_s"] = result.fit.rates.optimizer->bytes_per_s;
  if (result.alone.shapes > 0)
    json["alone"] = {{"share", result.alone.share}, {"shapes", result.alone.shapes}};
  if (const auto& links = result.links)
    json["links"] = {{"latency_s", links->latency_s},     {"bytes_per_s", links->bytes_per_s},
                     {"transfers", links->transfers},     {"mean_error", links->mean_error},
                     {"worst_error", links->worst_error}, {"held_out_mean", error(links->held_out_mean)}};
  if (const auto& copies = result.copies)
    json["copies"] = {
        {"link_bytes_per_s", copies->host.link}, {"copies", copies->copies},
        {"error", copies->copies_error},         {"host_bytes_per_s", copies->host.memory_bandwidth},
        {"host_steps", copies->steps},           {"host_steps_error", copies->steps_error}};
  if (result.files.gpu_s > 0) json["profile"] = profile_json(result.files);
  if (!result.transfers.empty()) json["transfers"] = transfers_json(result.transfers);
  return json_text(json);
}

// How a scenario names what was written; empty: by its path.
std::string named_text(const std::string& key, const std::string& name, const std::string& path) {
  return name == path ? "" : fmt::format("`{}: {}` names {}\n", key, name, path);
}

void check_options(const CalibrateArguments& options) {
  if (!options.from.empty() && !options.scenarios.empty())
    throw Refusal(Exit::usage, "conflicting-options", {},
                  "--from reads runs, and a scenario is to be measured", "give one of the two");
  if (!options.from.empty() && options.source.empty())
    throw Refusal(Exit::usage, "missing-option", {}, "--from needs --source",
                  "where and when these runs were measured");
  if (!options.from.empty() && !options.cluster.empty())
    throw Refusal(Exit::usage, "conflicting-options", {},
                  "--from measures nothing, and --cluster needs a measurement", "give one of the two");
  if (!options.transfers.empty() && (!options.from.empty() || !options.scenarios.empty()))
    throw Refusal(Exit::usage, "conflicting-options", {}, "--transfers measures transfers alone",
                  "measure kernels by a command of their own");
  if (!options.comm.empty() && (!options.from.empty() || !options.scenarios.empty() ||
                                !options.transfers.empty() || !options.out.empty()))
    throw Refusal(Exit::usage, "conflicting-options", {}, "--comm reads links alone",
                  "motley calibrate --comm FILE --cluster FILE");
  if (options.from.empty() && !(options.seconds > 0))
    throw Refusal(Exit::usage, "bad-seconds", {}, fmt::format("--seconds {}", options.seconds),
                  "a positive number");
}

// The shapes of a scenario that the chip's calibration lacks; nothing is measured.
struct ScenarioCoverage {
  std::string scenario;
  Coverage coverage;
};
ScenarioCoverage coverage_on(const Chip& chip, const std::string& path,
                             const std::vector<std::string>& settings) {
  Prepared prepared = prepare(load_scenario(path, settings));
  for (NodeGroup& group : prepared.scenario.job.cluster.groups)
    group.chip.software.kernels = chip.software.kernels;
  const Trace trace = simulate_world(prepared, {}, true);
  return {prepared.scenario.name, coverage_of(prepared.program, prepared.scenario.job.cluster, trace)};
}

std::string json_of(const std::vector<ScenarioCoverage>& all, const Chip& chip) {
  nlohmann::ordered_json json = {{"schema", "motley.missing/1"}, {"chip", chip.name}};
  auto& scenarios = json["scenarios"] = nlohmann::ordered_json::array();
  for (const ScenarioCoverage& each : all) {
    nlohmann::ordered_json missing = nlohmann::ordered_json::array();
    for (const MissingShape& shape : each.coverage.missing)
      missing.push_back({{"kernel", name_of(shape.kernel)},
                         {"known", name_of(shape.known)},
                         {"m", shape.shape.m},
                         {"n", shape.shape.n},
                         {"k", shape.shape.k},
                         {"groups", shape.shape.groups},
                         {"flops", shape.shape.flops},
                         {"bytes", shape.shape.bytes},
                         {"seconds", shape.seconds}});
    scenarios.push_back({{"scenario", each.scenario}, {"missing", missing}});
  }
  return json_text(json);
}

Exit list_missing(const CalibrateArguments& options) {
  constexpr std::size_t kMostLines = 40;
  if (options.scenarios.empty())
    throw Refusal(Exit::usage, "missing-option", {}, "--missing needs a scenario",
                  "motley calibrate SCENARIO --missing");
  const Chip chip = load_chip(options.chip);
  std::vector<ScenarioCoverage> all;
  for (const std::string& path : options.scenarios) all.push_back(coverage_on(chip, path, options.settings));
  std::string text;
  for (const ScenarioCoverage& each : all)
    text += fmt::format("{} on {}: {}\n\n{}\n", each.scenario, chip.name, describe(each.coverage),
                        missing_text(each.coverage, kMostLines));
  write_result(options.json ? json_of(all, chip) : text, "");
  return Exit::ok;
}

// Times transfers, not kernels. The first rank writes and prints what was measured.
Exit time_ranks(const CalibrateArguments& options) {
  const Chip chip = load_chip(options.chip);
  if (!options.cluster.empty() && chip.software.kernels.rates.empty())
    throw Refusal(Exit::usage, "not-calibrated", {.file = options.chip}, "this chip has no measured kernels",
                  "calibrate a chip on one host first, and give it by --chip");
  TransferOptions chosen{.seconds = options.seconds, .place = options.place};
  if (options.ranks > 0) chosen.ranks = options.ranks;
  const MeasuredTransfers measured = measure_transfers(chosen);
  if (!measured.samples) return measured.exit;
  write_result(print_transfers(*measured.samples), options.transfers);
  if (!options.cluster.empty())
    write_result(print(cluster_of(stem_of(options.cluster), chip, measured)), options.cluster);
  const std::vector<TransferFit> fits = fit_transfers(*measured.samples);
  const nlohmann::ordered_json json = {{"schema", "motley.calibrate/1"}, {"transfers", transfers_json(fits)}};
  write_result(options.json ? json_text(json) : transfers_text(fits), "");
  return Exit::ok;
}

std::string link_text(const char* what, const std::optional<LinkFigures>& link) {
  if (!link) return "";
  return fmt::format("links {}: {} a message, {}\n", what, format_seconds(link->latency_s),
                     format_rate(link->bytes_per_s));
}

nlohmann::ordered_json link_json(const std::optional<LinkFigures>& link) {
  if (!link) return nullptr;
  return {{"latency_s", link->latency_s}, {"bytes_per_s", link->bytes_per_s}};
}

// Measures nothing: makes the links of a cluster of what bench comm has measured.
Exit read_comm(const CalibrateArguments& options) {
  const CommLinks links = read_comm_links(read_text_file(options.comm), options.comm);
  if (!options.cluster.empty()) {
    Cluster cluster;
    cluster.name = stem_of(options.cluster);
    cluster.groups = {hosts_with(load_chip(options.chip), links)};
    cluster.links_measured_on = links.machine;
    write_result(print(cluster), options.cluster);
  }
  const nlohmann::ordered_json json = {{"schema", "motley.calibrate/1"},
                                       {"hosts", links.hosts},
                                       {"ranks_per_host", links.ranks_per_host},
                                       {"inside_host", link_json(links.inside_host)},
                                       {"between_hosts", link_json(links.between_hosts)}};
  const std::string text = fmt::format("{} host{} of {} rank{}\n", links.hosts, links.hosts == 1 ? "" : "s",
                                       links.ranks_per_host, links.ranks_per_host == 1 ? "" : "s") +
                           link_text("inside a host", links.inside_host) +
                           link_text("between hosts", links.between_hosts);
  write_result(options.json ? json_text(json) : text, "");
  return Exit::ok;
}

Exit run(CalibrateArguments options) {
  check_options(options);
  const std::string chip = options.out, cluster = options.cluster;
  options.out = measured_path(chip);
  options.cluster = measured_path(cluster);
  if (!options.transfers.empty()) return time_ranks(options);
  if (!options.comm.empty()) return read_comm(options);
  if (options.missing) return list_missing(options);
  const Calibrated result = calibrate(options);
  if (!options.out.empty()) write_result(print(result.chip, ""), options.out);
  if (result.links) write_result(print(result.cluster), options.cluster);
  const std::string where =
      named_text("chip", chip, options.out) + named_text("cluster", cluster, options.cluster);
  write_result(options.json ? to_json(result) : to_text(result) + where, "");
  return was_interrupted() ? Exit::interrupted : Exit::ok;
}

}  // namespace

void add_calibrate(const Command& program) {
  const auto options = std::make_shared<CalibrateArguments>();
  const Command command = program.subcommand(
      "calibrate", "Measure the kernels of this host, or read real runs, and fit a chip's speeds to them");
  command.option("scenario", options->scenarios, "scenarios whose own kernels are measured, too");
  add_settings(command, options->settings);
  command.option(
      "--from", options->from,
      "measure nothing: read traces of `motley train --trace FILE --trace-kernels`, torch.profiler's traces "
      "with shapes, output of nccl-tests and perftest, or kernels.csv of tools/measure-torch");
  command.option("--chip", options->chip,
                 "the chip that runs: a name in platforms/chips/, or a file; default: host-core");
  command.option("--source", options->source, "where and when it was measured, for the file");
  command.option("--name", options->name, "the name of the calibrated chip; default: that of --out");
  command.option(
      "--out", options->out,
      "write the calibrated chip to this file, or, if it is a name and no path, to platforms/measured/, "
      "where `chip:` of a cluster finds the name");
  command.option("--cluster", options->cluster,
                 "also measure how ranks exchange bytes and copy them to their host, and write a cluster of "
                 "this host to this file, or name; with "
                 "--transfers: a cluster of these ranks' hosts, whose chips are --chip");
  command.option(
      "--transfers", options->transfers,
      "measure no kernels: time messages and collectives of 0 B to 64 MiB among the ranks that a launcher "
      "started, or among --ranks (2) of this host, idle and computing, and write them to this file");
  add_place_flags(command, options->place);
  command.option(
      "--comm", options->comm,
      "measure nothing: read the latency and bandwidth of links from the messages in what "
      "`motley bench comm --json` printed; with --cluster: write a cluster of such hosts, whose chips "
      "are --chip");
  command.option("--samples", options->samples,
                 "the table of what was measured, which a later run goes on with; default: --out with .csv");
  command.option("--seconds", options->seconds, "how long to measure; default: 90");
  command.option("--ranks", options->ranks, "ranks that are busy at once; default: one for each processor");
  command.option("--kernels", options->kernels, "reference: plain loops; fast: libraries where there are")
      .one_of({"fast", "reference"});
  command.flag("--missing", options->missing,
               "measure nothing: list the kernels of the scenarios whose shapes the chip lacks");
  command.flag("--keep-disturbed", options->keep_disturbed,
               "count measurements although the machine did not keep still");
  command.option("--seed", options->seed, "of the shapes that are drawn; default: 1");
  add_max_input(command);
  command.flag("--json", options->json, "print JSON (schema motley.calibrate/1)");
  command.example(
      "motley calibrate --seconds 60 --out my-core.yaml\n"
      "  motley calibrate --comm comm.json --chip my-core.yaml --cluster pair.yaml");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
