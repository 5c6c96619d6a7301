// What a step takes besides time (rent, energy, electricity, carbon), and what a run of so many tokens takes.
// Arithmetic on figures that chips and sites name; what one of them leaves out is unknown, never guessed. It knows
// nothing of discounts, storage, staff, or of what making the chips took. Read next: models/report/report.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/scenario/job.hpp"

namespace motley {

// A chip's power as a share of its design power, by what it does. Assumes: the shares of H100s hold for every chip.
//   computing      of 700 W, 0.85 at the most that was seen (arXiv:2503.05804, 2025-03); 0.89 and 0.93 on average over
//                  all of Olmo 3's 7B and 32B, restarts included (146 MWh in 234,000 hours, 681 MWh in 1,050,000:
//                  muxup.com, Olmo 3 training cost, 2025). Assumes: these MWh are the chips' alone.
//   waiting        0.49 of what else it draws: of jobs' time 19.7 % went to waiting, of their energy 10.7 %
//                  (arXiv:2604.04745, 2026-04), which is 0.107 / 0.197 over 0.893 / 0.803.
//   communicating  assumed: half-way between them.
inline constexpr double kComputingPower = 0.9;
inline constexpr double kWaitingPower = 0.49 * kComputingPower;
inline constexpr double kCommunicatingPower = (kComputingPower + kWaitingPower) / 2;

// Where a rank's step went, as far as its chip's power is concerned. Sums to the iteration.
struct ChipTime {
  double computing_s = 0;      // kernels, whatever is on the wire meanwhile
  double communicating_s = 0;  // exposed: nothing computed
  double waiting_s = 0;        // for peers, for the host
};

// Of a step, or of many. Nothing: some chip's price or power, or some site's figure, is not known.
struct Bill {
  std::optional<double> usd;  // rent: the chips' list prices
  std::optional<double> kwh;  // estimated; chips, what else the site says of its nodes, all times its PUE
  std::optional<double> kwh_at_most;  // the same with all chips at their design power all the time
  std::optional<double> electricity_usd;
  std::optional<double> kg_co2e;
};
Bill operator*(const Bill& bill, double times);

// Assumes: no evaluation, no checkpoints, and no failures beyond what `goodput` allows for; what is lost takes power
// and rent as what counts does.
struct TrainingRun {
  double tokens = 0, goodput = 1;
  std::int64_t steps = 0;  // the last one whole
  double seconds = 0;
  Bill bill;
};

struct Spending {
  Bill step, billion_tokens;
  std::optional<TrainingRun> run;                      // where `train: {tokens: ...}` says how many
  std::vector<std::string> unpriced, unpowered;        // chips in use without price, without power
  std::vector<std::string> no_electricity, no_carbon;  // groups in use whose site does not say
  std::size_t groups = 0;                              // in use
  bool beyond_chips =
      false;  // the energy counts a PUE of other than 1, or what nodes draw besides their chips
};

// `times`: of each rank.
Spending find_spending(const Job& job, const Program& program, const std::vector<ChipTime>& times,
                       double iteration_s);

}  // namespace motley
