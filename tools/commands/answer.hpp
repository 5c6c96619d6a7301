// The one answer of a command on stdout: its result, or, if `--json` was given and the command refuses or fails, a JSON
// document (schema motley.refusal/1) that says why. A command that has printed a result prints no refusal after it, so
// that a reader gets one document. Read next: command.hpp.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "models/base/refusal.hpp"

namespace motley {

// A signal that ends a command where it has nothing to keep: run() turns it into its exit code, 128 + signal.
class Interrupted : public std::exception {
 public:
  explicit Interrupted(Exit its_exit = Exit::interrupted) : exit(its_exit) {}
  const char* what() const noexcept override { return "interrupted"; }
  const Exit exit;
};

// Whether what follows is to be answered in JSON: `--json` is among the words before `--`.
void choose_answer(const std::vector<std::string>& words);

// Prints the text on stdout. Throws RunFailure if that is not possible. If the reader has closed the pipe, the program
// ends as every filter does.
void print_result(const std::string& text);

// Each prints a refusal as JSON, if it is asked for and nothing is on stdout yet. `kind` of the second one is
// "run-failed", "internal" or "interrupted": no Refusal has these kinds.
void answer(const Refusal& refusal);
void answer(const std::string& kind, Exit exit, const std::string& message);
// Says that what other programs have printed on stdout is the answer.
void leave_answer_to_ranks();
// The answer "interrupted", for signal handlers: it allocates nothing.
void answer_interrupted() noexcept;

// Starts this very command once for each of `rank_count` ranks on this host, and waits for them. Rank 0 prints the
// result; every rank prints its own errors on stderr. What the first rank that refused says in JSON is printed here.
Exit run_own_ranks(int rank_count);
// The same with another command of this program, whose result goes to files: what ranks refuse is not printed on
// stdout. Throws RunFailure if a rank fails, and Interrupted if this process was told to end by SIGINT or SIGTERM.
void run_ranks_of(const std::vector<std::string>& command, int rank_count);
// Whether this process is a rank that one of these two has started.
bool is_own_rank();

}  // namespace motley
