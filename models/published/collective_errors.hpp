// Predicted collectives beside measured ones. Errors are listed by source and size; those of the largest messages,
// where only bandwidth counts, also by the model's form. Each error stands beside the error that was stated for it.
// Read next: models/published/measured_collective.hpp, tools/commands/validate_collectives.cpp.
#pragma once

#include <string>
#include <vector>

#include "models/published/measured_collective.hpp"
#include "models/published/prediction_errors.hpp"

namespace motley {

struct CollectiveOutcome {
  MeasuredCollective row;
  double predicted_s = 0;
  std::string algorithm;  // the algorithm that the prediction used
};

// The mean error that was stated for messages of some sizes before any prediction was made.
struct SizeClass {
  std::string name;
  std::int64_t most = 0;  // bytes of the largest message
  double stated_pct = 0;
};
const std::vector<SizeClass>& size_classes();

struct CollectiveErrors {
  std::string source, what;  // `what` is the name of the size class or of the form
  double stated_pct = 0;
  Errors errors;
  double measured = 0, predicted = 0;  // bus rates of a form's first message, GB/s; 0 in a size class
  bool within() const { return errors.mean() <= stated_pct; }
};
// Errors by source, then by size. The last entries are over all sources, which count equally.
std::vector<CollectiveErrors> errors_by_size(const std::vector<CollectiveOutcome>& outcomes);
// Errors of the rows that name a form, by form and source. Refuses ("bad-csv") an unknown form.
std::vector<CollectiveErrors> errors_by_form(const std::vector<CollectiveOutcome>& outcomes);

std::string to_json(
    const std::vector<CollectiveOutcome>& outcomes);  // schema "motley.validate-collectives/1"
std::string to_text(const std::vector<CollectiveOutcome>& outcomes, bool rows);

}  // namespace motley
