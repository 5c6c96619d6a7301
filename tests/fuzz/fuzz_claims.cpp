// Fuzz target: a list of claims is read and predicted. No run is simulated: its step is as long as its chips' work.
#include "models/published/published_claim.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {
namespace {

double step_s_of_work(const Job& job) {
  double flops_a_second = 0;
  for (const NodeGroup& group : job.cluster.groups)
    flops_a_second += group.nodes * group.chips_per_node * group.chip.software.gemm_efficiency.value *
                      group.chip.peak_flops.at(job.train.precision).value;
  double step_s = static_cast<double>(job.train.global_batch) *
                  model_flops_per_sequence(job.transformer, job.train.sequence) / flops_a_second;
  for (const NodeGroup& group : job.cluster.groups)
    for (const Nic& nic : group.nics) step_s += 1e9 / (nic.bandwidth * (nic.reaches > 0 ? nic.reaches : 1));
  return step_s;
}

}  // namespace

void take(const std::string& input) {
  const std::vector<Claim> claims = read_claims(file_with(input));
  std::vector<ClaimOutcomes> outcomes;
  outcomes.reserve(claims.size());
  for (const Claim& claim : claims)
    outcomes.push_back(predict(claim, MOTLEY_SOURCE_DIR "/tests/validation", step_s_of_work));
  static_cast<void>(to_text(outcomes));
  static_cast<void>(to_json(outcomes));
}

}  // namespace motley::tests
