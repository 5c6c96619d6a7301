// Random operations on several communicators: every rank draws the same ones, performs its part of them, many at once
// and awaited in another order, and compares what comes with what the seed says.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hw/communicator/communicator.hpp"
#include "models/base/index.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/held_bytes.hpp"
#include "tests/support/loopback.hpp"
#include "tests/support/whole_numbers.hpp"

namespace motley::tests {

using ByteVector = std::vector<std::byte>;

// Any bytes, which a payload that is only moved has.
inline ByteVector noise(std::size_t size, std::uint64_t seed) {
  ByteVector bytes(size);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
  for (std::size_t i = 0; i < size; i += sizeof state) {
    state ^= state << 13U;
    state ^= state >> 7U;
    state ^= state << 17U;
    std::memcpy(bytes.data() + i, &state, std::min(sizeof state, size - i));
  }
  return bytes;
}

// ---- what is drawn

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

inline std::size_t any_size(Dice& dice, std::size_t members) {
  const std::size_t segment = (std::size_t{512} << 10U) / sizeof(float) * members;
  if (dice.once_in(40)) return segment + dice.engine()() % 3 - 1;
  if (dice.once_in(40)) return (std::size_t{1} << 18U) + dice.engine()() % (std::size_t{1} << 19U);
  if (dice.once_in(8)) return dice.engine()() % 100'000;
  return dice.one_of<std::size_t>({0, 1, 2, 3, 7, 64, 333, 4'096, 4'097, 16'384, 20'001});
}

class RandomOperations {
 public:
  RandomOperations(unsigned seed, int ranks) : seed_(seed), ranks_(ranks) {
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
  ByteVector values;  // in place
  std::vector<ByteVector> outgoing, incoming;
  ByteVector wanted;  // of `values`, from `begin` on
  std::size_t begin = 0;
  std::vector<ByteVector> wanted_parts;  // of `incoming`
  bool may_be_untouched = false;         // it was cancelled: all of it is as it was, or as it is wanted
  // Where those of these bytes lie, while it runs, that lie in guarded memory.
  std::vector<std::pair<ByteVector*, std::unique_ptr<HeldBytes>>> held = {};
};

inline std::size_t parts_at(const Task& task, std::size_t member) {
  return (task.count / 4 + member * 37 + task.number % 5) % 9'000;
}
inline std::size_t exchanged(const Task& task, std::size_t from, std::size_t to) {
  return (task.count / 3 + from * 7'919 + to * 104'729 + task.number) % 60'000 * (from % 3 == to % 2 ? 0 : 1);
}
inline ByteVector contribution(const Task& task, std::size_t count, std::size_t member) {
  return whole_numbers(task.call.element, count, task.number * 8 + member);
}

class Player {
 public:
  Player(Messenger& messenger, const RandomOperations& plan) : messenger_(messenger), plan_(plan) {
    std::vector<Rank> everyone = plan.teams[0].members;
    teams_.push_back(
        std::make_unique<Communicator>(messenger, std::uint64_t{1}, everyone, plan.teams[0].per_node));
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
    std::optional<Messenger::Together> together;
    for (const std::size_t i : posting_order(tasks, mine)) {
      if (mine.once_in(4)) together.reset();
      if (mine.once_in(4)) together.emplace(messenger_);
      if (teams_[tasks[i].team] != nullptr) post(tasks[i], postings[2 * i], postings[2 * i + 1]);
    }
    if (mine.once_in(2)) together.reset();  // or it lives while others are awaited
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

  void post_collective(const Task& task, Communicator& team, Posting& posting) {
    const std::size_t R = at(team.size()), me = at(team.place());
    const std::size_t width = element_bytes(task.call.element);
    std::vector<ByteVector> all;
    for (std::size_t i = 0; i < R; ++i) all.push_back(contribution(task, task.count, i));
    const bool scatters = task.call.kind == CollectiveKind::reduce_scatter;
    if (scatters || task.call.kind == CollectiveKind::all_reduce) {
      ByteVector sum = all[0];
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
    posting.request = team.start(task.call, hold(task, posting, posting.values));
  }

  void post_parts(const Task& task, Communicator& team, Posting& posting) {
    const std::size_t R = at(team.size()), me = at(team.place());
    const std::size_t width = element_bytes(task.call.element);
    std::size_t count = 0;
    std::vector<std::size_t> begins;
    for (std::size_t i = 0; i < R; ++i) {
      begins.push_back(count);
      count += parts_at(task, i);
    }
    std::vector<ByteVector> all;
    for (std::size_t i = 0; i < R; ++i) all.push_back(contribution(task, count, i));
    const auto part = [&](ByteVector& bytes, std::size_t i) {
      return std::span(bytes).subspan(begins[i] * width, parts_at(task, i) * width);
    };
    if (task.call.kind == CollectiveKind::reduce_scatter) {
      ByteVector sum = all[0];
      for (std::size_t i = 1; i < R; ++i) reduce_into(task.call.element, task.call.reduce, sum, all[i]);
      posting.begin = begins[me] * width;
      posting.wanted.assign(part(sum, me).begin(), part(sum, me).end());
    } else {
      posting.wanted = all[me];
      for (std::size_t j = 0; j < R; ++j)
        std::copy(part(all[j], j).begin(), part(all[j], j).end(), part(posting.wanted, j).begin());
    }
    posting.values = std::move(all[me]);
    const std::span<std::byte> values = hold(task, posting, posting.values);
    std::vector<std::span<std::byte>> parts;
    for (std::size_t i = 0; i < R; ++i)
      parts.push_back(values.subspan(begins[i] * width, parts_at(task, i) * width));
    posting.request = team.start_parts(task.call, parts);
  }

  void post_exchange(const Task& task, Communicator& team, Posting& posting) {
    const std::size_t R = at(team.size()), me = at(team.place());
    for (std::size_t i = 0; i < R; ++i) {
      posting.outgoing.push_back(noise(exchanged(task, me, i), task.number * 64 + me * 8 + i));
      posting.wanted_parts.push_back(noise(exchanged(task, i, me), task.number * 64 + i * 8 + me));
      posting.incoming.emplace_back(exchanged(task, i, me));
    }
    std::vector<std::span<const std::byte>> outgoing;
    std::vector<std::span<std::byte>> incoming;
    for (std::size_t i = 0; i < R; ++i) {
      outgoing.emplace_back(hold(task, posting, posting.outgoing[i]));
      incoming.push_back(hold(task, posting, posting.incoming[i]));
    }
    posting.request = team.start_exchange(outgoing, incoming);
  }

  void post_messages(const Task& task, Communicator& team, Posting& sent, Posting& received) {
    const std::size_t me = at(team.place());
    if (team.size() == 1) return;
    const bool cancels = task.kind != Task::Kind::message;
    if (me == task.from && task.kind != Task::Kind::lone_receive) {
      sent.values = noise(task.count, task.number);
      sent.cancels = cancels;
      sent.wanted = sent.values;
      sent.request = team.send(static_cast<int>(task.to), task.number, hold(task, sent, sent.values));
    }
    if (me == task.to && task.kind != Task::Kind::lone_send) {
      received.values.assign(task.count, std::byte{0x5a});
      received.cancels = received.may_be_untouched = cancels;
      received.wanted = noise(task.count, task.number);
      received.request =
          team.receive(static_cast<int>(task.from), task.number, hold(task, received, received.values));
    }
  }

  // A third of all buffers lie in guarded memory, and those of one operation are of both kinds.
  std::span<std::byte> hold(const Task& task, Posting& posting, ByteVector& bytes) {
    if ((task.number + at(messenger_.rank().value()) + posting.held.size()) % 3 != 0) return bytes;
    posting.held.emplace_back(&bytes, std::make_unique<HeldBytes>(messenger_, MemoryKind::guarded, bytes));
    return posting.held.back().second->payload();
  }

  static void check(Posting& posting) {
    for (const auto& [bytes, held] : posting.held) *bytes = held->contents();
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
  const RandomOperations& plan_;
  std::vector<std::unique_ptr<Communicator>> teams_;  // null: this rank is not among them
};

}  // namespace motley::tests
