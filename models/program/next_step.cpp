#include "models/program/next_step.hpp"

namespace motley {
namespace {

bool moves_between_stages(StreamKind kind) {
  return kind == StreamKind::recv_activation || kind == StreamKind::send_activation ||
         kind == StreamKind::recv_gradient || kind == StreamKind::send_gradient;
}

}  // namespace

std::vector<After> awaited_of_last_step(const RankProgram& rank_program, StreamId stream) {
  const auto& streams = rank_program.streams;
  std::vector<After> awaited;
  if (moves_between_stages(streams[stream].kind)) return awaited;
  for (StreamId other : streams.ids())
    if (other != stream && !moves_between_stages(streams[other].kind) && !streams[other].instructions.empty())
      awaited.push_back({other, static_cast<std::int32_t>(streams[other].instructions.size()) - 1});
  return awaited;
}

}  // namespace motley
