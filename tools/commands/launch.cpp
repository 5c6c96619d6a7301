// motley launch: starts a command once for each rank, on this host or by ssh on others, and waits until all have ended.
// `motley train` starts ranks of this host by itself; use this to start another program around it, or ranks of another
// program. Read next: hw/launch/launch.hpp.
#include "hw/launch/launch.hpp"

#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/base/text_file.hpp"
#include "tools/commands/answer.hpp"
#include "tools/commands/command.hpp"

namespace motley {
namespace {

struct LaunchArguments {
  LaunchOptions options;
  std::string hosts, binding;  // empty: not given
  bool no_bind = false, prints_binding = false, json = false;
};

// Whether all ranks are on this host and the command is `motley train FILE`, which can say beforehand what they need.
bool can_look_first(const LaunchOptions& options) {
  const std::vector<std::string>& words = options.command;
  return options.binding.empty() && words.size() > 2 && words[1] == "train" &&
         std::filesystem::path(words[0]).filename() == "motley" &&
         std::find(words.begin(), words.end(), "-") == words.end();
}

// Lets one process look at what all ranks need, so that one error is told, and not one by each of them.
Exit look_first(std::vector<std::string> words) {
  words.emplace_back("--check");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  constexpr int kCannotRun = 127;
  const pid_t parent = getpid(), child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent) execvp(pointers[0], pointers.data());
    _exit(kCannotRun);
  }
  if (child < 0) return Exit::ok;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannotRun)
    return Exit::ok;  // whoever launches the ranks says why
  return WIFEXITED(status) ? static_cast<Exit>(WEXITSTATUS(status)) : Exit::failed;
}

Exit run(LaunchArguments arguments) {
  LaunchOptions& options = arguments.options;
  options.bind = !arguments.no_bind;
  if (!arguments.hosts.empty()) options.binding = read_hosts(arguments.hosts);
  if (!arguments.binding.empty())
    options.binding = parse_binding(read_text_file(arguments.binding), arguments.binding);
  if (options.binding.empty() && options.rank_count == 0)
    throw Refusal(Exit::usage, "bad-rank-count", {}, "nothing says how many ranks there are",
                  "-n 2, --hosts a:2,b:2 or --bind FILE");
  if (arguments.prints_binding) {
    const Binding binding = binding_of(options);
    write_result(arguments.json ? print_as_json(binding) : print(binding), "");
    return Exit::ok;
  }
  if (can_look_first(options))
    if (const Exit looked = look_first(options.command); looked != Exit::ok) {
      leave_answer_to_ranks();
      return looked;
    }
  const LaunchResult launched = launch(options);
  leave_answer_to_ranks();
  if (!launched.message.empty()) spdlog::error("{}", launched.message);
  return static_cast<Exit>(launched.exit_code);
}

}  // namespace

void add_launch(const Command& program) {
  const auto arguments = std::make_shared<LaunchArguments>();
  arguments->options.rank_count = 0;
  const Command command =
      program.subcommand("launch", "Start a command once a rank, on this host or by ssh on others");
  const Option count =
      command.option("-n,--ranks", arguments->options.rank_count, "how many ranks on this host");
  const Option hosts =
      command.option("--hosts", arguments->hosts, "how many ranks on which hosts, as a:2,b:2");
  const Option file = command.option("--bind", arguments->binding,
                                     "a file that binds each rank to a host, processors, a device and a NIC");
  hosts.not_with(count);
  file.not_with(count);
  file.not_with(hosts);
  command.option("command", arguments->options.command, "after --: the command and its arguments");
  command.option("--rendezvous-host", arguments->options.rendezvous_host,
                 "an address of the host of rank 0 that all hosts reach, where some are not this one");
  command.flag("--no-bind", arguments->no_bind,
               "let every rank run on any processor, instead of on its own ones");
  command.flag("--print-binding", arguments->prints_binding,
               "start nothing: print the file that --bind reads");
  command.flag("--json", arguments->json, "with --print-binding: as JSON (schema motley.binding/1)");
  command.example(
      "motley launch -n 2 -- motley train scenarios/quickstart-train.yaml\n"
      "  motley launch --hosts a:2,b:2 --rendezvous-host 10.0.0.1 -- motley doctor --peers\n"
      "  motley launch -n 2 --print-binding > ranks.yaml; motley launch --bind ranks.yaml -- COMMAND");
  command.runs([arguments] { return run(*arguments); });
}

}  // namespace motley
