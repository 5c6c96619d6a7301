// Pass "exchanges": what sends tokens to experts and back leaves the compute stream for one of its own, and where a
// forward and a whole backward follow one another in the schedule their pieces take turns, so that each computes while
// the other's tokens travel (DualPipe, arXiv:2412.19437, section 3.2.1). Inside a forward, and inside a backward, the
// order stays what it was. Schedules begin with a forward more for it: PipelineShape::ahead.
// Assumes: pieces of a forward and of a backward take about as long; they alternate by number.
#include <algorithm>
#include <utility>
#include <vector>

#include "models/compile_passes.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

bool is_exchange(const Instruction& instruction) {
  return instruction.op == Op::collective && instruction.collective == CollectiveKind::all_to_all;
}

// What follows one another in the compute stream and belongs to one pass of one micro-batch.
struct Task {
  int first = 0, last = 0;
  int block = -1;  // -1: no pass of a micro-batch
};

std::vector<Task> tasks_of(const ProgramClass& of_class) {
  std::vector<Task> tasks;
  const auto& computes = of_class.streams[0].instructions;
  for (int i = 0; i < static_cast<int>(computes.size()); ++i) {
    const Instruction& instruction = computes[at(i)];
    const bool goes_on = !tasks.empty() && tasks.back().block >= 0 &&
                         instruction.micro_batch == computes[at(tasks.back().first)].micro_batch &&
                         (instruction.op == Op::collective ||
                          (instruction.op == Op::compute && instruction.block == tasks.back().block));
    if (!goes_on) tasks.push_back({i, i, instruction.op == Op::compute ? instruction.block : -1});
    tasks.back().last = i + 1;
  }
  return tasks;
}

// Neither needs anything of the other.
bool side_by_side(const ProgramClass& of_class, const Task& task, const Task& next) {
  if (task.block < 0 || next.block < 0) return false;
  const Block &forward = of_class.blocks[at(task.block)], &backward = of_class.blocks[at(next.block)];
  const auto& computes = of_class.streams[0].instructions;
  return forward.pass == Pass::forward && backward.pass == Pass::backward &&
         computes[at(task.first)].micro_batch != computes[at(next.first)].micro_batch;
}

// A compute, and the collectives that follow it.
std::vector<std::pair<int, int>> pieces_of(const ProgramClass& of_class, const Task& task) {
  std::vector<std::pair<int, int>> pieces;
  for (int i = task.first; i < task.last; ++i) {
    if (pieces.empty() || of_class.streams[0].instructions[at(i)].op == Op::compute) pieces.push_back({i, i});
    pieces.back().second = i + 1;
  }
  return pieces;
}

// Every forward comes before any backward: the last and the first only happen to meet, and the next stage may need the
// one for the other.
bool never_in_turn(const ProgramClass& of_class, const std::vector<Task>& tasks) {
  bool backward = false;
  for (const Task& task : tasks) {
    if (task.block < 0) continue;
    const bool is_forward = of_class.blocks[at(task.block)].pass == Pass::forward;
    if (is_forward && backward) return false;
    backward = backward || !is_forward;
  }
  return true;
}

// Indices of the compute stream in their new order.
std::vector<int> order_of(const ProgramClass& of_class, const std::vector<Task>& tasks) {
  std::vector<int> order;
  const auto add = [&](std::pair<int, int> piece) {
    for (int i = piece.first; i < piece.second; ++i) order.push_back(i);
  };
  const bool never = never_in_turn(of_class, tasks);
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    if (never || t + 1 == tasks.size() || !side_by_side(of_class, tasks[t], tasks[t + 1])) {
      add({tasks[t].first, tasks[t].last});
      continue;
    }
    const auto forward = pieces_of(of_class, tasks[t]), backward = pieces_of(of_class, tasks[t + 1]);
    std::size_t i = 0, j = 0;  // the next of each; that comes first of whose list less is done
    while (i < forward.size() || j < backward.size())
      if (j == backward.size() || (i < forward.size() && i * backward.size() <= j * forward.size()))
        add(forward[i++]);
      else
        add(backward[j++]);
    ++t;
  }
  return order;
}

// Where instructions of the compute stream have gone.
class Moves {
 public:
  Moves(ProgramClass& of_class, const std::vector<int>& order) {
    const auto exchange = static_cast<std::int16_t>(stream_of(of_class, StreamKind::exchange));
    auto& computes = of_class.streams[0].instructions;
    auto& exchanges = of_class.streams[at(exchange)].instructions;
    places_.resize(computes.size());
    std::vector<Instruction> kept;
    for (const int index : order) {
      auto& into = is_exchange(computes[at(index)]) ? exchanges : kept;
      places_[at(index)] = {&into == &kept ? std::int16_t{0} : exchange, static_cast<int>(into.size())};
      into.push_back(computes[at(index)]);
    }
    computes = std::move(kept);
  }
  const After& of(int index) const { return places_[at(index)]; }

 private:
  std::vector<After> places_;
};

// Each exchange, and what computes next, waits for what stood before it.
void wait_in_turn(ProgramClass& of_class, const Moves& moves, const Task& task) {
  for (int i = task.first + 1; i < task.last; ++i) {
    const After before = moves.of(i - 1), here = moves.of(i);
    if (before.stream != here.stream)
      of_class.streams[at(here.stream)].instructions[at(here.index)].after.push_back(before);
  }
}

}  // namespace

void overlap_exchanges(const Job& job, Program& program) {
  if (!job.strategy.overlap_experts) return;
  for (ProgramClass& of_class : program.classes) {
    const auto& computes = of_class.streams[0].instructions;
    if (std::none_of(computes.begin(), computes.end(), is_exchange)) continue;
    const std::vector<Task> tasks = tasks_of(of_class);
    const Moves moves(of_class, order_of(of_class, tasks));
    for (Stream& stream : of_class.streams)
      for (Instruction& instruction : stream.instructions)
        for (After& after : instruction.after)
          if (after.stream == 0) after = moves.of(after.index);
    for (const Task& task : tasks) wait_in_turn(of_class, moves, task);
  }
}

}  // namespace motley
