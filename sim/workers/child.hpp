// Simulations in processes of their own, as often as wanted: a process simulates once. Read next: sim/simulate.hpp,
// sim/workers/pool.hpp.
#pragma once

#include <tuple>

#include "sim/simulate.hpp"
#include "sim/workers/pool.hpp"

namespace motley {

template <>
inline constexpr bool kSentAsBytes<StandIn> = true;
template <>
inline constexpr bool kSentAsBytes<TraceEvent> = true;

template <class T>
requires std::is_same_v<std::remove_const_t<T>, Trace>
auto fields_of(T& trace) {
  auto& [strategy_hash, program_hash, world, measured_ranks, stand_ins, events] = trace;
  return std::tie(strategy_hash, program_hash, world, measured_ranks, stand_ins, events);
}

// simulate() in a forked child. The caller must be single-threaded. What the child throws as Refusal or RunFailure is
// thrown here; a child that dies otherwise is a RunFailure.
Trace simulate_in_child(const Job& job, const Program& program, const SimOptions& options = {});
// The end of its last event, from 0, for those who want no more of the trace: it stays in the child.
double simulated_step_s(const Job& job, const Program& program, const std::string& name = "a simulation");

// The end of the last event of a simulated step, which begins at 0.
double last_end_s(const Trace& trace);

}  // namespace motley
