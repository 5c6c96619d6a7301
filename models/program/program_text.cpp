// Prints the text form of a Program, as `motley show program` does: one thing on each line, tensors and streams by
// their names, `key=value` words for the rest, standards left out, notes for people in parentheses.
// models/program/program_parse.cpp parses it back to the same value.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <map>

#include "models/base/units.hpp"
#include "models/program/program_fields.hpp"
#include "models/program/program_names.hpp"

namespace motley {
namespace {

using Out = std::back_insert_iterator<std::string>;

// Writes the fields of one line behind the text that is there.
class LineWriter {
 public:
  LineWriter(Out out, const TensorNames* names) : out_(out), names_(names) {}

  template <class Value>
  void number(const char* key, const Value& value) {
    fmt::format_to(out_, " {}={}", key, shown(value));
  }
  template <class Value>
  void number(const char* key, const std::optional<Value>& value) {
    if (value) number(key, *value);
  }
  template <class Value, class Standard>
  void number(const char* key, const Value& value, const Standard& standard) {
    if (value != standard) number(key, value);
  }
  void exact(const char* key, double value, double standard) {
    if (value != standard) fmt::format_to(out_, " {}={}", key, format_exact(value));
  }
  template <class E>
  void word(const char* key, E value, const std::vector<std::string>& words) {
    fmt::format_to(out_, " {}={}", key, words[static_cast<std::size_t>(value)]);
  }
  template <class E>
  void word(const char* key, E value, const std::vector<std::string>& words, E standard) {
    if (value != standard) word(key, value, words);
  }
  void word(const char* key, std::optional<Format> value, const std::vector<std::string>& words) {
    if (value) word(key, *value, words);
  }
  template <class Number>
  void list(const char* key, const std::vector<Number>& numbers) {
    if (!numbers.empty()) fmt::format_to(out_, " {}={}", key, fmt::join(numbers, ","));
  }
  void list(const char* key, const std::vector<TensorId>& tensors) {
    const char* before = key;
    for (TensorId id : tensors) {
      fmt::format_to(out_, "{}{}{}", before == key ? " " : ",", before == key ? fmt::format("{}=", key) : "",
                     names_->unquoted(id));
      before = "";
    }
  }
  void name(const char* key, TensorId tensor) {
    fmt::format_to(out_, " {}={}", key, names_->unquoted(tensor));
  }
  void name(const char* key, std::optional<TensorId> tensor) {
    if (tensor) name(key, *tensor);
  }
  template <class I, class T>
  void slots(const char* key, const IdTable<I, std::optional<T>>& table) {
    fmt::format_to(out_, " {}=", key);
    const char* separator = "";
    for (const std::optional<T>& entry : table) {
      fmt::format_to(out_, "{}{}", separator, entry ? fmt::to_string(*entry) : "-");
      separator = ",";
    }
  }
  // Writes " after A, B"; nothing for an empty list.
  void tensors(const char* keyword, std::span<const TensorId> ids) {
    if (ids.empty()) return;
    fmt::format_to(out_, "{}{}", *keyword ? " " : "", keyword);
    const char* separator = " ";
    for (TensorId id : ids) {
      fmt::format_to(out_, "{}{}", separator, names_->quoted(id));
      separator = ", ";
    }
  }

 private:
  template <class Value>
  static const Value& shown(const Value& value) {
    return value;
  }
  static int shown(bool value) { return value ? 1 : 0; }

  Out out_;
  const TensorNames* names_;
};

// The ranks that run a program, for the notes beside its transfers and collectives.
struct Runners {
  std::vector<Rank> ranks;
  const Program& program;

  std::string note_of_peer(PeerSlot slot) const {
    if (ranks.size() != 1) return "";
    const auto& peers = program.ranks[ranks[0]].peers;
    return peers.has(slot) && peers[slot] ? fmt::format(" (rank {})", *peers[slot]) : "";
  }
  std::string note_of_group(GroupSlot slot) const {
    for (Rank rank : ranks) {
      const auto& groups = program.ranks[rank].groups;
      if (groups.has(slot) && groups[slot] && program.groups.has(*groups[slot]))
        return fmt::format(" ({})", name_of(program.groups[*groups[slot]].kind));
    }
    return "";
  }
};

class ProgramPrinter {
 public:
  ProgramPrinter(Out out, const RankProgram& rank_program, Runners runners)
      : out_(out),
        rank_program_(rank_program),
        runners_(std::move(runners)),
        names_(rank_program),
        line_(out, &names_) {}

  void print() {
    fmt::format_to(out_, "program \"{}\"", rank_program_.name);
    visit_fields(line_, rank_program_);
    fmt::format_to(out_, "\n");
    for (const Chunk& chunk : rank_program_.chunks)
      fmt::format_to(out_, "  chunk virtual_stage={} layers={}:{}\n", chunk.virtual_stage, chunk.first_layer,
                     chunk.last_layer);
    for (const Tensor& tensor : rank_program_.tensors) {
      fmt::format_to(out_, "  tensor {}", quote_unless_plain(tensor.name));
      visit_fields(line_, tensor);
      fmt::format_to(out_, "\n");
    }
    for (const Shard& shard : rank_program_.shards) {
      fmt::format_to(out_, "  shard");
      visit_fields(line_, shard);
      fmt::format_to(out_, "\n");
    }
    for (const Block& block : rank_program_.blocks) print_block(block);
    for (const Stream& stream : rank_program_.streams) {
      fmt::format_to(out_, "  stream {}", name_of(stream.kind));
      line_.number("chunk", stream.chunk, ChunkId{});
      fmt::format_to(out_, "\n");
      for (const Instruction& instruction : stream.instructions) print_instruction(instruction);
    }
  }

 private:
  void print_block(const Block& block) {
    fmt::format_to(out_, "  block \"{}\"", block.name);
    line_.word("pass", block.pass, program_words().passes);
    line_.number("chunk", block.chunk, ChunkId{});
    fmt::format_to(out_, "\n");
    for (const Kernel& kernel : block.kernels) {
      fmt::format_to(out_, "    {}", name_of(kernel.op));
      line_.tensors("from", kernel.in);
      line_.tensors("with", kernel.parameters);
      line_.tensors("to", kernel.out);
      visit_fields(line_, kernel);
      line_.tensors("frees", kernel.frees);
      fmt::format_to(out_, "\n");
    }
  }

  void print_instruction(const Instruction& instruction) {
    fmt::format_to(out_, "    ");
    std::visit([&](const auto& body) { print_body(body, instruction); }, instruction.body);
    visit_fields(line_, instruction);
    for (std::size_t i = 0; i < instruction.after.size(); ++i)
      fmt::format_to(out_, "{} {} {}", i == 0 ? " after" : ",",
                     stream_reference(rank_program_, instruction.after[i].stream),
                     instruction.after[i].index);
    line_.tensors("frees", instruction.frees);
    fmt::format_to(out_, "\n");
  }

  void print_body(const Compute& compute, const Instruction& instruction) {
    const Block& block = rank_program_.blocks[compute.block];
    fmt::format_to(out_, "compute {}", block_reference(rank_program_, compute.block));
    if (compute.first_kernel != 0 || compute.last_kernel != static_cast<int>(block.kernels.size()))
      fmt::format_to(out_, " kernels {}:{}", compute.first_kernel, compute.last_kernel);
    print_micro_batch(instruction);
  }
  void print_body(const Send& send, const Instruction& instruction) {
    print_message("send", send, "to", instruction);
  }
  void print_body(const Recv& recv, const Instruction& instruction) {
    print_message("recv", recv, "from", instruction);
  }
  void print_message(const char* op, const PeerMessage& message, const char* preposition,
                     const Instruction& instruction) {
    fmt::format_to(out_, "{} {}", op, names_.quoted(message.tensor));
    print_micro_batch(instruction);
    fmt::format_to(out_, " {} {}{}", preposition, peer_name(rank_program_, message.slot),
                   runners_.note_of_peer(message.slot));
    visit_fields(line_, message);
  }
  void print_body(const Collective& collective, const Instruction& instruction) {
    fmt::format_to(out_, "{}", name_of(collective.kind));
    line_.tensors("", collective.tensors);
    print_micro_batch(instruction);
    fmt::format_to(out_, " over {}{}", collective.slot, runners_.note_of_group(collective.slot));
    visit_fields(line_, collective);
  }
  void print_body(const OptimizerStep& step, const Instruction& instruction) {
    fmt::format_to(out_, "optimizer");
    line_.tensors("", step.tensors);
    print_micro_batch(instruction);
  }
  void print_body(const Copy& copy, const Instruction& instruction) {
    fmt::format_to(out_, "copy");
    line_.tensors("", copy.tensors);
    line_.tensors("into", copy.into);
    print_micro_batch(instruction);
    visit_fields(line_, copy);
  }
  void print_micro_batch(const Instruction& instruction) {
    if (instruction.micro_batch != kNoMicroBatch)
      fmt::format_to(out_, " micro-batch {}", instruction.micro_batch);
  }

  Out out_;
  const RankProgram& rank_program_;
  Runners runners_;
  TensorNames names_;
  LineWriter line_;
};

std::string print_ranks(const std::vector<Rank>& ranks) { return fmt::format("{}", fmt::join(ranks, ",")); }

}  // namespace

std::string print(const Program& program) {
  std::string text;
  Out out(text);
  LineWriter line(out, nullptr);
  fmt::format_to(out, "{}\nstrategy {}\njob", kProgramHeader, quote_unless_plain(program.strategy_hash));
  visit_fields(line, program);
  fmt::format_to(out, "\n");
  if (program.routing != ExpertRouting{}) {
    fmt::format_to(out, "routing");
    visit_fields(line, program.routing);
    fmt::format_to(out, "\n");
  }
  IdTable<RankProgramId, std::vector<Rank>> runners(program.rank_programs.size());
  for (Rank rank : program.ranks.ids())
    if (const RankProgramId runs = program.ranks[rank].rank_program; runners.has(runs))
      runners[runs].push_back(rank);
  for (RankProgramId id : program.rank_programs.ids())
    ProgramPrinter(out, program.rank_programs[id], {runners[id], program}).print();
  for (const Group& group : program.groups)
    fmt::format_to(out, "group {} ranks={}\n", program_words().groups[static_cast<std::size_t>(group.kind)],
                   print_ranks(group.ranks));
  for (const RankEntry& entry : program.ranks) {
    fmt::format_to(out, "rank");
    visit_fields(line, entry);
    fmt::format_to(out, "\n");
  }
  return text;
}

}  // namespace motley
