// What every command of the program shares: how it is added, how it answers. A command is one file,
// command_<name>.cpp: it reads its options, calls the folders below, and writes one result. Results
// go to stdout (or --out), everything else to stderr. Read next: main.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "models/refusal.hpp"

namespace motley {

// Set by the command that was named on the command line; main() runs it once parsing is over.
using Chosen = std::function<Exit()>;
// Runs it; what it refuses or fails in is said on stderr and told by the exit code.
Exit run(const Chosen& chosen);

void add_simulate(CLI::App& program, Chosen& chosen);
void add_train(CLI::App& program, Chosen& chosen);
void add_compare(CLI::App& program, Chosen& chosen);
void add_explain(CLI::App& program, Chosen& chosen);
void add_launch(CLI::App& program, Chosen& chosen);
void add_check(CLI::App& program, Chosen& chosen);
void add_show(CLI::App& program, Chosen& chosen);
void add_validate(CLI::App& program, Chosen& chosen);
void add_doctor(CLI::App& program, Chosen& chosen);

// "Example:" and the exit codes, the end of every --help.
std::string footer(const std::string& example);

// Writes a result: to stdout when `path` is empty, else to the file, whole or not at all. Throws
// Refusal("unwritable-file").
void write_result(const std::string& text, const std::string& path);

}  // namespace motley
