// Bounds the steps of all pipelines of one shape (micro-batch, replicas) from below, whatever their stages: which
// chips, in which order, with how many layers each. Read next: models/plan/pipeline_search.hpp.
//
// With m micro-batches, a stage of tau = f + b seconds that has R seconds of stages behind it, q in number, and B
// before it, takes under 1F1B at least
//   m tau + B + max(0, R - (w-1) f) + max(0, R - (w-1) b),   w = min(m, q+1);
// if m <= w, only the larger of the last two counts. For the longest stage, of T seconds, that is at least
//   (m-1) T + 2 S - p T                   for p stages of S seconds together, p < m, and
//   (m-1) T + S - (min(p, m) - 1) c T     for any p, if the shorter pass of no stage is more than c of both.
// Interleaved in v chunks, a pipeline is estimated to take m T + (S - T) / v; under zb_h1, m T at least. All are sums
// over stages, so that prices for layers and for chips (Lagrange's multipliers) let each stage be chosen by itself.
// Every choice of prices gives a bound; a linear program finds the best ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "models/plan/stage_price.hpp"
#include "models/schedule/schedule.hpp"

namespace motley {

// A way to run a stage, with the least that its layers take.
struct StageOption {
  std::size_t group = 0;
  double chips = 0;            // of all replicas of such a stage
  double pass_s = 0;           // of a micro-batch, whatever the stage holds
  double layer_s = 0;          // of a layer that recomputes nothing
  double heavier_layer_s = 0;  // of a layer beyond those that fit without recompute; at least layer_s
  double embedding_s = 0, head_s = 0;
  // What a first stage does after its last backward, which is the last of all: once, and for each layer.
  double end_s = 0, layer_end_s = 0;
  // Bytes of a stage that recomputes nothing, and of those that recompute. Empty: memory is not counted.
  std::vector<StageBytes> bytes;
};

struct BoundedShape {
  double micro_batches = 1, layers = 1;
  double shorter_share = 0.5;                 // c
  Schedule schedule = Schedule::one_f_one_b;  // or interleaved, or zb_h1
  int chunks = 1;                             // v
  std::int64_t most_stages = 0;               // 0: as many as chips allow
  // How many times as long all passes take, at least, of a pipeline on so many chips. Empty: no longer.
  std::function<double(double chips)> slower;
  std::vector<StageOption> options;
  std::vector<double> chips;  // of each group
};

class ShapeBound {
 public:
  explicit ShapeBound(BoundedShape shape);

  // No pipeline of the shape takes less: what can be said at once.
  double at_once_s() const { return shape_.micro_batches * least_longest_s_; }

  struct Bound {
    double step_s = 0;  // no pipeline of the shape takes less; infinite: there is none
    // Stages of each option in the mixture of pipelines that the bound is made of; options without might have been
    // anything.
    std::vector<double> stages;
  };
  // Longest stages are told apart where they differ by more than `ratio`, and, if it is 1.01 or less, numbers of stages
  // are, too; a bound of `enough_s` or more need not be the best one.
  Bound least_step(double ratio, double enough_s) const;

 private:
  struct Limit {  // at most, or at least, so many stages of an option
    std::size_t option = 0;
    bool is_most = true;
    std::int64_t stages = 0;
  };
  struct Range {
    double least_s = 0, most_s = 0;     // of the longest stage
    std::int64_t fewest = 1, most = 0;  // stages
    std::vector<Limit> limits = {};     // lower ones only where the number of stages is one
  };
  static std::vector<Range> halves_of(const Range& range, const Bound& bound, double ratio);
  Bound of_range(const Range& range, double enough_s) const;
  // What is added up: of all T seconds of the longest stage `longest`, and of each stage `share` of its time less
  // `discount` of T; for pipelines of `fewest` to `most` stages.
  struct Form {
    double longest = 0, share = 0, discount = 0;
    std::int64_t fewest = 1, most = 0;
    double slower = 1;  // all of them, than the options say
  };
  struct Choice {  // a stage with so many layers, and its summand
    double layers = 0, cost = 0;
    std::size_t option = 0;
  };
  // So many stages in a row that have the same choices: as they are, and with the embedding, too.
  struct Places {
    std::vector<Choice> inner, first;
    std::int64_t count = 1;
  };
  struct Fit {  // most layers of a stage by its memory: that recompute nothing, and all
    double light = 0, most = 0;
    bool operator==(const Fit&) const = default;
  };
  // By option, for a stage with so many behind it, and for one that also has the embedding. Empty: as the one before.
  struct Fits {
    std::vector<Fit> inner, first;
    bool operator==(const Fits&) const = default;
  };
  struct Resource {  // of which all stages together take no more than `most`
    double most = 0;
    std::vector<double> taken;  // by a stage of each option
  };
  struct Sum {
    double bound = 0;
    double cost = 0, layers = 0;  // of the chosen stages
    std::vector<double> stages;   // of each option; empty: there is no such pipeline
  };

  std::vector<Form> forms(const Range& range) const;
  Bound of_form(const Form& form, const Range& range, double enough_s) const;
  std::vector<Resource> resources_of(const Range& range) const;
  // From the last stage to the first.
  std::vector<Places> places_of(const Form& form, double most_s) const;
  Fit fit(const StageOption& option, std::int64_t behind, bool is_first) const;
  // Chips without which no pipeline holds all layers in stages of at most `most_s`.
  double least_chips(double most_s) const;
  void add_choices(std::vector<Choice>& list, const Form& form, std::size_t option, const Fit& fit,
                   double once_s, double most_s) const;
  void add_first_choices(std::vector<Choice>& list, const Form& form, std::size_t option, const Fit& fit,
                         double once_s, double most_s) const;
  // The pipeline with the least sum at these prices of a layer, and of a stage of each option.
  Sum sum_of(const Form& form, const std::vector<Places>& places, double layer_price,
             const std::vector<double>& option_prices) const;

  BoundedShape shape_;
  std::int64_t most_stages_ = 0;
  double least_longest_s_ = 0;
  std::vector<Fits> fits_;  // by the number of stages behind
};

}  // namespace motley
