#include "models/plan/segment_places.hpp"

#include <algorithm>
#include <optional>

#include "models/base/index.hpp"
#include "models/plan/layer_shares.hpp"
#include "models/plan/partial_recompute.hpp"
#include "models/plan/pipeline_estimate.hpp"

namespace motley {

SegmentPlace& SegmentPlaces::at(const PlannedPipeline& shape, const RowSegment& segment) {
  const auto [entry, is_new] = known_.try_emplace({segment.group, segment.tensor_parallel});
  SegmentPlace& place = entry->second;
  if (!is_new) return place;
  const NodeGroup& group = job_.cluster.groups[motley::at(segment.group)];
  const std::int64_t stage_chips = shape.replicas * segment.tensor_parallel * shape.context_parallel;
  const StageWay way{segment.group, segment.tensor_parallel, Recompute::none, shape.context_parallel,
                     shape.expert_parallel};
  place.seconds =
      stage_chips % shape.expert_parallel == 0 ? pricer_.seconds(way, shape.micro_batch) : nullptr;
  if (place.seconds == nullptr) return place;
  place.stages = chips_of(group) / stage_chips;
  for (const Recompute& recompute : pricer_.recomputes()) {
    place.ways.push_back({way, nullptr, false});
    place.ways.back().way.recompute = recompute;
    if (const StageSeconds* seconds = pricer_.seconds(place.ways.back().way, shape.micro_batch))
      place.longest_s = std::max(place.longest_s, seconds->of_layers(0, job_.transformer.layers).seconds());
  }
  return place;
}

const StagePrice* SegmentPlaces::price_of(const PlannedPipeline& shape, SegmentWay& way) const {
  if (!way.is_priced) way.price = pricer_.price(way.way, shape.micro_batch, shape.replicas);
  way.is_priced = true;
  return way.price;
}

double SegmentPlaces::least_longest_s(const PlannedPipeline& shape, const Row& segments) {
  std::vector<StageClass> classes;
  for (const RowSegment& segment : segments) {
    const SegmentPlace& place = at(shape, segment);
    classes.push_back({0, place.stages, place.seconds->pass.seconds(), place.seconds->least_layer_s});
  }
  return share_out(classes, job_.transformer.layers, 0);
}

double SegmentPlaces::least_gradients_s(const PlannedPipeline& shape, const Row& segments, double most_s) {
  std::vector<StageClass> classes;
  for (const RowSegment& segment : segments) {
    const SegmentPlace& place = at(shape, segment);
    classes.push_back({0, place.stages, 0, closed_form_.gradients_s(shape, place.ways.front().way, 1)});
    classes.back().most_layers = layers_in_time(place, most_s);
  }
  return share_out(classes, job_.transformer.layers, 0);
}

bool SegmentPlaces::can_hold_model(const PlannedPipeline& shape, const Row& segments, std::int64_t stages,
                                   double most_s) {
  std::int64_t layers = 0;
  for (const RowSegment& segment : segments) {
    SegmentPlace& place = at(shape, segment);
    for (std::int64_t after = 0; after < place.stages; ++after) {  // stages of the segment behind this one
      std::int64_t held = most_layers(shape, place, stages, after, most_s);
      // What is put off grows to the last stage: so early ones may hold more.
      if (shape.schedule == Schedule::zb_h1)
        held = std::max(held, most_layers(shape, place, stages, stages - place.stages + after, most_s));
      layers += held;
      if (layers >= job_.transformer.layers) return true;
    }
  }
  return false;
}

std::int64_t SegmentPlaces::layers_in_time(const SegmentPlace& place, double most_s) const {
  const double left_s = most_s * (1 + 1e-9) - place.seconds->pass.seconds();
  return static_cast<std::int64_t>(
      std::clamp(left_s / place.seconds->least_layer_s, 0.0, static_cast<double>(job_.transformer.layers)));
}

std::int64_t SegmentPlaces::most_layers(const PlannedPipeline& shape, SegmentPlace& place,
                                        std::int64_t stages, std::int64_t behind, double most_s) const {
  SegmentWay& kept = place.ways.front();
  if (price_of(shape, kept) == nullptr) return 0;
  const StagePosition position = position_of(shape, stages, behind);
  const auto bytes = [&](const SegmentWay& way) {
    return closed_form_.bytes(shape, way.way, way.price->bytes, stages, behind);
  };
  const double layer_s = kept.price->least_layer_s;
  const double left_s = most_s * (1 + 1e-9) - kept.price->pass.seconds();
  const std::int64_t in_time = layers_in_time(place, most_s);
  const StageBytes kept_bytes = bytes(kept);
  std::int64_t most = std::min(in_time, kept_bytes.most_layers(position.in_flight, false, false));
  for (SegmentWay& way : place.ways) {
    if (most == in_time) break;  // time is short, not memory
    if (&way == &kept || price_of(shape, way) == nullptr) continue;
    const PartialBytes partial{kept_bytes, bytes(way)};
    const double more_s = way.price->least_layer_s - layer_s;
    const auto fits = [&](std::int64_t layers) {
      const std::optional<std::int64_t> recomputed = partial.least_recomputed(layers, position);
      return recomputed &&
             static_cast<double>(layers) * layer_s + static_cast<double>(*recomputed) * more_s <= left_s;
    };
    // Of several chunks, more layers may fit where fewer do not: chunks that are alike free more.
    for (std::int64_t layers = in_time; shape.chunks > 1 && layers > most; --layers)
      if (fits(layers)) most = layers;
    for (std::int64_t last = in_time; shape.chunks == 1 && most < last;) {
      const std::int64_t middle = (most + last + 1) / 2;
      if (fits(middle))
        most = middle;
      else
        last = middle - 1;
    }
  }
  return most;
}

}  // namespace motley
