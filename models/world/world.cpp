#include "models/world.hpp"

#include <vector>

namespace motley {

void run_stream(const Program& program, Rank rank, int stream, World& world) {
  const auto& instructions = program.class_of(rank).streams[static_cast<std::size_t>(stream)].instructions;
  std::vector<Step> after;
  for (std::size_t index = 0; index < instructions.size(); ++index) {
    after.clear();
    for (const After& awaited : instructions[index].after)
      after.push_back({rank, awaited.stream, awaited.index});
    world.issue({rank, static_cast<std::int16_t>(stream), static_cast<std::int32_t>(index)},
                instructions[index], after);
  }
  world.await(rank, stream);
}

}  // namespace motley
