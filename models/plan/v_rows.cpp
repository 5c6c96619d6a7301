#include "models/plan/v_rows.hpp"

#include <algorithm>

#include "models/base/index.hpp"
#include "models/plan/pipeline_estimate.hpp"
#include "models/plan/v_stages.hpp"

namespace motley {

VRows::VRows(const Job& job, StagePricer& pricer, const PipelineForm& form)
    : job_(job), pricer_(pricer), form_(form), shapes_(shapes_of(job, form)) {
  for (const Parameter& each : parameters(job.transformer))
    if (each.trained && each.experts > 0 && each.layer == job.transformer.layers - 1)
      expert_parameters_ += static_cast<double>(each.count());
  std::erase_if(shapes_, [&](const ReplicaShape& shape) { return is_too_large(job, shape); });
  for (const Row& segments : segment_sets(job.cluster)) {
    if (!form.has_unlike_cuts && has_unlike_cuts(segments)) continue;
    for (std::size_t first = 0; first < segments.size(); ++first) {
      Row row = segments;
      std::rotate(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(first),
                  row.begin() + static_cast<std::ptrdiff_t>(first) + 1);
      if (!form.allows_row || form.allows_row(row)) add_row(row);
    }
  }
}

void VRows::add_row(const Row& row) {
  std::vector<std::size_t>& list = rows_.emplace_back();
  for (const RowSegment& segment : row) {
    const auto known = std::find_if(segments_.begin(), segments_.end(), [&](const RowSegment& other) {
      return other.group == segment.group && other.tensor_parallel == segment.tensor_parallel;
    });
    list.push_back(static_cast<std::size_t>(known - segments_.begin()));
    if (known == segments_.end()) segments_.push_back(segment);
  }
}

std::int64_t VRows::micro_batches(std::size_t shape) const {
  return job_.train.global_batch / shapes_[shape].micro_batch / shapes_[shape].replicas;
}

StageWay VRows::way_of(const ReplicaShape& shape, const RowSegment& segment) const {
  return {segment.group, segment.tensor_parallel, Recompute::none, shape.context_parallel,
          shape.expert_parallel};
}
StageWay VRows::way_of(std::size_t shape, const StageClass& stage) const {
  return way_of(shapes_[shape], segments_[stage.segment]);
}

void VRows::add_shape() {
  const ReplicaShape& shape = shapes_[places_.size()];
  std::vector<Place>& places = places_.emplace_back(segments_.size());
  const auto parameter_bytes =
      static_cast<double>(bytes_of(job_.train.precision) + bytes_of(job_.train.gradients));
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const RowSegment& segment = segments_[i];
    const NodeGroup& group = job_.cluster.groups[at(segment.group)];
    const std::int64_t stage_chips = shape.replicas * shape.context_parallel * segment.tensor_parallel;
    if (stage_chips % shape.expert_parallel != 0 || stage_chips > chips_of(group)) continue;
    const StageSeconds* const seconds = pricer_.seconds(way_of(shape, segment), shape.micro_batch);
    if (seconds == nullptr) continue;
    const auto cut = static_cast<double>(segment.tensor_parallel);
    const double divided = shape.expert_parallel > 1 ? static_cast<double>(shape.expert_parallel) : cut;
    const double layer_bytes =
        parameter_bytes * (pricer_.least_trained().layer / cut + expert_parameters_ / divided);
    places[i] = {chips_of(group) / stage_chips,
                 kChunksInV * seconds->pass.seconds(),
                 seconds->least_layer_s,
                 seconds->embedding.seconds() + seconds->head.seconds(),
                 1 - seconds->weights_share,
                 layer_bytes > 0 ? static_cast<std::int64_t>(group.chip.memory_bytes.value / layer_bytes)
                                 : job_.transformer.layers};
  }
}

void VRows::set_classes(std::size_t shape, std::size_t row, std::vector<StageClass>& classes) const {
  classes.clear();
  std::int64_t stages = 0;
  for (const std::size_t segment : rows_[row]) {
    const Place& place = places_[shape][segment];
    std::int64_t here = std::min(place.stages, job_.transformer.layers / kChunksInV - stages);
    if (here < 1) return classes.clear();
    stages += here;
    StageClass each{segment, here, place.once_s, place.layer_s, place.passed_on_share, place.most_layers};
    if (classes.empty()) {
      classes.push_back(each);
      classes.back().stages = 1;
      classes.back().once_s += place.ends_s;
      --each.stages;
    }
    if (each.stages > 0) classes.push_back(each);
  }
  const bool has_form = stages >= 2 && (form_.stages <= 0 || stages == form_.stages) &&
                        (form_.most_stages <= 0 || stages <= form_.most_stages);
  if (!has_form) classes.clear();
}

}  // namespace motley
