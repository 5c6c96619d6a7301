// What comes to a rank from other ranks while it performs a step. A recording is made of it, or brings it in place of
// the others. Read next: hw/rank/recording.hpp, hw/world/real_world.hpp.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "models/world/world.hpp"

namespace motley {

// Where it comes to, in order: the place of a received message, or the places of a collective that other ranks fill.
using Places = std::span<const std::span<float>>;

class Arrivals {
 public:
  virtual ~Arrivals() = default;
  // Fills the places and returns true, or returns false: then the other ranks are asked.
  virtual bool bring(const Step& step, Places places) = 0;
  // Called with what has come, whoever brought it. Threads of several streams call it at the same time.
  virtual void came(const Step& step, Places places) = 0;
};

// Appends the values of the places.
void append_values(Places places, std::vector<float>& values);

// Values that were recorded for one step, which its receives take in order.
class RecordedValues {
 public:
  RecordedValues() = default;
  explicit RecordedValues(std::vector<float> values) : values_(std::move(values)) {}
  // Both throw Refusal "wrong-recording" if the step does not need exactly these values.
  void fill(Places places);
  void check_all_taken() const;
  void begin_again() { taken_ = 0; }

 private:
  std::vector<float> values_;
  std::size_t taken_ = 0;
};

// Keeps what comes to each step, while the other ranks bring it.
class KeptArrivals : public Arrivals {
 public:
  bool bring(const Step&, Places) override { return false; }
  void came(const Step& step, Places places) override;
  // Returns what has come to a step, which has ended, and keeps it no longer.
  std::vector<float> take(const Step& step);

 private:
  std::mutex mutex_;
  std::map<Step, std::vector<float>> of_steps_;
};

}  // namespace motley
