// Where pipelines in a V may stand: rows of groups of chips, under shapes of replicas. Read next:
// models/plan/v_search.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/plan/layer_shares.hpp"
#include "models/plan/pipeline_rows.hpp"
#include "models/plan/pipeline_search.hpp"
#include "models/plan/stage_price.hpp"

namespace motley {

// The first stage holds both ends of the model, so that rows differ by the group that it stands on. Assumes: where the
// other groups stand makes no difference, as all stages have as many micro-batches in flight.
class VRows {
 public:
  VRows(const Job& job, StagePricer& pricer, const PipelineForm& form);

  std::size_t shape_count() const { return shapes_.size(); }
  std::size_t row_count() const { return rows_.size(); }
  const ReplicaShape& shape(std::size_t shape) const { return shapes_[shape]; }
  std::int64_t micro_batches(std::size_t shape) const;
  // The way in which such a stage runs without recompute.
  StageWay way_of(std::size_t shape, const StageClass& stage) const;

  // Prices the stages of the next shape, which is there from now on.
  void add_shape();
  // The first stage, and the rest of each segment, without layers. Empty: no V stands there.
  void set_classes(std::size_t shape, std::size_t row, std::vector<StageClass>& classes) const;

 private:
  // Stages of one segment under one shape of replicas: how many there may be, and what each takes for a micro-batch.
  struct Place {
    std::int64_t stages = 0;                     // 0: none can stand there
    double once_s = 0, layer_s = 0, ends_s = 0;  // whatever a stage holds; each layer; embedding and head
    double passed_on_share = 1;                  // of a layer's seconds, at least: what other stages wait for
    // More have no room for the parameters and gradients that each replica holds whole.
    std::int64_t most_layers = 0;
  };

  void add_row(const Row& row);
  StageWay way_of(const ReplicaShape& shape, const RowSegment& segment) const;

  const Job& job_;
  StagePricer& pricer_;
  const PipelineForm& form_;
  // That are trained, of the last layer. Every layer is priced as if it had as many.
  double expert_parameters_ = 0;
  std::vector<ReplicaShape> shapes_;
  std::vector<RowSegment> segments_;            // that stand in rows
  std::vector<std::vector<std::size_t>> rows_;  // of segments, from the first stage to the last
  std::vector<std::vector<Place>> places_;      // by shape and segment
};

}  // namespace motley
