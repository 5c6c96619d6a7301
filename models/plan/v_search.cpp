// Candidates are rows of groups under shapes of replicas, in the order of what a step takes on them at least. That is
// told ever more exactly, each time that a candidate is the next one: with parts of layers, with whole layers, with
// layers that fit the chips' memory. Last comes the schedule's own timetable, which also tells what is in flight; if
// that does not fit, layers are laid out anew. Stages that recompute come after those that do not: their bytes take as
// long again to count.
#include "models/plan/v_search.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "models/base/index.hpp"
#include "models/plan/layer_shares.hpp"
#include "models/plan/v_rows.hpp"
#include "models/plan/v_stages.hpp"

namespace motley {
namespace {

// A schedule in a V, and how far it puts off gradients of weights.
struct VOrder {
  Schedule schedule = Schedule::zb_v;
  PutOff put_off = PutOff::count;
};
constexpr std::array kVOrders = {VOrder{Schedule::zb_v, PutOff::count},
                                 VOrder{Schedule::zb_v, PutOff::memory},
                                 VOrder{Schedule::dualpipe_v, PutOff::count}};
constexpr double kNever = std::numeric_limits<double>::infinity();

// A row of groups under one shape of replicas.
struct Candidate {
  enum class Step : std::uint8_t { parts_of_layers, whole_layers, laid_out };
  double least_s = 0;  // of a step on it, as far as it is known
  std::size_t shape = 0, row = 0;
  Step step = Step::parts_of_layers;
  double whole_layers_s = 0;             // `least_s` without regard to memory
  std::vector<StageClass> classes = {};  // once it is laid out
  PlannedPipeline pipeline = {};
  bool operator<(const Candidate& other) const {
    return std::tie(least_s, shape, row) > std::tie(other.least_s, other.shape, other.row);
  }
};

// The classes whose chips hold the fewest layers first.
std::vector<std::size_t> by_memory(const std::vector<StageClass>& classes) {
  std::vector<std::size_t> order(classes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return classes[a].most_layers < classes[b].most_layers;
  });
  return order;
}

class VSearch {
 public:
  VSearch(const Job& job, StagePricer& pricer, const PipelineForm& form)
      : layers_(job.transformer.layers), rows_(job, pricer, form), stages_(job, pricer) {}

  // Looks for stages without recompute. Whoever takes `most_s` or longer is not looked at.
  void find_candidates(double most_s, const std::function<bool()>& has_time) {
    std::vector<StageClass> classes;
    for (std::size_t shape = 0; shape < rows_.shape_count() && has_time(); ++shape) {
      rows_.add_shape();
      for (std::size_t row = 0; row < rows_.row_count(); ++row) {
        rows_.set_classes(shape, row, classes);
        if (classes.empty()) continue;
        push({all_micro_batches_s(shape, longest_of_parts_s(classes, layers_)), shape, row}, most_s);
      }
    }
  }

  // Looks, from now on, for stages that recompute, where memory was short without it.
  void allow_recompute() {
    may_recompute_ = true;
    for (Candidate& candidate : short_of_memory_) candidates_.push(std::move(candidate));
    short_of_memory_.clear();
  }

  // The one whose step takes least, as far as it is known: what its longest stage takes, which no schedule can shorten,
  // and the longest update. Nothing: all others take `enough_s` or more, or time is over.
  std::optional<Candidate> next(double enough_s, const std::function<bool()>& has_time) {
    while (!candidates_.empty() && candidates_.top().least_s < enough_s && has_time()) {
      Candidate candidate = candidates_.top();
      candidates_.pop();
      switch (candidate.step) {
        case Candidate::Step::parts_of_layers:
          share_whole_layers(candidate);
          push(std::move(candidate), enough_s);
          break;
        case Candidate::Step::whole_layers:
          if (lay_out(candidate, {}, enough_s)) push(std::move(candidate), enough_s);
          break;
        case Candidate::Step::laid_out:
          return candidate;
      }
    }
    return std::nullopt;
  }

  // The candidate's pipeline in that order, with the seconds of a step as its estimate. Nothing: the schedule cannot be
  // made, a step takes `enough_s` or more, or memory is short. `was_short`: whether memory was, with some layers.
  std::optional<PlannedPipeline> under(const VOrder& order, const Candidate& candidate, double enough_s,
                                       bool& was_short) {
    constexpr int kRounds = 4;
    std::vector<InFlight> in_flight(candidate.classes.size());
    Candidate now = candidate;
    for (int round = 0; round < kRounds; ++round) {
      now.pipeline.schedule = order.schedule;
      now.pipeline.put_off = order.put_off;
      const std::optional<VStages::Timed> timed = stages_.timed_step(now.pipeline);
      if (!timed || timed->step_s >= enough_s) return std::nullopt;
      now.pipeline.estimate_s = timed->step_s;
      if (stages_.fits(now.pipeline, timed->in_flight)) return std::move(now.pipeline);
      was_short = true;
      std::size_t stage = 0;
      for (std::size_t i = 0; i < in_flight.size(); ++i)
        for (std::int64_t each = 0; each < candidate.classes[i].stages; ++each, ++stage)
          if (stages_.is_more(timed->in_flight[stage], in_flight[i], now.pipeline.stages[stage].way))
            in_flight[i] = timed->in_flight[stage];
      keep_for_recompute(candidate);
      if (!lay_out(now, in_flight, enough_s)) return std::nullopt;
    }
    return std::nullopt;
  }

 private:
  double all_micro_batches_s(std::size_t shape, double each_s) const {
    return static_cast<double>(rows_.micro_batches(shape)) * each_s;
  }

  void push(Candidate candidate, double enough_s) {
    if (candidate.least_s < enough_s) candidates_.push(std::move(candidate));
  }

  void share_whole_layers(Candidate& candidate) const {
    std::vector<StageClass> classes;
    rows_.set_classes(candidate.shape, candidate.row, classes);
    const double longest_s = share_out(classes, layers_, kChunksInV);
    // The first stage waits until its first micro-batch was everywhere.
    candidate.least_s =
        std::max({candidate.least_s, round_trip_s(classes), all_micro_batches_s(candidate.shape, longest_s)});
    candidate.whole_layers_s = candidate.least_s;
    candidate.step = Candidate::Step::whole_layers;
  }

  // `in_flight`: of each class; empty: as schedules in a V usually have. False: memory is short, a step takes
  // `enough_s` or more, or other candidates come first, before all bytes are counted.
  bool lay_out(Candidate& candidate, const std::vector<InFlight>& in_flight, double enough_s) {
    std::vector<StageClass>& classes = candidate.classes;
    rows_.set_classes(candidate.shape, candidate.row, classes);
    std::int64_t stages = 0;
    for (const StageClass& each : classes) stages += each.stages;
    candidate.pipeline = pipeline_of(candidate.shape);
    const std::int64_t m = candidate.pipeline.micro_batches;
    std::vector<RecomputedParts> parts(classes.size());
    double all_s = candidate.whole_layers_s;
    for (const std::size_t i : by_memory(classes)) {
      if (in_flight.empty() && all_s < enough_s && is_after_another(all_s)) {
        candidate.least_s = all_s;
        push(std::move(candidate), enough_s);
        return false;
      }
      const InFlight here = in_flight.empty() ? VStages::usual_in_flight(m, stages) : in_flight[i];
      parts[i] =
          stages_.limit_by_memory(classes[i], rows_.way_of(candidate.shape, classes[i]), candidate.pipeline,
                                  here, i == 0, enough_s / static_cast<double>(m), may_recompute_);
      const double longest_s = parts[i].empty() ? kNever : share_out(classes, layers_, kChunksInV);
      all_s = std::max(all_s, all_micro_batches_s(candidate.shape, longest_s));
      if (all_s >= enough_s) break;
    }
    if (all_s > candidate.whole_layers_s) keep_for_recompute(candidate);
    if (all_s >= enough_s) return false;
    for (std::size_t i = 0; i < classes.size(); ++i)
      for (std::int64_t stage = 0; stage < classes[i].stages; ++stage) {
        const std::int64_t layers = classes[i].layers + (stage < classes[i].more ? 1 : 0);
        const RecomputedPart& part = parts[i][at(layers)];
        StageWay way = rows_.way_of(candidate.shape, classes[i]);
        way.recompute = part.recompute;
        candidate.pipeline.stages.push_back(planned_stage(way, {0, layers, part.layers, {}}, kChunksInV));
      }
    candidate.least_s = std::max(candidate.least_s, all_s + stages_.update_s(candidate.pipeline));
    candidate.step = Candidate::Step::laid_out;
    return candidate.least_s < enough_s;
  }

  // Without stages.
  PlannedPipeline pipeline_of(std::size_t shape) const {
    const ReplicaShape& replicas = rows_.shape(shape);
    PlannedPipeline pipeline;
    pipeline.micro_batch = replicas.micro_batch;
    pipeline.replicas = replicas.replicas;
    pipeline.micro_batches = rows_.micro_batches(shape);
    pipeline.context_parallel = replicas.context_parallel;
    pipeline.expert_parallel = replicas.expert_parallel;
    pipeline.schedule = kVOrders.front().schedule;
    pipeline.chunks = kChunksInV;
    return pipeline;
  }

  bool is_after_another(double least_s) const {
    return !candidates_.empty() && candidates_.top().least_s < least_s;
  }

  // With recompute, its layers may be shared out better.
  void keep_for_recompute(const Candidate& candidate) {
    if (may_recompute_ || !is_short_of_memory_.insert({candidate.shape, candidate.row}).second) return;
    short_of_memory_.push_back({candidate.whole_layers_s, candidate.shape, candidate.row,
                                Candidate::Step::whole_layers, candidate.whole_layers_s});
  }

  const std::int64_t layers_;
  VRows rows_;
  VStages stages_;
  std::priority_queue<Candidate> candidates_;
  bool may_recompute_ = false;
  std::set<std::pair<std::size_t, std::size_t>> is_short_of_memory_;  // shapes and rows
  std::vector<Candidate> short_of_memory_;
};

bool is_shorter(const PlannedPipeline& a, const PlannedPipeline& b) { return a.estimate_s < b.estimate_s; }

}  // namespace

VSearchResult search_v_pipelines(const Job& job, StagePricer& pricer, const PipelineForm& form,
                                 std::size_t most, double most_s, const std::function<bool()>& has_time,
                                 const std::function<bool()>& has_time_for_any) {
  VSearchResult result;
  std::vector<PlannedPipeline>& best = result.best;
  const std::function<bool()> goes_on = [&] {
    return best.empty() && has_time_for_any ? has_time_for_any() : has_time();
  };
  if (form.most_chunks < kChunksInV || !form.splits_backward) return result;
  VSearch search(job, pricer, form);
  search.find_candidates(most_s, goes_on);
  const auto look = [&] {
    const double enough_s = best.size() < most ? most_s : best.back().estimate_s;
    const std::optional<Candidate> candidate = search.next(enough_s, goes_on);
    if (!candidate) return false;
    bool was_short = false;
    for (const VOrder& order : kVOrders) {
      if (order.put_off == PutOff::memory && !was_short) continue;  // it saves memory, and takes longer
      std::optional<PlannedPipeline> pipeline = search.under(order, *candidate, enough_s, was_short);
      if (!pipeline || std::find(best.begin(), best.end(), *pipeline) != best.end()) continue;
      best.insert(std::upper_bound(best.begin(), best.end(), *pipeline, is_shorter), std::move(*pipeline));
      if (best.size() > most) best.pop_back();
    }
    return true;
  };
  while (look()) continue;
  search.allow_recompute();
  while (look()) continue;
  result.is_whole = has_time();
  return result;
}

}  // namespace motley
