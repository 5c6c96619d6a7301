// A random job, compiled and simulated once for all tests of a program that ask for its seed.
#pragma once

#include <map>
#include <utility>

#include "models/compile/compile.hpp"
#include "sim/workers/child.hpp"
#include "tests/support/random_jobs.hpp"

namespace motley::tests {

struct SimulatedDraw {
  Job job;
  Program program;
  Trace trace;
};

inline const SimulatedDraw& simulated_draw(unsigned seed) {
  static std::map<unsigned, SimulatedDraw> draws;
  const auto kept = draws.find(seed);
  if (kept != draws.end()) return kept->second;
  SimulatedDraw draw;
  draw.job = any_job(seed);
  draw.program = compile(draw.job);
  draw.trace = simulate_in_child(draw.job, draw.program);
  return draws[seed] = std::move(draw);
}

}  // namespace motley::tests
