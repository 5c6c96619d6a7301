#include "models/cluster/measured_layers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

constexpr IntegerRange kDegree{1, 1 << 16};

std::array<double, 3> read_three(const Yaml& node) {
  const std::vector<Yaml>& items = to_sequence(node);
  if (items.size() != 3)
    throw Refusal(Exit::usage, "wrong-type", node->where, fmt::format("{} times", items.size()),
                  "three: of the embedding, of a layer, of the head");
  std::array<double, 3> times{};
  for (std::size_t i = 0; i < 3; ++i)
    times[i] = to_quantity(items[i], Dimension::seconds, Sign::not_negative);
  return times;
}

LayerTimes read_times(const Yaml& node) {
  const Fields fields(node, "times of layers",
                      {"tensor_parallel", "micro_batch", "forward", "backward", "optimizer"});
  LayerTimes times;
  times.tensor_parallel = to_integer(fields.need("tensor_parallel"), kDegree);
  times.micro_batch = to_integer(fields.need("micro_batch"), kDegree);
  times.forward_s = read_three(fields.need("forward"));
  times.backward_s = read_three(fields.need("backward"));
  times.optimizer_s = to_quantity(fields.need("optimizer"), Dimension::seconds, Sign::not_negative);
  return times;
}

double between(double low, double high, double share) { return low + share * (high - low); }

LayerTimes between(const LayerTimes& low, const LayerTimes& high, double share) {
  LayerTimes times = low;
  for (std::size_t i = 0; i < 3; ++i) {
    times.forward_s[i] = between(low.forward_s[i], high.forward_s[i], share);
    times.backward_s[i] = between(low.backward_s[i], high.backward_s[i], share);
  }
  times.optimizer_s = between(low.optimizer_s, high.optimizer_s, share);
  return times;
}

std::string joined(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, ", "));
}

// Assumes: a smaller micro-batch never takes longer than a larger one. A measurement that shows otherwise was
// disturbed (OPT-350M on four GH200: a forward of one sequence took 2.4 ms, of two sequences 1.5 ms).
LayerTimes undisturbed(const Chip& chip, LayerTimes times) {
  for (const LayerTimes& larger : chip.software.layers.times) {
    if (larger.tensor_parallel != times.tensor_parallel || larger.micro_batch < times.micro_batch) continue;
    for (std::size_t i = 0; i < 3; ++i) {
      times.forward_s[i] = std::min(times.forward_s[i], larger.forward_s[i]);
      times.backward_s[i] = std::min(times.backward_s[i], larger.backward_s[i]);
    }
    times.optimizer_s = std::min(times.optimizer_s, larger.optimizer_s);
  }
  return times;
}

}  // namespace

std::vector<LayerTimes> read_layer_times(const Yaml& node) {
  std::vector<LayerTimes> all;
  for (const Yaml& item : to_sequence(node)) {
    const LayerTimes times = read_times(item);
    for (const LayerTimes& other : all)
      if (other.tensor_parallel == times.tensor_parallel && other.micro_batch == times.micro_batch)
        throw Refusal(Exit::usage, "listed-twice", item->where,
                      fmt::format("tensor_parallel {}, micro-batch {} a second time", times.tensor_parallel,
                                  times.micro_batch));
    all.push_back(times);
  }
  return all;
}

bool read_communication(const Yaml& node) { return to_choice(node, {"included", "excluded"}) == "included"; }

LayerTimes measured_times(const Chip& chip, std::int64_t tensor_parallel, std::int64_t micro_batch) {
  const LayerTimes *below = nullptr, *above = nullptr;
  std::set<std::int64_t> degrees, sizes;
  for (const LayerTimes& times : chip.software.layers.times) {
    degrees.insert(times.tensor_parallel);
    if (times.tensor_parallel != tensor_parallel) continue;
    sizes.insert(times.micro_batch);
    if (times.micro_batch <= micro_batch && (!below || times.micro_batch > below->micro_batch))
      below = &times;
    if (times.micro_batch >= micro_batch && (!above || times.micro_batch < above->micro_batch))
      above = &times;
  }
  if (sizes.empty())
    throw Refusal(
        Exit::infeasible, "not-measured", {},
        fmt::format("layers on `{}` were not measured at tensor_parallel {}", chip.name, tensor_parallel),
        fmt::format("they were at {}", fmt::join(degrees, ", ")));
  if (!below || !above)
    throw Refusal(
        Exit::infeasible, "not-measured", {},
        fmt::format("layers on `{}` at tensor_parallel {} were not measured with micro-batches of {}",
                    chip.name, tensor_parallel, micro_batch),
        fmt::format("they were with {} to {}", *sizes.begin(), *sizes.rbegin()));
  if (below == above) return undisturbed(chip, *below);
  const double share = static_cast<double>(micro_batch - below->micro_batch) /
                       static_cast<double>(above->micro_batch - below->micro_batch);
  return between(undisturbed(chip, *below), undisturbed(chip, *above), share);
}

double measured_s(const LayerTimes& times, LayerPlace place, bool backward) {
  return (backward ? times.backward_s : times.forward_s)[static_cast<std::size_t>(place)];
}

MeasuredLayers read_layers(const Yaml& node) {
  const Fields fields(node, "`layers`", {"source", "communication", "times"});
  return {to_text(fields.need("source")), read_communication(fields.need("communication")),
          read_layer_times(fields.need("times"))};
}

std::string print(const MeasuredLayers& layers, const std::string& indent) {
  if (layers.times.empty()) return "";
  const auto three = [](const std::array<double, 3>& times) {
    std::vector<std::string> texts;
    for (double time : times) texts.push_back(format_exact(time, Dimension::seconds));
    return joined(texts);
  };
  std::string text =
      fmt::format("{0}layers:\n{0}  source: {1}\n{0}  communication: {2}\n{0}  times:\n", indent,
                  quote(layers.source), layers.communication ? "included" : "excluded");
  for (const LayerTimes& times : layers.times)
    text += fmt::format(
        "{0}    - {{tensor_parallel: {1}, micro_batch: {2}, optimizer: {3},\n"
        "{0}       forward: [{4}], backward: [{5}]}}\n",
        indent, times.tensor_parallel, times.micro_batch, format_exact(times.optimizer_s, Dimension::seconds),
        three(times.forward_s), three(times.backward_s));
  return text;
}

}  // namespace motley
