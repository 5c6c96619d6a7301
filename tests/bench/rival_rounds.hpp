// How tests/bench/rival_mpi.cpp and tests/bench/rival_gloo.cpp time an all-reduce of fp32 values, in place: as
// hw/calibration/time_calls.cpp does. All ranks begin many calls in a row together; a call takes as long as on
// the rank where it took longest; of all rounds it is the median.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

// From the arguments BYTES, SECONDS A TIME, ROUNDS.
struct RivalOptions {
  std::size_t bytes = 0;
  double seconds_a_time = 0;
  int rounds = 0;
  explicit RivalOptions(char** arguments)
      : bytes(std::strtoull(arguments[0], nullptr, 10)),
        seconds_a_time(std::atof(arguments[1])),
        rounds(std::atoi(arguments[2])) {}
};

// A Rival has barrier(), all_reduce(std::vector<float>&), which sums, and largest(double) of all ranks.
template <class Rival>
double time_calls(Rival& rival, std::vector<float>& values, int calls) {
  rival.barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) rival.all_reduce(values);
  const double took_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return rival.largest(took_s) / calls;
}

// Seconds of one call. Ends the process if the sums are wrong.
template <class Rival>
double time_rounds(Rival& rival, const RivalOptions& options, int rank_count) {
  constexpr double kCallsMost = 5000;
  std::vector<float> values(options.bytes / sizeof(float), 1);
  time_calls(rival, values, 1);
  for (const float value : values)
    if (value != static_cast<float>(rank_count)) std::abort();
  std::fill(values.begin(), values.end(), 0.0F);
  const double once_s = std::max(time_calls(rival, values, 3), 1e-9);
  const int calls = static_cast<int>(std::clamp(std::ceil(options.seconds_a_time / once_s), 1.0, kCallsMost));
  std::vector<double> times;
  for (int i = 0; i < options.rounds; ++i) times.push_back(time_calls(rival, values, calls));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}
