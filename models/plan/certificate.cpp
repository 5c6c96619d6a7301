#include "models/plan/certificate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "models/base/format.hpp"
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/base/units.hpp"
#include "models/check/memory.hpp"
#include "models/check/memory_extra.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/pins.hpp"

namespace motley {
namespace {

bool is_allowed(const PlanPins& pins, const std::string& group) {
  return pins.groups.empty() || std::find(pins.groups.begin(), pins.groups.end(), group) != pins.groups.end();
}

bool may_talk(const PlanPins& pins, const Cluster& cluster, int a, int b) {
  const std::string &one = cluster.groups[at(a)].name, &other = cluster.groups[at(b)].name;
  for (const std::vector<std::string>& pair : pins.forbidden_links)
    if ((pair[0] == one && pair[1] == other) || (pair[0] == other && pair[1] == one)) return false;
  return joining_kind(cluster, a, b).has_value();
}

// The sets of groups that can communicate with each other, directly or over others of the set.
std::vector<std::vector<int>> islands(const PlanPins& pins, const Cluster& cluster) {
  std::vector<std::vector<int>> sets;
  std::vector<bool> seen(cluster.groups.size());
  for (std::size_t first = 0; first < cluster.groups.size(); ++first) {
    if (seen[first] || !is_allowed(pins, cluster.groups[first].name)) continue;
    seen[first] = true;
    std::vector<int>& set = sets.emplace_back(1, static_cast<int>(first));
    for (std::size_t i = 0; i < set.size(); ++i)
      for (std::size_t other = 0; other < cluster.groups.size(); ++other)
        if (!seen[other] && is_allowed(pins, cluster.groups[other].name) &&
            may_talk(pins, cluster, set[i], static_cast<int>(other))) {
          seen[other] = true;
          set.push_back(static_cast<int>(other));
        }
  }
  return sets;
}

std::int64_t chips_of(const NodeGroup& group) { return std::int64_t{group.nodes} * group.chips_per_node; }

// Bytes of the group's chips, without those that their runtime takes.
double memory_of(const NodeGroup& group) {
  const double each = group.chip.memory_bytes.value - static_cast<double>(reserved_by_runtime(group.chip));
  return std::max(each, 0.0) * static_cast<double>(chips_of(group));
}

double memory_of(const Cluster& cluster, const std::vector<int>& set) {
  double bytes = 0;
  for (const int group : set) bytes += memory_of(cluster.groups[at(group)]);
  return bytes;
}

std::string names_of(const Cluster& cluster, const std::vector<int>& set) {
  std::vector<std::string> names;
  for (const int group : set) names.push_back(cluster.groups[at(group)].name);
  return fmt::format("`{}`", fmt::join(names, "`, `"));
}

std::optional<Certificate> certify_state(const Job& job, const PlanPins& pins) {
  const Cluster& cluster = job.cluster;
  const std::vector<std::vector<int>> sets = islands(pins, cluster);
  Certificate certificate;
  certificate.needed = state_bytes(job);
  certificate.is_proved = true;
  double all = 0;
  const std::vector<int>* largest = nullptr;
  std::int64_t chips = 0;
  for (const std::vector<int>& set : sets) {
    const double bytes = memory_of(cluster, set);
    all += bytes;
    if (largest == nullptr || bytes > certificate.available) {
      largest = &set;
      certificate.available = bytes;
    }
  }
  if (certificate.missing() <= 0) return std::nullopt;
  const bool has_islands = sets.size() > 1;
  certificate.bound =
      has_islands && all >= certificate.needed ? CertificateBound::links : CertificateBound::memory;
  for (const int group : *largest) chips += chips_of(cluster.groups[at(group)]);
  certificate.where = fmt::format(
      "the {} chip{} of {}{}", chips, chips == 1 ? "" : "s",
      has_islands || !pins.groups.empty() ? names_of(cluster, *largest) : fmt::format("`{}`", cluster.name),
      has_islands ? " (no larger set of groups can communicate)" : "");
  certificate.text = fmt::format(
      "parameters, gradients and optimizer state of `{}` take {}, {} have {} for them: {} too little",
      job.transformer.name, format_bytes(certificate.needed), certificate.where,
      format_bytes(certificate.available), format_bytes(certificate.missing()));
  return certificate;
}

// Layers for which the groups that can communicate have no room, if each stage has one micro-batch in flight and
// neither embedding nor head; by closed forms.
std::int64_t layers_without_room(const Job& job, StagePricer& pricer, const PlanPins& pins) {
  const std::int64_t batch = job.train.global_batch;
  std::int64_t most = 0;
  for (const std::vector<int>& set : islands(pins, job.cluster))
    for (std::int64_t replicas = 1; replicas <= std::min<std::int64_t>(batch, job.cluster.chip_count());
         ++replicas) {
      if (batch % replicas != 0) continue;
      std::int64_t layers = 0;
      for (const int group : set) {
        std::int64_t here = 0;
        for (std::int64_t cut = 1; cut <= job.cluster.groups[at(group)].chips_per_node; cut *= 2)
          for (const Recompute& recompute : kPlannedRecomputes)
            if (const StagePrice* price = pricer.price({group, cut, recompute}, 1, replicas))
              here = std::max(
                  here, chips_of(job.cluster.groups[at(group)]) / (cut * replicas) *
                            std::min(price->bytes.most_layers(1, false, false), job.transformer.layers));
        layers += here;
      }
      most = std::max(most, layers);
    }
  return std::max<std::int64_t>(job.transformer.layers - most, 0);
}

// Of the layouts, the fullest stage of the one that is nearest to fit.
std::optional<Certificate> certify_stage(const Job& job, StagePricer& pricer, const PlanLimits& limits) {
  constexpr std::size_t kMostLayouts = 128;
  std::optional<Certificate> nearest;
  std::size_t layouts = 0;
  for (const Job& sparing : sparing_jobs(job, limits.pins)) {
    if (layouts == kMostLayouts || !limits.has_time()) break;
    try {
      validate(sparing.transformer, sparing.train, sparing.strategy);
      const Program program = compile(sparing);
      if (find_broken_pin(limits.pins, sparing, program)) continue;
      ++layouts;
      Certificate fullest;
      for (const StageMemory& stage :
           memory_by_stage(program, sparing.cluster, sparing.train.fragmentation)) {
        const auto peak = static_cast<double>(stage.peak), capacity = static_cast<double>(stage.capacity);
        if (fullest.needed > 0 && peak - capacity <= fullest.missing()) continue;
        fullest.needed = peak;
        fullest.available = capacity;
        fullest.where =
            fmt::format("stage {} on `{}`", stage.stage,
                        fmt::join(sparing.strategy.templates[0].stages[at(stage.stage)].on, "`, `"));
      }
      if (fullest.missing() > 0 && (!nearest || fullest.missing() < nearest->missing())) nearest = fullest;
    } catch (const Refusal&) {
      continue;
    }
  }
  if (!nearest) return nearest;
  nearest->bound = CertificateBound::stage;
  nearest->layers_short = layers_without_room(job, pricer, limits.pins);
  nearest->text = fmt::format(
      "of {} layouts that save most memory the nearest is one whose {} needs {}, and its chip has {}: {} too "
      "little{}",
      layouts, nearest->where, format_bytes(nearest->needed), format_bytes(nearest->available),
      format_bytes(nearest->missing()),
      nearest->layers_short > 0 ? fmt::format("; by closed forms the chips have no room for {} of {} layers",
                                              nearest->layers_short, job.transformer.layers)
                                : "");
  return nearest;
}

// Uniform degrees take all chips: their replicas must divide the batch.
std::optional<Certificate> certify_sequences(const Job& job) {
  const std::int64_t chips = job.cluster.chip_count(), batch = job.train.global_batch;
  std::int64_t least = 0;
  for (std::int64_t tensor = 1; tensor <= chips; tensor *= 2)
    for (std::int64_t pipeline = 1; pipeline <= std::min(job.transformer.layers, chips / tensor);
         ++pipeline) {
      const std::int64_t replicas = chips / tensor / pipeline;
      if (replicas * tensor * pipeline != chips) continue;
      if (batch % replicas == 0) return std::nullopt;
      if (least == 0 || replicas < least) least = replicas;
    }
  Certificate certificate;
  certificate.bound = CertificateBound::sequences;
  certificate.is_proved = true;
  certificate.where = fmt::format("{} replicas on all {} chips", least, chips);
  certificate.needed = static_cast<double>((batch / least + 1) * least);
  certificate.available = static_cast<double>(batch);
  certificate.text = fmt::format(
      "no uniform degrees on {} chips divide a batch of {} sequences: {} replicas, the fewest, need {}, {} "
      "more",
      chips, batch, least, certificate.needed, certificate.missing());
  return certificate;
}

}  // namespace

double state_bytes(const Job& job) {
  const Train& train = job.train;
  double bytes = 0;
  for (const Parameter& parameter : parameters(job.transformer)) {
    if (parameter.layer > job.transformer.layers && !parameter.trained) continue;
    const auto count = static_cast<double>(parameter.count());
    const bool is_quantized = train.frozen_weights == FrozenWeights::nf4 && may_be_quantized(parameter);
    bytes += is_quantized ? static_cast<double>(nf4_bytes(parameter.count()))
                          : count * static_cast<double>(bytes_of(train.precision));
    if (parameter.trained)
      bytes += count * static_cast<double>(bytes_of(train.gradients)) +
               static_cast<double>(optimizer_bytes(train.optimizer_rule(), parameter, parameter.shape));
  }
  return bytes;
}

Certificate certify(const Job& job, StagePricer& pricer, const PlanLimits& limits) {
  if (auto certificate = certify_state(job, limits.pins)) return *certificate;
  if (limits.policy == PlanPolicy::megatron)
    if (auto certificate = certify_sequences(job)) return *certificate;
  if (auto certificate = certify_stage(job, pricer, limits)) return *certificate;
  return {};
}

void refuse_no_plan(const Job& job, StagePricer& pricer, const Judge& judge, const PlanLimits& limits,
                    const Plan& ended, const std::string& last_refusal) {
  const bool is_cut_off = ended.end == PlanEnd::evaluations;
  Certificate certificate;
  if (limits.certifies)
    certificate =
        is_cut_off ? certify_state(job, limits.pins).value_or(Certificate{}) : certify(job, pricer, limits);
  std::string text = certificate.text;
  if (text.empty())
    text = ended.judged == 0 ? fmt::format("no strategy that was laid out {}{}",
                                           is_pinned(limits.pins) ? "keeps the pins" : "fits these chips",
                                           last_refusal.empty() ? "" : ": " + last_refusal)
                             : fmt::format("of {} strategies that were simulated none stands: {}",
                                           ended.judged, last_refusal);
  std::string hint = certificate.is_proved && certificate.bound != CertificateBound::sequences
                         ? "no strategy fits without `offload`"
                         : "";
  if (is_cut_off && !certificate.is_proved) {
    hint = "not all were tried: allow more `evaluations`";
  } else if (limits.suggests) {
    const auto change = find_smallest_change(job, judge, limits, certificate);
    hint +=
        fmt::format("{}{}", hint.empty() ? "" : "; ",
                    change ? fmt::format("the smallest change that was planned and fits: {}", change->what)
                           : "no change of pins, links, nodes or memory that was tried has a plan");
  } else if (hint.empty()) {
    hint = "use chips with more memory, or more chips";
  }
  throw Refusal(Exit::infeasible, "no-plan", {}, text, hint);
}

}  // namespace motley
