#include "models/plan/least_pipeline.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "models/base/index.hpp"
#include "models/strategy/partition.hpp"

namespace motley {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kWholeLayers = 1 + 1e-9;  // so that rounding takes no layer away
// Beginnings that are looked at for one job, and ways in which a stage of some layers may stand in a small family.
// Eight layers on four groups of eight chips have 2,160 ways, and 44,000 beginnings at most in 2,000 random jobs; the
// most beginnings take a tenth of a second.
constexpr std::int64_t kMostBeginnings = 200'000, kMostWays = 20'000;
constexpr std::size_t kMostOptions = 32, kMostGroups = 8;  // so that a row has a number

}  // namespace

LeastPipeline::LeastPipeline(const Job& job, StagePricer& pricer, const PipelineForm& form)
    : job_(job), pricer_(pricer), form_(form), closed_form_(job, pricer), nodes_(kMostBeginnings) {}

bool LeastPipeline::Sums::is_no_higher(const Sums& other) const {
  return reduced_s <= other.reduced_s && behind_s <= other.behind_s && cycle_s <= other.cycle_s &&
         all_s <= other.all_s && weights_s <= other.weights_s && own_s <= other.own_s &&
         std::equal(rounds.begin(), rounds.end(), other.rounds.begin(), std::less_equal<>());
}

std::optional<PlannedPipeline> LeastPipeline::below(const ShapeFamily& family, double cut_s) {
  best_.reset();
  cut_s_ = cut_s;
  if (!set_up(family)) return std::nullopt;
  if (family.schedule == Schedule::one_f_one_b) {
    search(form_.stages);
    return best_;
  }
  const bool has_chunks = family.schedule == Schedule::interleaved;
  for (int chunks = has_chunks ? 2 : 1; chunks <= (has_chunks ? family.most_chunks : 1); ++chunks)
    for (std::int64_t stages = 2; stages <= most_stages_ && stages * chunks <= job_.transformer.layers;
         ++stages) {
      if ((form_.stages > 0 && stages != form_.stages) || (has_chunks && shape_.micro_batches % stages != 0))
        continue;
      shape_.chunks = chunks;
      search(stages);
    }
  return best_;
}

bool LeastPipeline::set_up(const ShapeFamily& family) {
  shape_ = {};
  shape_.micro_batch = family.shape.micro_batch;
  shape_.replicas = family.shape.replicas;
  shape_.context_parallel = family.shape.context_parallel;
  shape_.expert_parallel = family.shape.expert_parallel;
  shape_.micro_batches = job_.train.global_batch / shape_.micro_batch / shape_.replicas;
  shape_.schedule = family.schedule;
  options_.clear();
  rests_.clear();
  most_stages_ = 0;
  if (nodes_ <= 0 || !is_small(family.cut)) return is_whole_ = false;
  for (std::size_t group = 0; group < job_.cluster.groups.size(); ++group) {
    const std::size_t before = options_.size();
    for (const std::int64_t cut : tensor_degrees(job_.cluster.groups[group]))
      if (family.cut == 0 || cut == family.cut) add_option(static_cast<int>(group), cut);
    std::int64_t most = 0;
    for (std::size_t i = before; i < options_.size(); ++i) most = std::max(most, options_[i].stages);
    most_stages_ += most;
  }
  most_stages_ = std::min(most_stages_, job_.transformer.layers);
  if (family.most_stages > 0) most_stages_ = std::min(most_stages_, family.most_stages);
  PlannedPipeline pair = shape_;
  for (Option& option : options_) {
    pair.stages.assign(at(option.stages), {option.way, 1});
    option.inside_s = closed_form_.estimator().transfer_seconds(pair);
    for (const Option& behind : options_) {
      pair.stages = {{option.way, 1}, {behind.way, 1}};
      option.behind_s.push_back(closed_form_.estimator().transfer_seconds(pair).front());
    }
  }
  return true;
}

// Whether there are few ways in which a stage of some layers may stand on some option.
bool LeastPipeline::is_small(std::int64_t cut) const {
  const std::int64_t layers = job_.transformer.layers;
  std::int64_t ways = 0;
  std::size_t options = 0;
  for (const NodeGroup& group : job_.cluster.groups)
    for (const std::int64_t each : tensor_degrees(group)) {
      if (cut > 0 && each != cut) continue;
      ++options;
      ways += std::min(layers, stages_on(group, each)) * layers * (layers + 1) / 2;
    }
  return options <= kMostOptions && job_.cluster.groups.size() <= kMostGroups && ways <= kMostWays;
}

std::int64_t LeastPipeline::stages_on(const NodeGroup& group, std::int64_t cut) const {
  return chips_of(group) / (shape_.replicas * shape_.context_parallel * cut);
}

void LeastPipeline::add_option(int group, std::int64_t cut) {
  const std::int64_t chips = shape_.replicas * shape_.context_parallel * cut;
  if (chips % shape_.expert_parallel != 0) return;
  Option option;
  option.way = {group, cut, Recompute::none, shape_.context_parallel, shape_.expert_parallel};
  option.stages = std::min(stages_on(job_.cluster.groups[at(group)], cut), job_.transformer.layers);
  if (option.stages == 0) return;
  option.gradients_s = closed_form_.gradients_s(shape_, option.way, 1);
  option.layers_s.assign(at(job_.transformer.layers), kNever);
  option.ends_s = option.least_layer_s = kNever;
  const auto counted_s = [&](const PassSeconds& pass) {
    return splits() ? pass.passed_on_s() : pass.seconds();
  };
  for (const Recompute& recompute : pricer_.recomputes()) {
    StageWay way = option.way;
    way.recompute = recompute;
    const StageSeconds* const seconds = pricer_.seconds(way, shape_.micro_batch);
    if (seconds == nullptr) continue;
    option.ends_s = std::min(option.ends_s, counted_s(seconds->pass) + counted_s(seconds->embedding));
    option.least_layer_s = std::min(option.least_layer_s, seconds->least_layer_s);
    for (std::size_t i = 0; i < option.layers_s.size(); ++i)
      option.layers_s[i] =
          std::min(option.layers_s[i], counted_s(seconds->layers[i + 1]) - counted_s(seconds->layers[i]));
    option.variants.push_back({way, nullptr, {}});
  }
  if (!option.variants.empty()) options_.push_back(std::move(option));
}

void LeastPipeline::search(std::int64_t stages) {
  if (stages > most_stages_) return;
  stages_ = stages;
  known_.clear();
  used_ = 0;
  for (Option& option : options_) option.is_priced = false;
  extend({0, -1, 0, job_.transformer.layers, 0}, {});
}

void LeastPipeline::price(Option& option) {
  if (option.is_priced) return;
  option.is_priced = true;
  for (Variant& variant : option.variants) {
    variant.bytes.clear();
    variant.price = pricer_.price(variant.way, shape_.micro_batch, shape_.replicas);
    if (variant.price == nullptr) continue;
    for (std::int64_t behind = 0; behind < most_stages_; ++behind)
      variant.bytes.push_back(closed_form_.bytes(shape_, variant.way, variant.price->bytes, stages_, behind));
  }
  std::erase_if(option.variants, [](const Variant& each) { return each.price == nullptr; });
}

void LeastPipeline::extend(const Place& place, const Sums& sums) {
  if (place.layers == 0) {
    if (place.left == 0 && (stages_ == 0 || place.behind == stages_)) take();
    return;
  }
  if (place.behind == (stages_ > 0 ? stages_ : most_stages_)) return;
  if (place.left > 0)
    return add_stage(place, sums, place.option, place.left - 1,
                     options_[at(place.option)].inside_s[at(place.left - 1)]);
  for (std::size_t next = 0; next < options_.size(); ++next) {
    if (!is_open(place, next)) continue;
    const std::uint64_t used = used_;
    used_ |= std::uint64_t{1} << static_cast<unsigned>(options_[next].way.group);
    Place begun = place;
    begun.row = form_.allows_row ? place.row * (kMostOptions + 1) + next + 1 : used_;
    const double transfer_s = place.option < 0 ? 0 : options_[next].behind_s[at(place.option)];
    for (std::int64_t left = 0; left < std::min(options_[next].stages, place.layers); ++left)
      add_stage(begun, sums, static_cast<std::int64_t>(next), left, transfer_s);
    used_ = used;
  }
}

bool LeastPipeline::is_open(const Place& place, std::size_t option) const {
  if (static_cast<std::int64_t>(option) == place.option) return place.left > 0;
  return (used_ >> static_cast<unsigned>(options_[option].way.group) & 1U) == 0;
}

void LeastPipeline::add_stage(const Place& place, const Sums& sums, std::int64_t index, std::int64_t left,
                              double transfer_s) {
  if (stages_ > 0 && place.behind + 1 + left > stages_) return;
  Option& option = options_[at(index)];
  price(option);
  Place next{place.row, index, left, 0, place.behind + 1};
  // A stage that keeps everything is the first variant; the others are recomputed as far as that does not fit.
  if (option.variants.empty() || option.variants.front().way.recompute != Recompute::none) return;
  StagePosition position = position_of(shape_, stages_, place.behind);
  position.is_last = place.behind == 0;
  const std::int64_t fewest = std::max(left, stages_ - next.behind);  // layers that must be left
  for (next.layers = place.layers - shape_.chunks; next.layers >= fewest; --next.layers) {
    const std::int64_t layers = place.layers - next.layers;
    position.is_first = next.layers == 0;
    std::optional<PlannedStage> shortest;
    PassSeconds shortest_pass;
    for (const Variant& variant : option.variants) {
      const Variant& kept = option.variants.front();
      const PartialStage stage{
          *kept.price, *variant.price, {kept.bytes[at(place.behind)], variant.bytes[at(place.behind)]}};
      const bool keeps = &variant == &kept;
      const std::optional<std::int64_t> recomputed = stage.bytes.least_recomputed(layers, position);
      if (!recomputed || (*recomputed == 0) != keeps) continue;
      const PassSeconds pass = stage.of_layers(next.layers, place.layers, *recomputed);
      const PlannedStage planned =
          planned_stage(variant.way, {next.layers, place.layers, *recomputed, pass}, shape_.chunks);
      if (splits()) {
        add_layers(next, sums, planned, pass, transfer_s);
        continue;
      }
      if (!shortest || pass.seconds() < shortest_pass.seconds()) {
        shortest = planned;
        shortest_pass = pass;
      }
    }
    if (shortest) add_layers(next, sums, *shortest, shortest_pass, transfer_s);
  }
}

void LeastPipeline::add_layers(const Place& next, const Sums& before, const PlannedStage& stage,
                               const PassSeconds& pass, double transfer_s) {
  if (--nodes_ < 0) {
    is_whole_ = false;
    return;
  }
  const std::int64_t layers = stage.layers;
  const double seconds = pass.seconds(), passed_s = splits() ? pass.passed_on_s() : seconds;
  Sums sums = before;
  sums.reduced_s =
      std::max(sums.reduced_s, options_[at(next.option)].gradients_s * static_cast<double>(layers));
  sums.behind_s += passed_s + 2 * shape_.chunks * transfer_s;
  sums.cycle_s = std::max(sums.cycle_s, sums.behind_s / in_flight_before(shape_, stages_, next.behind - 1));
  sums.all_s += passed_s;
  if (shape_.chunks == 1) {
    sums.rounds[0] = std::max(sums.rounds[0], seconds);
  } else {
    const std::vector<std::int64_t> chunks = even_layers(layers, shape_.chunks);
    for (std::size_t i = 0; i < chunks.size(); ++i)
      sums.rounds[i] =
          std::max(sums.rounds[i], seconds * static_cast<double>(chunks[i]) / static_cast<double>(layers));
  }
  if (splits()) {
    const double put_off = std::min(micro_batches(), static_cast<double>(stages_ - 1));
    sums.weights_s = std::max(sums.weights_s, pass.weights_s);
    sums.own_s = std::max(sums.own_s, micro_batches() * seconds - passed_s - put_off * pass.weights_s);
  }
  if (!can_be_best(next, sums) || !is_new(next, sums)) return;
  begun_.push_back(stage);
  extend(next, sums);
  begun_.pop_back();
}

double LeastPipeline::computes_s(const Sums& sums, double rest_s) const {
  const double all_s = sums.all_s + rest_s;
  double longest_s = 0;
  for (const double round : sums.rounds) longest_s += round;
  if (splits()) return std::max({micro_batches() * longest_s, sums.own_s + all_s, all_s + sums.weights_s});
  return micro_batches() * longest_s + (all_s - longest_s) / shape_.chunks;
}

// What the layers before a place take at least, by their number: each on the fastest option that is open.
const std::vector<double>& LeastPipeline::rest_s(const Place& place) {
  const auto [entry, is_unknown] = rests_.try_emplace({used_, place.left > 0 ? place.option : -1});
  std::vector<double>& rest = entry->second;
  if (!is_unknown) return rest;
  double sum_s = kNever;
  for (std::size_t i = 0; i < options_.size(); ++i)
    if (is_open(place, i)) sum_s = std::min(sum_s, options_[i].ends_s);
  rest.push_back(0);
  for (std::size_t layer = 0; layer < at(job_.transformer.layers); ++layer) {
    double least_s = kNever;
    for (std::size_t i = 0; i < options_.size(); ++i)
      if (is_open(place, i)) least_s = std::min(least_s, options_[i].layers_s[layer]);
    rest.push_back(sum_s += least_s);
  }
  return rest;
}

bool LeastPipeline::can_be_best(const Place& place, const Sums& sums) {
  const double rest = rest_s(place)[at(place.layers)];
  const double least_s = sums.reduced_s + std::max(computes_s(sums, rest), micro_batches() * sums.cycle_s);
  if (!(least_s < cut_s_)) return false;
  if (place.layers == 0) return true;
  // No stage may take longer than this, and so short ones must hold the layers that are left.
  const double part = splits() ? 0 : 1.0 / shape_.chunks;
  const double longest_s = micro_batches() > part ? (cut_s_ - sums.reduced_s - part * (sums.all_s + rest)) /
                                                        (micro_batches() - part)
                                                  : cut_s_;
  std::array<double, kMostGroups> most{};
  for (std::size_t i = 0; i < options_.size(); ++i) {
    if (!is_open(place, i)) continue;
    const Option& option = options_[i];
    const std::int64_t stages = static_cast<std::int64_t>(i) == place.option ? place.left : option.stages;
    double& layers = most[at(option.way.group)];
    layers = std::max(
        layers, static_cast<double>(stages) * std::floor(longest_s / option.least_layer_s * kWholeLayers));
  }
  double layers = 0;
  for (const double each : most) layers += each;
  return layers >= static_cast<double>(place.layers);
}

// Whether no beginning at the same place is known that is no higher in anything.
bool LeastPipeline::is_new(const Place& place, const Sums& sums) {
  std::vector<Sums>& list = known_[place];
  if (std::any_of(list.begin(), list.end(), [&](const Sums& other) { return other.is_no_higher(sums); }))
    return false;
  std::erase_if(list, [&](const Sums& other) { return sums.is_no_higher(other); });
  list.push_back(sums);
  return true;
}

void LeastPipeline::take() {
  PlannedPipeline pipeline = shape_;
  pipeline.stages.assign(begun_.rbegin(), begun_.rend());
  if (form_.allows_row) {
    std::vector<RowSegment> row;
    for (const PlannedStage& stage : pipeline.stages)
      if (row.empty() || row.back().group != stage.way.group)
        row.push_back({stage.way.group, stage.way.tensor_parallel});
    if (!form_.allows_row(row)) return;
  }
  const std::optional<double> step_s = closed_form_.step_s(pipeline);
  if (!step_s || *step_s >= cut_s_) return;
  pipeline.estimate_s = cut_s_ = *step_s;
  best_ = std::move(pipeline);
}

}  // namespace motley
