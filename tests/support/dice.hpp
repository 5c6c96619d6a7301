// Random choices for tests: the same seed gives the same choices with every standard library.
#pragma once

#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

namespace motley::tests {

class Dice {
 public:
  explicit Dice(unsigned seed) : engine_(seed) {}
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return std::vector<T>(values)[engine_() % values.size()];
  }
  bool once_in(unsigned times) { return engine_() % times == 0; }
  std::mt19937& engine() { return engine_; }
  // std::shuffle differs between standard libraries.
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[engine_() % i]);
  }

 private:
  std::mt19937 engine_;
};

}  // namespace motley::tests
