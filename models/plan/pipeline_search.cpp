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
#include <utility>

#include "models/base/format.hpp"
#include "models/base/index.hpp"
#include "models/strategy/partition.hpp"

namespace motley {
namespace {

// Share of a model's layers that are at least as large as its last one. Assumes: those that are not are few, as the
// three first of DeepSeek-V3's 61.
constexpr double kMostlyAlike = 0.9;
constexpr double kStep = 1.002;  // between the times of a longest stage at which a bound is taken

using Row = std::vector<RowSegment>;  // from the first stage to the last

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> list;
  for (std::int64_t each = 1; each * each <= number; ++each)
    if (number % each == 0) {
      list.push_back(each);
      if (each * each != number) list.push_back(number / each);
    }
  std::sort(list.begin(), list.end());
  return list;
}

// All rows of different groups.
class Rows {
 public:
  explicit Rows(const Cluster& cluster) : cluster_(cluster), used_(cluster.groups.size()) {
    Row row;
    extend(row);
  }
  std::vector<Row> take() { return std::move(rows_); }

 private:
  void extend(Row& row) {
    if (!row.empty()) rows_.push_back(row);
    for (std::size_t group = 0; group < used_.size(); ++group) {
      if (used_[group]) continue;
      used_[group] = true;
      const std::int64_t chips = cluster_.groups[group].chips_per_node;
      for (std::int64_t cut = 1; cut <= chips; cut *= 2) {
        if (chips % cut != 0) continue;
        row.push_back({static_cast<int>(group), cut});
        extend(row);
        row.pop_back();
      }
      used_[group] = false;
    }
  }

  const Cluster& cluster_;
  std::vector<bool> used_;
  std::vector<Row> rows_;
};

// Parameters of the last layer, which has experts if the model has any: in its experts, and in the rest.
struct LayerParameters {
  double in_experts = 0, rest = 0;
};
LayerParameters parameters_of_layer(const Transformer& transformer) {
  LayerParameters counts;
  for (const Parameter& each : parameters(transformer))
    if (each.layer == transformer.layers - 1)
      (each.experts > 0 ? counts.in_experts : counts.rest) += static_cast<double>(each.count());
  return counts;
}

// Ranks over which sequences may be cut. Assumes: parts of fewer tokens gain nothing that tensor parallelism does not.
std::vector<std::int64_t> context_degrees(const Job& job, const PipelineForm& form) {
  constexpr std::int64_t kLeastPart = 4096;
  std::vector<std::int64_t> degrees = {1};
  while (form.cuts_sequences && job.train.sequence / (2 * degrees.back()) >= kLeastPart &&
         job.train.sequence % (4 * degrees.back()) == 0)
    degrees.push_back(2 * degrees.back());
  return degrees;
}

std::vector<std::int64_t> expert_degrees(const Job& job, const PipelineForm& form) {
  std::vector<std::int64_t> degrees = {1};
  const std::int64_t experts = job.transformer.experts.count;
  while (form.divides_experts && experts > 0 && experts % (2 * degrees.back()) == 0)
    degrees.push_back(2 * degrees.back());
  return degrees;
}

// Bytes/s with which a chip of the group reaches other nodes.
double rate_between_nodes(const NodeGroup& group) {
  if (group.nics.empty()) return group.inside.bandwidth;
  return group.nics[0].bandwidth * group.nics[0].count / group.chips_per_node;
}

struct ReplicaShape {
  std::int64_t micro_batch = 1, replicas = 1, context_parallel = 1, expert_parallel = 1;
};

// All shapes; first those whose replicas have about eight nodes each. An early end then has found good ones, and later
// ones are pruned by them.
std::vector<ReplicaShape> shapes_of(const Job& job, const PipelineForm& form) {
  constexpr std::int64_t kMostSequences = 8;
  constexpr double kNodes = 8;
  std::int64_t nodes = 0;
  for (const NodeGroup& group : job.cluster.groups) nodes += group.nodes;
  std::vector<std::pair<double, ReplicaShape>> shapes;
  for (const std::int64_t micro_batch : divisors(job.train.global_batch)) {
    if (micro_batch > std::max(kMostSequences, form.micro_batch)) break;
    if (form.micro_batch > 0 && micro_batch != form.micro_batch) continue;
    for (const std::int64_t replicas : divisors(job.train.global_batch / micro_batch)) {
      if (replicas > job.cluster.chip_count()) break;
      if (form.replicas > 0 && replicas != form.replicas) continue;
      const double nodes_each = static_cast<double>(nodes) / static_cast<double>(replicas);
      for (const std::int64_t context_parallel : context_degrees(job, form))
        for (const std::int64_t expert_parallel : expert_degrees(job, form))
          shapes.emplace_back(std::abs(std::log2(nodes_each / kNodes)),
                              ReplicaShape{micro_batch, replicas, context_parallel, expert_parallel});
    }
  }
  std::stable_sort(shapes.begin(), shapes.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<ReplicaShape> list;
  for (const auto& [distance, shape] : shapes) list.push_back(shape);
  return list;
}

bool has_unlike_cuts(const Row& row) {
  return std::any_of(row.begin(), row.end(), [&](const RowSegment& segment) {
    return segment.tensor_parallel != row.front().tensor_parallel;
  });
}

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

// Seconds in which a stage's replicas reduce gradients and gather parameters.
double gradients_s(const Job& job, const LayerParameters& parameters, const PlannedPipeline& pipeline,
                   const PlannedStage& stage) {
  const auto copies = static_cast<double>(pipeline.replicas * pipeline.context_parallel);
  if (copies == 1) return 0;
  const NodeGroup& group = job.cluster.groups[at(stage.way.group)];
  const auto cut = static_cast<double>(stage.way.tensor_parallel);
  const bool inside = copies * cut <= group.chips_per_node;
  const double rate = inside ? group.inside.bandwidth : rate_between_nodes(group);
  const auto bytes = static_cast<double>(bytes_of(job.train.gradients) + bytes_of(job.train.precision));
  const auto of_parts = [&](double count, double parts, double held_by) {
    return count / parts * (1 - 1 / std::max(held_by, 1.0));
  };
  const double parts = pipeline.expert_parallel > 1 ? static_cast<double>(pipeline.expert_parallel) : cut;
  const double counts =
      of_parts(parameters.rest, cut, copies) + of_parts(parameters.in_experts, parts, copies * cut / parts);
  return counts * static_cast<double>(stage.layers) * bytes / rate;
}

bool is_faster(const PlannedPipeline& a, const PlannedPipeline& b) { return a.estimate_s < b.estimate_s; }

class PipelineFinder {
 public:
  PipelineFinder(const Job& job, StagePricer& pricer, std::size_t most, const PipelineForm& form)
      : job_(job),
        pricer_(pricer),
        most_(most),
        form_(form),
        parameters_(parameters_of_layer(job.transformer)) {}

  // Returns whether all chips together can hold what such pipelines hold.
  bool try_shape(const ReplicaShape& shape) {
    const auto& [micro_batch, replicas, context_parallel, expert_parallel] = shape;
    shape_.micro_batch = micro_batch;
    shape_.replicas = replicas;
    shape_.context_parallel = context_parallel;
    shape_.expert_parallel = expert_parallel;
    shape_.micro_batches = job_.train.global_batch / micro_batch / replicas;
    known_.clear();
    return chips_can_hold(job_, parameters_, shape);
  }

  void try_row(const Row& row, int chunks) {
    const auto m = static_cast<double>(shape_.micro_batches);
    shape_.chunks = chunks;
    places_.clear();
    for (auto segment = row.rbegin(); segment != row.rend(); ++segment) {
      const Place& place = place_of(*segment);
      if (place.ways.empty()) return;
      places_.push_back(&place);
    }
    const RowBound row_bound = bound_of_row();
    shares_.clear();
    for (const Place* place : places_) shares_.push_back(place->stages);
    if (form_.most_stages > 0) shares_ = shared_out(shares_, form_.most_stages);
    stages_ = std::accumulate(shares_.begin(), shares_.end(), std::int64_t{0});
    if (chunks == 1)
      lower_bound(row_bound);
    else if (stages_ < 2 || shape_.micro_batches % stages_ != 0 || stages_ * chunks > job_.transformer.layers)
      return;
    // Estimates of the row are at least m times its longest stage, and the others' share once.
    const double part = 1 / static_cast<double>(chunks);
    double most_s = std::min(all_layers_s(), cut_s() / m);
    most_s = std::min(most_s, m > part ? (cut_s() - row_bound.all_s(most_s) * part) / (m - part) : cut_s());
    if (!(most_s > 0) || !fill(most_s, Flying::as_filled)) {
      ++result_.pruned;
      return;
    }
    ++result_.explored;
    least_time(0, most_s, Flying::as_filled);
    keep();
  }

  PipelineSearch take(bool is_whole) {
    result_.is_whole = is_whole;
    std::sort(result_.best.begin(), result_.best.end(), is_faster);
    return std::move(result_);
  }

 private:
  // Stages that one segment may have, and the ways to run them.
  struct Place {
    std::int64_t stages = 0;
    std::vector<std::pair<StageWay, const StagePrice*>> ways;
  };
  struct Filled {
    StageWay way;
    const StagePrice* price = nullptr;
    std::int64_t first = 0, last = 0;
    double seconds = 0;
  };

  // How many micro-batches a stage has in flight. as_filled: as many as stages were filled behind it. at_least: no more
  // than in any layout of the row, where each segment behind has one stage or more.
  enum class Flying : std::uint8_t { as_filled, at_least };

  // Without ways: no stage can stand there.
  const Place& place_of(const RowSegment& segment) {
    const auto [entry, is_new] = known_.try_emplace({segment.group, segment.tensor_parallel});
    Place& place = entry->second;
    if (!is_new) return place;
    const NodeGroup& group = job_.cluster.groups[at(segment.group)];
    const std::int64_t chips = std::int64_t{group.nodes} * group.chips_per_node;
    const std::int64_t stage_chips = shape_.replicas * segment.tensor_parallel * shape_.context_parallel;
    if (stage_chips % shape_.expert_parallel != 0) return place;
    place.stages = chips / stage_chips;
    if (place.stages == 0) return place;
    for (const Recompute& recompute : kPlannedRecomputes) {
      const StageWay way{segment.group, segment.tensor_parallel, recompute, shape_.context_parallel,
                         shape_.expert_parallel};
      const StagePrice* price = pricer_.price(way, shape_.micro_batch, shape_.replicas);
      if (price != nullptr) place.ways.emplace_back(way, price);
    }
    return place;
  }

  double all_layers_s() const {
    double longest_s = 0;
    for (const Place* place : places_)
      for (const auto& [way, price] : place->ways)
        longest_s = std::max(longest_s, price->of_layers(0, job_.transformer.layers).seconds());
    return longest_s;
  }

  RowBound bound_of_row() const {
    RowBound bound;
    bound.micro_batches = static_cast<double>(shape_.micro_batches);
    bound.layers = static_cast<double>(job_.transformer.layers);
    double stages = 0;
    for (const Place* place : places_) {
      stages += static_cast<double>(place->stages);
      RowBound::Segment& segment = bound.segments.emplace_back();
      segment = {static_cast<double>(place->stages), std::numeric_limits<double>::infinity()};
      for (const auto& [way, price] : place->ways) {
        segment.layer_s = std::min(segment.layer_s, price->least_layer_s);
        bound.shorter_share = std::max(bound.shorter_share, price->shorter_share);
      }
    }
    std::sort(bound.segments.begin(), bound.segments.end(),
              [](const RowBound::Segment& a, const RowBound::Segment& b) { return a.layer_s < b.layer_s; });
    bound.stages = std::min(stages, bound.layers);
    bound.ends_s = least_of_ways([](const StagePrice& price) { return price.embedding.seconds(); }) +
                   least_of_ways([](const StagePrice& price) { return price.head.seconds(); });
    return bound;
  }

  template <class SecondsOf>
  double least_of_ways(const SecondsOf& seconds_of) const {
    double least_s = std::numeric_limits<double>::infinity();
    for (const Place* place : places_)
      for (const auto& [way, price] : place->ways) least_s = std::min(least_s, seconds_of(*price));
    return least_s;
  }

  // Lowers the bound to that of the row, if it is lower.
  void lower_bound(const RowBound& row) {
    const double most_s = std::min(all_layers_s(), row.least_longest_s(result_.bound_s));
    if (!fill(most_s, Flying::at_least)) return;  // no layout of the row is faster than the bound
    result_.bound_s = row.seconds(least_time(0, most_s, Flying::at_least), result_.bound_s);
  }

  // The most layers that end at `last`, in at most `most_s`, in one of the ways.
  std::optional<Filled> fill_stage(const Place& place, std::int64_t last, double most_s,
                                   std::int64_t stages_behind) const {
    const bool is_last = filled_.empty();
    const double in_flight = in_flight_before(stages_behind);
    std::optional<Filled> best;
    for (const auto& [way, price] : place.ways) {
      std::int64_t first = last - std::min(last, price->bytes.most_layers(in_flight, false, is_last));
      if (first == 0) first = last - std::min(last, price->bytes.most_layers(in_flight, true, is_last));
      std::int64_t most = last;
      while (first < most) {  // the least `first` that is soon enough: seconds fall as it grows
        const std::int64_t middle = (first + most) / 2;
        if (price->of_layers(middle, last).seconds() <= most_s)
          most = middle;
        else
          first = middle + 1;
      }
      if (first >= last) continue;
      const double seconds = price->of_layers(first, last).seconds();
      if (!best || first < best->first || (first == best->first && seconds < best->seconds))
        best = Filled{way, price, first, last, seconds};
    }
    return best;
  }

  // Micro-batches that a stage has in flight, as 1F1B and its interleaved form warm up (arXiv:2104.04473).
  double in_flight_before(std::int64_t stages_behind) const {
    if (shape_.chunks == 1) return static_cast<double>(std::min(shape_.micro_batches, stages_behind + 1));
    const std::int64_t passes =
        std::min(shape_.micro_batches * shape_.chunks, 2 * stages_behind + (shape_.chunks - 1) * stages_ + 1);
    return static_cast<double>(passes) / shape_.chunks;
  }

  // Fills stages of at most `most_s`. False: they cannot hold all layers.
  bool fill(double most_s, Flying flying) {
    filled_.clear();
    std::int64_t last = job_.transformer.layers;
    for (std::size_t i = 0; i < places_.size(); ++i)
      for (std::int64_t stage = 0;
           stage < (flying == Flying::as_filled ? shares_[i] : places_[i]->stages) && last > 0; ++stage) {
        const std::int64_t behind = flying == Flying::as_filled ? static_cast<std::int64_t>(filled_.size())
                                                                : static_cast<std::int64_t>(i) + stage;
        const std::optional<Filled> filled = fill_stage(*places_[i], last, most_s, behind);
        if (!filled) break;
        filled_.push_back(*filled);
        last = filled->first;
      }
    return last == 0;
  }

  // The least time of a stage in which the row holds all layers, found from below: fill() fails for it, or it is
  // `least_s`. Leaves the stages filled that hold them in little more.
  double least_time(double least_s, double most_s, Flying flying) {
    constexpr double kClose = 1e-3;
    while (most_s - least_s > kClose * most_s) {
      const double middle_s = (least_s + most_s) / 2;
      (fill(middle_s, flying) ? most_s : least_s) = middle_s;
    }
    fill(most_s, flying);
    return least_s;
  }

  double cut_s() const {
    return result_.best.size() < most_ ? std::numeric_limits<double>::infinity()
                                       : result_.best.back().estimate_s;
  }

  void keep() {
    PlannedPipeline pipeline = shape_;
    double all_s = 0, reduced_s = 0;
    std::vector<double> rounds(at(shape_.chunks), 0.0);  // longest chunks
    for (auto stage = filled_.rbegin(); stage != filled_.rend(); ++stage) {
      const std::int64_t layers = stage->last - stage->first;
      pipeline.stages.push_back({stage->way, layers});
      all_s += stage->seconds;
      reduced_s = std::max(reduced_s, gradients_s(job_, parameters_, shape_, pipeline.stages.back()));
      const std::vector<std::int64_t> chunks = even_layers(layers, shape_.chunks);
      for (std::size_t i = 0; i < chunks.size(); ++i)
        rounds[i] = std::max(rounds[i],
                             stage->seconds * static_cast<double>(chunks[i]) / static_cast<double>(layers));
    }
    const double longest_s = std::accumulate(rounds.begin(), rounds.end(), 0.0);
    if (shape_.chunks > 1 &&
        (static_cast<std::int64_t>(filled_.size()) != stages_ ||
         std::any_of(pipeline.stages.begin(), pipeline.stages.end(),
                     [&](const PlannedStage& each) { return each.layers < shape_.chunks; })))
      return;
    pipeline.estimate_s = static_cast<double>(shape_.micro_batches) * longest_s +
                          (all_s - longest_s) / shape_.chunks + reduced_s;
    auto& best = result_.best;
    if (!has_form(pipeline, form_) || pipeline.estimate_s >= cut_s()) return;
    best.insert(std::upper_bound(best.begin(), best.end(), pipeline, is_faster), std::move(pipeline));
    if (best.size() > most_) best.pop_back();
  }

  const Job& job_;
  StagePricer& pricer_;
  std::size_t most_;
  const PipelineForm& form_;
  LayerParameters parameters_;
  PlannedPipeline shape_;
  std::int64_t stages_ = 0;                              // most stages of the row
  std::vector<std::int64_t> shares_;                     // most stages of each place, as far as pins allow
  std::map<std::pair<int, std::int64_t>, Place> known_;  // of this shape, by group and cut
  std::vector<const Place*> places_;                     // from the last stage to the first
  std::vector<Filled> filled_;                           // from the last stage to the first
  PipelineSearch result_;
};

}  // namespace

double RowBound::all_s(double longest_s) const {
  double sum_s = ends_s, left = layers;
  for (const Segment& segment : segments) {
    const double here = std::min(left, segment.stages * longest_s / segment.layer_s);
    sum_s += here * segment.layer_s;
    left -= here;
  }
  return left > 1e-9 * layers ? std::numeric_limits<double>::infinity() : sum_s;
}

double RowBound::between(double least_s, double most_s) const {
  const double behind_s = all_s(most_s);
  const double flying = std::min(stages, micro_batches);
  double more_s = std::max(0.0, behind_s - most_s - (flying - 1) * shorter_share * most_s);
  if (micro_batches > stages) more_s = std::max(more_s, 2 * behind_s - (stages + 1) * most_s);
  return micro_batches * least_s + more_s;
}

double RowBound::seconds(double longest_s, double enough_s) const {
  double least_s = enough_s;
  for (double from_s = longest_s; micro_batches * from_s < least_s; from_s *= kStep)
    least_s = std::min(least_s, between(from_s, from_s * kStep));
  return least_s;
}

double RowBound::least_longest_s(double enough_s) const {
  double longest_s = enough_s / micro_batches;
  if (!(longest_s < std::numeric_limits<double>::infinity())) return longest_s;
  const auto can_hold = [&] { return all_s(longest_s) < std::numeric_limits<double>::infinity(); };
  while (can_hold() && between(longest_s / kStep, longest_s) >= enough_s) longest_s /= kStep;
  return longest_s;
}

PipelineSearch search_pipelines(const Job& job, StagePricer& pricer, std::size_t most,
                                const std::function<bool()>& has_time, const PipelineForm& form) {
  std::vector<Row> rows = Rows(job.cluster).take();
  if (form.allows_row) std::erase_if(rows, [&](const Row& row) { return !form.allows_row(row); });
  PipelineFinder finder(job, pricer, most, form);
  for (const ReplicaShape& shape : shapes_of(job, form)) {
    if (!has_time()) return finder.take(false);
    if (!finder.try_shape(shape)) continue;
    for (int chunks = 1; chunks <= form.most_chunks; ++chunks)
      for (const Row& row : rows)  // no strategy reshards activations between stages of several chunks
        if (chunks == 1 || !has_unlike_cuts(row)) finder.try_row(row, chunks);
  }
  return finder.take(true);
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
  if (pipeline.chunks > 1) strategy.schedule = Schedule::interleaved;
  for (const PlannedStage& stage : pipeline.stages) {
    Stage& each = replica.stages.emplace_back();
    each.tensor_parallel = stage.way.tensor_parallel;
    divide_experts(each, stage.way.expert_parallel);
    // The chips of the only group need no name.
    if (job.cluster.groups.size() > 1) each.on = {job.cluster.groups[at(stage.way.group)].name};
    each.recompute = stage.way.recompute;
    strategy.sequence_parallel = strategy.sequence_parallel || stage.way.tensor_parallel > 1;
  }
  std::int64_t first = 0;
  for (int chunk = 0; chunk < pipeline.chunks; ++chunk)
    for (std::size_t i = 0; i < pipeline.stages.size(); ++i) {
      const std::vector<std::int64_t> chunks = even_layers(pipeline.stages[i].layers, pipeline.chunks);
      const Layers layers{first, first + chunks[at(chunk)]};
      first = layers.last;
      Stage& stage = replica.stages[i];
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
