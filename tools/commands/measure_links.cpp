#include "tools/commands/measure_links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "models/base/median.hpp"
#include "models/calibration/relative_fit.hpp"
#include "models/plan/prepare.hpp"
#include "models/scenario/scenario.hpp"
#include "tools/commands/runs.hpp"
#include "tools/commands/temporary_folder.hpp"

namespace motley {
namespace {

// The jobs: every kind of transfer that two ranks have, with few and with many bytes.
constexpr std::array kStrategies = {"{data_parallel: 2}", "{data_parallel: 2, zero: 2}", "{data_parallel: 2, zero: 3}",
                                    "{pipeline_parallel: 2}", "{context_parallel: 2}"};
constexpr std::array kModels = {
    "{name: narrow, family: llama, vocabulary: 256, hidden: 64, layers: 2, heads: 2, ffn: 128, max_positions: 256}",
    "{name: wide, family: llama, vocabulary: 2048, hidden: 256, layers: 2, heads: 4, ffn: 512, max_positions: 256}"};
constexpr const char* kExperts =
    "{name: experts, family: llama, vocabulary: 256, hidden: 128, layers: 2, heads: 4, ffn: 256, max_positions: 256, "
    "experts: {count: 4, per_token: 2, ffn: 128}}";

std::string scenario_text(const char* model, const char* strategy) {
  return fmt::format(
      "model: {}\ncluster:\n  groups:\n    - {{name: host, nodes: 1, chip: host-core, chips_per_node: 2, "
      "inside: {{fabric: loopback, bandwidth: 1 GB/s, latency: 10 us}}}}\n"
      "train: {{global_batch: 4, micro_batch: 2, sequence: 128, precision: fp32}}\nstrategy: {}\nworld: real\n",
      model, strategy);
}

// The transfers of a trace by step, in seconds from when both sides were ready.
std::map<Step, double> transfer_times(const Program& program, const Trace& trace) {
  std::map<Step, double> times;
  for (const TraceEvent& event : trace.events) {
    const Op op = program.at(event.step.rank, event.step.stream, event.step.index).op();
    if (op == Op::collective || op == Op::recv) times[event.step] = event.end_s - event.matched_s;
  }
  return times;
}

struct Transfer {
  std::string kind;
  RelativePoint point;
};

std::string kind_of(const Program& program, const Step& step) {
  const Instruction& instruction = program.at(step.rank, step.stream, step.index);
  if (const auto* collective = instruction.as<Collective>()) return std::string(name_of(collective->kind));
  return "recv";
}

class LinkMeasurement {
 public:
  explicit LinkMeasurement(const NodeGroup& node) : node_(node) {}

  void add(const std::string& path, std::int64_t times) {
    const Prepared prepared = prepare(load_scenario(path));
    std::map<Step, std::vector<double>> real;
    constexpr int kSteps = 4;
    for (std::int64_t i = 0; i < times; ++i)
      for (const auto& [step, seconds] : transfer_times(prepared.program, train_world(prepared, path, kSteps)))
        if (seconds > 0) real[step].push_back(seconds);
    // Seconds are linear in the latency and in the inverse of the bandwidth: three simulations tell how.
    constexpr double kLatency = 1e-5, kLonger = 1e-3, kBandwidth = 1e9, kSlower = 1e8;
    const auto usual = simulated(prepared, kLatency, kBandwidth), longer = simulated(prepared, kLonger, kBandwidth),
               slower = simulated(prepared, kLatency, kSlower);
    for (const auto& [step, usual_s] : usual) {
      const auto measured = real.find(step);
      if (measured == real.end()) continue;
      const double latencies = (longer.at(step) - usual_s) / (kLonger - kLatency);
      const double bytes = (slower.at(step) - usual_s) / (1 / kSlower - 1 / kBandwidth);
      transfers_.push_back(
          {kind_of(prepared.program, step), relative_point({latencies, bytes}, median_of(measured->second))});
    }
  }

  LinkFit fit() const {
    std::vector<RelativePoint> points;
    for (const Transfer& each : transfers_) points.push_back(each.point);
    constexpr Parts kBoth = part_bit(0) | part_bit(1);
    LinkFit result;
    const auto seconds = fit_parts(points, kBoth);
    if (!seconds) return result;
    result.latency_s = (*seconds)[0];
    result.bytes_per_s = 1 / (*seconds)[1];
    result.transfers = static_cast<std::int64_t>(points.size());
    std::map<std::string, TransferErrors> kinds;
    for (const Transfer& each : transfers_) {
      const double error = relative_error(*seconds, each.point);
      result.mean_error += error / static_cast<double>(points.size());
      result.worst_error = std::max(result.worst_error, error);
      TransferErrors& kind = kinds[each.kind];
      kind.kind = each.kind;
      kind.mean_error += error;
      ++kind.transfers;
    }
    for (auto& [name, kind] : kinds) {
      kind.mean_error /= static_cast<double>(kind.transfers);
      result.by_kind.push_back(kind);
    }
    if (points.size() >= kFewestHeldOut) {
      const HeldOutError error = held_out_error(points, kBoth);
      result.held_out_mean = error.mean;
      result.held_out_worst = error.worst;
    }
    return result;
  }

 private:
  std::map<Step, double> simulated(const Prepared& prepared, double latency_s, double bytes_per_s) const {
    Prepared changed = prepared;
    for (NodeGroup& group : changed.scenario.job.cluster.groups) {
      group.chip = node_.chip;
      group.inside.latency_s = latency_s;
      group.inside.bandwidth = bytes_per_s;
    }
    build_topology(changed.scenario.job.cluster);
    return transfer_times(prepared.program, simulate_world(changed, {}, true));
  }

  const NodeGroup& node_;
  std::vector<Transfer> transfers_;
};

}  // namespace

LinkFit measure_links(const NodeGroup& node, std::int64_t times) {
  const TemporaryFolder folder;
  LinkMeasurement measurement(node);
  const std::string path = folder.file("links.yaml");
  const auto add = [&](const char* model, const char* strategy) {
    std::ofstream(path) << scenario_text(model, strategy);
    measurement.add(path, times);
  };
  for (const char* model : kModels)
    for (const char* strategy : kStrategies) add(model, strategy);
  add(kExperts, "{data_parallel: 2, expert_parallel: 2}");
  return measurement.fit();
}

}  // namespace motley
