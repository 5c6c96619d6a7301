// A real rank of a mixed run, in its process: does what the process that simulates asks. Read next:
// hw/world/rank_answers.hpp, hw/world/real_ranks.hpp.
#pragma once

#include <vector>

#include "hw/communicator/messenger.hpp"
#include "hw/rank/executor.hpp"
#include "hw/world/peers.hpp"
#include "hw/world/question_line.hpp"
#include "models/scenario/job.hpp"

namespace motley {

struct RankServerOptions {
  std::vector<Rank> real_ranks;  // all of them
  Rank rank;                     // the one that this process serves
  ExecutorOptions executor = {};
  GroupAlgorithms algorithms = {};
  MessengerOptions messages = {};  // to the other real ranks
};

// Answers questions until an end of them is told. What the beginning of the rank throws is the answer to the first
// question. Throws SocketFailure where nobody asks any more.
void answer_questions(const Job& job, const Program& program, RankServerOptions options, QuestionLine& line);

}  // namespace motley
