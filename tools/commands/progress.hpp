// Shows a person how far a long command is: one line on stderr, redrawn, with the time that is left.
// Silent unless stderr is a terminal that can redraw a line. Results never depend on it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace motley {

class Progress {
 public:
  Progress(std::string what, std::int64_t total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // clears the line
  // Shows `done` of the total, followed by `note` ("loss 2.31").
  void show(std::int64_t done, const std::string& note = {});
  // Clears the line until it is shown again, so that a line of a result can stand there.
  void hide();

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  std::int64_t total_;
  bool visible_;
  bool drawn_ = false;
  Clock::time_point begin_, last_;
};

}  // namespace motley
