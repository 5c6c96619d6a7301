// Finds what is wrong with a timetable that a user wrote, and names its actions as the user did ("2F5").
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "models/base/index.hpp"
#include "models/schedule/schedule.hpp"

namespace motley {
namespace {

using Complaint = std::optional<std::string>;

std::string text(Pass pass, int stage, int micro_batch) {
  Timetable one;
  one.ranks = {{{pass, stage, micro_batch}}};
  std::string csv = to_csv(one);
  csv.pop_back();  // removes the end of the line
  return csv;
}

// Index of each pass of each virtual stage and micro-batch in its rank; -1: the rank does not have it.
class Places {
 public:
  Places(int stages, int micro_batches)
      : micro_batches_(micro_batches), places_(at(stages) * at(micro_batches)) {
    for (auto& place : places_) place.fill(-1);
  }
  int& index(const Action& action) { return index(action.pass, action.virtual_stage, action.micro_batch); }
  int& index(Pass pass, int stage, int micro_batch) {
    return places_[at(stage) * at(micro_batches_) + at(micro_batch)][static_cast<std::size_t>(pass)];
  }

 private:
  int micro_batches_;
  std::vector<std::array<int, 4>> places_;
};

Complaint find_range(const Timetable& timetable, int micro_batches, int& stages) {
  std::int64_t actions = 0, last = -1;
  for (std::size_t rank = 0; rank < timetable.ranks.size(); ++rank) {
    if (timetable.ranks[rank].empty()) return fmt::format("rank {} does nothing", rank);
    for (const Action& action : timetable.ranks[rank]) {
      if (action.micro_batch >= micro_batches)
        return fmt::format("{} is of a micro-batch that is not there: a step has {}",
                           text(action.pass, action.virtual_stage, action.micro_batch), micro_batches);
      last = std::max<std::int64_t>(last, action.virtual_stage);
    }
    actions += static_cast<std::int64_t>(timetable.ranks[rank].size());
  }
  const std::int64_t least = 2 * (last + 1) * micro_batches;
  if (actions < least || actions == 0)
    return fmt::format("{} actions: {} virtual stages and {} micro-batches make at least {}", actions,
                       last + 1, micro_batches, least);
  stages = static_cast<int>(last) + 1;
  return std::nullopt;
}

Complaint find_misplaced(const Timetable& timetable, Places& places, std::vector<int>& rank_of) {
  for (std::size_t rank = 0; rank < timetable.ranks.size(); ++rank)
    for (std::size_t i = 0; i < timetable.ranks[rank].size(); ++i) {
      const Action& action = timetable.ranks[rank][i];
      int& holder = rank_of[at(action.virtual_stage)];
      if (holder >= 0 && holder != static_cast<int>(rank))
        return fmt::format("ranks {} and {} both run virtual stage {}", holder, rank, action.virtual_stage);
      holder = static_cast<int>(rank);
      if (places.index(action) >= 0)
        return fmt::format("{} is there twice", text(action.pass, action.virtual_stage, action.micro_batch));
      places.index(action) = static_cast<int>(i);
    }
  return std::nullopt;
}

// Checks all passes of one micro-batch in one stage.
Complaint find_in_passes(Places& places, int v, int m) {
  const int forward = places.index(Pass::forward, v, m), whole = places.index(Pass::backward, v, m);
  const int input = places.index(Pass::input_gradient, v, m),
            weight = places.index(Pass::weight_gradient, v, m);
  if (forward < 0) return fmt::format("{} is missing", text(Pass::forward, v, m));
  if (whole >= 0 && (input >= 0 || weight >= 0))
    return fmt::format("{} is there, and a split backward as well", text(Pass::backward, v, m));
  if (whole < 0 && input < 0 && weight < 0) return fmt::format("{} is missing", text(Pass::backward, v, m));
  if (whole < 0 && input < 0) return fmt::format("{} is missing", text(Pass::input_gradient, v, m));
  if (whole < 0 && weight < 0) return fmt::format("{} is missing", text(Pass::weight_gradient, v, m));
  const int back = std::max(whole, input);
  if (back < forward)
    return fmt::format("{} comes before {}", text(whole >= 0 ? Pass::backward : Pass::input_gradient, v, m),
                       text(Pass::forward, v, m));
  if (weight >= 0 && weight < input)
    return fmt::format("{} comes before {}", text(Pass::weight_gradient, v, m),
                       text(Pass::input_gradient, v, m));
  return std::nullopt;
}

// Micro-batches, by stage, in the order in which the stage runs their forwards or sends their gradients back.
std::map<int, std::vector<int>> orders(const Timetable& timetable, bool forward) {
  std::map<int, std::vector<int>> of_stage;
  for (const auto& actions : timetable.ranks)
    for (const Action& action : actions)
      if (action.pass != Pass::weight_gradient && (action.pass == Pass::forward) == forward)
        of_stage[action.virtual_stage].push_back(action.micro_batch);
  return of_stage;
}

Complaint find_overtaking(const Timetable& timetable, const std::vector<int>& rank_of) {
  for (const bool forward : {true, false}) {
    const auto of_stage = orders(timetable, forward);
    for (int v = 0; v + 1 < static_cast<int>(rank_of.size()); ++v)
      if (rank_of[at(v)] != rank_of[at(v + 1)] && of_stage.at(v) != of_stage.at(v + 1))
        return fmt::format("virtual stages {} and {} run the {} of micro-batches in different orders", v,
                           v + 1, forward ? "forwards" : "backwards");
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> find_complaint(const Timetable& timetable, int micro_batches) {
  int stages = 0;
  if (auto complaint = find_range(timetable, micro_batches, stages)) return complaint;
  Places places(stages, micro_batches);
  std::vector<int> rank_of(at(stages), -1);
  if (auto complaint = find_misplaced(timetable, places, rank_of)) return complaint;
  for (int v = 0; v < stages; ++v)
    for (int m = 0; m < micro_batches; ++m)
      if (auto complaint = find_in_passes(places, v, m)) return complaint;
  if (auto complaint = find_overtaking(timetable, rank_of)) return complaint;
  if (!evaluate(timetable, {})) return "its ranks wait for each other for ever";
  return std::nullopt;
}

}  // namespace motley
