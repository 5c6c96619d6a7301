#include "models/plan/partial_recompute.hpp"

#include <algorithm>
#include <cmath>

#include "models/base/index.hpp"

namespace motley {
namespace {

constexpr double kPartRounding = 1 + 1e-9;

// Bytes of a stage without its layers; of each of its layers.
double without_layers(const StageBytes& bytes, const StagePosition& position) {
  return bytes.fixed + bytes.in_flight * position.in_flight + (position.is_first ? bytes.first : 0) +
         (position.is_last ? bytes.last : 0);
}
double each_layer(const StageBytes& bytes, double in_flight) {
  return bytes.layer + bytes.layer_in_flight * in_flight;
}

// Bytes as a line over the number of layers that recompute.
struct ByteLine {
  double none = 0, each = 0;
  double at_layers(std::int64_t recomputed) const { return none + each * static_cast<double>(recomputed); }
  // The least number with at most so many bytes, at least 1. Nothing: there is none that can be told.
  std::optional<std::int64_t> least(double most) const {
    if (at_layers(1) <= most) return 1;
    if (each >= 0) return std::nullopt;
    return static_cast<std::int64_t>(std::ceil((none - most) / -each));
  }
};

// Bytes while all layers of a chunk are there, and while its first layers are computed again.
struct ByteLines {
  ByteLine whole, again;
  ByteLines(const PartialBytes& bytes, std::int64_t layers, const StagePosition& position) {
    // Where chunks are unlike, the first ones may hold all layers that are kept, and the last ones none to free.
    const bool are_alike = position.chunks == 1 || layers % position.chunks == 0;
    const double freed = position.frees_layers && are_alike ? 1.0 / position.chunks : 0;
    const double in_flight = are_alike ? position.in_flight : position.first_in_flight;
    const auto all = static_cast<double>(layers);
    const double recomputed = each_layer(bytes.again, position.in_flight);
    const auto line = [&](const StageBytes& rest, double kept_in_flight) {
      const double kept = each_layer(bytes.kept, kept_in_flight);
      return ByteLine{without_layers(rest, position) + all * kept, recomputed - kept};
    };
    whole = line(bytes.kept, in_flight);
    again = line(bytes.again, std::max(in_flight - freed, 0.0));
  }
  double peak(std::int64_t recomputed) const {
    return std::max(whole.at_layers(recomputed), again.at_layers(recomputed));
  }
};

}  // namespace

double PartialBytes::peak(std::int64_t layers, std::int64_t recomputed, const StagePosition& position) const {
  if (recomputed == 0)
    return without_layers(kept, position) +
           static_cast<double>(layers) * each_layer(kept, position.in_flight);
  if (recomputed == layers)
    return without_layers(again, position) +
           static_cast<double>(layers) * each_layer(again, position.in_flight);
  return ByteLines(*this, layers, position).peak(recomputed);
}

bool PartialBytes::fits(std::int64_t layers, std::int64_t recomputed, const StagePosition& position) const {
  return peak(layers, recomputed, position) <= again.capacity * kPartRounding;
}

std::optional<std::int64_t> PartialBytes::least_recomputed(std::int64_t layers,
                                                           const StagePosition& position) const {
  if (fits(layers, 0, position)) return 0;
  const double room = again.capacity * kPartRounding;
  const ByteLines lines(*this, layers, position);
  const std::optional<std::int64_t> whole = lines.whole.least(room), part = lines.again.least(room);
  if (whole && part) {
    const std::int64_t least = std::max(*whole, *part), chunks = position.chunks;
    const std::int64_t rounded = chunks == 1 ? least : (least + chunks - 1) / chunks * chunks;
    if (rounded < layers && lines.peak(rounded) <= room) return rounded;
  }
  if (fits(layers, layers, position)) return layers;
  return std::nullopt;
}

// A stage that keeps j of its layers needs full - j g and full - t + j (a - b w) at least, where its layers keep a of a
// micro-batch, or b if they recompute, g <= b is what a kept layer saves while others are computed again, and t is what
// recomputing needs beside the layers. The larger one is least where both are alike: at full - t g / a.
StageBytes PartialBytes::least() const {
  StageBytes least = again;
  if (kept.layer_in_flight <= 0) return least;
  const double beside = std::max(again.fixed - kept.fixed, 0.0) + std::max(again.first - kept.first, 0.0) +
                        std::max(again.last - kept.last, 0.0);
  const double saved = beside * std::min(again.layer_in_flight / kept.layer_in_flight, 1.0);
  least.fixed = std::max(again.fixed - saved, 0.0);
  least.in_flight = std::min(again.in_flight, kept.in_flight);
  least.layer = std::min(again.layer, kept.layer);
  return least;
}

PassSeconds PartialStage::of_layers(std::int64_t first, std::int64_t last, std::int64_t recomputed) const {
  if (first + recomputed == last) return again.of_layers(first, last);
  PassSeconds sum = kept.of_layers(first, last);
  const PassSeconds &again_before = again.layers[at(first)],
                    &again_after = again.layers[at(first + recomputed)],
                    &kept_before = kept.layers[at(first)], &kept_after = kept.layers[at(first + recomputed)];
  const auto more = [&](double PassSeconds::*part) {
    return again_after.*part - again_before.*part - (kept_after.*part - kept_before.*part);
  };
  sum += {more(&PassSeconds::forward_s), more(&PassSeconds::backward_s), more(&PassSeconds::weights_s)};
  return sum;
}

std::optional<PartialStage::Part> PartialStage::with_least_recompute(std::int64_t first, std::int64_t last,
                                                                     const StagePosition& position) const {
  StagePosition here = position;
  here.is_first = first == 0;
  here.is_last = last + 1 == std::ssize(kept.layers);
  const std::optional<std::int64_t> recomputed = bytes.least_recomputed(last - first, here);
  if (!recomputed) return std::nullopt;
  return Part{first, last, *recomputed, of_layers(first, last, *recomputed)};
}

std::optional<PartialStage::Part> PartialStage::most_layers(Layers begins, std::int64_t last, double most_s,
                                                            const StagePosition& position) const {
  std::optional<Part> best;
  while (begins.first <= begins.last) {  // bytes and seconds fall as the first layer grows
    const std::int64_t middle = (begins.first + begins.last) / 2;
    std::optional<Part> part = with_least_recompute(middle, last, position);
    if (part && part->passes.seconds() <= most_s) {
      best = part;
      begins.last = middle - 1;
    } else {
      begins.first = middle + 1;
    }
  }
  return best;
}

std::int64_t first_in_time(const StageSeconds& seconds, std::int64_t first, std::int64_t last,
                           double most_s) {
  std::int64_t end = last;
  while (first < end) {  // seconds fall as the first layer grows
    const std::int64_t middle = (first + end) / 2;
    if (seconds.of_layers(middle, last).seconds() <= most_s)
      end = middle;
    else
      first = middle + 1;
  }
  return first;
}

std::int64_t first_that_fits(const StageBytes& bytes, std::int64_t last, const StagePosition& position,
                             std::int64_t layers) {
  const auto first = [&](bool is_first) {
    return last - std::min(last, bytes.most_layers(position.in_flight, is_first, last == layers));
  };
  return first(false) > 0 ? first(false) : std::min<std::int64_t>(first(true), 1);
}

std::optional<PartialStage> partial_stage(const PlannedPipeline& pipeline, const PlannedStage& stage,
                                          StagePricer& pricer) {
  const StagePrice* const again = pricer.price(stage.way, pipeline.micro_batch, pipeline.replicas);
  if (again == nullptr) return std::nullopt;
  if (!stage.recompute_layers) return PartialStage{*again, *again, {again->bytes, again->bytes}};
  StageWay way = stage.way;
  way.recompute = Recompute::none;
  const StagePrice* const kept = pricer.price(way, pipeline.micro_batch, pipeline.replicas);
  if (kept == nullptr) return std::nullopt;
  return PartialStage{*kept, *again, {kept->bytes, again->bytes}};
}

std::int64_t recomputed_layers(const PlannedPipeline& pipeline, const PlannedStage& stage) {
  if (!stage.recompute_layers) return stage.layers;
  return std::min(stage.layers, *stage.recompute_layers * pipeline.chunks);
}

PlannedStage planned_stage(StageWay way, const PartialStage::Part& part, int chunks) {
  const std::int64_t layers = part.last - part.first;
  if (part.recomputed == 0) way.recompute = Recompute::none;
  if (part.recomputed == 0 || part.recomputed == layers) return {way, layers, std::nullopt};
  return {way, layers, (part.recomputed + chunks - 1) / chunks};
}

std::optional<PlannedPipeline> recomputing_alike(const PlannedPipeline& pipeline) {
  const auto place = [](const Recompute& recompute) {
    return std::find(kPlannedRecomputes.begin(), kPlannedRecomputes.end(), recompute);
  };
  PlannedPipeline alike = pipeline;
  auto most = kPlannedRecomputes.begin();
  std::optional<std::int64_t> layers = 0;
  for (const PlannedStage& stage : pipeline.stages) {
    most = std::max(most, place(stage.way.recompute));
    if (stage.way.recompute == Recompute::none) continue;
    layers = stage.recompute_layers && layers ? std::max(layers, stage.recompute_layers) : std::nullopt;
  }
  if (*most == Recompute::none) return std::nullopt;
  for (PlannedStage& stage : alike.stages) {
    stage.way.recompute = *most;
    stage.recompute_layers = layers;
  }
  if (alike == pipeline) return std::nullopt;
  return alike;
}

}  // namespace motley
