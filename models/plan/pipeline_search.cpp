// For a number of replicas, a micro-batch and a row of groups, stages are filled from the last one, because the number
// of stages behind a stage tells how many micro-batches it has in flight. The least time in which the stages can hold
// all layers is found by bisection.
#include "models/plan/pipeline_search.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "models/base/format.hpp"
#include "models/base/index.hpp"
#include "models/plan/best_pipelines.hpp"
#include "models/plan/closed_form.hpp"
#include "models/plan/least_pipeline.hpp"
#include "models/plan/partial_recompute.hpp"
#include "models/plan/pipeline_estimate.hpp"
#include "models/plan/pipeline_rows.hpp"
#include "models/plan/row_time.hpp"
#include "models/plan/segment_places.hpp"
#include "models/plan/shape_family.hpp"
#include "models/strategy/partition.hpp"

namespace motley {
namespace {

// Share of a model's layers that are at least as large as its last one. Assumes: those that are not are few, as the
// three first of DeepSeek-V3's 61.
constexpr double kMostlyAlike = 0.9;
constexpr double kClose = 3e-3;     // of a row's longest stage, by which it may be shorter
constexpr std::size_t kLikely = 2;  // families that are laid out before all bounds are known

// At most `most` of the stages that each of several segments may have: each keeps one, and the rest is shared out in
// proportion. All 0: there are more segments than that.
std::vector<std::int64_t> shared_out(std::vector<std::int64_t> stages, std::int64_t most) {
  const auto count = static_cast<std::int64_t>(stages.size());
  const std::int64_t more = std::accumulate(stages.begin(), stages.end(), -count), rest = most - count;
  if (more <= rest) return stages;
  std::int64_t before = 0;
  for (std::int64_t& each : stages) {
    const std::int64_t after = before + each - 1;
    each = rest < 0 ? 0 : 1 + rest * after / more - rest * before / more;
    before = after;
  }
  return stages;
}

bool has_form(const PlannedPipeline& pipeline, const PipelineForm& form) {
  return form.stages == 0 || static_cast<std::int64_t>(pipeline.stages.size()) == form.stages;
}

// Whether the memory of all chips together holds parameters and gradients of such replicas. Each replica holds all
// that are no experts', for each part of the sequences. Experts are there once for each expert_parallel ranks of a
// stage, which are at least these.
bool chips_can_hold(const Job& job, const LayerParameters& parameters, const ReplicaShape& shape) {
  double memory = 0;
  for (const NodeGroup& group : job.cluster.groups)
    memory += group.chip.memory_bytes.value * group.nodes * group.chips_per_node;
  const auto copies = static_cast<double>(shape.replicas * shape.context_parallel);
  const double expert_copies =
      shape.expert_parallel > 1 ? std::max(1.0, copies / static_cast<double>(shape.expert_parallel)) : copies;
  const double layers = static_cast<double>(job.transformer.layers) * kMostlyAlike;
  const auto bytes = static_cast<double>(bytes_of(job.train.gradients) + bytes_of(job.train.precision));
  return layers * bytes * (parameters.rest * copies + parameters.in_experts * expert_copies) <= memory;
}

struct Filled : PartialStage::Part {
  StageWay way;
  double seconds() const { return passes.seconds(); }
};

class PipelineFinder {
 public:
  PipelineFinder(const Job& job, StagePricer& pricer, std::size_t most, const PipelineForm& form)
      : job_(job),
        best_(most),
        form_(form),
        closed_form_(job, pricer),
        places_of_shape_(job, pricer, closed_form_) {}

  // Lays out pipelines of that shape from now on.
  void use(const ReplicaShape& shape) {
    shape_.micro_batch = shape.micro_batch;
    shape_.replicas = shape.replicas;
    shape_.context_parallel = shape.context_parallel;
    shape_.expert_parallel = shape.expert_parallel;
    shape_.micro_batches = job_.train.global_batch / shape.micro_batch / shape.replicas;
    places_of_shape_.clear();
  }

  // Lays out pipelines on rows of the segments in every order, if they can be among the best.
  void try_segments(const Row& segments, Schedule schedule, int chunks) {
    shape_.schedule = schedule;
    shape_.chunks = chunks;
    std::int64_t stages = 0;
    for (const RowSegment& segment : segments) {
      if (places_of_shape_.at(shape_, segment).stages == 0) return;
      stages += places_of_shape_.at(shape_, segment).stages;
    }
    if (has_unlike_cuts(segments) && form_.most_stages == 0 && !allows(stages, chunks)) return;
    const RowTime time = time_of(segments);
    const std::optional<Range> longest = longest_stage_of(segments, stages, time);
    if (!longest) {
      ++result_.pruned;
      return;
    }
    for (const Row& row : orders_of(segments, form_)) try_row(row, time, *longest);
  }

  double cut_s(Schedule schedule) const { return best_.cut_s(schedule); }
  double least_s(Schedule schedule) const { return best_.least_s(schedule); }
  void add(PlannedPipeline pipeline) { best_.add(std::move(pipeline)); }
  PipelineSearch take(double bound_s, bool is_whole, bool is_exact) {
    result_.bound_s = bound_s;
    result_.is_whole = is_whole;
    result_.is_exact = is_whole && is_exact;
    result_.best = best_.take();
    return std::move(result_);
  }

 private:
  // Whether the schedule takes so many chunks on so many stages.
  bool allows(std::int64_t stages, int chunks) const {
    return chunks == 1 || (shape_.micro_batches % stages == 0 && stages * chunks <= job_.transformer.layers);
  }

  // Seconds of the longest stage of a row.
  struct Range {
    double least_s = 0, most_s = 0;
  };

  // That of all rows of the segments that can be among the best: no order passes `least_s`, which is close to what the
  // memory of all of them allows. Nothing: there is none. `stages`: that they may have.
  std::optional<Range> longest_stage_of(const Row& segments, std::int64_t stages, const RowTime& time) {
    const auto m = static_cast<double>(shape_.micro_batches);
    Range longest{places_of_shape_.least_longest_s(shape_, segments), time.longest_s};
    for (int round = 0; round < 2; ++round) {  // shorter stages leave fewer ways to share gradients out
      const double cut_s =
          best_.cut_s(shape_.schedule) - places_of_shape_.least_gradients_s(shape_, segments, longest.most_s);
      if (!(cut_s > 0)) return std::nullopt;
      longest.most_s = time.longest_stage_s(shape_.schedule, shape_.chunks, m, cut_s);
    }
    if (!(longest.least_s <= longest.most_s)) return std::nullopt;
    // Of fewer stages than there is room for, each may hold more of several chunks, or of gradients that are put off.
    if (form_.most_stages > 0 && shape_.schedule != Schedule::one_f_one_b) return longest;
    const auto can_hold = [&](double most_s) {
      return places_of_shape_.can_hold_model(shape_, segments, stages, most_s);
    };
    if (!can_hold(longest.most_s)) return std::nullopt;
    for (double most_s = longest.most_s; most_s - longest.least_s > kClose / 2 * most_s;) {
      const double middle_s = (longest.least_s + most_s) / 2;
      (can_hold(middle_s) ? most_s : longest.least_s) = middle_s;
    }
    return longest;
  }

  RowTime time_of(const Row& segments) {
    std::vector<RowPart> parts;
    for (const RowSegment& segment : segments) {
      const SegmentPlace& place = places_of_shape_.at(shape_, segment);
      parts.push_back({place.stages, place.seconds, place.longest_s});
    }
    return row_time(parts, job_.transformer.layers);
  }

  void try_row(const Row& row, const RowTime& time, const Range& longest) {
    places_.clear();
    shares_.clear();
    for (auto segment = row.rbegin(); segment != row.rend(); ++segment) {
      places_.push_back(&places_of_shape_.at(shape_, *segment));
      shares_.push_back(places_.back()->stages);
    }
    if (form_.most_stages > 0) shares_ = shared_out(shares_, form_.most_stages);
    stages_ = std::accumulate(shares_.begin(), shares_.end(), std::int64_t{0});
    const int chunks = shape_.chunks;
    if (shape_.schedule != Schedule::one_f_one_b && stages_ < 2) return;
    if (!allows(stages_, chunks)) return;
    // Most rows come near to what no order passes.
    const double close_s = longest.least_s * (1 + kClose);
    const bool is_close = close_s < longest.most_s && fill(close_s);
    if (!is_close && !fill(longest.most_s)) {
      ++result_.pruned;
      return;
    }
    ++result_.explored;
    if (!is_close) shorten(time, std::max(longest.least_s, close_s));
    keep();
    if (chunks > 1 && job_.transformer.layers % (stages_ * chunks) == 0 && fill_evenly()) keep();
  }

  // The most layers from `first` on, or from later, to `last`, in at most `most_s`, in one of the ways.
  std::optional<Filled> fill_stage(SegmentPlace& place, std::int64_t first, std::int64_t last,
                                   double most_s) const {
    const auto behind = static_cast<std::int64_t>(filled_.size());
    const StagePosition position = position_of(shape_, stages_, behind);
    SegmentWay& kept = place.ways.front();
    if (places_of_shape_.price_of(shape_, kept) == nullptr) return std::nullopt;
    const StageBytes kept_bytes = bytes_of(kept, behind);
    const std::int64_t in_time = first_in_time(*kept.price, first, last, most_s);
    const std::int64_t fits =
        std::max(first_that_fits(kept_bytes, last, position, job_.transformer.layers), in_time);
    std::optional<Filled> best;
    if (fits < last) best = Filled{{fits, last, 0, kept.price->of_layers(fits, last)}, kept.way};
    if (fits == in_time) return best;  // time is short, not memory: recompute does not help
    for (SegmentWay& way : place.ways) {
      if (&way == &kept || places_of_shape_.price_of(shape_, way) == nullptr) continue;
      const PartialStage stage{*kept.price, *way.price, {kept_bytes, bytes_of(way, behind)}};
      const std::optional<PartialStage::Part> part =
          stage.most_layers({in_time, best ? best->first : last - 1}, last, most_s, position);
      if (part && (!best || part->first < best->first ||
                   (part->first == best->first && part->passes.seconds() < best->seconds())))
        best = Filled{*part, way.way};
    }
    return best;
  }

  // Fills all stages alike, with the lightest recompute that fits: their chunks are alike, too. False: they do not fit.
  bool fill_evenly() {
    filled_.clear();
    const std::int64_t layers = job_.transformer.layers / stages_;
    std::int64_t last = job_.transformer.layers;
    for (std::size_t i = 0; i < places_.size(); ++i)
      for (std::int64_t stage = 0; stage < shares_[i]; ++stage, last -= layers) {
        const std::optional<Filled> filled =
            fill_stage(*places_[i], last - layers, last, std::numeric_limits<double>::infinity());
        if (!filled || filled->first != last - layers) return false;
        filled_.push_back(*filled);
      }
    return true;
  }

  StageBytes bytes_of(const SegmentWay& way, std::int64_t behind) const {
    return closed_form_.bytes(shape_, way.way, way.price->bytes, stages_, behind);
  }

  // Fills stages of at most `most_s`. False: they cannot hold all layers.
  bool fill(double most_s) {
    filled_.clear();
    std::int64_t last = job_.transformer.layers;
    for (std::size_t i = 0; i < places_.size(); ++i)
      for (std::int64_t stage = 0; stage < shares_[i] && last > 0; ++stage) {
        const std::optional<Filled> filled = fill_stage(*places_[i], 0, last, most_s);
        if (!filled) break;
        filled_.push_back(*filled);
        last = filled->first;
      }
    return last == 0;
  }

  // Leaves the stages filled that hold all layers with nearly the shortest longest stage. They are filled already.
  // `time`: of the row. `least_s`: of its longest stage.
  void shorten(const RowTime& time, double least_s) {
    double most_s = longest_s();
    std::vector<Filled> shortest = filled_;
    while (most_s - least_s > kClose * most_s) {
      const double middle_s = (least_s + most_s) / 2;
      if (std::isfinite(time.all_s(middle_s)) && fill(middle_s)) {
        most_s = longest_s();
        shortest = filled_;
      } else {
        least_s = middle_s;
      }
    }
    filled_ = std::move(shortest);
  }

  double longest_s() const {
    double longest_s = 0;
    for (const Filled& stage : filled_) longest_s = std::max(longest_s, stage.seconds());
    return longest_s;
  }

  void keep() {
    PlannedPipeline pipeline = shape_;
    for (auto stage = filled_.rbegin(); stage != filled_.rend(); ++stage)
      pipeline.stages.push_back(planned_stage(stage->way, *stage, shape_.chunks));
    if (shape_.chunks > 1 && std::ssize(filled_) != stages_) return;
    const std::optional<double> estimate_s = closed_form_.step_s(pipeline);
    if (!estimate_s) return;
    pipeline.estimate_s = *estimate_s;
    if (has_form(pipeline, form_)) best_.add(std::move(pipeline));
  }

  const Job& job_;
  BestPipelines best_;
  const PipelineForm& form_;
  ClosedForm closed_form_;
  PlannedPipeline shape_;
  std::int64_t stages_ = 0;           // most stages of the row
  std::vector<std::int64_t> shares_;  // most stages of each place, as far as pins allow
  SegmentPlaces places_of_shape_;
  std::vector<SegmentPlace*> places_;  // from the last stage to the first
  std::vector<Filled> filled_;         // from the last stage to the first
  PipelineSearch result_;
};

// Pipelines of one chunk in each stage, and pipelines of several: those that are cut alike by their cut, the others
// together.
std::vector<ShapeFamily> families_of(const Job& job, const PipelineForm& form) {
  std::vector<ShapeFamily> families;
  const auto add = [&](const ReplicaShape& shape, std::int64_t cut, Schedule schedule, int most_chunks) {
    families.push_back(
        {shape, cut, schedule, most_chunks, form.most_stages, form.reduces_last, form.gathers_last});
  };
  std::set<std::int64_t> cuts;
  for (const NodeGroup& group : job.cluster.groups)
    for (const std::int64_t cut : tensor_degrees(group)) cuts.insert(cut);
  const LayerParameters parameters = parameters_of_layer(job.transformer);
  for (const ReplicaShape& shape : shapes_of(job, form)) {
    if (!chips_can_hold(job, parameters, shape)) continue;
    const std::set<std::int64_t> plain = form.has_unlike_cuts ? std::set<std::int64_t>{0} : cuts;
    for (const std::int64_t cut : plain) {
      add(shape, cut, Schedule::one_f_one_b, 1);
      if (form.splits_backward) add(shape, cut, Schedule::zb_h1, 1);
    }
    for (const std::int64_t cut : cuts)
      if (form.most_chunks > 1) add(shape, cut, Schedule::interleaved, form.most_chunks);
    if (form.most_chunks > 1 && form.has_unlike_cuts) add(shape, 0, Schedule::interleaved, form.most_chunks);
  }
  return families;
}

// Looks at families of pipelines in the order of their bounds.
class FamilySearch {
 public:
  FamilySearch(const Job& job, StagePricer& pricer, std::size_t most, const PipelineForm& form)
      : job_(job),
        pricer_(pricer),
        families_(families_of(job, form)),
        sets_(segment_sets(job.cluster)),
        bounds_(families_.size(), 0),
        finder_(job, pricer, most, form),
        least_(job, pricer, form) {}

  PipelineSearch run(const std::function<bool()>& has_time) {
    // The likeliest families give limits for the bounds of all, and something to judge if time is short. Pipelines
    // under 1F1B come first: they limit what is looked for of the others.
    for (const std::size_t i : likeliest(has_time)) {
      if (!has_time()) break;
      if (bound(i, BoundDetail::time) < cut_s(i)) lay_out(i);
    }
    const bool is_whole = run(has_time, true) && run(has_time, false);
    // A bound of infinity stays: what does not fit does not fit on fewer ranks.
    if (std::isfinite(bound_s_)) bound_s_ = std::min(bound_s_, pricer_.few_ranks_step_s());
    return finder_.take(bound_s_, is_whole, least_.is_whole());
  }

 private:
  // What was done with a family last.
  enum class Step : std::uint8_t { work, time, memory, laid_out, all };
  struct Entry {
    double bound_s = 0;
    std::size_t family = 0;
    Step step = Step::work;
    bool operator<(const Entry& other) const {
      return std::pair(bound_s, family) > std::pair(other.bound_s, other.family);
    }
  };

  // Families under 1F1B, of those that there is time to look at.
  std::vector<std::size_t> likeliest(const std::function<bool()>& has_time) {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t i = 0; i < families_.size() && has_time(); ++i)
      if (is_bounded(i) && !is_too_large(job_, families_[i].shape))
        order.emplace_back(likely_step_s(job_, pricer_, families_[i]), i);
    std::sort(order.begin(), order.end());
    if (order.size() > kLikely) order.resize(kLikely);
    std::vector<std::size_t> list;
    for (const auto& [step_s, family] : order) list.push_back(family);
    return list;
  }

  double cut_s(std::size_t family) const { return finder_.cut_s(families_[family].schedule); }
  // Returns whether there was time for all.
  bool run(const std::function<bool()>& has_time, bool under_1f1b) {
    for (std::size_t i = 0; i < families_.size(); ++i)
      if (is_bounded(i) == under_1f1b) queue_.push({bound(i, BoundDetail::work), i, Step::work});
    for (; !queue_.empty() && has_time();) {
      const Entry entry = queue_.top();
      queue_.pop();
      if (entry.bound_s < cut_s(entry.family))
        advance(entry);
      else
        note_bound(entry);
    }
    const bool is_whole = queue_.empty();
    for (; !queue_.empty(); queue_.pop()) note_bound(queue_.top());
    return refine(has_time, under_1f1b) && is_whole;
  }

  // Looks for pipelines below the best one in the families whose bounds are below it, the lowest first. Returns whether
  // there was time for all.
  bool refine(const std::function<bool()>& has_time, bool under_1f1b) {
    constexpr double kSlack = 1 + 1e-9;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < families_.size(); ++i)
      if (is_bounded(i) == under_1f1b) order.push_back(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return bounds_[a] < bounds_[b]; });
    for (const std::size_t i : order) {
      const double least_s = finder_.least_s(families_[i].schedule);
      if (bounds_[i] >= least_s * kSlack) continue;
      if (!has_time()) return false;
      if (std::optional<PlannedPipeline> better = least_.below(families_[i], least_s))
        finder_.add(std::move(*better));
    }
    return true;
  }

  bool is_bounded(std::size_t family) const { return families_[family].schedule == Schedule::one_f_one_b; }
  double bound(std::size_t family, BoundDetail detail) {
    // All details are for the bound of all families, which is known to be no more than `bound_s_`.
    const double enough_s = detail == BoundDetail::all ? std::min(cut_s(family), bound_s_) : cut_s(family);
    const double bound_s = least_step_s(job_, pricer_, families_[family], detail, enough_s);
    // Estimates do not count how many ranks there are, so that the bound of a step may be above them.
    const double of_estimates_s = detail == BoundDetail::all ? bound_s / most_slower() : bound_s;
    bounds_[family] = std::max(bounds_[family], of_estimates_s);
    return bound_s;
  }
  // How much longer passes take among all ranks than estimates say, at most.
  double most_slower() {
    double most = 1;
    for (std::size_t group = 0; group < job_.cluster.groups.size(); ++group)
      most = std::max(most, pricer_.slower_among(static_cast<int>(group),
                                                 static_cast<double>(job_.cluster.chip_count())));
    return most;
  }
  void note_bound(const Entry& entry) {
    if (is_bounded(entry.family)) bound_s_ = std::min(bound_s_, entry.bound_s);
  }

  void advance(const Entry& entry) {
    const auto push = [&](double bound_s, Step step) {
      queue_.push({std::max(bound_s, entry.bound_s), entry.family, step});
    };
    switch (entry.step) {
      case Step::work:
        return push(bound(entry.family, BoundDetail::time), Step::time);
      case Step::time:
        return push(bound(entry.family, BoundDetail::memory), Step::memory);
      case Step::memory:
        lay_out(entry.family);
        if (is_bounded(entry.family)) push(entry.bound_s, Step::laid_out);
        return;
      case Step::laid_out:
        if (entry.bound_s < bound_s_) push(bound(entry.family, BoundDetail::all), Step::all);
        return;
      case Step::all:
        note_bound(entry);
    }
  }

  // Whether pipelines of the family stand on such segments. Those of several chunks that are cut alike have families
  // of their own.
  static bool holds(const ShapeFamily& family, const Row& segments) {
    if (family.cut == 0) return family.schedule != Schedule::interleaved || has_unlike_cuts(segments);
    return !has_unlike_cuts(segments) && segments.front().tensor_parallel == family.cut;
  }

  void lay_out(std::size_t i) {
    if (!laid_out_.insert(i).second || is_too_large(job_, families_[i].shape)) return;
    const ShapeFamily& family = families_[i];
    finder_.use(family.shape);
    for (const Row& segments : sets_) {
      if (!holds(family, segments)) continue;
      if (family.schedule != Schedule::interleaved) finder_.try_segments(segments, family.schedule, 1);
      for (int chunks = 2; chunks <= family.most_chunks; ++chunks)
        finder_.try_segments(segments, family.schedule, chunks);
    }
  }

  const Job& job_;
  StagePricer& pricer_;
  std::vector<ShapeFamily> families_;
  std::vector<Row> sets_;
  std::vector<double> bounds_;  // of the families, as far as they are known
  std::set<std::size_t> laid_out_;
  PipelineFinder finder_;
  LeastPipeline least_;
  std::priority_queue<Entry> queue_;
  double bound_s_ = std::numeric_limits<double>::infinity();
};

}  // namespace

std::vector<Recompute> PipelineForm::recomputes() const {
  if (recomputes_modules) return {};
  return {kPlannedRecomputes.begin(), kPlannedRecomputes.end()};
}

PipelineSearch search_pipelines(const Job& job, StagePricer& pricer, std::size_t most,
                                const std::function<bool()>& has_time, const PipelineForm& form) {
  return FamilySearch(job, pricer, most, form).run(has_time);
}

Job with_pipeline(const Job& job, const PlannedPipeline& pipeline) {
  Job planned = job;
  Strategy& strategy = planned.strategy = {};
  PipelineTemplate& replica = strategy.templates.emplace_back();
  replica.replicas = pipeline.replicas;
  replica.micro_batches = pipeline.micro_batches;
  replica.context_parallel = pipeline.context_parallel;
  if (pipeline.micro_batch != job.train.micro_batch) replica.micro_batch = pipeline.micro_batch;
  strategy.zero = pipeline.replicas * pipeline.context_parallel > 1 ? 1 : 0;
  strategy.overlap_parameters = strategy.zero > 0;
  strategy.schedule = pipeline.schedule;
  strategy.put_off = pipeline.put_off;
  strategy.expert_weights = planned_expert_weights(job.transformer);
  for (const PlannedStage& stage : pipeline.stages) {
    Stage& each = replica.stages.emplace_back();
    each.tensor_parallel = stage.way.tensor_parallel;
    divide_experts(each, stage.way.expert_parallel);
    // The chips of the only group need no name.
    if (job.cluster.groups.size() > 1) each.on = {job.cluster.groups[at(stage.way.group)].name};
    each.recompute = stage.way.recompute;
    each.recompute_layers = stage.recompute_layers;
    strategy.sequence_parallel = strategy.sequence_parallel || stage.way.tensor_parallel > 1;
  }
  const PipelineShape shape{static_cast<int>(pipeline.stages.size()), pipeline.chunks,
                            static_cast<int>(pipeline.micro_batches)};
  std::vector<std::size_t> next(pipeline.stages.size(), 0);  // chunk of each stage
  std::int64_t first = 0;
  for (const int i : placement(pipeline.schedule, shape)) {
    const std::size_t chunk = next[at(i)]++;
    const Layers layers{first, first + even_layers(pipeline.stages[at(i)].layers, pipeline.chunks)[chunk]};
    first = layers.last;
    Stage& stage = replica.stages[at(i)];
    if (chunk > 0) {
      stage.more.push_back(layers);
      continue;
    }
    stage.first_layer = layers.first;
    stage.last_layer = layers.last;
  }
  return planned;
}

}  // namespace motley
