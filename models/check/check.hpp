// check(): what is proved about a Program before any World runs it. It does not prove that kernels compute the right
// function (tests/laws does) nor that durations are right (tests/validation does).
#pragma once

#include <vector>

#include "models/check/memory.hpp"
#include "models/cluster/cluster.hpp"
#include "models/program/program.hpp"
#include "models/world/null_world.hpp"

namespace motley {

// Runs the Program in no time: a fixpoint over streams with rendezvous transfers. Returns the ranks that are blocked
// (empty: the Program ends). Programs are deterministic dataflow, so one order stands for all.
std::vector<Blocked> find_deadlock(const Program& program);

// Refuses ("broken-program") an id or an index that points nowhere, as the text of an edited Program may have.
void check_indices(const Program& program);

// Throws Refusal: unmatched transfer, unequal bytes, collective members that disagree, deadlock (exit 1), out of
// memory (exit 3: which stage, how many GiB, what would help), a tensor freed twice or never. Returns the memory that
// it found, so that callers need not run the Null world again.
std::vector<StageMemory> check(const Program& program, const Cluster& cluster,
                               double fragmentation = kFragmentation);

}  // namespace motley
