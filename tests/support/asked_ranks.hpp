// What tests of real ranks ask of them, and what they answer where they fail.
#pragma once

#include <catch2/catch.hpp>
#include <string>

#include "models/base/refusal.hpp"
#include "models/world/world.hpp"

namespace motley::tests {

// The first step of a rank with that operation.
inline Step first_step_with(const Program& program, Rank rank, Op op) {
  const auto& streams = program.program_of(rank).streams;
  for (const StreamId stream : streams.ids())
    for (std::size_t i = 0; i < streams[stream].instructions.size(); ++i)
      if (streams[stream].instructions[i].op() == op) return {rank, stream, static_cast<std::int32_t>(i)};
  FAIL("no such step");
  return {};
}

inline const Instruction& instruction_at(const Program& program, const Step& step) {
  return program.at(step.rank, step.stream, step.index);
}

template <class Act>
std::string failure_of(Act act) {
  try {
    act();
  } catch (const RunFailure& failure) {
    return failure.what();
  }
  return "nothing failed";
}

}  // namespace motley::tests
