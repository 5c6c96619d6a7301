// Random programs of operations on several communicators at once, on ranks that are processes: every result is what
// the seed says. In each tenth program a rank is killed, or stopped, at a random instant: all others end, and name it.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <thread>

#include "models/base/index.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/forked_ranks.hpp"
#include "tests/support/random_operations.hpp"
#include "tests/support/sanitized.hpp"

namespace motley {
namespace {

enum class Fate : std::uint8_t { lives, killed, stopped };

struct RandomProgram {
  unsigned seed = 0;
  Fate fate = Fate::lives;
  Rank victim{0};
  double dies_after_s = 0;
  bool struck = false;
  double begun_s = monotonic_s(), struck_s = 0;
  std::unique_ptr<tests::ForkedRanks> ranks;
};

RandomProgram begin_program(unsigned seed, Fate fate) {
  tests::Dice dice(seed ^ 0x5eedU);
  RandomProgram program;
  program.seed = seed;
  program.fate = fate;
  const int ranks = 2 + static_cast<int>(dice.engine()() % 5);
  program.victim = Rank(static_cast<int>(dice.engine()() % at(ranks)));
  program.dies_after_s = static_cast<double>(dice.engine()() % 1000) * (dice.once_in(2) ? 2e-5 : 3e-4);
  tests::Loopback how;
  how.timeout_s = fate == Fate::lives ? 60 : 3;
  how.reads_memory = dice.once_in(2);
  how.copies_twice = dice.once_in(2);
  how.streams = dice.one_of({1, 1, 2, 3});
  const tests::RandomOperations plan(seed, ranks);
  // A rank that is to die must not be too late for it.
  const std::size_t rounds = fate == Fate::lives ? 6 : 1'000'000;
  program.ranks = std::make_unique<tests::ForkedRanks>(
      ranks,
      [&](Messenger& messenger) {
        tests::Player player(messenger, plan);
        for (std::size_t round = 0; round < rounds; ++round) player.play(round);
        player.meet();
      },
      how);
  program.begun_s = monotonic_s();
  return program;
}

// Whether the message of a survivor blames that rank, and nobody else.
bool blames_only(const std::string& text, Rank rank) {
  for (const char* const words :
       {"is gone", "does not answer", "has not called", "they wait for each other"}) {
    const std::size_t here = text.find(words);
    if (here == std::string::npos) continue;
    const std::string named = fmt::format("rank {} ", rank);
    return here >= named.size() && text.compare(here - named.size(), named.size(), named) == 0;
  }
  return false;
}

// What is wrong with how the ranks have ended; empty: nothing.
std::string fault_of_program(const RandomProgram& program) {
  for (int i = 0; i < program.ranks->size(); ++i) {
    const Rank rank(i);
    const auto& end = program.ranks->end_of(rank);
    if (!end) return fmt::format("rank {} hangs", rank);
    if (program.fate != Fate::lives && rank == program.victim) {
      if (!end->by_signal)
        return fmt::format("rank {} was to die, but: {}{}", rank, end->failure, end->other);
      continue;
    }
    if (!end->other.empty()) return fmt::format("rank {}: {}", rank, end->other);
    if (program.fate == Fate::lives && !end->failure.empty()) return end->failure;
    if (program.fate == Fate::lives) continue;
    if (!blames_only(end->failure, program.victim))
      return fmt::format("rank {} does not blame rank {}: {}", rank, program.victim, end->failure);
  }
  return "";
}

// Goes on with a program. Returns whether it is over.
bool has_come_to_an_end(RandomProgram& program) {
  constexpr double kPatience_s = 60;
  const double now_s = monotonic_s();
  const bool dies = program.fate != Fate::lives;
  if (dies && !program.struck && now_s >= program.begun_s + program.dies_after_s) {
    program.ranks->signal(program.victim, program.fate == Fate::killed ? SIGKILL : SIGSTOP);
    program.struck = true;
    program.struck_s = now_s;
  }
  const bool ended =
      program.ranks->have_ended(program.fate == Fate::stopped ? std::optional(program.victim) : std::nullopt);
  const bool late = now_s > program.begun_s + kPatience_s;
  if (!ended && !late) return false;
  if (program.fate == Fate::stopped) {
    program.ranks->signal(program.victim, SIGKILL);
    while (!program.ranks->end_of(program.victim)) program.ranks->have_ended();
  }
  return true;
}

// MOTLEY_DRAWS in the environment asks for another number of programs.
unsigned programs_to_draw() {
  const char* const asked = std::getenv("MOTLEY_DRAWS");
  return asked == nullptr ? (tests::kSanitized ? 30 : 60) : static_cast<unsigned>(std::stoul(asked));
}

TEST_CASE("random programs on several communicators end as they must, also where a rank is killed or stopped",
          "[communicator][programs]") {
  const unsigned count = programs_to_draw();
  const char* const first = std::getenv("MOTLEY_FIRST_SEED");
  std::vector<std::string> faults;
  double longest_s = 0;
  std::map<Fate, int> good;
  std::vector<RandomProgram> running;
  unsigned next = first == nullptr ? 0 : static_cast<unsigned>(std::stoul(first));
  const unsigned last = next + count;
  while (next < last || !running.empty()) {
    const auto sleepers =
        static_cast<std::size_t>(std::count_if(running.begin(), running.end(), [](const RandomProgram& each) {
          return each.fate == Fate::stopped && each.struck;
        }));
    if (next < last && running.size() - sleepers < 2 && running.size() < 12) {
      const Fate fate = next % 10 != 9 ? Fate::lives : next % 20 == 9 ? Fate::killed : Fate::stopped;
      running.push_back(begin_program(next++, fate));
    }
    for (auto program = running.begin(); program != running.end();) {
      if (!has_come_to_an_end(*program)) {
        ++program;
        continue;
      }
      const std::string fault = fault_of_program(*program);
      if (!fault.empty()) faults.push_back(fmt::format("program {}: {}", program->seed, fault));
      good[program->fate] += fault.empty() ? 1 : 0;
      if (program->struck) longest_s = std::max(longest_s, monotonic_s() - program->struck_s);
      program = running.erase(program);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  if (std::getenv("MOTLEY_DRAWS") != nullptr)
    fmt::print(
        "{} of {} programs ended as they must ({} with a rank killed, {} with one stopped); the last "
        "survivor ended after {:.1f} s\n",
        count - faults.size(), count, good[Fate::killed], good[Fate::stopped], longest_s);
  CAPTURE(faults);
  CHECK(faults.empty());
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);  // no child is left
}

}  // namespace
}  // namespace motley
