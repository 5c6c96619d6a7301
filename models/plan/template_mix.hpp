// Shares a batch out among pipelines of unlike kinds, so that all end together: how many replicas of each, and how many
// micro-batches each of them has. Read next: models/plan/template_search.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace motley {

// A pipeline of which any number of replicas may run.
struct TemplateKind {
  std::vector<double> chips;                             // of each group, of one replica
  std::int64_t sequences = 1;                            // of a micro-batch
  double once_s = 0, each_s = 0;                         // m micro-batches take once_s + m each_s
  std::int64_t most_micro_batches(double step_s) const;  // in that time
};

struct MixPart {
  std::size_t kind = 0;
  std::int64_t replicas = 0, micro_batches = 0;
  bool operator==(const MixPart&) const = default;
};
struct TemplateMix {
  std::vector<MixPart> parts;  // of one kind, several may differ by a micro-batch
  double step_s = 0;           // the longest of them
};

class TemplateMixer {
 public:
  // `chips`: of each group. `batch`: sequences of a step.
  TemplateMixer(std::vector<TemplateKind> kinds, std::vector<double> chips, std::int64_t batch);

  // No mix takes less, even one of parts of replicas: linear programming at a fixed time, and the least time by
  // bisection, to 1e-4 of it. Infinite: no kind fits.
  double least_step_s() const { return least_step_s_; }

  // The mixes that were found, the fastest first: whole replicas of the linear program's mixture at several times,
  // with further ones on the chips that are left.
  std::vector<TemplateMix> mixes() const;

 private:
  struct Mixture {
    double sequences = 0;          // in the time that it is for
    std::vector<double> replicas;  // of each kind
  };
  Mixture best_mixture(double step_s) const;
  double find_least_step_s() const;
  std::vector<std::int64_t> whole_replicas(const Mixture& mixture, double step_s) const;
  std::optional<TemplateMix> mix_of(const std::vector<std::int64_t>& replicas) const;

  std::vector<TemplateKind> kinds_;
  std::vector<double> chips_;
  std::int64_t batch_ = 0;
  double least_step_s_ = 0;
};

}  // namespace motley
