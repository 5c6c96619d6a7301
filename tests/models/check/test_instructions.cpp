// What one instruction asks of the ranks of its class is looked at wherever it stands.
#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "models/base/refusal.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/random_jobs.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;

namespace {

using Fault = std::function<void(Instruction&)>;

// What a rank cannot do, of an instruction of that kind. Empty: nothing is asked of other ranks.
std::vector<Fault> faults_of(const Instruction& instruction) {
  std::vector<Fault> faults;
  if (instruction.message() != nullptr)
    faults.emplace_back([](Instruction& each) { each.message()->slot = PeerSlot(1000); });
  const auto* collective = instruction.as<Collective>();
  if (collective == nullptr) return faults;
  faults.emplace_back([](Instruction& each) { std::get<Collective>(each.body).slot = GroupSlot(1000); });
  faults.emplace_back([](Instruction& each) { std::get<Collective>(each.body).root = 1000; });
  faults.emplace_back([](Instruction& each) { std::get<Collective>(each.body).root = -1; });
  if (collective->kind == CollectiveKind::all_to_all)
    faults.emplace_back([](Instruction& each) { std::get<Collective>(each.body).part_bytes = {1}; });
  else
    faults.emplace_back([](Instruction& each) { std::get<Collective>(each.body).part_bytes = {1, 1}; });
  return faults;
}

}  // namespace

TEST_CASE("a rank that cannot do an instruction is refused, whichever of many like it the instruction is") {
  int tried = 0;
  for (unsigned seed = 1; seed <= (tests::kSanitized ? 20 : 100); ++seed) {
    const Program program = compile(tests::any_job(seed));
    REQUIRE_NOTHROW(check_indices(program));
    std::mt19937 random(seed);
    const RankProgramId id(static_cast<int>(random() % program.rank_programs.size()));
    for (const StreamId stream : program.rank_programs[id].streams.ids()) {
      const auto count = program.rank_programs[id].streams[stream].instructions.size();
      if (count == 0) continue;
      Program broken = program;
      Instruction& instruction = broken.rank_programs[id].streams[stream].instructions[random() % count];
      const std::vector<Fault> faults = faults_of(instruction);
      if (faults.empty()) continue;
      faults[random() % faults.size()](instruction);
      CAPTURE(seed, stream.value());
      CHECK_THROWS_AS(check_indices(broken), Refusal);
      ++tried;
    }
  }
  CHECK(tried > 20);
}
