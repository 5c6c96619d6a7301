// The text form of a Program: one thing a line, `key=value` words, defaults left out. It is what `motley show program`
// prints, what is hashed, and what parses back to the same value. It refuses what it does not know.
#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>

#include "models/program.hpp"
#include "models/refusal.hpp"
#include "models/units.hpp"

namespace motley {
namespace {

constexpr const char* kHeader = "motley-program 1";

template <typename E>
constexpr int count_of();
template <>
constexpr int count_of<KernelOp>() {
  return kKernelOpCount;
}
template <>
constexpr int count_of<CollectiveKind>() {
  return static_cast<int>(CollectiveKind::all_to_all) + 1;
}
template <>
constexpr int count_of<StreamKind>() {
  return static_cast<int>(StreamKind::from_host) + 1;
}

const std::vector<std::string> kRoles = {
    "activation", "activation_gradient", "parameter", "gradient", "optimizer", "gathered", "whole_gradient"};
const std::vector<std::string> kOps = {"compute", "send", "recv", "collective", "optimizer", "copy"};
const std::vector<std::string> kGroups = {"tensor",          "data",    "embedding",
                                          "expert",          "gather",  "activation_gather",
                                          "gradient_gather", "context", "tensor_gradient"};
const std::vector<std::string> kReduces = {"sum", "maximum"};
const std::vector<std::string> kPasses = {"forward", "backward", "input_gradient", "weight_gradient"};

template <typename E>
const std::string& word(const std::vector<std::string>& words, E value) {
  return words[static_cast<std::size_t>(value)];
}

// ---- print

using Out = std::back_insert_iterator<std::string>;

template <typename List>
void put_list(Out out, const char* key, const List& list) {
  if (!list.empty()) fmt::format_to(out, " {}={}", key, fmt::join(list, ","));
}
template <typename Value>
void put(Out out, const char* key, Value value, Value standard) {
  if (value != standard) fmt::format_to(out, " {}={}", key, value);
}

void print_kernel(Out out, const Kernel& kernel) {
  const Kernel standard;
  fmt::format_to(out, "    {}", name_of(kernel.op));
  put(out, "layer", kernel.layer, standard.layer);
  if (kernel.recompute) fmt::format_to(out, " recompute=1");
  if (kernel.reduce != standard.reduce) fmt::format_to(out, " reduce={}", word(kReduces, kernel.reduce));
  if (kernel.over != standard.over) fmt::format_to(out, " over={}", word(kGroups, kernel.over));
  put_list(out, "in", kernel.in);
  put_list(out, "out", kernel.out);
  put_list(out, "par", kernel.parameters);
  put_list(out, "frees", kernel.frees);
  put(out, "m", kernel.m, standard.m);
  put(out, "n", kernel.n, standard.n);
  put(out, "k", kernel.k, standard.k);
  put(out, "groups", kernel.groups, standard.groups);
  put(out, "busiest", kernel.busiest, standard.busiest);
  if (kernel.factor != 1) fmt::format_to(out, " factor={}", format_exact(kernel.factor));
  put(out, "ahead", kernel.ahead, standard.ahead);
  if (kernel.format) fmt::format_to(out, " format={}", name_of(*kernel.format));
  if (kernel.flops != 0) fmt::format_to(out, " flops={}", format_exact(kernel.flops));
  put(out, "bytes", kernel.bytes, standard.bytes);
  fmt::format_to(out, "\n");
}

void print_instruction(Out out, const Instruction& instruction) {
  const Instruction standard;
  fmt::format_to(out, "    {}", word(kOps, instruction.op));
  put(out, "mb", instruction.micro_batch, standard.micro_batch);
  if (instruction.op == Op::compute)
    fmt::format_to(out, " block={} kernels={}:{}", instruction.block, instruction.first_kernel,
                   instruction.last_kernel);
  put(out, "slot", instruction.slot, standard.slot);
  put_list(out, "tensors", instruction.tensors);
  put_list(out, "into", instruction.into);
  if (instruction.collective != standard.collective)
    fmt::format_to(out, " kind={}", name_of(instruction.collective));
  if (instruction.reduce != standard.reduce)
    fmt::format_to(out, " reduce={}", word(kReduces, instruction.reduce));
  put(out, "part", instruction.part, standard.part);
  put(out, "parts", instruction.parts, standard.parts);
  put(out, "part_stride", instruction.part_stride, standard.part_stride);
  put(out, "row", instruction.row, standard.row);
  put(out, "rows", instruction.rows, standard.rows);
  put(out, "scale", instruction.scale, standard.scale);
  put(out, "shard", instruction.shard, standard.shard);
  put(out, "bytes", instruction.bytes, standard.bytes);
  put(out, "expected", instruction.expected, standard.expected);
  for (std::size_t i = 0; i < instruction.after.size(); ++i)
    fmt::format_to(out, "{}{}.{}", i == 0 ? " after=" : ",", instruction.after[i].stream,
                   instruction.after[i].index);
  put_list(out, "frees", instruction.frees);
  if (instruction.flops != 0) fmt::format_to(out, " flops={}", format_exact(instruction.flops));
  put(out, "allocated", instruction.allocated, standard.allocated);
  put(out, "freed", instruction.freed, standard.freed);
  put(out, "peak", instruction.peak, standard.peak);
  fmt::format_to(out, "\n");
}

void print_shard(Out out, const Shard& shard) {
  const Shard standard;
  fmt::format_to(out, "  shard");
  put(out, "slot", shard.slot, standard.slot);
  put(out, "gather_slot", shard.gather_slot, standard.gather_slot);
  put(out, "replica_slot", shard.replica_slot, standard.replica_slot);
  put_list(out, "parameters", shard.parameters);
  put_list(out, "gradients", shard.gradients);
  put(out, "optimizer", shard.optimizer, standard.optimizer);
  put(out, "parameter_part", shard.parameter_part, standard.parameter_part);
  put(out, "gradient_part", shard.gradient_part, standard.gradient_part);
  put(out, "part", shard.part, standard.part);
  put(out, "parts", shard.parts, standard.parts);
  fmt::format_to(out, "\n");
}

void print_class(Out out, const ProgramClass& of_class) {
  fmt::format_to(out, "class \"{}\" pipeline={} stage={} first={:d} last={:d} tensor_parallel={}",
                 of_class.name, of_class.pipeline, of_class.stage, of_class.first_stage, of_class.last_stage,
                 of_class.tensor_parallel);
  put(out, "expert_parallel", of_class.expert_parallel, std::int64_t{1});
  put(out, "expert_tensor_parallel", of_class.expert_tensor_parallel, of_class.tensor_parallel);
  put(out, "context_parallel", of_class.context_parallel, std::int64_t{1});
  if (of_class.sequence_parallel) fmt::format_to(out, " sequence_parallel=1");
  put(out, "sequence_stride", of_class.sequence_stride, std::int64_t{0});
  fmt::format_to(out, " micro_batch={} micro_batches={} static={}\n", of_class.micro_batch,
                 of_class.micro_batches, of_class.static_bytes);
  for (const Chunk& chunk : of_class.chunks)
    fmt::format_to(out, "  chunk virtual_stage={} layers={}:{}\n", chunk.virtual_stage, chunk.first_layer,
                   chunk.last_layer);
  for (const Tensor& tensor : of_class.tensors)
    fmt::format_to(out, "  tensor \"{}\" role={} format={} shape={} bytes={} parameter={}{}\n", tensor.name,
                   word(kRoles, tensor.role), name_of(tensor.format), fmt::join(tensor.shape, ","),
                   tensor.bytes, tensor.parameter, tensor.on_host ? " on_host=1" : "");
  for (const Shard& shard : of_class.shards) print_shard(out, shard);
  for (const Block& block : of_class.blocks) {
    fmt::format_to(out, "  block \"{}\" pass={}", block.name, word(kPasses, block.pass));
    put(out, "chunk", block.chunk, 0);
    fmt::format_to(out, "\n");
    for (const Kernel& kernel : block.kernels) print_kernel(out, kernel);
  }
  for (const Stream& stream : of_class.streams) {
    fmt::format_to(out, "  stream {}", name_of(stream.kind));
    put(out, "chunk", stream.chunk, 0);
    fmt::format_to(out, "\n");
    for (const Instruction& instruction : stream.instructions) print_instruction(out, instruction);
  }
}

// ---- parse

// One line: a first word, an optional "quoted name", then key=value words.
class Line {
 public:
  Line(const std::string& text, const std::string& file, int number) : file_(file), number_(number) {
    std::size_t at = text.find_first_not_of(' ');
    while (at != std::string::npos && at < text.size()) {
      if (text[at] == '"') {
        const std::size_t end = text.find('"', at + 1);
        if (end == std::string::npos) refuse("a name without its closing quote", static_cast<int>(at) + 1);
        name_ = text.substr(at + 1, end - at - 1);
        at = text.find_first_not_of(' ', end + 1);
        continue;
      }
      const std::size_t end = std::min(text.find(' ', at), text.size());
      take_word(text.substr(at, end - at), static_cast<int>(at) + 1);
      at = text.find_first_not_of(' ', end);
    }
  }
  const std::string& head() const { return head_; }
  const std::string& name() const { return name_; }

  [[noreturn]] void refuse(const std::string& why, int column = 1) const {
    throw Refusal(Exit::usage, "bad-program", {file_, number_, column}, why,
                  "`motley show program` writes this form");
  }
  // Takes key's value away; finish() refuses what nobody took.
  std::optional<std::string> take(const std::string& key) {
    const auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    std::string value = found->second;
    values_.erase(found);
    return value;
  }
  template <typename Number>
  Number number(const std::string& text) const {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size())
      refuse(fmt::format("`{}` is not a number that fits", text));
    return value;
  }
  template <typename Number>
  void get(const std::string& key, Number& into) {
    if (const auto text = take(key)) into = number<Number>(*text);
  }
  void get(const std::string& key, bool& into) {
    if (const auto text = take(key)) into = number<int>(*text) != 0;
  }
  template <typename Number>
  void get_list(const std::string& key, std::vector<Number>& into, char separator = ',') {
    const auto text = take(key);
    if (!text) return;
    std::stringstream parts(*text);
    for (std::string part; std::getline(parts, part, separator);) into.push_back(number<Number>(part));
  }
  template <typename E>
  E choice(const std::string& text, const std::vector<std::string>& words) const {
    for (std::size_t i = 0; i < words.size(); ++i)
      if (words[i] == text) return static_cast<E>(i);
    refuse(fmt::format("unknown word `{}`: {}", text, suggest(text, words)));
  }
  template <typename E>
  void get_choice(const std::string& key, const std::vector<std::string>& words, E& into) {
    if (const auto text = take(key)) into = choice<E>(*text, words);
  }
  void finish() const {
    if (!values_.empty()) refuse(fmt::format("unknown key `{}`", values_.begin()->first));
  }

 private:
  void take_word(const std::string& text, int column) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) {
      if (head_.empty())
        head_ = text;
      else if (name_.empty())
        name_ = text;
      else
        refuse(fmt::format("stray word `{}`", text), column);
    } else if (!values_.emplace(text.substr(0, equals), text.substr(equals + 1)).second) {
      refuse(fmt::format("`{}` is given twice", text.substr(0, equals)), column);
    }
  }
  std::string file_;
  int number_;
  std::string head_, name_;
  std::map<std::string, std::string> values_;
};

template <typename E>
std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (int i = 0; i < count_of<E>(); ++i) names.emplace_back(name_of(static_cast<E>(i)));
  return names;
}
const std::vector<std::string>& format_names() {
  static const std::vector<std::string> names = {"fp32", "tf32", "bf16", "fp16"};
  return names;
}

std::vector<std::string> all_format_names() {
  std::vector<std::string> names;
  for (Format format : kFormats) names.emplace_back(name_of(format));
  return names;
}

Tensor parse_tensor(Line& line) {
  Tensor tensor;
  tensor.name = line.name();
  line.get_choice("role", kRoles, tensor.role);
  line.get_choice("format", format_names(), tensor.format);
  line.get_list("shape", tensor.shape);
  line.get("bytes", tensor.bytes);
  line.get("parameter", tensor.parameter);
  line.get("on_host", tensor.on_host);
  return tensor;
}

Shard parse_shard(Line& line) {
  Shard shard;
  line.get("slot", shard.slot);
  line.get("gather_slot", shard.gather_slot);
  line.get("replica_slot", shard.replica_slot);
  line.get_list("parameters", shard.parameters);
  line.get_list("gradients", shard.gradients);
  line.get("optimizer", shard.optimizer);
  line.get("parameter_part", shard.parameter_part);
  line.get("gradient_part", shard.gradient_part);
  line.get("part", shard.part);
  line.get("parts", shard.parts);
  return shard;
}

Kernel parse_kernel(Line& line) {
  static const auto ops = all_names<KernelOp>();
  Kernel kernel;
  kernel.op = line.choice<KernelOp>(line.head(), ops);
  line.get("layer", kernel.layer);
  line.get("recompute", kernel.recompute);
  line.get_choice("reduce", kReduces, kernel.reduce);
  line.get_choice("over", kGroups, kernel.over);
  line.get_list("in", kernel.in);
  line.get_list("out", kernel.out);
  line.get_list("par", kernel.parameters);
  line.get_list("frees", kernel.frees);
  line.get("m", kernel.m);
  line.get("n", kernel.n);
  line.get("k", kernel.k);
  line.get("groups", kernel.groups);
  line.get("busiest", kernel.busiest);
  line.get("factor", kernel.factor);
  line.get("ahead", kernel.ahead);
  if (const auto text = line.take("format")) kernel.format = line.choice<Format>(*text, all_format_names());
  line.get("flops", kernel.flops);
  line.get("bytes", kernel.bytes);
  return kernel;
}

template <typename Number>
void get_pair(Line& line, const std::string& key, Number& first, Number& second) {
  std::vector<Number> both;
  line.get_list(key, both, ':');
  if (both.size() != 2) line.refuse(fmt::format("`{}` wants first:last", key));
  first = both[0];
  second = both[1];
}

Instruction parse_instruction(Line& line) {
  static const auto kinds = all_names<CollectiveKind>();
  Instruction instruction;
  instruction.op = line.choice<Op>(line.head(), kOps);
  line.get("mb", instruction.micro_batch);
  if (instruction.op == Op::compute) {
    line.get("block", instruction.block);
    get_pair(line, "kernels", instruction.first_kernel, instruction.last_kernel);
  }
  line.get("slot", instruction.slot);
  line.get_list("tensors", instruction.tensors);
  line.get_list("into", instruction.into);
  line.get_choice("kind", kinds, instruction.collective);
  line.get_choice("reduce", kReduces, instruction.reduce);
  line.get("bytes", instruction.bytes);
  line.get("expected", instruction.expected);
  if (const auto text = line.take("after")) {
    std::stringstream parts(*text);
    for (std::string part; std::getline(parts, part, ',');) {
      const std::size_t dot = part.find('.');
      if (dot == std::string::npos) line.refuse("`after` wants stream.index");
      instruction.after.push_back(
          {line.number<std::int16_t>(part.substr(0, dot)), line.number<std::int32_t>(part.substr(dot + 1))});
    }
  }
  line.get_list("frees", instruction.frees);
  line.get("part", instruction.part);
  line.get("parts", instruction.parts);
  line.get("part_stride", instruction.part_stride);
  line.get("row", instruction.row);
  line.get("rows", instruction.rows);
  line.get("scale", instruction.scale);
  line.get("shard", instruction.shard);
  line.get("flops", instruction.flops);
  line.get("allocated", instruction.allocated);
  line.get("freed", instruction.freed);
  line.get("peak", instruction.peak);
  return instruction;
}

void parse_routing(Line& line, ExpertRouting& routing) {
  line.get("experts", routing.experts);
  line.get("per_token", routing.per_token);
  line.get("groups", routing.groups);
  line.get("groups_per_token", routing.groups_per_token);
  line.get("skew", routing.skew);
  line.get("seed", routing.seed);
}

void parse_job(Line& line, Program& program) {
  line.get("sequence", program.sequence);
  line.get("global_batch", program.global_batch);
  line.get_choice("precision", format_names(), program.precision);
  line.get_choice("gradients", format_names(), program.gradients);
  line.get("layers", program.layers);
  line.get("p2p_buffers", program.p2p_buffers);
}

ProgramClass parse_class(Line& line) {
  ProgramClass of_class;
  of_class.name = line.name();
  line.get("first", of_class.first_stage);
  line.get("last", of_class.last_stage);
  line.get("pipeline", of_class.pipeline);
  line.get("stage", of_class.stage);
  line.get("tensor_parallel", of_class.tensor_parallel);
  of_class.expert_tensor_parallel = of_class.tensor_parallel;
  line.get("expert_parallel", of_class.expert_parallel);
  line.get("expert_tensor_parallel", of_class.expert_tensor_parallel);
  line.get("context_parallel", of_class.context_parallel);
  line.get("sequence_parallel", of_class.sequence_parallel);
  line.get("micro_batch", of_class.micro_batch);
  line.get("micro_batches", of_class.micro_batches);
  line.get("sequence_stride", of_class.sequence_stride);
  line.get("static", of_class.static_bytes);
  return of_class;
}

RankEntry parse_rank(Line& line) {
  RankEntry entry;
  line.get("class", entry.of_class);
  line.get("chip", entry.chip);
  line.get("stage", entry.stage);
  line.get("replica", entry.replica);
  line.get("tensor", entry.tensor_index);
  line.get("context", entry.context_index);
  line.get("sequence", entry.first_sequence);
  line.get_list("peers", entry.peers);
  line.get_list("groups", entry.groups);
  return entry;
}

Chunk parse_chunk(Line& line) {
  Chunk chunk;
  line.get("virtual_stage", chunk.virtual_stage);
  get_pair(line, "layers", chunk.first_layer, chunk.last_layer);
  return chunk;
}

// A line inside a class: what stands at the deepest open level takes it.
void parse_inside(Line& line, ProgramClass& of_class) {
  static const auto streams = all_names<StreamKind>();
  if (line.head() == "chunk" && of_class.tensors.empty()) {
    of_class.chunks.push_back(parse_chunk(line));
  } else if (line.head() == "tensor" && of_class.blocks.empty()) {
    of_class.tensors.push_back(parse_tensor(line));
  } else if (line.head() == "shard" && of_class.blocks.empty()) {
    of_class.shards.push_back(parse_shard(line));
  } else if (line.head() == "block") {
    Block block;
    block.name = line.name();
    line.get_choice("pass", kPasses, block.pass);
    line.get("chunk", block.chunk);
    of_class.blocks.push_back(block);
  } else if (line.head() == "stream") {
    Stream stream;
    stream.kind = line.choice<StreamKind>(line.name(), streams);
    line.get("chunk", stream.chunk);
    of_class.streams.push_back(stream);
  } else if (!of_class.streams.empty()) {
    of_class.streams.back().instructions.push_back(parse_instruction(line));
  } else if (!of_class.blocks.empty()) {
    of_class.blocks.back().kernels.push_back(parse_kernel(line));
  } else {
    line.refuse(fmt::format("`{}` outside a block or stream", line.head()));
  }
}

void parse_line(Line& line, Program& program) {
  if (line.head() == "strategy") {
    program.strategy_hash = line.name();
  } else if (line.head() == "job") {
    parse_job(line, program);
  } else if (line.head() == "routing") {
    parse_routing(line, program.routing);
  } else if (line.head() == "class") {
    program.classes.push_back(parse_class(line));
  } else if (line.head() == "group") {
    Group group;
    group.kind = line.choice<GroupKind>(line.name(), kGroups);
    line.get_list("ranks", group.ranks);
    program.groups.push_back(group);
  } else if (line.head() == "rank") {
    program.ranks.push_back(parse_rank(line));
  } else if (program.classes.empty()) {
    line.refuse(fmt::format("unknown line `{}`", line.head()));
  } else {
    parse_inside(line, program.classes.back());
  }
  line.finish();
}

}  // namespace

std::string print(const Program& program) {
  std::string text;
  Out out(text);
  fmt::format_to(out, "{}\nstrategy {}\n", kHeader, program.strategy_hash);
  fmt::format_to(out, "job sequence={} global_batch={} precision={} gradients={} layers={} p2p_buffers={}\n",
                 program.sequence, program.global_batch, name_of(program.precision),
                 name_of(program.gradients), program.layers, program.p2p_buffers);
  const ExpertRouting& routing = program.routing;
  if (routing != ExpertRouting{})
    fmt::format_to(out, "routing experts={} per_token={} groups={} groups_per_token={} skew={} seed={}\n",
                   routing.experts, routing.per_token, routing.groups, routing.groups_per_token, routing.skew,
                   routing.seed);
  for (const ProgramClass& of_class : program.classes) print_class(out, of_class);
  for (const Group& group : program.groups)
    fmt::format_to(out, "group {} ranks={}\n", word(kGroups, group.kind), fmt::join(group.ranks, ","));
  for (const RankEntry& entry : program.ranks) {
    fmt::format_to(out, "rank class={} chip={} stage={} replica={} tensor={}", entry.of_class, entry.chip,
                   entry.stage, entry.replica, entry.tensor_index);
    put(out, "context", entry.context_index, 0);
    fmt::format_to(out, " sequence={} peers={} groups={}\n", entry.first_sequence,
                   fmt::join(entry.peers, ","), fmt::join(entry.groups, ","));
  }
  return text;
}

Program parse_program(const std::string& text, const std::string& file_name) {
  Program program;
  std::stringstream lines(text);
  int number = 0;
  for (std::string content; std::getline(lines, content);) {
    Line line(content, file_name, ++number);
    if (number == 1 && content != kHeader) line.refuse(fmt::format("the first line is not `{}`", kHeader));
    if (number > 1 && !line.head().empty()) parse_line(line, program);
  }
  if (number == 0) Line("", file_name, 1).refuse("the file is empty");
  return program;
}

}  // namespace motley
