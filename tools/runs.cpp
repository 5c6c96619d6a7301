#include "tools/runs.hpp"

#include <utility>

namespace motley {

Prepared prepare(Scenario scenario) {
  Program program = compile(scenario);
  std::vector<StageMemory> memory = check(program, scenario);
  return {.scenario = std::move(scenario), .program = std::move(program), .memory = std::move(memory)};
}

}  // namespace motley
