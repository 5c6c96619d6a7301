#include "models/compile/one_call.hpp"

#include <utility>

#include "models/base/index.hpp"

namespace motley {
namespace {

void add_program(Program& program, const char* name, InstructionBody body, StreamKind kind) {
  RankProgram rank_program;
  rank_program.name = name;
  Instruction instruction;
  instruction.body = std::move(body);
  rank_program.streams = {{StreamKind::compute, {}, {}}, {kind, {}, {std::move(instruction)}}};
  rank_program.tensors.resize(1);  // the tensor that is sent
  rank_program.blocks.resize(1);
  rank_program.chunks = {{static_cast<int>(program.rank_programs.size()), 0, 0}};
  program.rank_programs.add(std::move(rank_program));
}

// Every rank has two virtual stages, each on a stream of its own: the first sends to the next rank, and the second
// receives from the rank before.
Program exchange_in_ring(std::int64_t bytes, const std::vector<int>& chips) {
  Program program;
  constexpr ChunkId kSends{0}, kReceives{1};
  PeerMessage message;
  message.bytes = bytes;
  message.slot = next_slot(kSends);
  add_program(program, "member", Send{message}, StreamKind::send_activation);
  RankProgram& member = program.rank_programs.front();
  message.slot = previous_slot(kReceives);
  message.tensor = member.tensors.add({});
  Instruction receive;
  receive.body = Recv{message};
  member.streams.add({StreamKind::recv_activation, {}, {std::move(receive)}});
  member.chunks = {{0, 0, 0}, {1, 0, 0}};
  const int count = static_cast<int>(chips.size());
  for (int i = 0; i < count; ++i) {
    RankEntry entry;
    entry.chip = chips[at(i)];
    entry.groups.resize(at(kDataGroup) + 2);
    entry.peers.resize(4);
    entry.peers[next_slot(kSends)] = Rank((i + 1) % count);
    entry.peers[previous_slot(kReceives)] = Rank((i + count - 1) % count);
    program.ranks.add(std::move(entry));
  }
  return program;
}

}  // namespace

Program program_of(const OneCall& call, const std::vector<int>& chips) {
  if (!call.kind && call.in_ring) return exchange_in_ring(call.bytes, chips);
  Program program;
  constexpr ChunkId kOnly{0};
  if (call.kind) {
    Collective collective;
    collective.kind = *call.kind;
    collective.slot = kDataGroup;
    collective.bytes = call.bytes;
    add_program(program, "member", std::move(collective), StreamKind::collective);
    program.groups.add({GroupKind::data, {}});
  } else {
    PeerMessage message;
    message.bytes = call.bytes;
    message.slot = next_slot(kOnly);
    add_program(program, "sender", Send{message}, StreamKind::send_activation);
    message.slot = previous_slot(kOnly);
    add_program(program, "receiver", Recv{message}, StreamKind::recv_activation);
  }
  const int count = static_cast<int>(chips.size()), half = count / 2;
  for (int i = 0; i < count; ++i) {
    RankEntry entry;
    entry.chip = chips[at(i)];
    entry.groups.resize(at(kDataGroup) + 2);
    entry.peers.resize(2);
    if (call.kind) {
      entry.groups[kDataGroup] = GroupId(0);
      program.groups.front().ranks.push_back(Rank(i));
    } else {
      entry.rank_program = RankProgramId(i / half);
      entry.stage = i / half;
      entry.peers[i < half ? next_slot(kOnly) : previous_slot(kOnly)] = Rank(i < half ? i + half : i - half);
    }
    program.ranks.add(std::move(entry));
  }
  return program;
}

}  // namespace motley
