// The cost of a step besides its time (rent, energy, electricity, carbon), and the cost of a run with a given number
// of tokens. It uses only figures that chips and sites give; a missing figure makes a result unknown and is never
// guessed. Discounts, storage, staff, and the making of the chips are not counted. Assumes: a chip on which no rank
// stands is neither rented nor switched on, and is not counted. Read next: models/report/report.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/scenario/job.hpp"

namespace motley {

// Power of a chip as a share of its design power, by activity. Assumes: the shares of H100s hold for every chip.
//   computing      of 700 W, at most 0.85 was seen (arXiv:2503.05804, 2025-03); the means over all of Olmo 3's 7B and
//                  32B are 0.89 and 0.93, restarts included (146 MWh in 234,000 hours, 681 MWh in 1,050,000:
//                  muxup.com, Olmo 3 training cost, 2025). Assumes: these MWh are the chips' alone.
//   waiting        0.49 of the power at other times: jobs spent 19.7 % of their time and 10.7 % of their energy on
//                  waiting (arXiv:2604.04745, 2026-04), which is 0.107 / 0.197 over 0.893 / 0.803.
//   communicating  assumed: half-way between the two.
inline constexpr double kComputingPower = 0.9;
inline constexpr double kWaitingPower = 0.49 * kComputingPower;
inline constexpr double kCommunicatingPower = (kComputingPower + kWaitingPower) / 2;

// How a rank spent its step, by the power of its chip. The times sum to the iteration.
struct ChipTime {
  double computing_s = 0;      // kernels run, with or without communication
  double communicating_s = 0;  // exposed communication: nothing is computed
  double waiting_s = 0;        // waiting for peers or for the host
};

// Cost of one step or of many. Nothing: some chip's price or power, or some site's figure, is unknown.
struct Bill {
  std::optional<double> usd;          // rent at the chips' list prices
  std::optional<double> kwh;          // estimate: chips and other power of the nodes, times the site's PUE
  std::optional<double> kwh_at_most;  // with all chips at their design power all the time
  std::optional<double> electricity_usd;
  std::optional<double> kg_co2e;
};
Bill operator*(const Bill& bill, double times);

// Assumes: no evaluation, no checkpoints, and no failures beyond those in `goodput`; lost steps take power and rent
// as others do.
struct TrainingRun {
  double tokens = 0, goodput = 1;
  std::int64_t steps = 0;  // the last one is a whole step
  double seconds = 0;
  Bill bill;
};

struct Spending {
  Bill step, billion_tokens;
  std::optional<TrainingRun> run;                      // set if `train: {tokens: ...}` is given
  std::vector<std::string> unpriced, unpowered;        // chips in use that lack a price, or a power
  std::vector<std::string> no_electricity, no_carbon;  // groups in use whose site lacks the figure
  bool carbon_given = false;  // the cluster's site, or any group's, in use or not, has the figure
  bool beyond_chips = false;  // the energy counts a PUE other than 1, or power of nodes besides their chips
};

Spending find_spending(const Job& job, const Program& program, const IdTable<Rank, ChipTime>& times,
                       double iteration_s);

}  // namespace motley
