// How the program answers: logs, exit codes, results that are written completely or not at all.
#include "tools/commands/command.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "models/base/output_file.hpp"
#include "models/base/text_file.hpp"
#include "models/base/units.hpp"
#include "models/base/yaml_reader.hpp"
#include "tools/commands/answer.hpp"

namespace motley {
namespace {

extern "C" void exit_interrupted(int) {
  answer_interrupted();
  remove_unfinished_outputs();
  _exit(static_cast<int>(Exit::interrupted));
}

volatile std::sig_atomic_t interrupted = 0;

// Handlers run on a stack of their own. The sgemm of oneDNN 2.6 keeps its stack pointer inside a buffer of the heap: a
// frame of a handler there overwrote what lay beside it, and some of the interrupts of a rehearsal ended in a corrupt
// heap (3 of 8 on 2026-11-27). The kernel gives a signal to the main thread, whose stack this is.
void handle_interrupts(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

void give_handlers_a_stack() {
  static std::array<std::byte, std::size_t{64} << 10U> memory;
  stack_t stack{};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  sigaltstack(&stack, nullptr);
}

extern "C" void note_interrupt(int) {
  interrupted = 1;
  handle_interrupts(exit_interrupted);
}

// A command that is started without one of these streams (`0<&-`, as some schedulers do) would open another file in its
// place. Reading and writing them goes on to fail.
void hold_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0) [[maybe_unused]]
      const int held = open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

}  // namespace

// Messages are coloured only on a terminal.
void set_up(const std::string& program, const std::vector<std::string>& words) {
  hold_standard_streams();
  choose_answer(words);
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  const char* terminal = std::getenv("TERM");
  const bool plain = std::getenv("NO_COLOR") != nullptr || isatty(STDERR_FILENO) == 0 ||
                     terminal == nullptr || std::strcmp(terminal, "dumb") == 0;
  sink->set_color_mode(plain ? spdlog::color_mode::never : spdlog::color_mode::always);
  auto logger = std::make_shared<spdlog::logger>(program, sink);
  logger->set_pattern(program + ": %^%l%$: %v");
  spdlog::set_default_logger(logger);
  give_handlers_a_stack();
  handle_interrupts(exit_interrupted);
  std::signal(SIGPIPE, SIG_IGN);
}

void note_interrupts() { handle_interrupts(note_interrupt); }
bool was_interrupted() { return interrupted != 0; }

Exit run(const CommandBody& body) {
  try {
    const Exit exit = body();
    if (exit == Exit::interrupted) throw Interrupted();
    if (exit != Exit::ok) answer("run-failed", exit, "the command has failed; stderr says why");
    return exit;
  } catch (const Interrupted& interrupt) {
    answer("interrupted", interrupt.exit, interrupt.what());
    return interrupt.exit;
  } catch (const Refusal& refusal) {
    spdlog::error("{}", refusal.what());
    for (const Refusal& other : refusal.others()) spdlog::error("{}", other.what());
    note_sites(refusal);
    answer(refusal);
    return refusal.exit_code();
  } catch (const RunFailure& failure) {
    spdlog::error("{}", failure.what());
    answer("run-failed", Exit::failed, failure.what());
  } catch (const std::exception& bug) {
    spdlog::error("internal: {}", bug.what());
    answer("internal", Exit::failed, bug.what());
  }
  return Exit::failed;
}

void add_max_input(const Command& command) {
  const auto take = [](const std::string& size) {
    constexpr double kMost = 1 << 30;  // a file of that size takes some 100 GB of memory while it is read
    double bytes = 0;
    std::string hint;
    const NumberFault fault = read_quantity(size, Dimension::bytes, bytes, hint);
    if (fault != NumberFault::none)
      throw Refusal(Exit::usage, "bad-max-input", {}, describe(fault, shortened(size)), hint);
    if (bytes < 1 || bytes > kMost)
      throw Refusal(Exit::usage, "bad-max-input", {}, fmt::format("`{}` is out of bounds", shortened(size)),
                    "must be 1 B to 1 GiB");
    set_most_text_bytes(static_cast<std::size_t>(bytes));
  };
  command.option("--max-input", take, "read files of at most this size, for example 16MiB; default: 1MiB");
}

void write_result(const std::string& text, const std::string& path) {
  if (path.empty()) {
    print_result(text);
    return;
  }
  OutputFile file(path);
  file.write(text);
  file.close();
}

}  // namespace motley
