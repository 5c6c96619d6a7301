// Places weight gradients, the one part of a schedule that depends on times. A weight gradient needs only its own
// input gradient and nothing waits for it, so a rank may run it wherever it would idle.
#include <algorithm>
#include <deque>
#include <limits>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/schedule/schedule_rules.hpp"

namespace motley {
namespace {

constexpr double kUnknown = -1;
constexpr double kRounded = 1e-9;  // of a sum of shares of micro-batches
constexpr double kAtOnce = -1;  // used as a least gap: weight gradients follow their input gradients at once

// Runs `ordered` as early as possible and fills the gaps that it finds.
class Filler {
 public:
  // A gap takes a weight gradient if it is at least `least_gap` times as long. kAtOnce: no gap is needed.
  Filler(const Timetable& ordered, const ScheduleTimes& times, int in_flight, double least_gap)
      : ordered_(ordered), times_(times), in_flight_(in_flight), least_gap_(least_gap) {
    rank_of_ = placement(ordered);
    int micro_batches = 0;
    for (const auto& actions : ordered.ranks)
      for (const Action& action : actions) micro_batches = std::max(micro_batches, action.micro_batch + 1);
    for (auto* ends : {&forward_end_, &gradient_end_})
      ends->assign(rank_of_.size(), std::vector<double>(at(micro_batches), kUnknown));
    states_.resize(ordered.ranks.size());
    filled_.ranks.resize(ordered.ranks.size());
  }

  Timetable fill() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < states_.size(); ++rank)
        while (advance(rank)) moved = true;
    }
    for (std::size_t rank = 0; rank < states_.size(); ++rank) {
      MOTLEY_CHECK(states_[rank].next == ordered_.ranks[rank].size());
      while (!states_[rank].owed.empty()) run_owed(rank);
    }
    return std::move(filled_);
  }

 private:
  struct State {
    std::size_t next = 0;
    double now_s = 0;
    double in_flight = 0;  // memory, in micro-batches
    std::deque<Action> owed;
  };

  double arrival(const Action& action, int from_stage, const std::vector<std::vector<double>>& ends) const {
    const double end_s = ends[at(from_stage)][at(action.micro_batch)];
    if (end_s == kUnknown) return kUnknown;
    const bool here = rank_of_[at(from_stage)] == rank_of_[at(action.virtual_stage)];
    return end_s + (here ? 0 : times_.transfer_s);
  }
  // The time when the inputs of an action are there; kUnknown if that is not known yet.
  double ready(const Action& action) const {
    const int stage = action.virtual_stage;
    if (action.pass == Pass::forward) return stage == 0 ? 0 : arrival(action, stage - 1, forward_end_);
    if (stage + 1 == static_cast<int>(rank_of_.size()))
      return forward_end_[at(stage)][at(action.micro_batch)];
    return arrival(action, stage + 1, gradient_end_);
  }

  bool advance(std::size_t rank) {
    State& state = states_[rank];
    if (state.next == ordered_.ranks[rank].size()) return false;
    const Action& action = ordered_.ranks[rank][state.next];
    const double ready_s = ready(action);
    if (ready_s == kUnknown) return false;
    while (!state.owed.empty() && fits(state, ready_s)) run_owed(rank);
    while (state.in_flight + added_by(action) > most_in_flight(action) + kRounded && !state.owed.empty())
      run_owed(rank);
    run(rank, action, ready_s);
    ++state.next;
    return true;
  }
  double held_for_weights(const Action& action) const {
    return times_.pass_times(action.virtual_stage).held_for_weights;
  }
  double added_by(const Action& action) const {
    return action.pass == Pass::forward ? 1 : held_for_weights(action) - 1;
  }
  // One micro-batch may be in its backward, whatever the schedule.
  double most_in_flight(const Action& action) const {
    return in_flight_ + std::max(0.0, held_for_weights(action) - 1);
  }
  bool fits(const State& state, double ready_s) const {
    if (least_gap_ == kAtOnce) return true;
    const double work_s = times_.pass_times(state.owed.front().virtual_stage).weight_gradient_s;
    constexpr double kRounding = 1e-9;
    const double gap_s = ready_s - state.now_s;
    return gap_s > kRounding * work_s && gap_s >= (least_gap_ - kRounding) * work_s;
  }
  void run_owed(std::size_t rank) {
    const Action owed = states_[rank].owed.front();
    states_[rank].owed.pop_front();
    run(rank, owed, 0);
    states_[rank].in_flight -= held_for_weights(owed);
  }
  void run(std::size_t rank, const Action& action, double ready_s) {
    State& state = states_[rank];
    state.now_s =
        std::max(state.now_s, ready_s) + times_.pass_times(action.virtual_stage).duration(action.pass);
    filled_.ranks[rank].push_back(action);
    if (action.pass == Pass::weight_gradient) return;
    auto& ends = action.pass == Pass::forward ? forward_end_ : gradient_end_;
    ends[at(action.virtual_stage)][at(action.micro_batch)] = state.now_s;
    if (action.pass == Pass::forward) {
      ++state.in_flight;
    } else {
      state.in_flight -= 1 - held_for_weights(action);
      state.owed.push_back({Pass::weight_gradient, action.virtual_stage, action.micro_batch});
    }
  }

  const Timetable& ordered_;
  const ScheduleTimes& times_;
  const int in_flight_;
  const double least_gap_;
  std::vector<int> rank_of_;
  std::vector<std::vector<double>> forward_end_, gradient_end_;  // [virtual stage][micro-batch]
  std::vector<State> states_;
  Timetable filled_;
};

}  // namespace

Timetable fill_with_weight_gradients(const Timetable& ordered, const ScheduleTimes& times, int in_flight,
                                     bool steps_overlap) {
  Timetable best;
  double best_step_s = std::numeric_limits<double>::infinity(), best_idle_s = best_step_s;
  for (const double least_gap : {1.0, 0.5, 0.0, kAtOnce}) {
    Timetable tried = Filler(ordered, times, in_flight, least_gap).fill();
    const auto result = evaluate(tried, times);
    MOTLEY_CHECK(result.has_value());
    double idle_s = 0, longest_s = 0;
    for (const RankTimes& rank : result->ranks) {
      idle_s += rank.idle_s();
      longest_s = std::max(longest_s, rank.last_s - rank.first_s);
    }
    const double step_s = steps_overlap ? longest_s : result->makespan_s;
    const double rounding_s = 1e-9 * step_s;
    const bool ends_first = step_s < best_step_s - rounding_s;
    const bool waits_less = step_s < best_step_s + rounding_s && idle_s < best_idle_s - rounding_s;
    if (!ends_first && !waits_less) continue;
    best = std::move(tried);
    best_step_s = step_s;
    best_idle_s = idle_s;
  }
  return best;
}

}  // namespace motley
