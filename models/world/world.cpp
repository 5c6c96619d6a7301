#include "models/world/world.hpp"

#include <vector>

namespace motley {

void run_stream(const Program& program, Rank rank, StreamId stream, World& world) {
  const auto& instructions = program.program_of(rank).streams[stream].instructions;
  std::vector<Step> after;
  for (std::size_t index = 0; index < instructions.size(); ++index) {
    after.clear();
    for (const After& awaited : instructions[index].after)
      after.push_back({rank, awaited.stream, awaited.index});
    world.issue({rank, stream, static_cast<std::int32_t>(index)}, instructions[index], after);
  }
  world.await(rank, stream);
}

}  // namespace motley
