#include "models/plan/best_pipelines.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

namespace motley {
namespace {

// Pipelines whose estimates are so much above the best one of their schedule are not looked for. Assumes: estimates lie
// within 25 % of simulations (a test holds it).
constexpr double kFar = 1.25;

bool is_faster(const PlannedPipeline& a, const PlannedPipeline& b) { return a.estimate_s < b.estimate_s; }

// Puts those first that have few before them with the same replicas and parts: pipelines that differ in the order of
// their groups alone take about as long.
void spread_out(std::vector<PlannedPipeline>& list) {
  constexpr int kAlike = 2;
  std::map<std::array<std::int64_t, 5>, int> before;
  std::vector<std::pair<int, PlannedPipeline>> rounds;
  for (PlannedPipeline& each : list) {
    int& count =
        before[{each.micro_batch, each.replicas, each.context_parallel, each.expert_parallel, each.chunks}];
    rounds.emplace_back(count++ / kAlike, std::move(each));
  }
  std::stable_sort(rounds.begin(), rounds.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = std::move(rounds[i].second);
}

}  // namespace

double BestPipelines::cut_s(Schedule schedule) const {
  double cut_s = std::numeric_limits<double>::infinity();
  const auto own = lists_.find(schedule), plain = lists_.find(Schedule::one_f_one_b);
  if (own != lists_.end()) {
    cut_s = kFar * own->second.front().estimate_s;
    if (own->second.size() == most_of(schedule)) cut_s = std::min(cut_s, own->second.back().estimate_s);
  }
  if (schedule != Schedule::one_f_one_b && plain != lists_.end())
    cut_s = std::min(cut_s, plain->second.front().estimate_s);
  return cut_s;
}

double BestPipelines::least_s(Schedule schedule) const {
  double least_s = std::numeric_limits<double>::infinity();
  for (const Schedule each : {schedule, Schedule::one_f_one_b})
    if (const auto list = lists_.find(each); list != lists_.end())
      least_s = std::min(least_s, list->second.front().estimate_s);
  return least_s;
}

void BestPipelines::add(PlannedPipeline pipeline) {
  if (pipeline.estimate_s >= cut_s(pipeline.schedule)) return;
  const Schedule schedule = pipeline.schedule;
  std::vector<PlannedPipeline>& list = lists_[schedule];
  if (std::find(list.begin(), list.end(), pipeline) != list.end()) return;
  list.insert(std::upper_bound(list.begin(), list.end(), pipeline, is_faster), std::move(pipeline));
  if (list.size() > most_of(schedule)) list.pop_back();
}

std::vector<PlannedPipeline> BestPipelines::take() {
  std::vector<std::vector<PlannedPipeline>> lists;
  for (auto& [schedule, list] : lists_) lists.push_back(std::move(list));
  std::stable_sort(lists.begin(), lists.end(),
                   [](const auto& a, const auto& b) { return is_faster(a.front(), b.front()); });
  for (std::vector<PlannedPipeline>& list : lists) spread_out(list);
  std::vector<PlannedPipeline> all;
  for (std::size_t place = 0; place < most_; ++place)
    for (std::vector<PlannedPipeline>& list : lists)
      if (place < list.size() && all.size() < most_) all.push_back(std::move(list[place]));
  return all;
}

std::size_t BestPipelines::most_of(Schedule schedule) const {
  return schedule == Schedule::one_f_one_b ? most_ : (most_ + 2) / 3;
}

}  // namespace motley
