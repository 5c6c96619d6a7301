#include "models/frameworks/layer_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "models/base/index.hpp"
#include "models/base/units.hpp"
#include "models/base/yaml_reader.hpp"

namespace motley {
namespace {

constexpr std::size_t kMostLetters = std::size_t{1} << 20;

class LayoutReader {
 public:
  LayoutReader(const std::string& text, const Location& where) : text_(text), where_(where) {
    std::erase(text_, ',');
  }

  std::vector<std::string> stages() {
    std::string letters = repeat_letters(repeat_brackets(text_));
    std::vector<std::string> stages(1);
    for (const char c : letters) {
      if (c == '|')
        stages.emplace_back();
      else if (std::string_view("ELtm").find(c) != std::string_view::npos)
        stages.back() += c;
      else
        refuse(fmt::format("`{}` has a letter that is none of E, t, m, L", shortened(text_)));
    }
    return stages;
  }

  [[noreturn]] void refuse(const std::string& message, const std::string& hint = {},
                           RefusalSite site = RefusalSite::here()) const {
    throw Refusal(Exit::usage, "bad-layout", where_, message, hint, site);
  }

 private:
  // Reads "*12" at that place; 0 letters: no number of repeats stands there, and `repeats` is left as it is.
  std::size_t read_repeats(const std::string& text, std::size_t from, std::size_t& repeats) const {
    std::size_t end = from + 1;
    if (from >= text.size() || text[from] != '*') return 0;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    if (end == from + 1) return 0;
    std::int64_t value = 0;
    if (read_integer(text.substr(from + 1, end - from - 1), value) != NumberFault::none ||
        at(value) > kMostLetters)
      refuse(fmt::format("`{}` repeats too often", shortened(text.substr(from, end - from))));
    repeats = at(value);
    return end - from;
  }

  void append(std::string& text, const std::string& part, std::size_t repeats) const {
    if (text.size() + part.size() * repeats > kMostLetters) refuse("a layout of more than a million letters");
    for (std::size_t i = 0; i < repeats; ++i) text += part;
  }

  std::string repeat_brackets(const std::string& text) const {
    std::string done;
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t close = text[i] == '(' ? text.find(')', i) : std::string::npos;
      std::size_t repeats = 1;
      const std::size_t length =
          close == std::string::npos || close == i + 1 ? 0 : read_repeats(text, close + 1, repeats);
      append(done, length > 0 ? text.substr(i + 1, close - i - 1) : text.substr(i, 1), repeats);
      i = length > 0 ? close + 1 + length : i + 1;
    }
    return done;
  }

  std::string repeat_letters(const std::string& text) const {
    std::string done;
    for (std::size_t i = 0; i < text.size();) {
      std::size_t repeats = 1;
      const std::size_t length = read_repeats(text, i + 1, repeats);
      append(done, text.substr(i, 1), repeats);
      i += 1 + length;
    }
    return done;
  }

  std::string text_;
  Location where_;
};

// A list expression: sum of terms, each a list or a sum in brackets, times a whole number.
class PatternReader {
 public:
  PatternReader(const std::string& text, const Location& where) : where_(where) {
    for (const char c : text)
      if (c != ' ') text_ += c;
  }

  std::vector<bool> list() {
    std::vector<bool> values = sum(0);
    if (next_ < text_.size()) refuse();
    return values;
  }

  [[noreturn]] void refuse() const {
    throw Refusal(Exit::usage, "bad-layer-pattern", where_,
                  fmt::format("`{}` is no list of ones and zeros by layer", shortened(text_)),
                  "as 2, or `([0]*3+[1]*58)`");
  }

 private:
  static constexpr int kMostBrackets = 16;

  std::vector<bool> sum(int depth) {
    std::vector<bool> values = product(depth);
    while (next_ < text_.size() && text_[next_] == '+') {
      ++next_;
      const std::vector<bool> more = product(depth);
      values.insert(values.end(), more.begin(), more.end());
      if (values.size() > kMostLetters) refuse();
    }
    return values;
  }

  std::vector<bool> product(int depth) {
    if (next_ >= text_.size() || depth > kMostBrackets) refuse();
    std::vector<bool> values;
    if (text_[next_] == '(') {
      ++next_;
      values = sum(depth + 1);
      if (next_ >= text_.size() || text_[next_++] != ')') refuse();
    } else {
      values = items();
    }
    while (next_ < text_.size() && text_[next_] == '*') {
      ++next_;
      const std::int64_t times = number();
      if (at(times) * values.size() > kMostLetters) refuse();
      std::vector<bool> repeated;
      for (std::int64_t i = 0; i < times; ++i) repeated.insert(repeated.end(), values.begin(), values.end());
      values = std::move(repeated);
    }
    return values;
  }

  std::vector<bool> items() {
    if (text_[next_++] != '[') refuse();
    std::vector<bool> values;
    while (next_ < text_.size() && text_[next_] != ']') {
      const std::int64_t value = number();
      if (value > 1) refuse();
      values.push_back(value == 1);
      if (next_ < text_.size() && text_[next_] == ',') ++next_;
    }
    if (next_ >= text_.size()) refuse();
    ++next_;
    return values;
  }

  std::int64_t number() {
    const std::size_t from = next_;
    while (next_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[next_])) != 0) ++next_;
    std::int64_t value = 0;
    if (read_integer(text_.substr(from, next_ - from), value) != NumberFault::none ||
        at(value) > kMostLetters)
      refuse();
    return value;
  }

  std::string text_;
  Location where_;
  std::size_t next_ = 0;
};

}  // namespace

LayerLayout parse_layout(const std::string& text, const Location& where, std::int64_t stages,
                         std::int64_t layers, std::int64_t extra) {
  LayoutReader reader(text, where);
  const std::vector<std::string> parts = reader.stages();
  const auto count = static_cast<std::int64_t>(parts.size());
  if (count % stages != 0)
    reader.refuse(fmt::format("a layout of {} parts for {} pipeline stages", count, stages),
                  "as many parts between `|` as stages, or a multiple");
  std::string all;
  LayerLayout layout;
  for (const std::string& part : parts) {
    layout.layers.push_back(std::count(part.begin(), part.end(), 't'));
    all += part;
  }
  const auto letters = [&](char c) { return std::count(all.begin(), all.end(), c); };
  if (!all.starts_with('E') || !all.ends_with('L') || letters('E') != 1 || letters('L') != 1)
    reader.refuse("a layout begins with its one E and ends with its one L",
                  "E is the embedding, t a layer, m a module for further tokens, L the head");
  if (letters('t') != layers)
    reader.refuse(fmt::format("the layout has {} layers (t), the model {}", letters('t'), layers));
  layout.extra = letters('m');
  if (layout.extra != extra)
    reader.refuse(
        fmt::format("the layout has {} modules for further tokens (m), the model {}", layout.extra, extra));
  if (std::count(parts.back().begin(), parts.back().end(), 'm') != layout.extra ||
      all.find('m') < all.find_last_of('t') + 1)
    reader.refuse("modules for further tokens (m) stand elsewhere than before the head (L)",
                  "Motley computes them in the last virtual stage");
  for (std::size_t v = 1; v + 1 < parts.size(); ++v)
    if (layout.layers[v] == 0)
      reader.refuse(fmt::format("virtual stage {} has no layer", v),
                    "only the first and the last may have none");
  return layout;
}

std::vector<bool> parse_layer_pattern(const std::string& text, const Location& where, std::int64_t layers,
                                      std::int64_t first) {
  PatternReader reader(text, where);
  std::int64_t every = 0;
  if (read_integer(text, every) == NumberFault::none) {
    if (every < 1) reader.refuse();
    std::vector<bool> values;
    for (std::int64_t layer = 0; layer < layers; ++layer) values.push_back((layer + first) % every == 0);
    return values;
  }
  std::vector<bool> values = reader.list();
  if (static_cast<std::int64_t>(values.size()) != layers)
    throw Refusal(Exit::usage, "bad-layer-pattern", where,
                  fmt::format("the list has {} layers, the model {}", values.size(), layers));
  return values;
}

}  // namespace motley
