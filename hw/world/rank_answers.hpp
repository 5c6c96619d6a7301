// What the process of a real rank is asked and what it answers, as bytes. Both ends run the same binary.
// Read next: hw/world/question_line.hpp, hw/world/real_ranks.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hw/world/question_line.hpp"
#include "models/world/world.hpp"

namespace motley {

inline constexpr double kForEver_s = 1e9;  // longer than any run

// What the process of a rank is asked.
struct RankQuestion {
  enum class Ask : std::uint8_t { execute, move, imagine, loss, values, clock, end };
  Ask ask = Ask::execute;  // end: nothing more; there is no answer
  Step step;
  TensorId tensor{0};     // values: which
  bool keeps = false;     // move, imagine: whether what the step receives is a part of the answer
  bool recorded = false;  // execute, imagine: whether what the step receives follows,
  std::size_t count = 0;  // and as how many values
  // imagine: whether all real members of a collective are asked at once, and exchange what is theirs.
  bool shares = false;
};

struct RankAnswer {
  double number = 0;              // seconds, a loss, or the time on the clock of its host
  double begin_s = 0, end_s = 0;  // move: on the clock of its host
  PathSet paths;                  // move, imagine: that bytes of other real ranks took, or bytes to them
  std::vector<KernelSpan> kernels;
  std::vector<float> values;  // of a tensor, or what the step received
};

// Both throw SocketFailure, after `timeout_s` without any byte, too. `recorded`: what follows the question.
void send_question(QuestionLine& line, RankQuestion question, std::span<const float> recorded,
                   double timeout_s);
std::pair<RankQuestion, std::vector<float>> read_question(QuestionLine& line, double timeout_s);

// These wait until the other end takes the answer. They throw SocketFailure(closed).
void send_answer(QuestionLine& line, const RankAnswer& answer);
void send_values(QuestionLine& line, std::span<const float> values);  // as the values of an answer
void send_thrown(QuestionLine& line);  // in a catch clause: answers with what is being thrown

// Throws what the other end threw, with its kind, or SocketFailure after `timeout_s` without any byte.
RankAnswer read_answer(QuestionLine& line, double timeout_s);

}  // namespace motley
