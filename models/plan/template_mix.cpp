#include "models/plan/template_mix.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "models/base/index.hpp"
#include "models/plan/simplex.hpp"

namespace motley {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr double kRoundingUp = 1 + 1e-9;
constexpr double kClose = 1e-4;  // of a step, that bisection ends at

// How many replicas fit into those chips.
double replicas_in(const TemplateKind& kind, const std::vector<double>& chips) {
  double most = kUnbounded;
  for (std::size_t group = 0; group < chips.size(); ++group)
    if (kind.chips[group] > 0)
      most = std::min(most, std::floor(chips[group] / kind.chips[group] * kRoundingUp));
  return most;
}

std::vector<double> left_by(const std::vector<std::int64_t>& replicas, const std::vector<TemplateKind>& kinds,
                            std::vector<double> chips) {
  for (std::size_t kind = 0; kind < kinds.size(); ++kind)
    for (std::size_t group = 0; group < chips.size(); ++group)
      chips[group] -= static_cast<double>(replicas[kind]) * kinds[kind].chips[group];
  return chips;
}

}  // namespace

std::int64_t TemplateKind::most_micro_batches(double step_s) const {
  return std::max<std::int64_t>(
      0, static_cast<std::int64_t>(std::floor((step_s - once_s) / each_s * kRoundingUp)));
}

TemplateMixer::TemplateMixer(std::vector<TemplateKind> kinds, std::vector<double> chips, std::int64_t batch)
    : kinds_(std::move(kinds)), chips_(std::move(chips)), batch_(batch) {
  for (TemplateKind& kind : kinds_)
    if (replicas_in(kind, chips_) < 1) kind.each_s = kUnbounded;
  least_step_s_ = find_least_step_s();
}

// Of all mixtures of kinds, as parts of replicas, the one that finishes most sequences in that time.
TemplateMixer::Mixture TemplateMixer::best_mixture(double step_s) const {
  constexpr int kPivots = 200;
  const double nothing = 1e-9 * static_cast<double>(batch_);
  Simplex simplex(chips_.size(), 0, 0);
  std::vector<std::optional<std::size_t>> basis(
      chips_.size());  // the kind of that row; nothing: chips that are left
  for (int i = 0; i < kPivots; ++i) {
    const std::vector<double> duals = simplex.duals();
    std::vector<double> column(chips_.size(), 0), best(chips_.size(), 0);
    std::optional<std::size_t> entering;
    double gain = nothing, rate = 0;
    for (std::size_t group = 0; group < chips_.size(); ++group)
      if (duals[group] > gain) {
        gain = duals[group];
        std::fill(best.begin(), best.end(), 0);
        best[group] = 1;
      }
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      const double sequences =
          static_cast<double>(kinds_[kind].most_micro_batches(step_s) * kinds_[kind].sequences);
      double more = sequences;
      for (std::size_t group = 0; group < chips_.size(); ++group) {
        column[group] = chips_[group] > 0 ? kinds_[kind].chips[group] / chips_[group] : 0;
        more += duals[group] * column[group];
      }
      if (more <= gain) continue;
      gain = more;
      rate = sequences;
      best = column;
      entering = kind;
    }
    const auto row = gain > nothing ? simplex.enter(best, -rate, nothing) : std::nullopt;
    if (!row) break;
    basis[*row] = entering;
  }
  Mixture mixture{0, std::vector<double>(kinds_.size(), 0)};
  for (std::size_t row = 0; row < basis.size(); ++row) {
    if (!basis[row]) continue;
    const TemplateKind& kind = kinds_[*basis[row]];
    mixture.replicas[*basis[row]] += simplex.value(row);
    mixture.sequences +=
        simplex.value(row) * static_cast<double>(kind.most_micro_batches(step_s) * kind.sequences);
  }
  return mixture;
}

double TemplateMixer::find_least_step_s() const {
  double most_s = kUnbounded, least_s = 0;
  for (const TemplateKind& kind : kinds_)
    most_s = std::min(most_s, kind.once_s + kind.each_s * std::ceil(static_cast<double>(batch_) /
                                                                    static_cast<double>(kind.sequences)));
  if (!std::isfinite(most_s)) return most_s;
  while (most_s - least_s > kClose * most_s) {
    const double middle_s = (least_s + most_s) / 2;
    (best_mixture(middle_s).sequences * kRoundingUp >= static_cast<double>(batch_) ? most_s : least_s) =
        middle_s;
  }
  return least_s;
}

std::vector<std::int64_t> TemplateMixer::whole_replicas(const Mixture& mixture, double step_s) const {
  std::vector<std::int64_t> replicas;
  for (const double each : mixture.replicas)
    replicas.push_back(static_cast<std::int64_t>(std::floor(each * kRoundingUp)));
  while (true) {
    const std::vector<double> left = left_by(replicas, kinds_, chips_);
    std::size_t best = kinds_.size();
    std::int64_t most = 0;
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      const std::int64_t sequences = kinds_[kind].most_micro_batches(step_s) * kinds_[kind].sequences;
      if (sequences <= most || replicas_in(kinds_[kind], left) < 1) continue;
      best = kind;
      most = sequences;
    }
    if (best == kinds_.size()) return replicas;
    replicas[best] += static_cast<std::int64_t>(replicas_in(kinds_[best], left));
  }
}

// The least time in which these replicas finish the batch. Where they finish more, those that end last leave out
// micro-batches. Nothing: no numbers of micro-batches make up the batch.
std::optional<TemplateMix> TemplateMixer::mix_of(const std::vector<std::int64_t>& replicas) const {
  const auto finished = [&](double step_s) {
    std::int64_t sequences = 0;
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind)
      sequences += replicas[kind] * kinds_[kind].sequences * kinds_[kind].most_micro_batches(step_s);
    return sequences;
  };
  double least_s = 0, most_s = 1e-9;
  while (finished(most_s) < batch_ && std::isfinite(most_s)) most_s *= 2;
  if (!std::isfinite(most_s)) return std::nullopt;
  while (most_s - least_s > kClose * kClose * most_s) {
    const double middle_s = (least_s + most_s) / 2;
    (finished(middle_s) >= batch_ ? most_s : least_s) = middle_s;
  }
  TemplateMix mix;
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind)
    if (replicas[kind] > 0 && kinds_[kind].most_micro_batches(most_s) > 0)
      mix.parts.push_back({kind, replicas[kind], kinds_[kind].most_micro_batches(most_s)});
  const auto ends_s = [&](const MixPart& part) {
    return kinds_[part.kind].once_s + static_cast<double>(part.micro_batches) * kinds_[part.kind].each_s;
  };
  for (std::int64_t surplus = finished(most_s) - batch_; surplus > 0;) {
    MixPart* last = nullptr;
    for (MixPart& part : mix.parts)
      if (part.micro_batches > 0 && kinds_[part.kind].sequences <= surplus &&
          (last == nullptr || ends_s(part) > ends_s(*last)))
        last = &part;
    if (last == nullptr) return std::nullopt;
    const std::int64_t sequences = kinds_[last->kind].sequences;
    const std::int64_t fewer = std::min(last->replicas, surplus / sequences);
    surplus -= fewer * sequences;
    MixPart rest = *last;
    rest.replicas -= fewer;
    last->replicas = fewer;
    --last->micro_batches;
    if (rest.replicas > 0) mix.parts.push_back(rest);
  }
  std::erase_if(mix.parts, [](const MixPart& part) { return part.micro_batches == 0; });
  for (const MixPart& part : mix.parts) mix.step_s = std::max(mix.step_s, ends_s(part));
  return mix;
}

std::vector<TemplateMix> TemplateMixer::mixes() const {
  // Longer times are for fewer replicas with more micro-batches, which may be whole with less left over.
  constexpr std::array kTimes = {1.0, 1.02, 1.05, 1.1, 1.2, 1.4};
  std::vector<TemplateMix> list;
  if (!std::isfinite(least_step_s_)) return list;
  for (const double times : kTimes) {
    const double step_s = least_step_s_ * (1 + 2 * kClose) * times;
    std::optional<TemplateMix> mix = mix_of(whole_replicas(best_mixture(step_s), step_s));
    if (mix && std::none_of(list.begin(), list.end(),
                            [&](const TemplateMix& other) { return other.parts == mix->parts; }))
      list.push_back(std::move(*mix));
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const TemplateMix& a, const TemplateMix& b) { return a.step_s < b.step_s; });
  return list;
}

}  // namespace motley
