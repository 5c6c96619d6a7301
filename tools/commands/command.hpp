// What all commands of the program share: how they are added and how they answer. A command is one file with the name
// of the command: it reads its options, calls the folders below, and writes one result. Results go to stdout (or
// --out), everything else to stderr. Read next: tools/main.cpp,
// answer.hpp.
#pragma once

#include <string>
#include <vector>

#include "tools/commands/command_line.hpp"

namespace motley {

// A program calls this first. Errors then go to stderr as "motley: error: ...", an interrupt ends the program with
// Exit::interrupted, and a reader that closes the pipe of its output does not kill it. If `--json` is among the words
// (before `--`), what is refused or fails is also printed on stdout: see answer.hpp.
void set_up(const std::string& program, const std::vector<std::string>& words = {});
// Runs the body. A refusal or failure is logged as an error and returned as the exit code.
Exit run(const CommandBody& body);

// Adds the option that raises the size of the files that the command may read.
void add_max_input(const Command& command);

void add_simulate(const Command& program);
void add_sweep(const Command& program);
void add_train(const Command& program);
void add_calibrate(const Command& program);
void add_rehearse(const Command& program);
void add_compare(const Command& program);
void add_explain(const Command& program);
void add_report(const Command& program);
void add_plan(const Command& program);
void add_export(const Command& program);
void add_import(const Command& program);
void add_launch(const Command& program);
void add_check(const Command& program);
void add_show(const Command& program);
void add_schema(const Command& program);
void add_validate(const Command& program);
void add_doctor(const Command& program);
void add_bench(const Command& program);
void add_collective(const Command& program);
void add_memory(const Command& program);
void add_list(const Command& program);
void add_new(const Command& program);
void add_completion(const Command& program);
void add_help(const Command& program);

// From now on the first interrupt is only noted, so that a command can end with what it has; a second one ends the
// program as before. was_interrupted() tells whether the first one came.
void note_interrupts();
bool was_interrupted();

// Writes a result to stdout if `path` is empty, otherwise to the file, completely or not at all. Throws
// Refusal("unwritable-file").
void write_result(const std::string& text, const std::string& path);

}  // namespace motley
