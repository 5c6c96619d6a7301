// Random values and damaged texts, for tests that print values and read them back.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "models/base/index.hpp"

namespace motley::tests {

class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}

  std::int64_t integer(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(engine_);
  }
  template <class T>
  const T& one_of(const std::vector<T>& values) {
    return values[at(integer(0, static_cast<std::int64_t>(values.size()) - 1))];
  }
  bool coin() { return integer(0, 1) == 1; }
  // A number from twenty-four powers of ten, so that exponents are printed, too.
  double positive() { return std::pow(10.0, std::uniform_real_distribution<double>(-12, 12)(engine_)); }
  // A word that a careless printer gets wrong.
  std::string word() {
    static const std::vector<std::string> words = {"a100-80gb-sxm",
                                                   "",
                                                   "null",
                                                   "true",
                                                   "010",
                                                   "1e3",
                                                   "- a: b",
                                                   "#",
                                                   "say \"so\"",
                                                   "back\\slash",
                                                   "two\nlines",
                                                   "tab\there",
                                                   "{a: ",
                                                   "[",
                                                   "&x",
                                                   "*x",
                                                   "! y",
                                                   "'",
                                                   "%",
                                                   "caf\xc3\xa9",
                                                   " lead and trail "};
    return one_of(words);
  }

 private:
  std::mt19937 engine_;
};

// The text after one to three edits: a byte is changed, a piece cut out or doubled, or something odd inserted.
inline std::string damaged(std::string text, Random& random) {
  static const std::vector<std::string> oddities = {
      ":",  "- ",     "{",     "}",    "[",    "]",  "&a ",   "*a",
      "\n", "\"",     "'",     "010",  "nan",  "-1", "1e999", "99999999999999999999",
      "0",  "!!int ", "---\n", "null", "\xff", "#",  "? ",    "| ",
      "> ", "%",      "\t"};
  for (std::int64_t edit = random.integer(1, 3); edit > 0 && !text.empty(); --edit) {
    const std::size_t place = at(random.integer(0, static_cast<std::int64_t>(text.size()) - 1));
    const std::size_t length = at(random.integer(1, 12));
    const std::string piece = text.substr(place, length);
    switch (random.integer(0, 3)) {
      case 0:
        text[place] = static_cast<char>(random.integer(32, 126));
        break;
      case 1:
        text.erase(place, length);
        break;
      case 2:
        text.insert(place, piece);
        break;
      default:
        text.insert(place, random.one_of(oddities));
    }
  }
  return text;
}

}  // namespace motley::tests
