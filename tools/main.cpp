// The `motley` program: reads the command line, runs one command, and turns exceptions into exit
// codes. It decides nothing about training; every command is a file of its own. Read next:
// tools/commands/command.hpp, tools/commands/simulate.cpp.
#include <cstdio>
#include <exception>

#include "tools/commands/command.hpp"

namespace motley {
namespace {

Exit run_command_line(int argc, char** argv) {
  set_up("motley", {argv + 1, argv + argc});
  CommandLine command_line("motley", "Rehearse a training run on a cluster of unlike chips, then perform it.",
                           MOTLEY_VERSION);
  const Command program = command_line.program();
  program.example("motley simulate scenarios/quickstart.yaml");
  add_simulate(program);
  add_sweep(program);
  add_train(program);
  add_calibrate(program);
  add_rehearse(program);
  add_compare(program);
  add_explain(program);
  add_report(program);
  add_plan(program);
  add_export(program);
  add_import(program);
  add_launch(program);
  add_bench(program);
  add_collective(program);
  add_memory(program);
  add_check(program);
  add_show(program);
  add_schema(program);
  add_validate(program);
  add_new(program);
  add_list(program);
  add_doctor(program);
  add_completion(program);
  add_help(program);
  return run(command_line.read(argc, argv));
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  try {
    return static_cast<int>(motley::run_command_line(argc, argv));
  } catch (const std::exception& bug) {
    std::fputs(bug.what(), stderr);
    return static_cast<int>(motley::Exit::failed);
  }
}
