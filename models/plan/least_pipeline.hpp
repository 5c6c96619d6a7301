// Finds the pipeline of a family with the least closed form of all: any groups in any order, any number of stages on
// each, any division of whole layers among them. Beginnings of pipelines, from the last stage on, are continued unless
// a bound or another beginning with the same rest says that they cannot be the best. It does so for small families
// alone; large ones are models/plan/pipeline_search.hpp's work. Read next: models/plan/closed_form.hpp.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "models/plan/closed_form.hpp"
#include "models/plan/pipeline_search.hpp"
#include "models/plan/shape_family.hpp"
#include "models/plan/stage_price.hpp"
#include "models/scenario/job.hpp"

namespace motley {

class LeastPipeline {
 public:
  LeastPipeline(const Job& job, StagePricer& pricer, const PipelineForm& form);

  // The pipeline of the family with the least estimate, if that is below `cut_s`.
  std::optional<PlannedPipeline> below(const ShapeFamily& family, double cut_s);
  // False: a family was too large, or too many beginnings were looked at, so that a pipeline may have a lower estimate.
  bool is_whole() const { return is_whole_; }

 private:
  static constexpr std::size_t kMostRounds = 12;
  // What the stages of a beginning take. No number falls as stages are added, and no estimate as a number grows.
  struct Sums {
    double reduced_s = 0;              // the longest gradients
    double behind_s = 0, cycle_s = 0;  // as cycle_s() adds them up
    double all_s = 0;                  // of a micro-batch in all stages; under zb_h1, what others wait for
    double weights_s = 0, own_s = 0;   // under zb_h1: the longest; the longest stage less what it may fill
    std::array<double, kMostRounds> rounds{};  // the longest chunks of each round
    bool is_no_higher(const Sums& other) const;
  };
  // A way to recompute in the stages of a segment, all their layers or as many as their memory asks for.
  struct Variant {
    StageWay way;
    const StagePrice* price = nullptr;
    std::vector<StageBytes> bytes;  // by the number of stages behind
  };
  // A segment that a row may have, with any number of stages up to `stages`.
  struct Option {
    StageWay way;
    std::int64_t stages = 0;
    double gradients_s = 0;  // of each layer
    double ends_s = 0;       // least seconds of a first stage beyond its layers
    double least_layer_s = 0;
    std::vector<double> layers_s;  // least seconds of each layer; under zb_h1, those that others wait for
    std::vector<double> inside_s;  // transfers from each of its stages to the next
    std::vector<double> behind_s;  // transfers from its last stage to each option's first one
    std::vector<Variant> variants;
    bool is_priced = false;
  };
  // Where a beginning stands. Beginnings at one place may be continued alike.
  struct Place {
    std::uint64_t row = 0;     // the groups that are used; if a form judges rows, their segments in order
    std::int64_t option = -1;  // begun last; -1: none
    std::int64_t left = 0;     // stages that this segment is still to have
    std::int64_t layers = 0;   // that are left
    std::int64_t behind = 0;   // stages that stand
    auto operator<=>(const Place&) const = default;
  };

  bool set_up(const ShapeFamily& family);
  bool is_small(std::int64_t cut) const;
  std::int64_t stages_on(const NodeGroup& group, std::int64_t cut) const;
  void add_option(int group, std::int64_t cut);
  void search(std::int64_t stages);
  void extend(const Place& place, const Sums& sums);
  // Adds a stage of the option, from which `transfer_s` pass to the one behind; `left` more are to follow it.
  void add_stage(const Place& place, const Sums& sums, std::int64_t option, std::int64_t left,
                 double transfer_s);
  void add_layers(const Place& next, const Sums& sums, const PlannedStage& stage, const PassSeconds& pass,
                  double transfer_s);
  void take();
  void price(Option& option);
  const std::vector<double>& rest_s(const Place& place);
  bool can_be_best(const Place& place, const Sums& sums);
  bool is_new(const Place& place, const Sums& sums);
  double computes_s(const Sums& sums, double rest_s) const;
  bool is_open(const Place& place, std::size_t option) const;
  double micro_batches() const { return static_cast<double>(shape_.micro_batches); }
  bool splits() const { return shape_.schedule == Schedule::zb_h1; }

  const Job& job_;
  StagePricer& pricer_;
  const PipelineForm& form_;
  ClosedForm closed_form_;
  std::int64_t nodes_ = 0;  // beginnings that may still be looked at
  bool is_whole_ = true;

  PlannedPipeline shape_;
  std::int64_t stages_ = 0;  // of the pipeline; 0: any number up to the most
  std::int64_t most_stages_ = 0;
  std::vector<Option> options_;
  std::vector<PlannedStage> begun_;  // from the last stage to the first
  std::uint64_t used_ = 0;           // groups, as bits
  std::map<Place, std::vector<Sums>> known_;
  std::map<std::pair<std::uint64_t, std::int64_t>, std::vector<double>>
      rests_;  // by used groups and open segment
  std::optional<PlannedPipeline> best_;
  double cut_s_ = 0;
};

}  // namespace motley
