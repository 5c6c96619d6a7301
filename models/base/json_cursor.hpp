// Places in JSON text, for readers that refuse at line and column. Read next: models/trace/trace_read.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

#include "models/base/refusal.hpp"

namespace motley {

inline Location place_of(const std::string& path, std::string_view text, std::size_t position) {
  const std::string_view before = text.substr(0, std::min(position, text.size()));
  const auto line_begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return {path, static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
          static_cast<int>(before.size() - line_begin) + 1};
}

// What the library's message says is wrong: "[json.exception...] parse error at line ...: syntax error ...".
inline std::string fault_of(std::string why, bool ends_early) {
  for (const char* before : {"] ", "syntax error"})
    if (const auto begin = why.find(before); begin != std::string::npos)
      why.erase(0, before[0] == ']' ? begin + 2 : begin);
  return ends_early ? why + ": the file ends too early" : why;
}

// An iterator over the text that records how far the parser has come.
class JsonCursor {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  JsonCursor() = default;
  JsonCursor(const char* here, const char** reached) : here_(here), reached_(reached) {}
  reference operator*() const { return *here_; }
  JsonCursor& operator++() {
    *reached_ = ++here_;
    return *this;
  }
  JsonCursor operator++(int) {
    JsonCursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const JsonCursor& other) const { return here_ == other.here_; }
  bool operator!=(const JsonCursor& other) const { return here_ != other.here_; }

 private:
  const char* here_ = nullptr;
  const char** reached_ = nullptr;
};

}  // namespace motley
