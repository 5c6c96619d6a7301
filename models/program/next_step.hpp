// How the steps of a rank follow each other where no rank waits for others at the end of a step (Strategy::
// steps_overlap). Every World that runs several steps in this way, and who walks back through their Trace, has the rule
// from here.
#pragma once

#include <vector>

#include "models/program/program.hpp"

namespace motley {

// What the first instruction of a stream waits for in the step before, beside the earlier instructions of its stream:
// the last instruction of each stream of the rank. Only transfers between stages go straight on, so that what a
// neighbour sends first is received while the rank ends its step.
// Assumes: the `p2p_buffers` of the last transfers of a step and of the first ones of the next are free at once; at the
// end of a step nearly all activations are.
std::vector<After> awaited_of_last_step(const RankProgram& rank_program, StreamId stream);

}  // namespace motley
