#include "tools/commands/measure_links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "models/base/temporary_folder.hpp"
#include "models/plan/prepare.hpp"
#include "models/scenario/scenario.hpp"
#include "tools/commands/runs.hpp"
#include "tools/commands/small_models.hpp"

namespace motley {
namespace {

// The jobs: every kind of transfer that two ranks have, with few and with many bytes.
constexpr std::array kStrategies = {"{data_parallel: 2}", "{data_parallel: 2, zero: 2}",
                                    "{data_parallel: 2, zero: 3}", "{pipeline_parallel: 2}",
                                    "{context_parallel: 2}"};
constexpr const char* kExperts =
    "{name: experts, family: llama, vocabulary: 256, hidden: 128, layers: 2, heads: 4, ffn: 256, "
    "max_positions: 256, "
    "experts: {count: 4, per_token: 2, ffn: 128}}";

std::string scenario_text(const char* model, const char* strategy) {
  return fmt::format(
      "model: {}\ncluster:\n  groups:\n    - {{name: host, nodes: 1, chip: host-core, chips_per_node: 2, "
      "inside: {{fabric: loopback, bandwidth: 1 GB/s, latency: 10 us}}}}\n"
      "train: {{global_batch: 4, micro_batch: 2, sequence: 128, precision: fp32}}\nstrategy: {}\nworld: "
      "real\n",
      model, strategy);
}

struct Transfer {
  double seconds = 0;  // from when all sides were ready
  bool beside_compute = false;
};

// The seconds within [begin_s, end_s] in which a rank computes.
double computing_s(const Trace& trace, const TraceEvent& transfer) {
  double seconds = 0;
  for (const TraceEvent& event : trace.events)
    if (event.step.rank == transfer.step.rank && event.step.stream == kComputeStream)
      seconds +=
          std::max(0.0, std::min(event.end_s, transfer.end_s) - std::max(event.begin_s, transfer.matched_s));
  return seconds;
}

std::map<Step, Transfer> transfers_of(const Program& program, const Trace& trace) {
  std::map<Step, Transfer> transfers;
  for (const TraceEvent& event : trace.events) {
    const Op op = program.at(event.step.rank, event.step.stream, event.step.index).op();
    if (op != Op::collective && op != Op::recv) continue;
    const double seconds = event.end_s - event.matched_s;
    const bool computes = event.step.stream != kComputeStream && computing_s(trace, event) > seconds / 2;
    transfers[event.step] = {seconds, computes};
  }
  return transfers;
}

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
    std::map<Step, std::vector<Transfer>> real;
    constexpr int kSteps = 4;
    for (std::int64_t i = 0; i < times; ++i)
      for (const auto& [step, transfer] : transfers_of(prepared.program, train_world(prepared, kSteps)))
        if (transfer.seconds > 0) real[step].push_back(transfer);
    // Seconds are linear in the latency and in the inverse of the bandwidth: three simulations tell how.
    constexpr double kLatency = 1e-5, kLonger = 1e-3, kBandwidth = 1e9, kSlower = 1e8;
    const auto usual = simulated(prepared, kLatency, kBandwidth);
    const auto longer = simulated(prepared, kLonger, kBandwidth);
    const auto slower = simulated(prepared, kLatency, kSlower);
    for (auto& [step, measured] : real) {
      const double usual_s = usual.at(step).seconds;
      const auto median = measured.begin() + (static_cast<std::ptrdiff_t>(measured.size()) - 1) / 2;
      std::nth_element(measured.begin(), median, measured.end(),
                       [](const Transfer& a, const Transfer& b) { return a.seconds < b.seconds; });
      transfers_.push_back({.kind = kind_of(prepared.program, step),
                            .latencies = (longer.at(step).seconds - usual_s) / (kLonger - kLatency),
                            .bytes = (slower.at(step).seconds - usual_s) / (1 / kSlower - 1 / kBandwidth),
                            .seconds = median->seconds,
                            .beside_compute = median->beside_compute});
    }
  }

  std::optional<LinkFit> fit() const { return fit_link(transfers_); }

 private:
  std::map<Step, Transfer> simulated(const Prepared& prepared, double latency_s, double bytes_per_s) const {
    Prepared changed = prepared;
    for (NodeGroup& group : changed.scenario.job.cluster.groups) {
      group.chip = node_.chip;
      group.inside.latency_s = latency_s;
      group.inside.bandwidth = bytes_per_s;
    }
    build_topology(changed.scenario.job.cluster);
    return transfers_of(prepared.program, simulate_world(changed, {}, true));
  }

  const NodeGroup& node_;
  std::vector<LinkSample> transfers_;
};

}  // namespace

std::optional<LinkFit> measure_links(const NodeGroup& node, std::int64_t times) {
  const TemporaryFolder folder;
  LinkMeasurement measurement(node);
  const auto add = [&](const char* model, const char* strategy) {
    measurement.add(folder.write("links.yaml", scenario_text(model, strategy)), times);
  };
  for (const char* model : {kNarrowModel, kWideModel})
    for (const char* strategy : kStrategies) add(model, strategy);
  add(kExperts, "{data_parallel: 2, expert_parallel: 2}");
  return measurement.fit();
}

}  // namespace motley
