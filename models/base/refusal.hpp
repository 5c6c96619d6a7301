// Errors that the user can mend, and checks. A Refusal is the user's error: it carries the place (file:line:column),
// the message and a hint; main() prints it and exits with its code. A MOTLEY_CHECK finds a bug of Motley, in release
// builds too.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace motley {

// Exit codes, documented in README.md and `motley --help`.
enum class Exit : int {
  ok = 0,
  failed = 1,      // the run itself failed: deadlock, a peer died, a bug
  usage = 2,       // bad input: command line, YAML, JSON
  infeasible = 3,  // well-formed but impossible: out of memory, impossible degrees, unreachable ranks
  mismatch = 4,    // a comparison or threshold failed
  missing = 5,     // hardware or an optional part is not available
  interrupted = 130,
};

struct Location {
  std::string file;
  int line = 0;    // 1-based; 0: unknown
  int column = 0;  // 1-based
};

// The place in Motley's source where the message of a refusal is written; file "": unknown. A function that is given
// such a message takes its place, too, as its last parameter: `RefusalSite site = RefusalSite::here()`. By this,
// tests/refusals finds a message that no test has seen.
struct RefusalSite {
  const char* file = "";
  int line = 0;

  // The line that calls the function of which this is a default argument.
  static constexpr RefusalSite here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

class Refusal : public std::runtime_error {
 public:
  // what() is "file:line:column: message\n  hint: hint"; empty parts are left out. `kind` is a stable slug such as
  // "unknown-key": every slug has an input in tests/refusals/.
  Refusal(Exit exit_code, std::string kind, Location where, std::string message, std::string hint = {},
          RefusalSite site = RefusalSite::here());
  // The first of several that are told together, with the others.
  Refusal(const Refusal& first, std::vector<Refusal> others);
  Exit exit_code() const { return exit_code_; }
  const std::string& kind() const { return kind_; }
  const Location& where() const { return where_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }
  RefusalSite site() const { return site_; }
  // What else is wrong, in the order of files and lines. what() says nothing of it.
  const std::vector<Refusal>& others() const;

 private:
  Exit exit_code_;
  std::string kind_;
  Location where_;
  std::string message_;
  std::string hint_;
  RefusalSite site_;
  std::shared_ptr<const std::vector<Refusal>> others_;  // nullptr: there are none
};

// Returns the refusal with a location, for code that refuses but knows no file (compile, check). A refusal that has a
// location keeps it.
Refusal located(const Refusal& refusal, const Location& where);

// Notes where the messages that the user is told were written: appends "file:line kind", for the refusal and for each
// of its others, to the file that MOTLEY_REFUSAL_SITES names. Does nothing if the environment has no such variable.
// Lines of several processes do not mix.
void note_sites(const Refusal& refusal);

// The run failed (exit code 1): a deadlock, a dead peer, a broken connection. The message names rank and instruction.
class RunFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Returns the nearest of `known` if its edit distance is at most a third of the longer word.
std::optional<std::string> nearest(std::string_view written, const std::vector<std::string>& known);

// Returns "did you mean `x`?" for nearest(), else "known: a, b, c".
std::string suggest(std::string_view written, const std::vector<std::string>& known);

// Reports a bug of Motley: throws std::logic_error with file and line.
[[noreturn]] void break_promise(std::string_view what, const char* file, int line);
#define MOTLEY_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::motley::break_promise(#condition, __FILE__, __LINE__))

}  // namespace motley
