#include "tools/commands/answer.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "hw/launch/launch.hpp"
#include "models/base/temporary_folder.hpp"
#include "tools/commands/own_command.hpp"

namespace motley {
namespace {

using Json = nlohmann::ordered_json;

// The folder in which ranks leave their answers for the process that has started them. A rank that another launcher has
// started has no such folder: there only rank 0 answers.
constexpr const char* kAnswersVariable = "MOTLEY_ANSWERS";
constexpr const char* kRefusalName = "refusal.json";
constexpr const char* kResultName = "result-was-printed";

bool is_json = false, has_answered = false;
volatile std::sig_atomic_t may_answer_interrupts = 0;
pid_t own_process = 0;  // a child that it has forked does not answer interrupts

constexpr char kInterrupted[] =
    "{\n  \"schema\": \"motley.refusal/1\",\n  \"kind\": \"interrupted\",\n  \"exit_code\": 130,\n"
    "  \"place\": null,\n  \"message\": \"interrupted\",\n  \"hint\": null,\n  \"others\": []\n}\n";

const char* answers_folder() { return std::getenv(kAnswersVariable); }

// Whether another launcher has started this process as a rank that is not the first.
bool is_further_rank(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i + 1 < words.size(); ++i)
    if (words[i] == "--rank") return words[i + 1] != "0";
  for (const char* name : {"MOTLEY_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name)) return std::strcmp(rank, "0") != 0;
  return false;
}

// The first rank that refuses leaves its answer: a link is not made over a file that is there.
void leave_answer(const std::filesystem::path& folder, const std::string& text) {
  const std::filesystem::path own = folder / fmt::format("{}.json", getpid());
  std::ofstream(own, std::ios::binary) << text;
  std::error_code ignored;
  std::filesystem::create_hard_link(own, folder / kRefusalName, ignored);
}

void answer_with(const std::string& text) {
  if (!is_json || has_answered) return;
  if (const char* folder = answers_folder()) {
    leave_answer(folder, text);
    return;
  }
  has_answered = true;
  may_answer_interrupts = 0;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

Json place_of(const Location& place) {
  const auto known = [](int number) { return number > 0 ? Json(number) : Json(nullptr); };
  if (place.file.empty()) return nullptr;
  return {{"file", place.file}, {"line", known(place.line)}, {"column", known(place.column)}};
}

Json hints_of(const std::string& hint) {
  std::string hints = hint;  // on lines of their own
  for (const std::string mark = "\n  hint: "; hints.find(mark) != std::string::npos;)
    hints.replace(hints.find(mark), mark.size(), "\n");
  return hints.empty() ? Json(nullptr) : Json(hints);
}

// What a message says may hold bytes of a file that are no text.
std::string document(const Refusal& refusal) {
  Json whole = {{"schema", "motley.refusal/1"},
                {"kind", refusal.kind()},
                {"exit_code", static_cast<int>(refusal.exit_code())},
                {"place", place_of(refusal.where())},
                {"message", refusal.message()},
                {"hint", hints_of(refusal.hint())},
                {"others", Json::array()}};
  for (const Refusal& other : refusal.others())
    whole["others"].push_back({{"kind", other.kind()},
                               {"place", place_of(other.where())},
                               {"message", other.message()},
                               {"hint", hints_of(other.hint())}});
  return whole.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

struct RanksEnded {
  LaunchResult launched;
  std::string refusal;  // as JSON; empty: no rank said why, or rank 0 has printed its result
};

RanksEnded launch_ranks_of(const std::vector<std::string>& command, int rank_count) {
  const TemporaryFolder answers;
  setenv(kAnswersVariable, answers.path().c_str(), 1);
  RanksEnded ended;
  try {
    ended.launched = launch({.rank_count = rank_count, .command = command});
  } catch (...) {
    unsetenv(kAnswersVariable);
    throw;
  }
  unsetenv(kAnswersVariable);
  if (std::filesystem::exists(answers.file(kResultName))) has_answered = true;
  ended.refusal = answers.read(kRefusalName);
  return ended;
}

}  // namespace

void choose_answer(const std::vector<std::string>& words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  is_json = std::any_of(words.begin(), end,
                        [](const std::string& word) { return word == "--json" || word == "--json=true"; }) &&
            (answers_folder() != nullptr || !is_further_rank(words));
  own_process = getpid();
  may_answer_interrupts = is_json && answers_folder() == nullptr ? 1 : 0;
}

void print_result(const std::string& text) {
  has_answered = true;
  may_answer_interrupts = 0;
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (const char* folder = answers_folder(); folder != nullptr && is_json)
    std::ofstream(std::filesystem::path(folder) / kResultName) << "";
  if (written) return;
  if (errno == EPIPE) {  // the reader has closed the pipe (`| head`): end as every filter does
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  throw RunFailure(std::string("cannot write to stdout: ") + std::strerror(errno));
}

void leave_answer_to_ranks() {
  has_answered = true;
  may_answer_interrupts = 0;
}

void answer(const Refusal& refusal) { answer_with(document(refusal)); }

void answer(const std::string& kind, Exit exit, const std::string& message) {
  answer_with(document({exit, kind, {}, message}));
}

void answer_interrupted() noexcept {
  if (may_answer_interrupts == 0 || getpid() != own_process) return;
  may_answer_interrupts = 0;
  static_cast<void>(!write(STDOUT_FILENO, kInterrupted, sizeof kInterrupted - 1));
}

bool is_own_rank() { return answers_folder() != nullptr; }

Exit run_own_ranks(int rank_count) {
  const RanksEnded ended = launch_ranks_of(own_command(), rank_count);
  const Exit exit = static_cast<Exit>(ended.launched.exit_code);
  if (exit != Exit::interrupted && !ended.launched.message.empty())
    spdlog::error("{}", ended.launched.message);
  if (exit != Exit::ok && !ended.refusal.empty())
    answer_with(ended.refusal);
  else if (exit != Exit::ok)
    answer(exit == Exit::interrupted ? "interrupted" : "run-failed", exit, ended.launched.message);
  return exit;
}

void run_ranks_of(const std::vector<std::string>& command, int rank_count) {
  const RanksEnded ended = launch_ranks_of(command, rank_count);
  const Exit exit = static_cast<Exit>(ended.launched.exit_code);
  if (exit == Exit::interrupted || (exit != Exit::ok && ended.launched.was_told_to_end))
    throw Interrupted(exit);
  if (ended.launched.exit_code != 0) throw RunFailure(ended.launched.message);
}

}  // namespace motley
