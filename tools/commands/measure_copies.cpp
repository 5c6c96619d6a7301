#include "tools/commands/measure_copies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "hw/calibration/host_facts.hpp"
#include "models/base/median.hpp"
#include "models/base/temporary_folder.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/plan/prepare.hpp"
#include "models/scenario/scenario.hpp"
#include "tools/commands/runs.hpp"
#include "tools/commands/small_models.hpp"

namespace motley {
namespace {

constexpr std::array kOffloads = {"{optimizer: 1, activations: 0}", "{optimizer: 0, activations: 1}"};

std::string offload_text(const char* model, const char* offload, int ranks) {
  return fmt::format(
      "model: {}\ncluster:\n  groups:\n    - {{name: host, nodes: 1, chip: host-core, chips_per_node: {}, "
      "inside: {{fabric: loopback, bandwidth: 1 GB/s, latency: 10 us}}, "
      "host: {{memory: 1 TiB, memory_bandwidth: 10 GB/s, link: 10 GB/s}}}}\n"
      "train: {{global_batch: {}, micro_batch: 2, sequence: 128, precision: fp32}}\n"
      "strategy: {{data_parallel: {}, offload: {}}}\nworld: real\n",
      model, ranks, 4 * ranks, ranks, offload);
}

// How much of something there was, and what it took.
struct Amount {
  double amount = 0, seconds = 0;
};

// What one unit takes, so that all of them together take as long as they did. 0: nothing took any time.
double seconds_each(const std::vector<Amount>& all) {
  double amount = 0, seconds = 0;
  for (const Amount& each : all) {
    amount += each.amount;
    seconds += each.seconds;
  }
  return amount > 0 ? seconds / amount : 0;
}

double error_of(const std::vector<Amount>& all, double each_s) {
  double off_s = 0, seconds = 0;
  for (const Amount& each : all) {
    off_s += std::abs(each.amount * each_s - each.seconds);
    seconds += each.seconds;
  }
  return off_s / seconds;
}

class CopyMeasurement {
 public:
  explicit CopyMeasurement(int ranks) {
    node_.chips_per_node = ranks;
    node_.host = Host{.memory_bandwidth = 1};
  }

  void add(const std::string& path, std::int64_t times) {
    constexpr int kSteps = 4;
    const Prepared prepared = prepare(load_scenario(path));
    std::map<Step, std::vector<double>> seconds;  // of each run
    for (std::int64_t i = 0; i < times; ++i)
      for (const TraceEvent& event : train_world(prepared, kSteps).events)
        if (event.end_s > event.begin_s) seconds[event.step].push_back(event.end_s - event.begin_s);
    for (auto& [step, each] : seconds) add(prepared.program, step, median_of(each));
  }

  std::optional<CopyFit> fit() const {
    const double copied_s = seconds_each(copies_), stepped_s = seconds_each(steps_);
    if (!(copied_s > 0) || !(stepped_s > 0)) return std::nullopt;
    const HostFacts facts = host_facts();
    CopyFit fit;
    fit.host.memory = static_cast<double>(facts.most_memory_bytes.value_or(facts.memory_bytes));
    fit.host.link = 1 / copied_s;
    fit.host.memory_bandwidth = 1 / stepped_s;
    fit.copies = static_cast<std::int64_t>(copies_.size());
    fit.steps = static_cast<std::int64_t>(steps_.size());
    fit.copies_error = error_of(copies_, copied_s);
    fit.steps_error = error_of(steps_, stepped_s);
    return fit;
  }

 private:
  void add(const Program& program, const Step& step, double seconds) {
    const Instruction& instruction = program.at(step.rank, step.stream, step.index);
    const RankProgram& rank_program = program.program_of(step.rank);
    if (instruction.op() == Op::copy)
      copies_.push_back({static_cast<double>(payload_bytes(instruction)), seconds});
    const auto* optimizer = instruction.as<OptimizerStep>();
    if (optimizer != nullptr && !optimizer->tensors.empty())
      steps_.push_back({host_step_s(program, rank_program, *optimizer, node_), seconds});
  }

  NodeGroup node_;                      // its host moves a byte a second
  std::vector<Amount> copies_, steps_;  // bytes; what a byte a second takes
};

}  // namespace

std::optional<CopyFit> measure_copies(const NodeGroup& node, std::int64_t times) {
  const TemporaryFolder folder;
  CopyMeasurement measurement(node.chips_per_node);
  // What is copied at a time differs between them by a factor of 16.
  for (const char* model : {kNarrowModel, kMiddleModel, kWideModel})
    for (const char* offload : kOffloads)
      measurement.add(folder.write("copies.yaml", offload_text(model, offload, node.chips_per_node)), times);
  return measurement.fit();
}

}  // namespace motley
