// The recurrence that gives the times of a timetable's actions, if each runs as soon as its rank and its inputs
// allow. Transfers of a boundary go one after another and hold a buffer on each side; ranks share no links. The times
// serve to compare schedules, not to price a strategy: sim/ does that.
#include <algorithm>

#include "models/base/index.hpp"
#include "models/schedule/schedule.hpp"

namespace motley {
namespace {

constexpr double kNotYetKnown = -1;

// The transfers from one virtual stage to the next, or of gradients in the other direction; transfer j of the sender
// is transfer j of the receiver.
struct Boundary {
  std::vector<double> sent_s, received_s;  // ends of compute j on the two sides
  std::vector<double> arrived_s;           // end of transfer j
};

class Recurrence {
 public:
  Recurrence(const Timetable& timetable, const ScheduleTimes& times, int p2p_buffers)
      : timetable_(timetable), times_(times), buffers_(at(p2p_buffers)), rank_of_(placement(timetable)) {
    activations_.resize(rank_of_.size());
    gradients_.resize(rank_of_.size());
    ends_.resize(rank_of_.size());
    reserve();
    next_.resize(timetable.ranks.size());
    result_.ranks.resize(timetable.ranks.size());
    for (const auto& actions : timetable.ranks) result_.begin_s.emplace_back(actions.size(), 0.0);
  }

  std::optional<ScheduleResult> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < next_.size(); ++rank)
        while (advance(rank)) moved = true;
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank)
      if (next_[rank] != timetable_.ranks[rank].size()) return std::nullopt;
    for (std::size_t rank = 0; rank < next_.size(); ++rank) finish(rank);
    return std::move(result_);
  }

 private:
  struct Ends {
    std::vector<double> forward_s, gradient_s;  // by micro-batch
  };

  // Makes room for all micro-batches that pass through a virtual stage.
  void reserve() {
    std::vector<std::size_t> forwards(rank_of_.size(), 0);
    for (const auto& actions : timetable_.ranks)
      for (const Action& action : actions)
        if (action.pass == Pass::forward) ++forwards[at(action.virtual_stage)];
    for (std::size_t stage = 0; stage < rank_of_.size(); ++stage) {
      for (std::vector<double>* ends : {&ends_[stage].forward_s, &ends_[stage].gradient_s})
        ends->reserve(forwards[stage]);
      for (std::vector<Boundary>* boundaries : {&activations_, &gradients_}) {
        Boundary& boundary = (*boundaries)[stage];
        for (std::vector<double>* each : {&boundary.sent_s, &boundary.received_s, &boundary.arrived_s})
          each->reserve(forwards[stage]);
      }
    }
  }

  bool crosses(int stage) const {  // whether a boundary after this virtual stage crosses ranks
    return rank_of_[at(stage)] != rank_of_[at(stage + 1)];
  }
  bool is_last(int stage) const { return at(stage) + 1 == rank_of_.size(); }

  // The end of transfer j; kUnknown: not known yet.
  double arrival(Boundary& boundary, std::size_t j) {
    while (boundary.arrived_s.size() <= j) {
      const std::size_t i = boundary.arrived_s.size();
      if (boundary.sent_s.size() <= i) return kNotYetKnown;
      double begin_s = boundary.sent_s[i];
      if (i > 0) begin_s = std::max(begin_s, boundary.arrived_s[i - 1]);
      if (buffers_ > 0 && i >= buffers_) {
        if (boundary.received_s.size() <= i - buffers_) return kNotYetKnown;
        begin_s = std::max(begin_s, boundary.received_s[i - buffers_]);
      }
      boundary.arrived_s.push_back(begin_s + times_.transfer_s);
    }
    return boundary.arrived_s[j];
  }
  // The sender's next compute waits until a buffer is free.
  double buffer_free(Boundary& boundary) {
    const std::size_t j = boundary.sent_s.size();
    return buffers_ == 0 || j < buffers_ ? 0 : arrival(boundary, j - buffers_);
  }

  static double ended(const std::vector<double>& ends, int micro_batch) {
    return at(micro_batch) < ends.size() ? ends[at(micro_batch)] : kNotYetKnown;
  }

  double forward_ready(int stage, int micro_batch) {
    double ready_s = 0;
    if (stage > 0) {
      Boundary& in = activations_[at(stage - 1)];
      ready_s = crosses(stage - 1) ? arrival(in, in.received_s.size())
                                   : ended(ends_[at(stage - 1)].forward_s, micro_batch);
    }
    if (ready_s == kNotYetKnown || is_last(stage) || !crosses(stage)) return ready_s;
    const double free_s = buffer_free(activations_[at(stage)]);
    return free_s == kNotYetKnown ? kNotYetKnown : std::max(ready_s, free_s);
  }
  double gradient_ready(int stage, int micro_batch) {
    double ready_s = ended(ends_[at(stage)].forward_s, micro_batch);
    if (ready_s == kNotYetKnown) return kNotYetKnown;
    if (!is_last(stage)) {
      Boundary& in = gradients_[at(stage)];
      const double there_s = crosses(stage) ? arrival(in, in.received_s.size())
                                            : ended(ends_[at(stage + 1)].gradient_s, micro_batch);
      if (there_s == kNotYetKnown) return kNotYetKnown;
      ready_s = std::max(ready_s, there_s);
    }
    if (stage == 0 || !crosses(stage - 1)) return ready_s;
    const double free_s = buffer_free(gradients_[at(stage - 1)]);
    return free_s == kNotYetKnown ? kNotYetKnown : std::max(ready_s, free_s);
  }
  double ready(const Action& action) {
    if (action.pass == Pass::forward) return forward_ready(action.virtual_stage, action.micro_batch);
    if (action.pass == Pass::weight_gradient)
      return ended(ends_[at(action.virtual_stage)].gradient_s, action.micro_batch);
    return gradient_ready(action.virtual_stage, action.micro_batch);
  }

  static void set(std::vector<double>& ends, int micro_batch, double end_s) {
    if (at(micro_batch) >= ends.size()) ends.resize(at(micro_batch) + 1, kNotYetKnown);
    ends[at(micro_batch)] = end_s;
  }
  void note(const Action& action, double end_s) {
    const int stage = action.virtual_stage;
    if (action.pass == Pass::weight_gradient) return;
    if (action.pass == Pass::forward) {
      set(ends_[at(stage)].forward_s, action.micro_batch, end_s);
      activations_[at(stage)].sent_s.push_back(end_s);
      if (stage > 0) activations_[at(stage - 1)].received_s.push_back(end_s);
      return;
    }
    set(ends_[at(stage)].gradient_s, action.micro_batch, end_s);
    gradients_[at(stage)].received_s.push_back(end_s);
    if (stage > 0) gradients_[at(stage - 1)].sent_s.push_back(end_s);
  }

  bool advance(std::size_t rank) {
    const auto& actions = timetable_.ranks[rank];
    if (next_[rank] == actions.size()) return false;
    const Action& action = actions[next_[rank]];
    const double ready_s = ready(action);
    if (ready_s == kNotYetKnown) return false;
    RankTimes& times = result_.ranks[rank];
    const double begin_s = std::max(ready_s, times.last_s);
    const double work_s = times_.pass_times(action.virtual_stage).duration(action.pass);
    if (next_[rank] == 0) times.first_s = begin_s;
    times.last_s = begin_s + work_s;
    times.busy_s += work_s;
    result_.begin_s[rank][next_[rank]++] = begin_s;
    note(action, times.last_s);
    return true;
  }

  void finish(std::size_t rank) {
    RankTimes& times = result_.ranks[rank];
    result_.makespan_s = std::max(result_.makespan_s, times.last_s);
    int in_flight = 0;
    for (const Action& action : timetable_.ranks[rank]) {
      if (action.pass == Pass::forward) times.in_flight = std::max(times.in_flight, ++in_flight);
      if (action.pass == Pass::backward || action.pass == Pass::weight_gradient) --in_flight;
    }
  }

  const Timetable& timetable_;
  const ScheduleTimes& times_;
  const std::size_t buffers_;
  const std::vector<int> rank_of_;
  std::vector<Boundary> activations_, gradients_;  // [v]: between virtual stages v and v+1
  std::vector<Ends> ends_;                         // by virtual stage
  std::vector<std::size_t> next_;                  // by rank
  ScheduleResult result_;
};

}  // namespace

std::optional<ScheduleResult> evaluate(const Timetable& timetable, const ScheduleTimes& times,
                                       int p2p_buffers) {
  return Recurrence(timetable, times, p2p_buffers).run();
}

}  // namespace motley
