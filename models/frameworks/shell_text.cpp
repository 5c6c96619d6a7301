#include "models/frameworks/shell_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "models/base/text_file.hpp"

namespace motley {
namespace {

constexpr std::size_t kMostCharacters = std::size_t{4} << 20;  // of all words together, once expanded

struct Character {
  char value = 0;
  int line = 0, column = 0;
};
using Characters = std::vector<Character>;

// A word as it is written together: characters, and the first unknown variable in it.
struct Written {
  Characters characters;
  std::string unknown;
  int line = 0, column = 0;
};
using Words = std::vector<Written>;

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// A text, how far it was read, and the variables that it has set. Reads one word after the other.
class WordReader {
 public:
  WordReader(const std::string& text, const std::string& file) : file_(file) {
    int line = 1, column = 1;
    for (const char c : text) {
      text_.push_back({c, line, column});
      ++column;
      if (c != '\n') continue;
      ++line;
      column = 1;
    }
  }

 protected:
  char peek(std::size_t ahead = 0) const {
    return next_ + ahead < text_.size() ? text_[next_ + ahead].value : '\0';
  }
  Location place(std::size_t index) const {
    if (text_.empty()) return {file_, 1, 1};
    const Character& c = text_[std::min(index, text_.size() - 1)];
    return {file_, c.line, c.column};
  }
  [[noreturn]] void refuse(std::size_t from, const std::string& what, const std::string& hint = {},
                           RefusalSite site = RefusalSite::here()) const {
    throw Refusal(Exit::usage, "shell-syntax", place(from), what, hint, site);
  }
  bool continues_line() const {
    return peek() == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'));
  }

  // Reads what stands together, and returns the words that it expands to.
  Words read_word() {
    Words done;
    Written word;
    bool begun = false;  // quotes begin a word even where nothing stands in them
    if (next_ >= text_.size()) return done;
    word.line = text_[next_].line;
    word.column = text_[next_].column;
    while (next_ < text_.size()) {
      const char c = peek();
      if (continues_line()) {
        next_ += peek(1) == '\r' ? 3 : 2;
        continue;
      }
      if (is_blank(c) || std::string_view(";&|()<>").find(c) != std::string_view::npos) break;
      if (c == '\'') {
        read_single_quotes(word);
        begun = true;
      } else if (c == '"') {
        begun = true;
        read_double_quotes(word, done);
      } else if (c == '\\') {
        if (next_ + 1 >= text_.size()) refuse(next_, "a backslash ends the text");
        take(word, text_[next_ + 1]);
        next_ += 2;
      } else if (c == '$' || c == '`') {
        expand(word, done, splits_);
      } else {
        take(word, text_[next_++]);
      }
    }
    if (begun || !word.characters.empty() || !word.unknown.empty()) done.push_back(std::move(word));
    return done;
  }

  void take(Written& word, const Character& c) {
    if (++taken_ > kMostCharacters)
      refuse(next_, "the text expands to more than 4 MiB", "a line of arguments is far shorter");
    if (word.characters.empty() && word.unknown.empty()) {
      word.line = c.line;
      word.column = c.column;
    }
    word.characters.push_back(c);
  }

  void read_single_quotes(Written& word) {
    const std::size_t from = next_++;
    while (next_ < text_.size() && peek() != '\'') take(word, text_[next_++]);
    if (next_ >= text_.size()) refuse(from, "a quote begins here and does not end", "`'` ends it");
    ++next_;
  }

  void read_double_quotes(Written& word, Words& done) {
    const std::size_t from = next_++;
    while (next_ < text_.size() && peek() != '"') {
      if (continues_line()) {
        next_ += 2;
      } else if (peek() == '\\' && std::string_view("\"\\$`").find(peek(1)) != std::string_view::npos &&
                 peek(1) != '\0') {
        take(word, text_[next_ + 1]);
        next_ += 2;
      } else if (peek() == '$' || peek() == '`') {
        expand(word, done, false);
      } else {
        take(word, text_[next_++]);
      }
    }
    if (next_ >= text_.size()) refuse(from, "a quote begins here and does not end", "`\"` ends it");
    ++next_;
  }

  // Reads `$NAME`, `${NAME...}`, `$(...)` or a backquoted command. An unquoted value is split at blanks.
  void expand(Written& word, Words& done, bool splits) {
    const std::size_t from = next_;
    if (peek() == '`') return skip_to(word, from, '`');
    if (peek(1) == '(') return skip_brackets(word, from);
    if (peek(1) == '{') return expand_braces(word, done, splits);
    ++next_;
    std::string name;
    while (is_name_character(peek())) name += text_[next_++].value;
    if (name.empty() && std::string_view("@*#?$!-").find(peek()) != std::string_view::npos && peek() != '\0')
      name = text_[next_++].value;
    if (name.empty()) return take(word, text_[from]);  // a dollar sign alone
    put(word, done, name, splits, from);
  }

  void skip_to(Written& word, std::size_t from, char end) {
    ++next_;
    while (next_ < text_.size() && peek() != end) ++next_;
    if (next_ >= text_.size()) refuse(from, "a command in backquotes begins here and does not end");
    ++next_;
    mark_unknown(word, from, "`...`");
  }

  void skip_brackets(Written& word, std::size_t from) {
    int depth = 0;
    ++next_;
    do {
      if (next_ >= text_.size()) refuse(from, "`$(` begins here and does not end", "`)` ends it");
      if (peek() == '(') ++depth;
      if (peek() == ')') --depth;
      ++next_;
    } while (depth > 0);
    mark_unknown(word, from, "$(...)");
  }

  void expand_braces(Written& word, Words& done, bool splits) {
    const std::size_t from = next_;
    next_ += 2;
    std::string name;
    while (is_name_character(peek()) ||
           (name.empty() && std::string_view("@*").find(peek()) != std::string_view::npos && peek() != '\0'))
      name += text_[next_++].value;
    std::size_t end = next_;
    int depth = 1;
    while (end < text_.size() && depth > 0) {
      if (text_[end].value == '{') ++depth;
      if (text_[end].value == '}') --depth;
      ++end;
    }
    if (depth > 0) refuse(from, "`${` begins here and does not end", "`}` ends it");
    std::string rest;
    for (std::size_t i = next_; i + 1 < end; ++i) rest += text_[i].value;
    const bool is_known = scalars_.contains(name) || arrays_.contains(name);
    const bool has_default = rest.starts_with(":-") || rest.starts_with("-");
    if (!is_known && has_default) {
      for (std::size_t i = next_ + (rest.starts_with(":") ? 2 : 1); i + 1 < end; ++i) take(word, text_[i]);
      next_ = end;
      return;
    }
    next_ = end;
    if (!rest.empty() && !has_default && rest != "[@]" && rest != "[*]")
      return mark_unknown(word, from, fmt::format("${{{}{}}}", name, rest));
    put(word, done, name, splits, from);
  }

  void mark_unknown(Written& word, std::size_t from, const std::string& name) {
    if (word.characters.empty() && word.unknown.empty()) {
      word.line = text_[from].line;
      word.column = text_[from].column;
    }
    if (word.unknown.empty()) word.unknown = name;
    for (std::size_t i = from; i < next_; ++i) take(word, text_[i]);
  }

  // Puts the value of a variable into the word. An array ends the word at each of its items.
  void put(Written& word, Words& done, const std::string& name, bool splits, std::size_t from) {
    if (const auto array = arrays_.find(name); array != arrays_.end()) {
      for (std::size_t i = 0; i < array->second.size(); ++i) {
        if (i > 0) {
          done.push_back(std::move(word));
          word = {};
        }
        for (const Character& c : array->second[i].characters) take(word, c);
        if (word.unknown.empty()) word.unknown = array->second[i].unknown;
      }
      return;
    }
    const auto scalar = scalars_.find(name);
    if (scalar == scalars_.end()) return mark_unknown(word, from, "$" + name);
    if (word.unknown.empty()) word.unknown = scalar->second.unknown;
    for (const Character& c : scalar->second.characters) {
      if (!splits || !is_blank(c.value)) {
        take(word, c);
      } else if (!word.characters.empty()) {
        done.push_back(std::move(word));
        word = {};
      }
    }
  }

  std::string file_;
  Characters text_;
  std::size_t next_ = 0, taken_ = 0;
  bool splits_ = true;
  std::map<std::string, Written> scalars_;
  std::map<std::string, Words> arrays_;
};

class ShellParser : private WordReader {
 public:
  using WordReader::WordReader;

  std::vector<ShellCommand> parse() {
    while (next_ < text_.size()) parse_piece();
    end_command();
    return std::move(commands_);
  }

 private:
  void parse_piece() {
    const char c = peek();
    if (continues_line()) {
      next_ += peek(1) == '\r' ? 3 : 2;
    } else if (c == '\n' || c == ';' || c == '&' || c == '|' || c == '(' || c == ')') {
      ++next_;
      end_command();
    } else if (is_blank(c)) {
      ++next_;
    } else if (c == '#') {
      while (next_ < text_.size() && peek() != '\n') ++next_;
    } else if (c == '>' || c == '<') {
      skip_redirection();
    } else if (words_.empty() && is_assignment()) {
      parse_assignment();
    } else {
      parse_word();
    }
  }

  void skip_redirection() {
    while (peek() == '>' || peek() == '<' || peek() == '&') ++next_;
    while (peek() == ' ' || peek() == '\t') ++next_;
    if (peek() != '\0' && peek() != '\n') read_word();
  }

  void parse_word() {
    const std::size_t from = next_;
    Words read = read_word();
    // `2>` redirects a stream.
    const bool is_stream = (peek() == '>' || peek() == '<') && next_ == from + 1 &&
                           std::isdigit(static_cast<unsigned char>(text_[from].value)) != 0;
    if (is_stream) return;
    for (Written& word : read) words_.push_back(std::move(word));
  }

  bool is_assignment() const {
    std::size_t end = next_;
    while (end < text_.size() && is_name_character(text_[end].value)) ++end;
    if (end == next_ || std::isdigit(static_cast<unsigned char>(peek())) != 0) return false;
    if (end < text_.size() && text_[end].value == '+') ++end;
    return end < text_.size() && text_[end].value == '=';
  }

  void parse_assignment() {
    const std::size_t from = next_;
    std::string name;
    while (is_name_character(peek())) name += text_[next_++].value;
    const bool appends = peek() == '+';
    next_ += appends ? 2 : 1;
    if (peek() == '(') {
      Words items = read_array(from);
      Words& array = arrays_[name];
      if (!appends) array.clear();
      for (Written& item : items) array.push_back(std::move(item));
      scalars_.erase(name);
      return;
    }
    splits_ = false;
    Words value = read_word();
    splits_ = true;
    Written whole = value.empty() ? Written{} : std::move(value[0]);
    if (appends) {
      Written& before = scalars_[name];
      before.characters.insert(before.characters.end(), whole.characters.begin(), whole.characters.end());
      if (before.unknown.empty()) before.unknown = whole.unknown;
      whole = before;
    }
    assignments_.emplace_back(name, whole);
    assignments_.back().second.line = text_[from].line;
    assignments_.back().second.column = text_[from].column;
    scalars_[name] = std::move(whole);
    arrays_.erase(name);
  }

  Words read_array(std::size_t from) {
    ++next_;
    Words items;
    while (peek() != ')') {
      if (next_ >= text_.size()) refuse(from, "an array begins here and does not end", "`)` ends it");
      if (continues_line()) {
        next_ += 2;
      } else if (is_blank(peek())) {
        ++next_;
      } else if (peek() == '#') {
        while (next_ < text_.size() && peek() != '\n') ++next_;
      } else if (std::string_view(";&|(<>").find(peek()) != std::string_view::npos) {
        refuse(next_, fmt::format("`{}` stands in an array", peek()), "quote it");
      } else {
        for (Written& word : read_word()) items.push_back(std::move(word));
      }
    }
    ++next_;
    return items;
  }

  ShellWord finish(const Written& word) const {
    ShellWord finished{{}, {file_, word.line, word.column}, word.unknown};
    for (const Character& c : word.characters) finished.text += c.value;
    return finished;
  }

  void end_command() {
    if (!words_.empty() && words_[0].characters.size() == 6 && finish(words_[0]).text == "export")
      return end_export();
    if (!words_.empty()) {
      ShellCommand command;
      for (const auto& [name, value] : assignments_) {
        ShellWord word = finish(value);
        word.text = name + "=" + word.text;
        command.assignments.push_back(std::move(word));
      }
      for (const Written& word : words_) command.words.push_back(finish(word));
      commands_.push_back(std::move(command));
    }
    words_.clear();
    assignments_.clear();
  }

  // `export NAME=value` assigns, too.
  void end_export() {
    for (std::size_t i = 1; i < words_.size(); ++i) {
      const Characters& all = words_[i].characters;
      const auto equals =
          std::find_if(all.begin(), all.end(), [](const Character& c) { return c.value == '='; });
      if (equals == all.end()) continue;
      std::string name;
      for (auto c = all.begin(); c != equals; ++c) name += c->value;
      Written value = words_[i];
      value.characters.assign(equals + 1, all.end());
      scalars_[name] = std::move(value);
      arrays_.erase(name);
    }
    words_.clear();
    assignments_.clear();
  }

  std::vector<std::pair<std::string, Written>> assignments_;
  Words words_;
  std::vector<ShellCommand> commands_;
};

}  // namespace

std::vector<ShellCommand> parse_shell(const std::string& text, const std::string& file) {
  refuse_not_utf8(text, file);
  return ShellParser(text, file).parse();
}

}  // namespace motley
