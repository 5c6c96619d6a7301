// Work in a child process, whose time and peak memory are measured.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>

#include "models/base/refusal.hpp"

namespace motley::tests {

template <class Answer>
struct MeasuredChild {
  Answer answer{};  // sent as its bytes
  double wall_s = 0, cpu_s = 0, peak_bytes = 0;
};

// Fails if the work exits by itself.
template <class Answer>
MeasuredChild<Answer> measure_child(const std::function<Answer()>& work) {
  int ends[2];
  MOTLEY_CHECK(pipe(ends) == 0);
  std::fflush(nullptr);
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) {
    const Answer answer = work();
    _exit(write(ends[1], &answer, sizeof answer) == sizeof answer ? 0 : 1);
  }
  close(ends[1]);
  MeasuredChild<Answer> measured;
  const bool got = read(ends[0], &measured.answer, sizeof measured.answer) == sizeof measured.answer;
  close(ends[0]);
  rusage usage{};
  int status = 0;
  wait4(child, &status, 0, &usage);
  MOTLEY_CHECK(got && status == 0);
  const auto seconds_of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  measured.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  measured.cpu_s = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  measured.peak_bytes = 1024.0 * static_cast<double>(usage.ru_maxrss);
  return measured;
}

}  // namespace motley::tests
