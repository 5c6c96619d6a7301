// Pass "exchanges": the instructions that send tokens to experts and back leave the compute stream for a stream of
// their own. Where a forward and a whole backward follow one another in the schedule, their pieces take turns, so
// that each computes while the other's tokens travel (DualPipe, arXiv:2412.19437, section 3.2.1). The order inside a
// forward and inside a backward stays. For this, schedules begin with one more forward: PipelineShape::ahead.
// Assumes: pieces of a forward and of a backward take about equally long; they alternate by number.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/compile/compile_passes.hpp"

namespace motley {
namespace {

bool is_exchange(const Instruction& instruction) {
  const Collective* const collective = instruction.as<Collective>();
  return collective != nullptr && collective->kind == CollectiveKind::all_to_all;
}

// Instructions [first, last) of the compute stream, which belong to one pass of one micro-batch.
struct Task {
  int first = 0, last = 0;
  std::optional<BlockId> block;  // none: the task is no pass of a micro-batch
};

std::vector<Task> tasks_of(const RankProgram& rank_program) {
  std::vector<Task> tasks;
  const auto& computes = rank_program.streams[kComputeStream].instructions;
  for (int i = 0; i < static_cast<int>(computes.size()); ++i) {
    const Instruction& instruction = computes[at(i)];
    const Compute* const compute = instruction.as<Compute>();
    const auto block = compute != nullptr ? std::optional(compute->block) : std::nullopt;
    const bool goes_on = !tasks.empty() && tasks.back().block &&
                         instruction.micro_batch == computes[at(tasks.back().first)].micro_batch &&
                         (instruction.op() == Op::collective || (block && block == tasks.back().block));
    if (!goes_on) tasks.push_back({i, i, block});
    tasks.back().last = i + 1;
  }
  return tasks;
}

// Whether the tasks are a forward and a backward of different micro-batches, so that neither needs the other.
bool side_by_side(const RankProgram& rank_program, const Task& task, const Task& next) {
  if (!task.block || !next.block) return false;
  const Block &forward = rank_program.blocks[*task.block], &backward = rank_program.blocks[*next.block];
  const auto& computes = rank_program.streams[kComputeStream].instructions;
  return forward.pass == Pass::forward && backward.pass == Pass::backward &&
         computes[at(task.first)].micro_batch != computes[at(next.first)].micro_batch;
}

// The pieces of a task, as [first, last): each is a compute and the collectives that follow it.
std::vector<std::pair<int, int>> pieces_of(const RankProgram& rank_program, const Task& task) {
  const auto& computes = rank_program.streams[kComputeStream].instructions;
  std::vector<std::pair<int, int>> pieces;
  for (int i = task.first; i < task.last; ++i) {
    if (pieces.empty() || computes[at(i)].op() == Op::compute) pieces.push_back({i, i});
    pieces.back().second = i + 1;
  }
  return pieces;
}

// Whether every forward comes before any backward. Then the last forward and the first backward must not take turns:
// the next stage may need the forward to make what the backward waits for.
bool never_in_turn(const RankProgram& rank_program, const std::vector<Task>& tasks) {
  bool backward = false;
  for (const Task& task : tasks) {
    if (!task.block) continue;
    const bool is_forward = rank_program.blocks[*task.block].pass == Pass::forward;
    if (is_forward && backward) return false;
    backward = backward || !is_forward;
  }
  return true;
}

// Indices of the compute stream in their new order.
std::vector<int> order_of(const RankProgram& rank_program, const std::vector<Task>& tasks) {
  std::vector<int> order;
  const auto add = [&order](std::pair<int, int> piece) {
    for (int i = piece.first; i < piece.second; ++i) order.push_back(i);
  };
  const bool never = never_in_turn(rank_program, tasks);
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    if (never || t + 1 == tasks.size() || !side_by_side(rank_program, tasks[t], tasks[t + 1])) {
      add({tasks[t].first, tasks[t].last});
      continue;
    }
    const auto forward = pieces_of(rank_program, tasks[t]), backward = pieces_of(rank_program, tasks[t + 1]);
    std::size_t i = 0, j = 0;  // the next piece of each; the next to run is from the list of which a smaller
                               // share is done
    while (i < forward.size() || j < backward.size())
      if (j == backward.size() || (i < forward.size() && i * backward.size() <= j * forward.size()))
        add(forward[i++]);
      else
        add(backward[j++]);
    ++t;
  }
  return order;
}

// Puts the compute stream into that order, and its exchanges into their own stream. Returns the new place of each
// instruction.
std::vector<After> move_instructions(RankProgram& rank_program, const std::vector<int>& order) {
  const StreamId exchange = stream_of(rank_program, StreamKind::exchange);
  auto& computes = rank_program.streams[kComputeStream].instructions;
  auto& exchanges = rank_program.streams[exchange].instructions;
  std::vector<After> places(computes.size());
  std::vector<Instruction> kept;
  for (const int index : order) {
    const bool leaves = is_exchange(computes[at(index)]);
    auto& into = leaves ? exchanges : kept;
    places[at(index)] = {leaves ? exchange : kComputeStream, static_cast<int>(into.size())};
    into.push_back(computes[at(index)]);
  }
  computes = std::move(kept);
  return places;
}

// Makes each exchange, and the compute after it, wait for the instruction before it.
void wait_in_turn(RankProgram& rank_program, const std::vector<After>& places, const Task& task) {
  for (int i = task.first + 1; i < task.last; ++i) {
    const After before = places[at(i - 1)], here = places[at(i)];
    if (before.stream != here.stream)
      rank_program.streams[here.stream].instructions[at(here.index)].after.push_back(before);
  }
}

}  // namespace

void overlap_exchanges(const Job& job, Program& program) {
  if (!job.strategy.overlap_experts) return;
  for (RankProgram& rank_program : program.rank_programs) {
    const auto& computes = rank_program.streams[kComputeStream].instructions;
    if (std::none_of(computes.begin(), computes.end(), is_exchange)) continue;
    const std::vector<Task> tasks = tasks_of(rank_program);
    const std::vector<After> places = move_instructions(rank_program, order_of(rank_program, tasks));
    for (Stream& stream : rank_program.streams)
      for (Instruction& instruction : stream.instructions)
        for (After& after : instruction.after)
          if (after.stream == kComputeStream) after = places[at(after.index)];
    for (const Task& task : tasks) wait_in_turn(rank_program, places, task);
  }
}

}  // namespace motley
