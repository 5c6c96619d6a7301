// motley validate --claims: the runs behind what papers claim, simulated. Read next: models/published_claim.hpp.
#include "tools/validate_claims.hpp"

#include "models/published_claim.hpp"
#include "models/scenario.hpp"
#include "sim/world.hpp"

namespace motley {

std::string validate_claims(bool json) {
  const std::string folder = data_folder() + "/tests/validation";
  const std::vector<Claim> claims = read_claims(folder + "/claims.yaml");
  const StepSeconds step_s = [](const Job& job) {
    double end_s = 0;
    for (const TraceEvent& event : simulate_in_child(job, compile(job)).events)
      end_s = std::max(end_s, event.end_s);
    return end_s;
  };
  std::vector<ClaimOutcomes> outcomes;
  for (const Claim& claim : claims) outcomes.push_back(predict(claim, folder, step_s));
  return json ? to_json(outcomes) : to_text(outcomes);
}

}  // namespace motley
