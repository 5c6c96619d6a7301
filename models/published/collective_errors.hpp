// Predicted collectives beside measured ones: errors by source and size, and of the largest messages, where bandwidth
// alone counts, by the form that the model takes for it; each beside the error that is stated of it. Read next:
// models/measured_collective.hpp, tools/validate_collectives.cpp.
#pragma once

#include <string>
#include <vector>

#include "models/errors.hpp"
#include "models/measured_collective.hpp"

namespace motley {

struct CollectiveOutcome {
  MeasuredCollective of;
  double predicted_s = 0;
  std::string algorithm;  // that was taken
};

// What a model of latency, bandwidth and what lies between was said to reach, before any of these were predicted.
struct SizeClass {
  std::string name;
  std::int64_t most = 0;  // bytes of its largest message
  double stated_pct = 0;
};
const std::vector<SizeClass>& size_classes();

struct CollectiveErrors {
  std::string source, what;  // `what`: the size class, or the form
  double stated_pct = 0;
  Errors errors;
  double measured = 0, predicted = 0;  // of a form: bus rate of its first message, GB/s
  bool within() const { return errors.mean() <= stated_pct; }
};
// By source, then by size; at last all sources, each counting as one.
std::vector<CollectiveErrors> errors_by_size(const std::vector<CollectiveOutcome>& outcomes);
// Of the rows that name a form: by form and source.
std::vector<CollectiveErrors> errors_by_form(const std::vector<CollectiveOutcome>& outcomes);

std::string to_json(
    const std::vector<CollectiveOutcome>& outcomes);  // schema "motley.validate-collectives/1"
std::string to_text(const std::vector<CollectiveOutcome>& outcomes, bool rows);

}  // namespace motley
