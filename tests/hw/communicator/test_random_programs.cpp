// Random programs of operations on several communicators at once, on ranks that are processes: every result is what
// the seed says. In each tenth program a rank is killed, or stopped, at a random instant: all others end, and name it.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "hw/communicator/communicator.hpp"
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/forked_ranks.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/whole_numbers.hpp"

namespace motley {
namespace {

using tests::demand;
using tests::Dice;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kWorld = 1;

// Any bytes, which a payload that is only moved has.
Bytes noise(std::size_t size, std::uint64_t seed) {
  Bytes bytes(size);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
  for (std::size_t i = 0; i < size; i += sizeof state) {
    state ^= state << 13U;
    state ^= state >> 7U;
    state ^= state << 17U;
    std::memcpy(bytes.data() + i, &state, std::min(sizeof state, size - i));
  }
  return bytes;
}

// ---- what a program is: every rank draws the same

struct Team {
  std::vector<Rank> members;
  int colour = 0;
  int per_node = 1;
};
// Ranks of one colour form a team, as Communicator::split says.
struct Split {
  std::vector<int> colours, keys;  // of each rank
};

struct Task {
  enum class Kind : std::uint8_t {
    collective,
    parts,
    exchange,
    message,
    lone_receive,
    lone_send,
    both_cancel
  };
  Kind kind = Kind::collective;
  std::size_t team = 0;
  CollectiveCall call;
  std::size_t count = 0;         // elements, or bytes of a message
  std::size_t from = 0, to = 0;  // places of a message
  std::uint64_t number = 0;      // a tag, and the seed of what is in it
};

std::size_t any_size(Dice& dice, std::size_t members) {
  const std::size_t segment = (std::size_t{512} << 10U) / sizeof(float) * members;
  if (dice.once_in(40)) return segment + dice.engine()() % 3 - 1;
  if (dice.once_in(40)) return (std::size_t{1} << 18U) + dice.engine()() % (std::size_t{1} << 19U);
  if (dice.once_in(8)) return dice.engine()() % 100'000;
  return dice.one_of<std::size_t>({0, 1, 2, 3, 7, 64, 333, 4'096, 4'097, 16'384, 20'001});
}

class Plan {
 public:
  Plan(unsigned seed, int ranks) : seed_(seed), ranks_(ranks) {
    Dice dice(seed);
    std::vector<Rank> everyone;
    for (int rank = 0; rank < ranks; ++rank) everyone.emplace_back(rank);
    teams.push_back({everyone, 0, ranks % 2 == 0 ? 2 : 1});
    const std::size_t most = 2 + dice.engine()() % 7;
    while (teams.size() < most) {
      Split split;
      for (int rank = 0; rank < ranks; ++rank) {
        split.colours.push_back(static_cast<int>(dice.engine()() % 3) - (dice.once_in(4) ? 1 : 0));
        split.keys.push_back(static_cast<int>(dice.engine()() % 3));
      }
      add_teams(split);
      splits.push_back(std::move(split));
    }
  }

  // What is posted at once in a round.
  std::vector<Task> round(std::size_t number) const {
    Dice dice(seed_ * 7919U + static_cast<unsigned>(number));
    std::vector<Task> tasks(1 + dice.engine()() % 12);
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      tasks[i] = any_task(dice);
      tasks[i].number = (std::uint64_t{seed_} << 32U) + number * 100 + i;
    }
    return tasks;
  }

  unsigned seed() const { return seed_; }
  std::vector<Team> teams;  // the first one is all ranks
  std::vector<Split> splits;

 private:
  void add_teams(const Split& split) {
    for (int colour = 0; colour < 3; ++colour) {
      std::vector<std::pair<int, int>> ordered;
      for (int rank = 0; rank < ranks_; ++rank)
        if (split.colours[at(rank)] == colour) ordered.emplace_back(split.keys[at(rank)], rank);
      std::sort(ordered.begin(), ordered.end());
      Team team;
      team.colour = colour;
      for (const auto& [key, rank] : ordered) team.members.emplace_back(rank);
      if (!team.members.empty()) teams.push_back(std::move(team));
    }
  }

  Task any_task(Dice& dice) const {
    Task task;
    task.team = dice.engine()() % teams.size();
    const std::size_t members = teams[task.team].members.size();
    task.kind =
        dice.one_of({Task::Kind::collective, Task::Kind::collective, Task::Kind::collective,
                     Task::Kind::message, Task::Kind::message, Task::Kind::parts, Task::Kind::exchange,
                     Task::Kind::lone_receive, Task::Kind::lone_send, Task::Kind::both_cancel});
    task.call.kind = dice.one_of({CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                  CollectiveKind::all_gather, CollectiveKind::all_to_all});
    if (task.kind == Task::Kind::parts && task.call.kind == CollectiveKind::all_reduce)
      task.call.kind = CollectiveKind::all_gather;
    if (task.kind == Task::Kind::parts && task.call.kind == CollectiveKind::all_to_all)
      task.call.kind = CollectiveKind::reduce_scatter;
    const auto elements = every<ElementType>();
    task.call.element = elements[dice.engine()() % elements.size()];
    task.call.reduce = dice.one_of({ReduceOp::sum, ReduceOp::maximum, ReduceOp::minimum});
    task.call.algorithm =
        dice.one_of({CollectiveAlgorithm::automatic, CollectiveAlgorithm::ring, CollectiveAlgorithm::tree,
                     CollectiveAlgorithm::double_binary_tree, CollectiveAlgorithm::recursive,
                     CollectiveAlgorithm::hierarchical, CollectiveAlgorithm::flat});
    task.call.keeps_zeros_back = dice.once_in(4);
    task.count = any_size(dice, members);
    if (task.call.kind == CollectiveKind::all_to_all) task.count -= task.count % members;
    task.from = dice.engine()() % members;
    task.to = dice.engine()() % members;
    if (members > 1 && task.from == task.to) task.to = (task.to + 1) % members;
    return task;
  }

  unsigned seed_;
  int ranks_;
};

// ---- what a rank does

// An operation of one rank, with its buffers and what must be in them at the end.
struct Posting {
  Request request;
  bool cancels = false;
  Bytes values;  // in place
  std::vector<Bytes> outgoing, incoming;
  Bytes wanted;  // of `values`, from `begin` on
  std::size_t begin = 0;
  std::vector<Bytes> wanted_parts;  // of `incoming`
  bool may_be_untouched = false;    // it was cancelled: all of it is as it was, or as it is wanted
};

std::size_t parts_at(const Task& task, std::size_t member) {
  return (task.count / 4 + member * 37 + task.number % 5) % 9'000;
}
std::size_t exchanged(const Task& task, std::size_t from, std::size_t to) {
  return (task.count / 3 + from * 7'919 + to * 104'729 + task.number) % 60'000 * (from % 3 == to % 2 ? 0 : 1);
}
Bytes contribution(const Task& task, std::size_t count, std::size_t member) {
  return tests::whole_numbers(task.call.element, count, task.number * 8 + member);
}

class Player {
 public:
  Player(Messenger& messenger, const Plan& plan) : messenger_(messenger), plan_(plan) {
    std::vector<Rank> everyone = plan.teams[0].members;
    teams_.push_back(std::make_unique<Communicator>(messenger, kWorld, everyone, plan.teams[0].per_node));
    for (const Split& split : plan.splits) {
      const std::size_t me = at(messenger.rank().value());
      auto mine = teams_[0]->split(split.colours[me], split.keys[me]);
      for (int colour = 0; colour < 3; ++colour) {
        const bool any = std::count(split.colours.begin(), split.colours.end(), colour) > 0;
        if (any) teams_.push_back(split.colours[me] == colour ? std::move(mine) : nullptr);
      }
    }
    demand(teams_.size() == plan.teams.size(), "teams are missing");
    for (std::size_t i = 0; i < teams_.size(); ++i)
      demand(teams_[i] == nullptr || teams_[i]->members() == plan.teams[i].members, "members of a split");
  }

  void play(std::size_t round) {
    const std::vector<Task> tasks = plan_.round(round);
    Dice mine(plan_.seed() + static_cast<unsigned>(round) * 31U +
              static_cast<unsigned>(messenger_.rank().value()) * 1'000'003U);
    std::vector<Posting> postings(2 * tasks.size());
    for (const std::size_t i : posting_order(tasks, mine))
      if (teams_[tasks[i].team] != nullptr) post(tasks[i], postings[2 * i], postings[2 * i + 1]);
    std::vector<Posting*> awaited;
    for (Posting& each : postings)
      if (each.request) awaited.push_back(&each);
    mine.shuffle(awaited);
    for (Posting* const each : awaited) {
      if (each->cancels) messenger_.cancel(each->request);
      if (mine.once_in(8)) messenger_.test(each->request);
    }
    for (Posting* const each : awaited) {
      messenger_.wait(each->request);
      check(*each);
    }
  }

  // What is pending at a rank that has ended fails: nobody ends before all have cancelled what they cancel.
  void meet() {
    std::int32_t nothing = 0;
    teams_[0]->run({.element = ElementType::int32}, std::as_writable_bytes(std::span(&nothing, 1)));
  }

 private:
  // Collectives of a team begin in one order on all its members; everything else begins in any order.
  static std::vector<std::size_t> posting_order(const std::vector<Task>& tasks, Dice& mine) {
    std::vector<std::size_t> order(tasks.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    mine.shuffle(order);
    for (std::size_t team = 0; team < 64; ++team) {
      std::vector<std::size_t> places, numbers;
      for (std::size_t place = 0; place < order.size(); ++place)
        if (tasks[order[place]].kind <= Task::Kind::exchange && tasks[order[place]].team == team) {
          places.push_back(place);
          numbers.push_back(order[place]);
        }
      std::sort(numbers.begin(), numbers.end());
      for (std::size_t i = 0; i < places.size(); ++i) order[places[i]] = numbers[i];
    }
    return order;
  }

  void post(const Task& task, Posting& first, Posting& second) {
    Communicator& team = *teams_[task.team];
    switch (task.kind) {
      case Task::Kind::collective:
        return post_collective(task, team, first);
      case Task::Kind::parts:
        return post_parts(task, team, first);
      case Task::Kind::exchange:
        return post_exchange(task, team, first);
      default:
        return post_messages(task, team, first, second);
    }
  }

  static void post_collective(const Task& task, Communicator& team, Posting& posting) {
    const std::size_t R = at(team.size()), me = at(team.place());
    const std::size_t width = element_bytes(task.call.element);
    std::vector<Bytes> all;
    for (std::size_t i = 0; i < R; ++i) all.push_back(contribution(task, task.count, i));
    const bool scatters = task.call.kind == CollectiveKind::reduce_scatter;
    if (scatters || task.call.kind == CollectiveKind::all_reduce) {
      Bytes sum = all[0];
      for (std::size_t i = 1; i < R; ++i) reduce_into(task.call.element, task.call.reduce, sum, all[i]);
      const auto part = scatters ? part_of(sum, width, me, R) : std::span(sum);
      posting.begin = static_cast<std::size_t>(part.data() - sum.data());
      posting.wanted.assign(part.begin(), part.end());
    } else {
      posting.wanted.resize(task.count * width);
      for (std::size_t j = 0; j < R; ++j) {
        const bool gathers = task.call.kind == CollectiveKind::all_gather;
        const auto from = part_of(all[j], width, gathers ? j : me, R);
        std::copy(from.begin(), from.end(), part_of(posting.wanted, width, j, R).begin());
      }
    }
    posting.values = std::move(all[me]);
    posting.request = team.start(task.call, posting.values);
  }

  static void post_parts(const Task& task, Communicator& team, Posting& posting) {
    const std::size_t R = at(team.size()), me = at(team.place());
    const std::size_t width = element_bytes(task.call.element);
    std::size_t count = 0;
    std::vector<std::size_t> begins;
    for (std::size_t i = 0; i < R; ++i) {
      begins.push_back(count);
      count += parts_at(task, i);
    }
    std::vector<Bytes> all;
    for (std::size_t i = 0; i < R; ++i) all.push_back(contribution(task, count, i));
    const auto part = [&](Bytes& bytes, std::size_t i) {
      return std::span(bytes).subspan(begins[i] * width, parts_at(task, i) * width);
    };
    if (task.call.kind == CollectiveKind::reduce_scatter) {
      Bytes sum = all[0];
      for (std::size_t i = 1; i < R; ++i) reduce_into(task.call.element, task.call.reduce, sum, all[i]);
      posting.begin = begins[me] * width;
      posting.wanted.assign(part(sum, me).begin(), part(sum, me).end());
    } else {
      posting.wanted = all[me];
      for (std::size_t j = 0; j < R; ++j)
        std::copy(part(all[j], j).begin(), part(all[j], j).end(), part(posting.wanted, j).begin());
    }
    posting.values = std::move(all[me]);
    std::vector<std::span<std::byte>> parts;
    for (std::size_t i = 0; i < R; ++i) parts.push_back(part(posting.values, i));
    posting.request = team.start_parts(task.call, parts);
  }

  static void post_exchange(const Task& task, Communicator& team, Posting& posting) {
    const std::size_t R = at(team.size()), me = at(team.place());
    for (std::size_t i = 0; i < R; ++i) {
      posting.outgoing.push_back(noise(exchanged(task, me, i), task.number * 64 + me * 8 + i));
      posting.wanted_parts.push_back(noise(exchanged(task, i, me), task.number * 64 + i * 8 + me));
      posting.incoming.emplace_back(exchanged(task, i, me));
    }
    const std::vector<std::span<const std::byte>> outgoing(posting.outgoing.begin(), posting.outgoing.end());
    posting.request = team.start_exchange(outgoing, {posting.incoming.begin(), posting.incoming.end()});
  }

  static void post_messages(const Task& task, Communicator& team, Posting& sent, Posting& received) {
    const std::size_t me = at(team.place());
    if (team.size() == 1) return;
    const bool cancels = task.kind != Task::Kind::message;
    if (me == task.from && task.kind != Task::Kind::lone_receive) {
      sent.values = noise(task.count, task.number);
      sent.cancels = cancels;
      sent.wanted = sent.values;
      sent.request = team.send(static_cast<int>(task.to), task.number, sent.values);
    }
    if (me == task.to && task.kind != Task::Kind::lone_send) {
      received.values.assign(task.count, std::byte{0x5a});
      received.cancels = received.may_be_untouched = cancels;
      received.wanted = noise(task.count, task.number);
      received.request = team.receive(static_cast<int>(task.from), task.number, received.values);
    }
  }

  static void check(const Posting& posting) {
    const std::span<const std::byte> mine =
        std::span(posting.values).subspan(posting.begin, posting.wanted.size());
    const bool equal = std::equal(mine.begin(), mine.end(), posting.wanted.begin());
    const bool untouched = posting.may_be_untouched && std::all_of(mine.begin(), mine.end(), [](std::byte b) {
                             return b == std::byte{0x5a};
                           });
    demand(equal || untouched, "wrong bytes");
    demand(posting.incoming == posting.wanted_parts, "wrong bytes of an exchange");
  }

  Messenger& messenger_;
  const Plan& plan_;
  std::vector<std::unique_ptr<Communicator>> teams_;  // null: this rank is not among them
};

// ---- the programs

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

RandomProgram begin(unsigned seed, Fate fate) {
  Dice dice(seed ^ 0x5eedU);
  RandomProgram program;
  program.seed = seed;
  program.fate = fate;
  const int ranks = 2 + static_cast<int>(dice.engine()() % 5);
  program.victim = Rank(static_cast<int>(dice.engine()() % at(ranks)));
  program.dies_after_s = static_cast<double>(dice.engine()() % 1000) * (dice.once_in(2) ? 2e-5 : 3e-4);
  tests::Loopback how;
  how.timeout_s = fate == Fate::lives ? 60 : 3;
  how.reads_memory = dice.once_in(2);
  how.streams = dice.one_of({1, 1, 2, 3});
  const Plan plan(seed, ranks);
  // A rank that is to die must not be too late for it.
  const std::size_t rounds = fate == Fate::lives ? 6 : 1'000'000;
  program.ranks = std::make_unique<tests::ForkedRanks>(
      ranks,
      [&](Messenger& messenger) {
        Player player(messenger, plan);
        for (std::size_t round = 0; round < rounds; ++round) player.play(round);
        player.meet();
      },
      how);
  program.begun_s = monotonic_s();
  return program;
}

// Whether the message of a survivor blames that rank, and nobody else.
bool blames(const std::string& text, Rank rank) {
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
std::string fault_of(const RandomProgram& program) {
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
    if (!blames(end->failure, program.victim))
      return fmt::format("rank {} does not blame rank {}: {}", rank, program.victim, end->failure);
  }
  return "";
}

// Goes on with a program. Returns whether it is over.
bool go_on(RandomProgram& program) {
  constexpr double kMost_s = 60;
  const double now_s = monotonic_s();
  const bool dies = program.fate != Fate::lives;
  if (dies && !program.struck && now_s >= program.begun_s + program.dies_after_s) {
    program.ranks->signal(program.victim, program.fate == Fate::killed ? SIGKILL : SIGSTOP);
    program.struck = true;
    program.struck_s = now_s;
  }
  const bool ended =
      program.ranks->have_ended(program.fate == Fate::stopped ? std::optional(program.victim) : std::nullopt);
  const bool late = now_s > program.begun_s + kMost_s;
  if (!ended && !late) return false;
  if (program.fate == Fate::stopped) {
    program.ranks->signal(program.victim, SIGKILL);
    while (!program.ranks->end_of(program.victim)) program.ranks->have_ended();
  }
  return true;
}

// MOTLEY_DRAWS in the environment asks for another number of programs.
unsigned draws() {
  const char* const asked = std::getenv("MOTLEY_DRAWS");
  return asked == nullptr ? (tests::kSanitized ? 30 : 60) : static_cast<unsigned>(std::stoul(asked));
}

TEST_CASE("random programs on several communicators end as they must, also where a rank is killed or stopped",
          "[communicator][programs]") {
  const unsigned count = draws();
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
      running.push_back(begin(next++, fate));
    }
    for (auto program = running.begin(); program != running.end();) {
      if (!go_on(*program)) {
        ++program;
        continue;
      }
      const std::string fault = fault_of(*program);
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
