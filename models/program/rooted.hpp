// The collectives with a root, which is member 0, and barriers: each function appends its rounds. A broadcast or
// scatter that is turned round is a reduce or gather. Private to models/program/collective.cpp.
#pragma once

#include "models/program/expansion.hpp"

namespace motley {

// By ring (chains of segments), tree or hierarchical. Every other member gets every chunk exactly once, so that it
// can be turned round.
void broadcast(Expansion& into, CollectiveAlgorithm algorithm, const GroupShape& shape);
// By binomial tree: a member gets the parts of all members below it, and passes them on.
void scatter_tree(Expansion& into);
void gather_tree(Expansion& into);
void scatter_flat(Expansion& into);
// Dissemination: in round k each member tells the one 2^k places on.
void barrier(Expansion& into);

// The same messages in the opposite direction, the last one first.
CollectiveSteps turned_round(CollectiveSteps steps, bool reduce);
// The steps for a root at another place than 0. Members of a node stay together.
CollectiveSteps with_root(CollectiveSteps steps, const CollectiveTask& task, const GroupShape& shape);

}  // namespace motley
