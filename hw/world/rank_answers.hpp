// What the process of a real rank is asked and what it answers, as bytes on a socket. Both ends run the same binary.
// Read next: hw/world/real_ranks.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hw/transport/tcp/socket.hpp"
#include "models/world/world.hpp"

namespace motley {

inline constexpr double kForEver_s = 1e9;  // longer than any run

// What the process of a rank is asked.
struct RankQuestion {
  enum class Ask : std::uint8_t { execute, move, imagine, loss, values, clock, end };
  Ask ask = Ask::execute;  // end: nothing more; there is no answer
  Step step;
  TensorId tensor{0};  // values: which
};

struct RankAnswer {
  double number = 0;              // seconds, a loss, or the time on the clock of its host
  double begin_s = 0, end_s = 0;  // move: on the clock of its host
  std::vector<KernelSpan> kernels;
  std::vector<float> values;
};

// These wait until the other end takes the answer. They throw SocketFailure(closed).
void send_answer(const Socket& socket, const RankAnswer& answer);
void send_values(const Socket& socket, std::span<const float> values);  // as the values of an answer
void send_thrown(const Socket& socket);  // in a catch clause: answers with what is being thrown

// Throws what the other end threw, with its kind, or SocketFailure after `timeout_s` without any byte.
RankAnswer read_answer(const Socket& socket, double timeout_s);

}  // namespace motley
