// motley completion: prints a script by which a shell completes the words of `motley`. Each script is made of the same
// words that the command line reads, so it knows every command, option and choice. Names of data are asked of `motley
// list KIND --names` when they are completed. Read next: command_words.hpp, completion_script.hpp.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "models/base/json_text.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/completion_script.hpp"

namespace motley {
namespace {

struct CompletionArguments {
  std::string shell;
  bool json = false;
};

Exit run(const Command& program, const CompletionArguments& options) {
  const CommandWords words = program.words();
  const std::string script = options.shell == "bash"  ? bash_completion(words)
                             : options.shell == "zsh" ? zsh_completion(words)
                                                      : fish_completion(words);
  write_result(
      options.json
          ? json_text({{"schema", "motley.completion/1"}, {"shell", options.shell}, {"script", script}})
          : script,
      "");
  return Exit::ok;
}

}  // namespace

void add_completion(const Command& program) {
  const auto options = std::make_shared<CompletionArguments>();
  const Command command =
      program.subcommand("completion", "Print a script that completes these words in a shell");
  command.option("shell", options->shell, "the shell").required().one_of({"bash", "zsh", "fish"});
  command.flag("--json", options->json, "print the script inside JSON (schema motley.completion/1)");
  command.example(
      "motley completion bash > ~/.local/share/bash-completion/completions/motley\n"
      "  motley completion zsh > ~/.zfunc/_motley\n"
      "  motley completion fish > ~/.config/fish/completions/motley.fish");
  command.runs([options, program] { return run(program, *options); });
}

}  // namespace motley
