#include "models/plan/shape_family.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "models/base/index.hpp"
#include "models/plan/partial_recompute.hpp"
#include "models/plan/pipeline_estimate.hpp"
#include "models/plan/shape_bound.hpp"

namespace motley {
namespace {

constexpr double kPart = 1e-6;                   // of a stage, that a bound is made of
constexpr double kCoarse = 1.03, kFine = 1.001;  // ratios of longest stages that are told apart

// The options of a family's stages. Bytes are counted of those that a bound is made of, and of no others, because
// counting takes most of the time.
class FamilyOptions {
 public:
  FamilyOptions(const Job& job, StagePricer& pricer, const ShapeFamily& family, BoundDetail detail)
      : job_(job), pricer_(pricer), family_(family) {
    if (family.schedule == Schedule::one_f_one_b && detail == BoundDetail::all)
      bounded_.slower = [this](double chips) { return slower(chips); };
    bounded_.micro_batches =
        static_cast<double>(job.train.global_batch / family.shape.micro_batch / family.shape.replicas);
    bounded_.layers = static_cast<double>(job.transformer.layers);
    bounded_.schedule = family.schedule;
    bounded_.chunks = family.most_chunks;
    bounded_.most_stages = family.most_stages;
    bounded_.shorter_share = 0;
    for (std::size_t group = 0; group < job.cluster.groups.size(); ++group) {
      const NodeGroup& nodes = job.cluster.groups[group];
      bounded_.chips.push_back(static_cast<double>(chips_of(nodes)));
      for (const std::int64_t cut : tensor_degrees(nodes)) {
        if (family.cut > 0 && cut != family.cut) continue;
        const std::int64_t stage_chips = family.shape.replicas * family.shape.context_parallel * cut;
        if (stage_chips <= chips_of(nodes) && stage_chips % family.shape.expert_parallel == 0)
          add(static_cast<int>(group), cut, stage_chips);
      }
    }
  }

  const BoundedShape& bounded() const { return bounded_; }

  // Of pipelines whose stages are all cut alike, on all chips: m - 1 of the longest stages and one of each.
  double likely_step_s() const {
    double least_s = std::numeric_limits<double>::infinity();
    for (const std::int64_t cut : cuts()) least_s = std::min(least_s, likely_step_s(cut));
    return least_s;
  }

  // Counts the bytes of the options of those stages, where they have none yet. Returns whether there was one.
  bool count_bytes(const std::vector<double>& stages, BoundDetail detail) {
    bool is_new = false;
    std::vector<std::size_t> impossible;
    for (std::size_t index = 0; index < stages.size(); ++index) {
      if (stages[index] <= kPart || !bounded_.options[index].bytes.empty()) continue;
      is_new = true;
      if (!count_bytes(index, detail)) impossible.push_back(index);
    }
    for (auto index = impossible.rbegin(); index != impossible.rend(); ++index) {
      bounded_.options.erase(bounded_.options.begin() + static_cast<std::ptrdiff_t>(*index));
      ways_.erase(ways_.begin() + static_cast<std::ptrdiff_t>(*index));
    }
    return is_new;
  }

 private:
  std::set<std::int64_t> cuts() const {
    std::set<std::int64_t> cuts;
    for (const StageWay& way : ways_) cuts.insert(way.tensor_parallel);
    return cuts;
  }

  double likely_step_s(std::int64_t cut) const {
    constexpr double kClose = 0.01;
    struct Stages {
      double count = 0, pass_s = 0, layer_s = 0;
    };
    std::vector<Stages> list;
    double all = 0, most_s = 0;
    for (std::size_t i = 0; i < ways_.size(); ++i) {
      const StageOption& option = bounded_.options[i];
      if (ways_[i].tensor_parallel != cut) continue;
      list.push_back(
          {std::floor(bounded_.chips[option.group] / option.chips), option.pass_s, option.layer_s});
      all += list.back().count;
      most_s = std::max(most_s, option.pass_s + bounded_.layers * option.layer_s);
    }
    const auto holds_all = [&](double longest_s) {
      double layers = 0;
      for (const Stages& each : list)
        layers += each.count * std::max(0.0, std::floor((longest_s - each.pass_s) / each.layer_s));
      return layers >= bounded_.layers;
    };
    for (double least_s = 0; most_s - least_s > kClose * most_s;) {
      const double middle_s = (least_s + most_s) / 2;
      (holds_all(middle_s) ? most_s : least_s) = middle_s;
    }
    return (bounded_.micro_batches - 1 + std::min(all, bounded_.layers)) * most_s;
  }

  void add(int group, std::int64_t cut, std::int64_t stage_chips) {
    const StageWay way{group, cut, Recompute::none, family_.shape.context_parallel,
                       family_.shape.expert_parallel};
    const StageSeconds* const seconds = pricer_.seconds(way, family_.shape.micro_batch);
    if (seconds == nullptr) return;
    note_share(*seconds);
    ways_.push_back(way);
    bounded_.options.push_back({static_cast<std::size_t>(group),
                                static_cast<double>(stage_chips),
                                seconds->pass.seconds(),
                                seconds->least_layer_s,
                                seconds->least_layer_s,
                                seconds->embedding.seconds(),
                                seconds->head.seconds(),
                                0,
                                0,
                                {}});
    add_end(bounded_.options.back(), way);
  }

  // The gradients that are reduced, and the parameters that are gathered, after the last backward.
  void add_end(StageOption& option, const StageWay& way) const {
    const std::int64_t copies = family_.shape.replicas * family_.shape.context_parallel;
    const double bytes = (family_.reduces_last ? static_cast<double>(bytes_of(job_.train.gradients)) : 0) +
                         (family_.gathers_last ? static_cast<double>(bytes_of(job_.train.precision)) : 0);
    const double rate = most_to_replicas(job_.cluster.groups[at(way.group)], copies, way.tensor_parallel,
                                         job_.fidelity.algorithm);
    const double parameter_s =
        bytes / rate * (1 - 1 / static_cast<double>(copies)) / static_cast<double>(way.tensor_parallel);
    option.end_s = parameter_s * pricer_.least_trained().embedding;
    option.layer_end_s = parameter_s * pricer_.least_trained().layer;
  }

  double slower(double chips) const {
    double least = std::numeric_limits<double>::infinity();
    for (const StageWay& way : ways_) least = std::min(least, pricer_.slower_among(way.group, chips));
    return 1 + (least - 1) * slowed_share_;
  }

  void note_share(const StageSeconds& seconds) {
    bounded_.shorter_share = std::max(bounded_.shorter_share, seconds.shorter_share);
    slowed_share_ = std::min(slowed_share_, seconds.slowed_share);
  }

  const StagePrice* price(const StageWay& way) {
    return pricer_.price(way, family_.shape.micro_batch, family_.shape.replicas);
  }

  // False: no stage can be run that way.
  bool count_bytes(std::size_t index, BoundDetail detail) {
    StageOption& option = bounded_.options[index];
    StageWay way = ways_[index];
    const StagePrice* const light = price(way);
    if (light == nullptr) return false;
    option.bytes.push_back(light->bytes);
    double least_s = std::numeric_limits<double>::infinity();
    for (const Recompute& recompute : pricer_.recomputes()) {
      if (recompute == Recompute::none) continue;
      way.recompute = recompute;
      const StageSeconds* const seconds = pricer_.seconds(way, family_.shape.micro_batch);
      if (seconds == nullptr) continue;
      least_s = std::min(least_s, seconds->least_layer_s);
      note_share(*seconds);
      const StagePrice* const heavy = detail == BoundDetail::all ? price(way) : nullptr;
      // Assumes nothing of what is not counted: any number of layers fits.
      option.bytes.push_back(heavy != nullptr ? PartialBytes{light->bytes, heavy->bytes}.least()
                                              : any_layers());
    }
    option.heavier_layer_s = std::max(option.layer_s, least_s);
    return true;
  }

  static StageBytes any_layers() {
    StageBytes bytes;
    bytes.capacity = 1;
    return bytes;
  }

  const Job& job_;
  StagePricer& pricer_;
  const ShapeFamily& family_;
  BoundedShape bounded_;
  double slowed_share_ = 1;     // of any pass of an option
  std::vector<StageWay> ways_;  // of the options
};

}  // namespace

double likely_step_s(const Job& job, StagePricer& pricer, const ShapeFamily& family) {
  return FamilyOptions(job, pricer, family, BoundDetail::work).likely_step_s();
}

double least_step_s(const Job& job, StagePricer& pricer, const ShapeFamily& family, BoundDetail detail,
                    double enough_s) {
  FamilyOptions options(job, pricer, family, detail);
  if (detail == BoundDetail::work) return ShapeBound(options.bounded()).at_once_s();
  // What a coarse bound is made of has its bytes counted before a fine one is looked for.
  double ratio = kCoarse;
  const double finest = detail == BoundDetail::all ? kFine : kCoarse;
  while (true) {
    const ShapeBound::Bound bound = ShapeBound(options.bounded()).least_step(ratio, enough_s);
    if (detail == BoundDetail::time || bound.step_s >= enough_s) return bound.step_s;
    if (options.count_bytes(bound.stages, detail)) continue;
    if (ratio == finest) return bound.step_s;
    ratio = finest;
  }
}

}  // namespace motley
