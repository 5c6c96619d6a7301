// Memory that a simulation may take: what --memory says, or what this machine has. Larger ones say beforehand what they
// will need. Read next: sim/world/memory_need.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/base/yaml_reader.hpp"
#include "models/plan/prepare.hpp"
#include "models/scenario/job.hpp"
#include "sim/world/memory_need.hpp"
#include "tools/commands/command.hpp"

namespace motley {

// Bytes of memory that this process may have: what the machine has, or the least limit of a control group around it.
double machine_memory();

// Adds --memory to a command; `who` needs the memory.
void add_memory_limit(const Command& command, std::string& memory, const std::string& who = "the simulation");
// Bytes that the text of --memory allows; empty text: machine_memory().
double allowed_memory(const std::string& memory);
// The text of an option as a YAML node, so that the readers of files can read it; its file name is the option.
Yaml node_of(const std::string& option, const std::string& text);

// Says on stderr what a large simulation will need. Throws Refusal("too-little-memory") if that is more than `allowed`
// bytes, with what would help.
void announce_memory(const MemoryNeed& need, const Job& job, double allowed);

// Bytes of the tensors that ranks which really compute will hold here. Says so on stderr where they are many. Throws
// Refusal("too-little-memory") if they are more than `allowed` bytes.
double announce_real_ranks(const Prepared& prepared, const WorldChoice& choice, double allowed);

// Looks at what ranks of this host will need before any of them starts to train. Throws Refusal "host-precision" if
// they cannot compute in the Program's formats, and "too-little-memory" if their tensors and their copies of the
// Program are more than `allowed` bytes; says so on stderr where that is much. Warns where there are more ranks than
// processors.
void announce_training(const Prepared& prepared, const std::vector<Rank>& ranks, double allowed);
std::vector<Rank> all_ranks(const Program& program);

}  // namespace motley
