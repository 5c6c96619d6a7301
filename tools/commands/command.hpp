// What every command of the program shares: how it is added, how it answers. A command is one file, named as it is: it
// reads its options, calls the folders below, and writes one result. Results go to stdout (or --out), everything else
// to stderr. Read next: tools/main.cpp.
#pragma once

#include <string>

#include "tools/commands/command_line.hpp"

namespace motley {

// What a program does before all else: errors go to stderr as "motley: error: ...", an interrupt ends it with
// Exit::interrupted, and whoever stops reading its output does not kill it.
void set_up(const std::string& program);
// Runs the body; what it refuses or fails in is logged as an error and told by the exit code.
Exit run(const CommandBody& body);

void add_simulate(const Command& program);
void add_train(const Command& program);
void add_compare(const Command& program);
void add_explain(const Command& program);
void add_launch(const Command& program);
void add_check(const Command& program);
void add_show(const Command& program);
void add_validate(const Command& program);
void add_doctor(const Command& program);

// Writes a result: to stdout when `path` is empty, else to the file, whole or not at all. Throws
// Refusal("unwritable-file").
void write_result(const std::string& text, const std::string& path);

}  // namespace motley
