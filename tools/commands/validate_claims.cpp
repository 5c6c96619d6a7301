// motley validate --claims: simulates the runs behind what papers claim. Read next:
// models/published/published_claim.hpp.
#include "tools/commands/validate_claims.hpp"

#include "models/base/data_files.hpp"
#include "models/compile/compile.hpp"
#include "models/published/published_claim.hpp"
#include "models/scenario/scenario.hpp"
#include "sim/workers/child.hpp"

namespace motley {

std::string validate_claims(bool json) {
  const std::string folder = data_folder() + "/tests/validation";
  const std::vector<Claim> claims = read_claims(folder + "/claims.yaml");
  const StepSeconds step_s = [](const Job& job) { return simulated_step_s(job, compile(job)); };
  std::vector<ClaimOutcomes> outcomes;
  for (const Claim& claim : claims) outcomes.push_back(predict(claim, folder, step_s));
  return json ? to_json(outcomes) : to_text(outcomes);
}

}  // namespace motley
