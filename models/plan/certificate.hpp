// Why there is no plan: which bound says so, where, and how much is missing; and the smallest change of the cluster or
// of the pins with which there is one. Read next: models/plan/planner.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/plan/planner.hpp"
#include "models/plan/stage_price.hpp"

namespace motley {

// The bound that a certificate rests on.
//   memory     parameters, gradients and optimizer state take more than all chips have: proved for every strategy
//              that offloads nothing
//   links      they take more than any set of groups has that can communicate: proved in the same way
//   stage      of the layouts that save most memory, the nearest has a stage that does not fit: not proved
//   sequences  uniform degrees (policy megatron) do not divide the batch over all chips: proved for that policy
//   pins       nothing that was tried keeps the pins: not proved
enum class CertificateBound : std::uint8_t { memory, links, stage, sequences, pins };
template <>
inline constexpr auto kWords<CertificateBound> = words("memory", "links", "stage", "sequences", "pins");

struct Certificate {
  CertificateBound bound = CertificateBound::pins;
  std::string where;                 // "the 32 chips of `holmes-ib-4`", "stage 3 on `b`"
  double needed = 0, available = 0;  // bytes, or sequences
  std::int64_t layers_short = 0;     // layers for which the chips have no room, by closed forms; 0: not known
  bool is_proved = false;
  std::string text;  // one sentence
  double missing() const { return needed - available; }
};

// Bytes of parameters, gradients and optimizer state, once.
double state_bytes(const Job& job);

// The certificate of a job for which no strategy that was tried stands.
Certificate certify(const Job& job, StagePricer& pricer, const PlanLimits& limits);

// Layouts that save most memory, in which a plan may fit although no pipeline of the closed forms does: full
// recomputation, micro-batches of one sequence, states divided over the replicas (zero 1 to 3), layers in proportion
// to the memory of the chips; and, where all nodes describe their memory, everything offloaded.
std::vector<Job> sparing_jobs(const Job& job, const PlanPins& pins);

// A change with which the job was planned.
struct SmallestChange {
  std::string what;  // "2 more nodes of `b` (16 chips)", "without the pin `dp`"
  Job job;
  PlanPins pins;
  std::int64_t chips = 0;  // that are added
};

// The smallest change that was planned: a pin less, else a link more, else the fewest chips more in one group, else the
// least memory of the chips of one group (to 2 %). Nothing: none of those that were tried has a plan.
std::optional<SmallestChange> find_smallest_change(const Job& job, const Judge& judge,
                                                   const PlanLimits& limits, const Certificate& certificate);

// Throws Refusal("no-plan") with the certificate, and with the smallest change if the limits ask for it. `ended`: the
// plan's counts, and why it ended; where evaluations ended it before something was proved, no change is looked for.
[[noreturn]] void refuse_no_plan(const Job& job, StagePricer& pricer, const Judge& judge,
                                 const PlanLimits& limits, const Plan& ended,
                                 const std::string& last_refusal);

}  // namespace motley
