#include "models/plan/shape_bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <queue>
#include <utility>

#include "models/base/index.hpp"
#include "models/plan/simplex.hpp"

namespace motley {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1 + 1e-9;

constexpr double kFineRatio = 1.01;  // numbers of stages are told apart where longest stages are, so finely
constexpr double kFewStagesRatio = 1.004;  // of longest stages, before numbers of stages are told apart
constexpr double kNothing = 1e-7;          // of a step, that a better price would bring
constexpr double kShortfall = 1e4;         // steps that a pipeline costs that lacks all layers

double whole(double value) { return std::floor(value * kRounding); }

// The option of whose stages the farthest from a whole number are in a mixture. Nothing: all are whole.
std::optional<std::size_t> parted_option(const std::vector<double>& stages) {
  double farthest = 1e-4;
  std::optional<std::size_t> parted;
  for (std::size_t option = 0; option < stages.size(); ++option) {
    const double distance = std::abs(stages[option] - std::round(stages[option]));
    if (distance <= farthest) continue;
    farthest = distance;
    parted = option;
  }
  return parted;
}

}  // namespace

ShapeBound::ShapeBound(BoundedShape shape) : shape_(std::move(shape)) {
  double stages = 0, layers_per_s = 0;
  std::vector<double> most(shape_.chips.size(), 0), rate(shape_.chips.size(), 0);
  for (const StageOption& option : shape_.options) {
    most[option.group] = std::max(most[option.group], std::floor(shape_.chips[option.group] / option.chips));
    rate[option.group] =
        std::max(rate[option.group], shape_.chips[option.group] / option.chips / option.layer_s);
  }
  for (std::size_t group = 0; group < most.size(); ++group) {
    stages += most[group];
    layers_per_s += rate[group];
  }
  stages = std::min(stages, shape_.layers);
  if (shape_.most_stages > 0) stages = std::min(stages, static_cast<double>(shape_.most_stages));
  most_stages_ = static_cast<std::int64_t>(stages);
  least_longest_s_ = layers_per_s > 0 ? shape_.layers / layers_per_s : kInfinite;
  Fits last;
  for (std::int64_t behind = 0; behind < most_stages_; ++behind) {
    Fits fits;
    for (const StageOption& option : shape_.options) {
      fits.inner.push_back(fit(option, behind, false));
      fits.first.push_back(fit(option, behind, true));
    }
    // The last stage is not like the one before it, which has no head.
    fits_.push_back(behind > 1 && fits == last ? Fits{} : fits);
    last = std::move(fits);
  }
}

std::vector<ShapeBound::Form> ShapeBound::forms(const Range& range) const {
  const double m = shape_.micro_batches, c = shape_.shorter_share;
  const double slower = shape_.slower ? shape_.slower(least_chips(range.most_s)) : 1;
  if (shape_.schedule == Schedule::zb_h1) return {{m, 0, 0, range.fewest, range.most, slower}};
  if (shape_.schedule == Schedule::interleaved) {
    const double part = 1.0 / shape_.chunks;
    return {{m - part, part, 0, range.fewest, range.most, slower}};
  }
  const auto below_m = static_cast<std::int64_t>(m) - 1;
  const std::int64_t few = std::min(range.most, below_m), many = std::max(range.fewest, below_m + 1);
  return {{m - 1, 2, 1, range.fewest, few, slower},
          {m - 1 + c, 1, c, range.fewest, few, slower},
          {(m - 1) * (1 - c), 1, 0, many, range.most, slower}};
}

ShapeBound::Bound ShapeBound::least_step(double ratio, double enough_s) const {
  constexpr int kMostSplits = 300;
  struct Bounded {
    Bound bound;
    Range range;
    bool operator<(const Bounded& other) const { return bound.step_s > other.bound.step_s; }
  };
  Range all{least_longest_s_, 0, 1, most_stages_};
  for (const StageOption& option : shape_.options)
    all.most_s = std::max(all.most_s, option.pass_s + option.embedding_s + option.head_s +
                                          shape_.layers * std::max(option.layer_s, option.heavier_layer_s));
  all.most_s = std::min(all.most_s, enough_s / shape_.micro_batches);
  if (!(all.least_s < all.most_s)) return {enough_s, {}};
  std::priority_queue<Bounded> ranges;
  ranges.push({{at_once_s(), {}}, all});
  for (int splits = 0;; ++splits) {
    const auto [bound, range] = ranges.top();
    const std::vector<Range> halves = halves_of(range, bound, ratio);
    if (bound.step_s >= enough_s || halves.empty() || splits == kMostSplits) return bound;
    ranges.pop();
    for (const Range& half : halves) {
      Bound of_half = of_range(half, enough_s);
      of_half.step_s = std::max(of_half.step_s, bound.step_s);
      ranges.push({std::move(of_half), half});
    }
  }
}

// Splits a range where it is wide; where its bound is made of part of a stage, into fewer and more of such stages. Once
// longest stages differ little, numbers of stages tell more than they do.
std::vector<ShapeBound::Range> ShapeBound::halves_of(const Range& range, const Bound& bound, double ratio) {
  std::vector<Range> halves{range, range};
  const auto in_time = [&] {
    halves[0].most_s = halves[1].least_s = std::sqrt(range.least_s * range.most_s);
    return halves;
  };
  if (range.most_s > range.least_s * std::max(ratio, kFewStagesRatio)) return in_time();
  if (ratio <= kFineRatio) {
    if (range.most > range.fewest) {
      halves[0].most = (range.fewest + range.most) / 2;
      halves[1].fewest = halves[0].most + 1;
      return halves;
    }
    if (const std::optional<std::size_t> parted = parted_option(bound.stages)) {
      const auto below = static_cast<std::int64_t>(std::floor(bound.stages[*parted]));
      halves[0].limits.push_back({*parted, true, below});
      halves[1].limits.push_back({*parted, false, below + 1});
      return halves;
    }
  }
  return range.most_s > range.least_s * ratio ? in_time() : std::vector<Range>{};
}

ShapeBound::Bound ShapeBound::of_range(const Range& range, double enough_s) const {
  const std::vector<Form> list = forms(range);
  const auto bound = [&](const Form& form) { return of_form(form, range, enough_s); };
  if (shape_.schedule != Schedule::one_f_one_b) return bound(list[0]);
  const Bound two_sided = bound(list[0]);
  const Bound one_sided = two_sided.step_s < enough_s ? bound(list[1]) : two_sided;
  const Bound many = bound(list[2]);
  const Bound& few = two_sided.step_s < one_sided.step_s ? one_sided : two_sided;
  return few.step_s < many.step_s ? few : many;
}

ShapeBound::Fit ShapeBound::fit(const StageOption& option, std::int64_t behind, bool is_first) const {
  if (option.bytes.empty()) return {shape_.layers, shape_.layers};
  const double flying = std::min(shape_.micro_batches, static_cast<double>(behind + 1));
  const auto layers_of = [&](const StageBytes& bytes) {
    return std::min(shape_.layers, static_cast<double>(bytes.most_layers(flying, is_first, behind == 0)));
  };
  Fit fit{layers_of(option.bytes.front()), 0};
  for (const StageBytes& bytes : option.bytes) fit.most = std::max(fit.most, layers_of(bytes));
  return fit;
}

double ShapeBound::least_chips(double most_s) const {
  struct Room {
    double chips_a_layer = kInfinite, chips = 0;
  };
  std::vector<Room> groups(shape_.chips.size());
  for (const StageOption& option : shape_.options) {
    const double layers = std::min(shape_.layers, whole((most_s - option.pass_s) / option.layer_s));
    if (layers < 1) continue;
    Room& group = groups[option.group];
    group = {std::min(group.chips_a_layer, option.chips / layers), shape_.chips[option.group]};
  }
  std::sort(groups.begin(), groups.end(),
            [](const Room& a, const Room& b) { return a.chips_a_layer < b.chips_a_layer; });
  double left = shape_.layers, chips = 0;
  for (const Room& group : groups) {
    if (left <= 0 || group.chips <= 0) break;
    const double here = std::min(group.chips, left * group.chips_a_layer);
    chips += here;
    left -= here / group.chips_a_layer;
  }
  return chips;
}

void ShapeBound::add_first_choices(std::vector<Choice>& list, const Form& form, std::size_t index,
                                   const Fit& fit, double once_s, double most_s) const {
  const StageOption& option = shape_.options[index];
  const std::size_t before = list.size();
  add_choices(list, form, index, fit, once_s + option.embedding_s, most_s);
  for (std::size_t i = before; i < list.size(); ++i)
    list[i].cost += option.end_s + option.layer_end_s * list[i].layers;
}

void ShapeBound::add_choices(std::vector<Choice>& list, const Form& form, std::size_t index, const Fit& fit,
                             double once_s, double most_s) const {
  const StageOption& option = shape_.options[index];
  if (once_s > most_s) return;
  const double light = std::min(fit.light, whole((most_s - once_s) / option.layer_s));
  const double heavy =
      std::min(fit.most - light, whole((most_s - once_s - light * option.layer_s) / option.heavier_layer_s));
  const auto add = [&](double layers) {
    const double seconds = once_s + std::min(layers, light) * option.layer_s +
                           std::max(0.0, layers - light) * option.heavier_layer_s;
    list.push_back({layers, form.slower * (form.share * seconds - form.discount * most_s), index});
  };
  if (light + heavy < 1) return;
  add(1);
  if (light > 1) add(light);
  if (heavy >= 1 && light + heavy > 1) add(light + heavy);
}

std::vector<ShapeBound::Places> ShapeBound::places_of(const Form& form, double most_s) const {
  std::vector<Places> list;
  for (std::size_t behind = 0; behind < std::min(fits_.size(), at(form.most)); ++behind) {
    const Fits& fits = fits_[behind];
    if (fits.inner.empty()) {
      if (!list.empty()) ++list.back().count;
      continue;
    }
    Places places;
    for (std::size_t i = 0; i < fits.inner.size(); ++i) {
      const StageOption& option = shape_.options[i];
      const double once_s = option.pass_s + (behind == 0 ? option.head_s : 0);
      add_choices(places.inner, form, i, fits.inner[i], once_s, most_s);
      add_first_choices(places.first, form, i, fits.first[i], once_s, most_s);
    }
    if (places.inner.empty() && places.first.empty()) break;
    list.push_back(std::move(places));
  }
  return list;
}

ShapeBound::Sum ShapeBound::sum_of(const Form& form, const std::vector<Places>& places, double layer_price,
                                   const std::vector<double>& option_prices) const {
  const auto cheapest = [&](const std::vector<Choice>& list) {
    std::pair<double, const Choice*> best{kInfinite, nullptr};
    for (const Choice& choice : list) {
      const double cost = choice.cost - layer_price * choice.layers + option_prices[choice.option];
      if (cost < best.first) best = {cost, &choice};
    }
    return best;
  };
  std::vector<const Choice*> inner;  // of each of the places
  const Choice* first = nullptr;
  double before = 0, least = kInfinite;
  std::int64_t behind = 0, stages = 0;  // behind these places; behind the first stage
  for (const Places& alike : places) {
    const auto [inner_cost, inner_choice] = cheapest(alike.inner);
    const auto [first_cost, first_choice] = cheapest(alike.first);
    // Each stage more adds the same: the first stage is the last one of these places, or the first that it may be.
    const std::int64_t last = inner_choice == nullptr ? 0 : alike.count - 1;
    const std::int64_t more = inner_choice != nullptr && inner_cost < 0
                                  ? last
                                  : std::max<std::int64_t>(0, form.fewest - 1 - behind);
    const double cost = before + (more > 0 ? static_cast<double>(more) * inner_cost : 0) + first_cost;
    if (behind + more + 1 >= form.fewest && more <= last && cost < least) {
      least = cost;
      first = first_choice;
      stages = behind + more;
    }
    if (inner_choice == nullptr) break;
    before += static_cast<double>(alike.count) * inner_cost;
    behind += alike.count;
    inner.push_back(inner_choice);
  }
  if (first == nullptr) return {kInfinite, 0, 0, {}};
  Sum sum{least + layer_price * shape_.layers, 0, 0, std::vector<double>(shape_.options.size(), 0)};
  const auto count = [&](const Choice& choice, std::int64_t times) {
    const auto weight = static_cast<double>(times);
    sum.stages[choice.option] += weight;
    sum.cost += weight * choice.cost;
    sum.layers += weight * choice.layers;
  };
  for (std::size_t i = 0; stages > 0; ++i) {
    const std::int64_t times = std::min(stages, places[i].count);
    count(*inner[i], times);
    stages -= times;
  }
  count(*first, 1);
  return sum;
}

std::vector<ShapeBound::Resource> ShapeBound::resources_of(const Range& range) const {
  std::vector<Resource> resources;
  for (std::size_t group = 0; group < shape_.chips.size(); ++group) {
    Resource& chips = resources.emplace_back(Resource{shape_.chips[group], {}});
    for (const StageOption& option : shape_.options)
      chips.taken.push_back(option.group == group ? option.chips : 0);
  }
  for (const Limit& limit : range.limits) {
    Resource& stages = resources.emplace_back();
    stages.most = static_cast<double>(limit.is_most ? limit.stages : range.most - limit.stages);
    for (std::size_t option = 0; option < shape_.options.size(); ++option)
      stages.taken.push_back((option == limit.option) == limit.is_most ? 1 : 0);
  }
  return resources;
}

// The best prices are those of a linear program: of all mixtures of pipelines that hold the model's layers and take no
// more than there is, the one with the least sum. Pipelines enter as the simplex method asks for them.
ShapeBound::Bound ShapeBound::of_form(const Form& form, const Range& range, double enough_s) const {
  constexpr int kPivots = 300;
  if (form.most < form.fewest) return {kInfinite, {}};
  const std::vector<Places> places = places_of(form, range.most_s);
  const std::vector<Resource> resources = resources_of(range);
  const std::size_t rows = 2 + resources.size(), options = shape_.options.size();
  const double constant_s = form.slower * form.longest * range.least_s, nothing_s = kNothing * at_once_s();
  Simplex simplex(rows, 2, kShortfall * at_once_s());
  std::vector<std::vector<double>> basis(
      rows);  // stages of each option in the pipeline of that row; empty: none
  double best_s = 0;
  for (int i = 0; i < kPivots && best_s < enough_s; ++i) {
    const std::vector<double> duals = simplex.duals();
    std::vector<double> column(rows, 0);
    const auto slack = std::max_element(duals.begin() + 2, duals.end());
    if (slack != duals.end() && *slack > nothing_s) {
      column[static_cast<std::size_t>(slack - duals.begin())] = 1;
      const std::optional<std::size_t> row = simplex.enter(column, 0, nothing_s);
      if (!row) break;
      basis[*row].clear();
      continue;
    }
    std::vector<double> prices(options, 0);
    double all = duals[1];
    for (std::size_t r = 0; r < resources.size(); ++r) {
      const Resource& resource = resources[r];
      const double price = std::max(0.0, -duals[2 + r]);
      all -= resource.most > 0 ? price : 0;
      for (std::size_t option = 0; option < options; ++option)
        if (resource.taken[option] > 0)
          prices[option] += resource.most > 0 ? price * resource.taken[option] / resource.most : kInfinite;
    }
    Sum sum = sum_of(form, places, duals[1] / shape_.layers, prices);
    best_s = std::max(best_s, constant_s + sum.bound - duals[1] + all);
    if (sum.stages.empty()) break;
    column[0] = 1;
    column[1] = sum.layers / shape_.layers;
    for (std::size_t r = 0; r < resources.size(); ++r)
      for (std::size_t option = 0; option < options; ++option)
        if (resources[r].most > 0)
          column[2 + r] += sum.stages[option] * resources[r].taken[option] / resources[r].most;
    const std::optional<std::size_t> row = simplex.enter(column, sum.cost, nothing_s);
    if (!row) break;
    basis[*row] = std::move(sum.stages);
  }
  Bound bound{best_s, std::vector<double>(options, 0)};
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t option = 0; option < basis[row].size(); ++option)
      bound.stages[option] += simplex.value(row) * basis[row][option];
  return bound;
}

}  // namespace motley
