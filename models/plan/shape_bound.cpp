#include "models/plan/shape_bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <queue>
#include <utility>

#include "models/base/index.hpp"

namespace motley {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1 + 1e-9;

constexpr double kNothing = 1e-7;   // of a step, that a better price would bring
constexpr double kShortfall = 1e4;  // steps that a pipeline costs that lacks all layers

double whole(double value) { return std::floor(value * kRounding); }

// The revised simplex method for rows whose right sides are all 1. The first two are equations, and begin with
// something artificial of high cost; the others are upper limits, and begin with their slack.
class Simplex {
 public:
  Simplex(std::size_t rows, double artificial_cost)
      : rows_(rows), inverse_(rows * rows, 0), values_(rows, 1), costs_(rows, 0) {
    for (std::size_t i = 0; i < rows; ++i) inverse_[i * rows + i] = 1;
    costs_[0] = costs_[1] = artificial_cost;
  }

  std::vector<double> duals() const {
    std::vector<double> sums(rows_, 0);
    for (std::size_t i = 0; i < rows_; ++i)
      for (std::size_t j = 0; j < rows_; ++j) sums[j] += costs_[i] * inverse_[i * rows_ + j];
    return sums;
  }

  double value(std::size_t row) const { return values_[row]; }

  // Returns the row of the basis in which the column stands now. Nothing: it would bring no more than `nothing`.
  std::optional<std::size_t> enter(const std::vector<double>& column, double cost, double nothing) {
    const std::vector<double> prices = duals();
    double gain = -cost;
    for (std::size_t i = 0; i < rows_; ++i) gain += prices[i] * column[i];
    if (gain <= nothing) return std::nullopt;
    constexpr double kSmall = 1e-10;
    std::vector<double> direction(rows_, 0);
    for (std::size_t i = 0; i < rows_; ++i)
      for (std::size_t j = 0; j < rows_; ++j) direction[i] += inverse_[i * rows_ + j] * column[j];
    std::size_t leaving = rows_;
    for (std::size_t i = 0; i < rows_; ++i)
      if (direction[i] > kSmall &&
          (leaving == rows_ || values_[i] * direction[leaving] < values_[leaving] * direction[i]))
        leaving = i;
    if (leaving == rows_) return std::nullopt;
    replace(leaving, direction);
    costs_[leaving] = cost;
    return leaving;
  }

 private:
  void replace(std::size_t leaving, const std::vector<double>& direction) {
    for (std::size_t j = 0; j < rows_; ++j) inverse_[leaving * rows_ + j] /= direction[leaving];
    values_[leaving] /= direction[leaving];
    for (std::size_t i = 0; i < rows_; ++i) {
      if (i == leaving || direction[i] == 0) continue;
      for (std::size_t j = 0; j < rows_; ++j)
        inverse_[i * rows_ + j] -= direction[i] * inverse_[leaving * rows_ + j];
      values_[i] = std::max(0.0, values_[i] - direction[i] * values_[leaving]);
    }
  }

  std::size_t rows_;
  std::vector<double> inverse_;  // of the basis, row by row
  std::vector<double> values_, costs_;
};

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

std::vector<ShapeBound::Form> ShapeBound::forms() const {
  const double m = shape_.micro_batches, c = shape_.shorter_share;
  if (shape_.schedule == Schedule::zb_h1) return {{m, 0, 0, 1, most_stages_}};
  if (shape_.schedule == Schedule::interleaved) {
    const double part = 1.0 / shape_.chunks;
    return {{m - part, part, 0, 1, most_stages_}};
  }
  const auto below_m = std::min(most_stages_, static_cast<std::int64_t>(m) - 1);
  return {{m - 1, 2, 1, 1, below_m},
          {m - 1 + c, 1, c, 1, below_m},
          {(m - 1) * (1 - c), 1, 0, below_m + 1, most_stages_}};
}

ShapeBound::Bound ShapeBound::least_step(double ratio, double enough_s) const {
  struct Range {
    Bound bound;
    double least_s = 0, most_s = 0;
    bool operator<(const Range& other) const { return bound.step_s > other.bound.step_s; }
  };
  double most_s = 0;
  for (const StageOption& option : shape_.options)
    most_s = std::max(most_s, option.pass_s + option.embedding_s + option.head_s +
                                  shape_.layers * std::max(option.layer_s, option.heavier_layer_s));
  most_s = std::min(most_s, enough_s / shape_.micro_batches);
  if (!(least_longest_s_ < most_s)) return {enough_s, {}};
  std::priority_queue<Range> ranges;
  ranges.push({{at_once_s(), {}}, least_longest_s_, most_s});
  while (true) {
    Range range = ranges.top();
    if (range.bound.step_s >= enough_s || range.most_s <= range.least_s * ratio) return range.bound;
    ranges.pop();
    const double middle_s = std::sqrt(range.least_s * range.most_s);
    for (const auto& [from_s, to_s] :
         {std::pair{range.least_s, middle_s}, std::pair{middle_s, range.most_s}}) {
      Bound bound = between(from_s, to_s, enough_s);
      bound.step_s = std::max(bound.step_s, range.bound.step_s);
      ranges.push({std::move(bound), from_s, to_s});
    }
  }
}

ShapeBound::Bound ShapeBound::between(double least_s, double most_s, double enough_s) const {
  if (shape_.schedule != Schedule::one_f_one_b) return of_form(forms()[0], least_s, most_s, enough_s);
  const std::vector<Form> list = forms();
  const Bound two_sided = of_form(list[0], least_s, most_s, enough_s);
  const Bound one_sided =
      two_sided.step_s < enough_s ? of_form(list[1], least_s, most_s, enough_s) : two_sided;
  const Bound many = of_form(list[2], least_s, most_s, enough_s);
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
    list.push_back({layers, form.share * seconds - form.discount * most_s, index});
  };
  if (light + heavy < 1) return;
  add(1);
  if (light > 1) add(light);
  if (heavy >= 1 && light + heavy > 1) add(light + heavy);
}

std::vector<ShapeBound::Place> ShapeBound::places_of(const Form& form, double most_s) const {
  std::vector<Place> places;
  for (std::size_t behind = 0; behind < std::min(fits_.size(), at(form.most)); ++behind) {
    Place& place = places.emplace_back();
    const Fits& fits = fits_[behind];
    for (std::size_t i = 0; i < fits.inner.size(); ++i) {
      const StageOption& option = shape_.options[i];
      const double once_s = option.pass_s + (behind == 0 ? option.head_s : 0);
      add_choices(place.inner, form, i, fits.inner[i], once_s, most_s);
      add_choices(place.first, form, i, fits.first[i], once_s + option.embedding_s, most_s);
    }
    if (!fits.inner.empty() && place.inner.empty() && place.first.empty()) {
      places.pop_back();
      break;
    }
  }
  return places;
}

ShapeBound::Sum ShapeBound::sum_of(const Form& form, const std::vector<Place>& places,
                                   const Prices& prices) const {
  const auto cheapest = [&](const std::vector<Choice>& list) {
    std::pair<double, const Choice*> best{kInfinite, nullptr};
    for (const Choice& choice : list) {
      const StageOption& option = shape_.options[choice.option];
      const double cost =
          choice.cost - prices.layer * choice.layers + prices.chip[option.group] * option.chips;
      if (cost < best.first) best = {cost, &choice};
    }
    return best;
  };
  std::vector<const Choice*> inner;
  const Choice* first = nullptr;
  double before = 0, least = kInfinite;
  std::size_t stages = 0;
  std::pair<double, const Choice*> last_first, last_inner;
  for (std::size_t behind = 0; behind < places.size(); ++behind) {
    const bool is_alike = behind > 0 && places[behind].inner.empty() && places[behind].first.empty();
    if (!is_alike) last_first = cheapest(places[behind].first);
    if (static_cast<std::int64_t>(behind) + 1 >= form.fewest && before + last_first.first < least) {
      least = before + last_first.first;
      first = last_first.second;
      stages = behind;
    }
    if (!is_alike) last_inner = cheapest(places[behind].inner);
    if (last_inner.second == nullptr) break;
    before += last_inner.first;
    inner.push_back(last_inner.second);
  }
  Sum sum{kInfinite, 0, 0, std::vector<double>(shape_.chips.size(), 0), {}};
  if (first == nullptr) return sum;
  sum.bound = least + prices.layer * shape_.layers;
  for (std::size_t group = 0; group < shape_.chips.size(); ++group)
    sum.bound -= prices.chip[group] * shape_.chips[group];
  const auto count = [&](const Choice& choice) {
    sum.options.insert(choice.option);
    sum.cost += choice.cost;
    sum.layers += choice.layers;
    sum.chips[shape_.options[choice.option].group] += shape_.options[choice.option].chips;
  };
  for (std::size_t behind = 0; behind < stages; ++behind) count(*inner[behind]);
  count(*first);
  return sum;
}

// The best prices are those of a linear program: of all mixtures of pipelines that hold the model's layers and take no
// more chips than there are, the one with the least sum. Pipelines enter as the simplex method asks for them.
ShapeBound::Bound ShapeBound::of_form(const Form& form, double least_s, double most_s,
                                      double enough_s) const {
  constexpr int kPivots = 200;
  if (form.most < form.fewest) return {kInfinite, {}};
  const std::vector<Place> places = places_of(form, most_s);
  const double constant_s = form.longest * least_s;
  const std::size_t groups = shape_.chips.size();
  const double nothing_s = kNothing * at_once_s();
  Simplex simplex(2 + groups, kShortfall * at_once_s());
  std::vector<std::set<std::size_t>> options(2 + groups);  // of the pipeline that each row of the basis holds
  double best_s = 0;
  for (int i = 0; i < kPivots && best_s < enough_s; ++i) {
    const std::vector<double> duals = simplex.duals();
    const auto slack = std::max_element(duals.begin() + 2, duals.end());
    if (slack != duals.end() && *slack > nothing_s) {
      std::vector<double> column(2 + groups, 0);
      column[static_cast<std::size_t>(slack - duals.begin())] = 1;
      const std::optional<std::size_t> row = simplex.enter(column, 0, nothing_s);
      if (!row) break;
      options[*row].clear();
      continue;
    }
    Prices prices{duals[1] / shape_.layers, {}};
    for (std::size_t group = 0; group < groups; ++group)
      prices.chip.push_back(std::max(0.0, -duals[2 + group] / std::max(shape_.chips[group], 1.0)));
    Sum sum = sum_of(form, places, prices);
    best_s = std::max(best_s, constant_s + sum.bound);
    if (sum.options.empty()) break;
    std::vector<double> column = {1, sum.layers / shape_.layers};
    for (std::size_t group = 0; group < groups; ++group)
      column.push_back(sum.chips[group] / std::max(shape_.chips[group], 1.0));
    const std::optional<std::size_t> row = simplex.enter(column, sum.cost, nothing_s);
    if (!row) break;
    options[*row] = std::move(sum.options);
  }
  Bound bound{best_s, {}};
  for (std::size_t row = 0; row < options.size(); ++row)
    if (simplex.value(row) > kNothing) bound.used.insert(options[row].begin(), options[row].end());
  return bound;
}

}  // namespace motley
