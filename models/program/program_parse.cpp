// Reads the text form of a Program: the inverse of models/program/program_text.cpp. It refuses unknown words and
// proves nothing about the Program: models/check/check.hpp does.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <sstream>
#include <type_traits>

#include "models/base/refusal.hpp"
#include "models/base/size.hpp"
#include "models/base/units.hpp"
#include "models/program/program_fields.hpp"
#include "models/program/program_names.hpp"

namespace motley {
namespace {

// FLOPs and factors are far below; products of two of these are finite.
constexpr double kMostNumber = 1e30;

struct Word {
  std::string text;
  bool is_quoted = false;
  int column = 1;
};

// One line: a head, the words behind it, lists that begin with a keyword, and key=value words. Text in parentheses is
// for people and is skipped. Each part is taken once; finish() refuses parts that were not taken.
class Line {
 public:
  Line(const std::string& text, const std::string& file, int number) : file_(file), number_(number) {
    std::string keyword;
    for (const Word& word : split(text)) {
      const std::size_t equals = word.is_quoted ? std::string::npos : word.text.find('=');
      if (equals != std::string::npos) {
        if (!values_.emplace(word.text.substr(0, equals), word.text.substr(equals + 1)).second)
          refuse(fmt::format("`{}` is given twice", word.text.substr(0, equals)), word.column);
      } else if (head_.empty() && !word.is_quoted) {
        head_ = word.text;
      } else if (!word.is_quoted && is_keyword(word.text)) {
        keyword = word.text;
        if (!lists_.try_emplace(keyword).second)
          refuse(fmt::format("`{}` is given twice", keyword), word.column);
      } else {
        lists_[keyword].push_back(word);
      }
    }
  }
  const std::string& head() const { return head_; }

  [[noreturn]] void refuse(const std::string& why, int column = 1,
                           RefusalSite site = RefusalSite::here()) const {
    throw Refusal(Exit::usage, "bad-program", {file_, number_, column}, why,
                  "`motley show program` writes this form", site);
  }
  // Takes the words behind a keyword; behind the head if the keyword is empty.
  std::vector<Word> take_words(const std::string& keyword) {
    const auto entry = lists_.find(keyword);
    if (entry == lists_.end()) return {};
    std::vector<Word> words = std::move(entry->second);
    lists_.erase(entry);
    return words;
  }
  std::optional<Word> take_word(const std::string& keyword) {
    const std::vector<Word> words = take_words(keyword);
    if (words.empty()) return std::nullopt;
    if (words.size() > 1) refuse(fmt::format("stray word `{}`", words[1].text), words[1].column);
    return words[0];
  }
  Word need_word(const std::string& keyword, const char* what) {
    if (const std::optional<Word> word = take_word(keyword)) return *word;
    refuse(fmt::format("`{}` wants {}", keyword.empty() ? head_ : keyword, what));
  }
  std::optional<std::string> take_value(const std::string& key) {
    const auto entry = values_.find(key);
    if (entry == values_.end()) return std::nullopt;
    std::string value = std::move(entry->second);
    values_.erase(entry);
    return value;
  }
  template <class Number>
  Number to_number(const std::string& text) const {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    bool fits = error == std::errc{} && end == text.data() + text.size();
    if constexpr (std::is_floating_point_v<Number>)
      fits = fits && std::fabs(value) <= kMostNumber;  // a comparison with NaN is false
    else if constexpr (sizeof(Number) == sizeof(std::int64_t) && std::is_signed_v<Number>)
      fits = fits && value >= -kMostSize && value <= kMostSize;
    if (!fits) refuse(fmt::format("`{}` is not a number that fits", text));
    return value;
  }
  template <class E>
  E to_choice(const std::string& text, const std::vector<std::string>& words) const {
    for (std::size_t i = 0; i < words.size(); ++i)
      if (words[i] == text) return static_cast<E>(i);
    refuse(fmt::format("unknown word `{}`: {}", text, suggest(text, words)));
  }
  template <class Number>
  void take_pair(const std::string& text, const char* what, Number& first, Number& last) const {
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos) refuse(fmt::format("`{}` wants first:last", what));
    first = to_number<Number>(text.substr(0, colon));
    last = to_number<Number>(text.substr(colon + 1));
  }
  void finish() const {
    if (!values_.empty()) refuse(fmt::format("unknown key `{}`", values_.begin()->first));
    for (const auto& [keyword, words] : lists_) {
      if (!keyword.empty()) refuse(fmt::format("`{}` does not belong here", keyword));
      if (!words.empty()) refuse(fmt::format("stray word `{}`", words[0].text), words[0].column);
    }
  }

 private:
  std::vector<Word> split(const std::string& text) const {
    std::vector<Word> words;
    std::size_t begin = text.find_first_not_of(' ');
    while (begin != std::string::npos && begin < text.size()) {
      const int column = static_cast<int>(begin) + 1;
      std::size_t end = 0;
      if (text[begin] == '"' || text[begin] == '(') {
        const bool quoted = text[begin] == '"';
        end = text.find(quoted ? '"' : ')', begin + 1);
        if (end == std::string::npos)
          refuse(quoted ? "a name without its closing quote" : "a note without its closing parenthesis",
                 column);
        if (quoted) words.push_back({text.substr(begin + 1, end - begin - 1), true, column});
        end += 1;
        if (end < text.size() && text[end] == ',') ++end;
      } else {
        end = std::min(text.find(' ', begin), text.size());
        std::string word = text.substr(begin, end - begin);
        if (word.size() > 1 && word.back() == ',') word.pop_back();
        words.push_back({std::move(word), false, column});
      }
      begin = text.find_first_not_of(' ', end);
    }
    return words;
  }

  std::string file_;
  int number_;
  std::string head_;
  std::map<std::string, std::vector<Word>> lists_;  // by keyword; the words behind the head: ""
  std::map<std::string, std::string> values_;
};

// The `io` of visit_fields() that reads a line.
class LineReader {
 public:
  LineReader(Line& line, const TensorNames* names) : line_(line), names_(names) {}

  template <class Value>
  void number(const char* key, Value& value) {
    if (const auto text = line_.take_value(key)) read(*text, value);
  }
  template <class Value, class Standard>
  void number(const char* key, Value& value, const Standard&) {
    number(key, value);
  }
  void exact(const char* key, double& value, double) { number(key, value); }
  template <class E>
  void word(const char* key, E& value, const std::vector<std::string>& words) {
    if (const auto text = line_.take_value(key)) value = line_.to_choice<E>(*text, words);
  }
  template <class E>
  void word(const char* key, E& value, const std::vector<std::string>& words, E) {
    word(key, value, words);
  }
  void word(const char* key, std::optional<Format>& value, const std::vector<std::string>& words) {
    if (const auto text = line_.take_value(key)) value = kFormats[line_.to_choice<std::size_t>(*text, words)];
  }
  template <class Number>
  void list(const char* key, std::vector<Number>& numbers) {
    for (const std::string& part : parts_of(key)) read(part, numbers.emplace_back());
  }
  void list(const char* key, std::vector<TensorId>& tensors) {
    for (const std::string& part : parts_of(key)) tensors.push_back(tensor(part));
  }
  void name(const char* key, TensorId& id) {
    if (const auto text = line_.take_value(key)) id = tensor(*text);
  }
  void name(const char* key, std::optional<TensorId>& id) {
    if (const auto text = line_.take_value(key)) id = tensor(*text);
  }
  template <class I, class T>
  void slots(const char* key, IdTable<I, std::optional<T>>& table) {
    for (const std::string& part : parts_of(key)) {
      std::optional<T> entry;
      if (part != "-") read(part, entry);
      table.add(entry);
    }
  }
  void tensors(const char* keyword, std::vector<TensorId>& ids) {
    for (const Word& word : line_.take_words(keyword)) ids.push_back(tensor(word.text, word.column));
  }
  TensorId tensor(const std::string& text, int column = 1) const {
    if (const auto id = names_->find(text)) return *id;
    line_.refuse(fmt::format("no tensor `{}`", text), column);
  }

 private:
  template <class Number>
  void read(const std::string& text, Number& value) {
    value = line_.to_number<Number>(text);
  }
  void read(const std::string& text, bool& value) { value = line_.to_number<int>(text) != 0; }
  template <class Tag>
  void read(const std::string& text, Id<Tag>& id) {
    id = Id<Tag>(line_.to_number<std::int32_t>(text));
  }
  template <class Value>
  void read(const std::string& text, std::optional<Value>& value) {
    Value there{};
    read(text, there);
    value = there;
  }
  std::vector<std::string> parts_of(const char* key) {
    std::vector<std::string> parts;
    if (const auto text = line_.take_value(key)) {
      std::stringstream stream(*text);
      for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
    }
    return parts;
  }

  Line& line_;
  const TensorNames* names_;
};

// An `after` whose stream may be described further down.
struct NamedAfter {
  StreamId stream;  // stream of the instruction that waits
  std::size_t instruction = 0;
  std::string awaited;
  std::int32_t index = 0;
  Line line;
};

class ProgramParser {
 public:
  void parse_line(Line& line) {
    if (line.head() == "strategy") {
      program_.strategy_hash = line.need_word("", "a hash").text;
    } else if (line.head() == "job") {
      fields(line, program_);
    } else if (line.head() == "routing") {
      fields(line, program_.routing);
    } else if (line.head() == "program") {
      finish_program();
      RankProgram rank_program;
      rank_program.name = line.need_word("", "a name").text;
      fields(line, rank_program);
      program_.rank_programs.add(std::move(rank_program));
    } else if (line.head() == "group") {
      parse_group(line);
    } else if (line.head() == "rank") {
      RankEntry entry;
      fields(line, entry);
      program_.ranks.add(std::move(entry));
    } else if (program_.rank_programs.empty()) {
      line.refuse(fmt::format("unknown line `{}`", line.head()));
    } else {
      parse_inside(line, program_.rank_programs.back());
    }
    line.finish();
  }
  Program finish() {
    finish_program();
    return std::move(program_);
  }

 private:
  template <class Struct>
  void fields(Line& line, Struct& value) {
    LineReader reader(line, names_.get());
    visit_fields(reader, value);
  }
  const TensorNames& names(const RankProgram& rank_program) {
    if (!names_) names_ = std::make_unique<TensorNames>(rank_program);
    return *names_;
  }
  void finish_program() {
    names_.reset();
    if (program_.rank_programs.empty()) return;
    RankProgram& rank_program = program_.rank_programs.back();
    for (const NamedAfter& after : afters_) {
      const auto stream = find_stream(rank_program, after.awaited);
      if (!stream) after.line.refuse(fmt::format("no stream `{}`", after.awaited));
      rank_program.streams[after.stream].instructions[after.instruction].after.push_back(
          {*stream, after.index});
    }
    afters_.clear();
  }

  void parse_group(Line& line) {
    Group group;
    group.kind = line.to_choice<GroupKind>(line.need_word("", "a kind").text, program_words().groups);
    LineReader(line, nullptr).list("ranks", group.ranks);
    program_.groups.add(std::move(group));
  }

  // Parses a line inside a program; the deepest open level takes it.
  void parse_inside(Line& line, RankProgram& rank_program) {
    if (line.head() == "chunk" && rank_program.tensors.empty()) {
      Chunk chunk;
      LineReader(line, nullptr).number("virtual_stage", chunk.virtual_stage);
      line.take_pair(line.take_value("layers").value_or(""), "layers", chunk.first_layer, chunk.last_layer);
      rank_program.chunks.add(chunk);
    } else if (line.head() == "tensor" && rank_program.blocks.empty()) {
      Tensor tensor;
      tensor.name = line.need_word("", "a name").text;
      fields(line, tensor);
      rank_program.tensors.add(std::move(tensor));
    } else if (line.head() == "shard" && rank_program.blocks.empty()) {
      Shard shard;
      names(rank_program);
      fields(line, shard);
      rank_program.shards.add(std::move(shard));
    } else if (line.head() == "block" && rank_program.streams.empty()) {
      parse_block(line, rank_program);
    } else if (line.head() == "stream") {
      parse_stream(line, rank_program);
    } else if (!rank_program.streams.empty()) {
      parse_instruction(line, rank_program);
    } else if (!rank_program.blocks.empty()) {
      parse_kernel(line, rank_program);
    } else {
      line.refuse(fmt::format("`{}` outside a block or stream", line.head()));
    }
  }

  static void parse_block(Line& line, RankProgram& rank_program) {
    Block block;
    block.name = line.need_word("", "a name").text;
    LineReader reader(line, nullptr);
    reader.word("pass", block.pass, program_words().passes);
    reader.number("chunk", block.chunk);
    rank_program.blocks.add(std::move(block));
  }

  static void parse_stream(Line& line, RankProgram& rank_program) {
    Stream stream;
    stream.kind = line.to_choice<StreamKind>(line.need_word("", "a kind").text, program_words().streams);
    LineReader(line, nullptr).number("chunk", stream.chunk);
    rank_program.streams.add(std::move(stream));
  }

  void parse_kernel(Line& line, RankProgram& rank_program) {
    Kernel kernel;
    kernel.op = line.to_choice<KernelOp>(line.head(), program_words().kernels);
    LineReader reader(line, &names(rank_program));
    reader.tensors("from", kernel.in);
    reader.tensors("with", kernel.parameters);
    reader.tensors("to", kernel.out);
    reader.tensors("frees", kernel.frees);
    visit_fields(reader, kernel);
    rank_program.blocks.back().kernels.push_back(std::move(kernel));
  }

  void parse_instruction(Line& line, RankProgram& rank_program) {
    Instruction instruction;
    LineReader reader(line, &names(rank_program));
    instruction.body = parse_body(line, reader, rank_program);
    if (const auto word = line.take_word("micro-batch"))
      instruction.micro_batch = line.to_number<std::int32_t>(word->text);
    visit_fields(reader, instruction);
    reader.tensors("frees", instruction.frees);
    const StreamId stream(rank_program.streams.size() - 1);
    std::vector<Instruction>& instructions = rank_program.streams[stream].instructions;
    const std::vector<Word> awaited = line.take_words("after");
    if (awaited.size() % 2 != 0) line.refuse("`after` wants a stream and an index");
    for (std::size_t i = 0; i < awaited.size(); i += 2)
      afters_.push_back({stream, instructions.size(), awaited[i].text,
                         line.to_number<std::int32_t>(awaited[i + 1].text), line});
    instructions.push_back(std::move(instruction));
  }

  static InstructionBody parse_body(Line& line, LineReader& reader, const RankProgram& rank_program) {
    const std::string& op = line.head();
    if (op == "compute") return parse_compute(line, rank_program);
    if (op == "send") return parse_message<Send>(line, reader, rank_program, "to");
    if (op == "recv") return parse_message<Recv>(line, reader, rank_program, "from");
    if (op == "optimizer") {
      OptimizerStep step;
      reader.tensors("", step.tensors);
      return step;
    }
    if (op == "copy") {
      Copy copy;
      reader.tensors("", copy.tensors);
      reader.tensors("into", copy.into);
      visit_fields(reader, copy);
      return copy;
    }
    std::vector<std::string> ops = {"compute", "send", "recv", "optimizer", "copy"};
    ops.insert(ops.end(), program_words().collectives.begin(), program_words().collectives.end());
    const auto kind = line.to_choice<std::size_t>(op, ops) - 5;
    Collective collective;
    collective.kind = static_cast<CollectiveKind>(kind);
    reader.tensors("", collective.tensors);
    collective.slot = GroupSlot(line.to_number<std::int32_t>(line.need_word("over", "a group slot").text));
    visit_fields(reader, collective);
    return collective;
  }

  static Compute parse_compute(Line& line, const RankProgram& rank_program) {
    const Word name = line.need_word("", "a block");
    const auto block = find_block(rank_program, name.text);
    if (!block) line.refuse(fmt::format("no block `{}`", name.text), name.column);
    Compute compute{*block, 0, static_cast<std::int32_t>(rank_program.blocks[*block].kernels.size())};
    if (const auto range = line.take_word("kernels"))
      line.take_pair(range->text, "kernels", compute.first_kernel, compute.last_kernel);
    return compute;
  }

  template <class Message>
  static Message parse_message(Line& line, LineReader& reader, const RankProgram& rank_program,
                               const char* preposition) {
    Message message;
    const Word tensor = line.need_word("", "a tensor");
    message.tensor = reader.tensor(tensor.text, tensor.column);
    const Word peer = line.need_word(preposition, "a peer");
    const auto slot = find_peer(rank_program, peer.text);
    if (!slot) line.refuse(fmt::format("no peer `{}`: next or previous", peer.text), peer.column);
    message.slot = *slot;
    visit_fields(reader, static_cast<PeerMessage&>(message));
    return message;
  }

  Program program_;
  std::unique_ptr<TensorNames> names_;  // names of the last program's tensors, once they have been read
  std::vector<NamedAfter> afters_;
};

}  // namespace

Program parse_program(const std::string& text, const std::string& file_name) {
  ProgramParser parser;
  std::stringstream lines(text);
  int number = 0;
  for (std::string content; std::getline(lines, content);) {
    Line line(content, file_name, ++number);
    if (number == 1 && content != kProgramHeader)
      line.refuse(fmt::format("the first line is not `{}`", kProgramHeader));
    if (number > 1 && !line.head().empty()) parser.parse_line(line);
  }
  if (number == 0) Line("", file_name, 1).refuse("the file is empty");
  return parser.finish();
}

}  // namespace motley
