// Reads the pages of this folder: each case with its files and its whole message. README.md in this folder describes
// the form; a page of another form is an error that names page and line.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "models/base/refusal.hpp"

namespace motley::tests {

struct RefusalCase {
  std::string page;                          // "yaml.txt"
  int line = 0;                              // the line of its title, counted from 1
  std::string title;                         // "kind: what in a few words"
  std::vector<std::string> before;           // the arguments of motley, run before the command
  std::string command;                       // program and arguments; empty: no command line is refused
  std::string test;                          // path of the test that triggers it, from the root of the source
  std::map<std::string, std::string> files;  // text by file name; "edit" changes the printed Program
  std::size_t message_begin = 0;             // the byte of the page where the message begins
  std::string message;                       // the whole message, with its line "exit N"

  std::string kind() const { return title.substr(0, title.find(": ")); }
  std::string where() const { return "tests/refusals/" + page + ":" + std::to_string(line) + ": " + title; }
};

class RefusalPage {
 public:
  RefusalPage(std::string name, std::string_view text) : name_(std::move(name)), text_(text) {}

  std::vector<RefusalCase> read() {
    if (!take_line().starts_with("# ")) malformed("a page begins with `# ` and what it holds");
    while (!ended() && !next_line().starts_with("## ")) take_line();
    if (ended()) malformed("the page has no case");
    while (!ended()) cases_.push_back(take_case());
    return std::move(cases_);
  }

 private:
  [[noreturn]] void malformed(const std::string& what) const {
    throw std::runtime_error("tests/refusals/" + name_ + ":" + std::to_string(line_) + ": " + what);
  }

  bool ended() const { return at_ == text_.size(); }
  std::string_view next_line() const { return text_.substr(at_, text_.find('\n', at_) - at_); }
  std::string_view take_line() {
    ++line_;
    if (text_.find('\n', at_) == text_.npos) malformed("the page ends here");
    const std::string_view line = next_line();
    at_ += line.size() + 1;
    return line;
  }

  RefusalCase take_case() {
    RefusalCase taken;
    taken.page = name_;
    take_title(taken);
    take_plain_lines(taken);
    while (next_line().starts_with("```")) take_block(taken);
    if (take_line() != "----") malformed("`----` stands between the input and its message");
    if (taken.files.empty() && taken.command.empty() && taken.test.empty())
      malformed("nothing stands above `----` that could be refused");
    take_message(taken);
    if (ended()) return taken;
    if (!take_line().empty()) malformed("an empty line follows `exit N`");
    if (!next_line().starts_with("## ")) malformed("no title `## kind: what` stands below this line");
    return taken;
  }

  void take_title(RefusalCase& taken) {
    taken.title = take_line().substr(3);
    taken.line = line_;
    const std::size_t colon = taken.title.find(": ");
    const bool has_kind = colon != std::string::npos && colon > 0 &&
                          taken.title.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == colon;
    if (!has_kind || colon + 2 == taken.title.size()) malformed("a title is `## kind: what in a few words`");
    for (const RefusalCase& before : cases_)
      if (before.title == taken.title) malformed("line " + std::to_string(before.line) + " has this title");
    if (!cases_.empty() && taken.kind() < cases_.back().kind())
      malformed("the cases of a page stand in the order of their kinds");
  }

  // Takes a command, a test, or the text of input.yaml.
  void take_plain_lines(RefusalCase& taken) {
    constexpr std::string_view kBefore = "before: motley ", kCommand = "command: ", kTest = "test: ";
    while (next_line().starts_with(kBefore)) taken.before.emplace_back(take_line().substr(kBefore.size()));
    if (!taken.before.empty() && !next_line().starts_with(kCommand))
      malformed("`command:` follows `before:`");
    const std::string_view first = next_line();
    if (first.starts_with(kCommand)) {
      taken.command = take_line().substr(kCommand.size());
      if (!taken.command.starts_with("motley ") && !taken.command.starts_with("fit_published "))
        malformed("a command is of motley or of fit_published");
    } else if (first.starts_with(kTest)) {
      taken.test = take_line().substr(kTest.size());
    } else {
      const auto ends_input = [](std::string_view line) {
        return line == "----" || line.starts_with("```") || line.starts_with("## ");
      };
      std::string input;
      while (!ends_input(next_line())) input += std::string(take_line()) + "\n";
      if (!input.empty()) taken.files["input.yaml"] = input;
    }
  }

  void take_block(RefusalCase& taken) {
    std::string name(take_line().substr(3));
    const bool escaped = name.ends_with(" escaped");
    if (escaped) name.resize(name.size() - std::string_view(" escaped").size());
    if (name.empty() || name.find_first_of(" /`") != std::string::npos)
      malformed("a block begins with ``` and the name of its file, and `escaped` where its text is");
    if (taken.files.contains(name)) malformed("a second `" + name + "` in one case");
    std::string& file = taken.files[name];
    while (next_line() != "```") {
      const std::string_view line = take_line();
      file += (escaped ? unescaped(line) : std::string(line)) + "\n";
    }
    take_line();
  }

  std::string unescaped(std::string_view line) const {
    std::string bytes;
    for (std::size_t i = 0; i < line.size();) {
      if (line[i] != '\\') {
        bytes += line[i++];
      } else if (line.substr(i, 2) == "\\\\") {
        bytes += '\\';
        i += 2;
      } else {
        const std::string_view escape = line.substr(i, 4);
        if (escape.size() < 4 || !escape.starts_with("\\x") ||
            escape.find_first_not_of("0123456789abcdef", 2) != escape.npos)
          malformed("in an escaped block a backslash begins `\\xNN`, a byte, or `\\\\`");
        bytes += static_cast<char>(std::stoi(std::string(escape.substr(2)), nullptr, 16));
        i += 4;
      }
    }
    return bytes;
  }

  void take_message(RefusalCase& taken) {
    taken.message_begin = at_;
    std::string_view line;
    do {
      line = take_line();
      if (line.empty() || line.starts_with("## ")) malformed("the message above does not end with `exit N`");
    } while (!is_exit(line));
    taken.message = text_.substr(taken.message_begin, at_ - taken.message_begin);
    if (taken.message.size() == line.size() + 1) malformed("no message stands above `exit N`");
  }

  static bool is_exit(std::string_view line) {
    return line.starts_with("exit ") && line.size() > 5 &&
           line.find_first_not_of("0123456789", 5) == std::string_view::npos;
  }

  std::string name_;
  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 0;  // the line that was taken last
  std::vector<RefusalCase> cases_;
};

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

inline std::filesystem::path refusal_pages_folder() {
  return std::filesystem::path(MOTLEY_SOURCE_DIR) / "tests" / "refusals";
}

inline std::vector<RefusalCase> read_refusal_page(const std::string& name) {
  const std::string text = text_of(refusal_pages_folder() / name);
  return RefusalPage(name, text).read();
}

inline std::vector<RefusalCase> read_refusal_pages() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(refusal_pages_folder()))
    if (entry.path().extension() == ".txt") names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  std::vector<RefusalCase> cases;
  for (const std::string& name : names)
    for (RefusalCase& one : read_refusal_page(name)) cases.push_back(std::move(one));
  return cases;
}

// The message of the one case with this title, for the tests that pages name. Notes that a test has asked for it.
inline std::string expected_refusal(const std::string& title) {
  if (const char* const notes = std::getenv("MOTLEY_REFUSAL_SITES"))
    std::ofstream(notes, std::ios::app) << "= " + title + "\n";
  std::vector<RefusalCase> cases = read_refusal_pages();
  std::erase_if(cases, [&](const RefusalCase& one) { return one.title != title; });
  if (cases.size() != 1)
    throw std::runtime_error(std::to_string(cases.size()) + " cases of tests/refusals are called `" + title +
                             "`");
  return cases[0].message;
}

// A refusal in the form of the pages. Whoever asks for this form compares it with a page, so it is noted as told.
inline std::string as_on_page(const Refusal& refusal) {
  note_sites(refusal);
  std::string text = refusal.what();
  for (const Refusal& other : refusal.others()) text.append("\n").append(other.what());
  return text + "\nexit " + std::to_string(static_cast<int>(refusal.exit_code())) + "\n";
}

// What this is refused with, in the form of the pages; "accepted": it is not. Files in `folder` stand by their names.
std::string refusal_on_page(const auto& act, const std::string& folder = {}) {
  try {
    act();
  } catch (const Refusal& refusal) {
    std::string text = as_on_page(refusal);
    for (std::size_t at = 0; !folder.empty() && (at = text.find(folder + "/")) != std::string::npos;)
      text.erase(at, folder.size() + 1);
    return text;
  }
  return "accepted";
}

}  // namespace motley::tests
