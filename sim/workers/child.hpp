// Simulations in processes of their own, so that a program can run many: a process simulates only once. Read next:
// sim/simulate.hpp, sim/workers/pool.hpp.
#pragma once

#include <tuple>

#include "sim/simulate.hpp"
#include "sim/workers/pool.hpp"

namespace motley {

template <>
inline constexpr bool kSentAsBytes<StandIn> = true;
template <>
inline constexpr bool kSentAsBytes<TraceEvent> = true;
template <>
inline constexpr bool kSentAsBytes<KernelEvent> = true;

template <class T>
requires std::is_same_v<std::remove_const_t<T>, Trace>
auto fields_of(T& trace) {
  auto& [strategy_hash, program_hash, world, measured_ranks, measured_for_class, measured_transfers,
         stand_ins, period_s, clock_uncertainty_s, events, kernels] = trace;
  return std::tie(strategy_hash, program_hash, world, measured_ranks, measured_for_class, measured_transfers,
                  stand_ins, period_s, clock_uncertainty_s, events, kernels);
}

// Calls simulate() in a forked child. The caller must be single-threaded. A Refusal or RunFailure of the child is
// thrown here; a child that dies without an answer is a RunFailure.
Trace simulate_in_child(const Job& job, const Program& program, const SimOptions& options = {});
// step_s() of a simulation in a forked child, for callers that need nothing else: the trace stays in the child.
double simulated_step_s(const Job& job, const Program& program, const std::string& name = "a simulation");

// The end of the last event of a simulated step, which begins at 0.
double last_end_s(const Trace& trace);

}  // namespace motley
