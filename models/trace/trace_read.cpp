// Reads what chrome_trace.cpp writes: the head ("motley") of a Chrome trace and the args of complete events; slices,
// flows and counters are for people. A file that is not such a trace is refused at line and column. A SAX parser gives
// the fields one by one, so that no document is kept in memory.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

#include "models/base/gzip.hpp"
#include "models/base/json_cursor.hpp"
#include "models/base/refusal.hpp"
#include "models/base/size.hpp"
#include "models/trace/trace.hpp"
#include "models/trace/trace_file.hpp"

namespace motley {
namespace {

using nlohmann::json;

// Traces have hundreds of megabytes at most; a step takes hours at most; no machine counts 1e30 operations.
constexpr std::size_t kMostTraceBytes = std::size_t{1} << 30;
constexpr double kMost_s = 1e9, kMostFlops = 1e30;

enum class Field : std::uint8_t {
  none,  // not one of ours: skipped
  // Fields of the head.
  schema,
  strategy_hash,
  program_hash,
  world,
  measured_ranks,
  measured_for,
  transfers,
  stand_ins,
  period_s,
  clock_uncertainty_s,
  // Fields of an event.
  ph,
  pid,
  tid,
  index,
  free_s,
  begin_s,
  matched_s,
  end_s,
  waited,
  waited_for,
  waited_rank,
  bytes,
  flops,
  allocated,
  freed,
  peak,
  paths,
  kernel,
};

Field head_field(std::string_view key) {
  static const std::unordered_map<std::string_view, Field> fields = {
      {"schema", Field::schema},
      {"strategy_hash", Field::strategy_hash},
      {"program_hash", Field::program_hash},
      {"world", Field::world},
      {"measured_ranks", Field::measured_ranks},
      {"measured_for", Field::measured_for},
      {"transfers", Field::transfers},
      {"stand_ins", Field::stand_ins},
      {"period_s", Field::period_s},
      {"clock_uncertainty_s", Field::clock_uncertainty_s}};
  const auto field = fields.find(key);
  return field == fields.end() ? Field::none : field->second;
}
Field event_field(std::string_view key) {
  return key == "ph" ? Field::ph : key == "pid" ? Field::pid : key == "tid" ? Field::tid : Field::none;
}
Field args_field(std::string_view key) {
  static const std::unordered_map<std::string_view, Field> fields = {{"index", Field::index},
                                                                     {"free_s", Field::free_s},
                                                                     {"begin_s", Field::begin_s},
                                                                     {"matched_s", Field::matched_s},
                                                                     {"end_s", Field::end_s},
                                                                     {"waited", Field::waited},
                                                                     {"waited_for", Field::waited_for},
                                                                     {"waited_rank", Field::waited_rank},
                                                                     {"bytes", Field::bytes},
                                                                     {"flops", Field::flops},
                                                                     {"allocated", Field::allocated},
                                                                     {"freed", Field::freed},
                                                                     {"peak", Field::peak},
                                                                     {"paths", Field::paths},
                                                                     {"kernel", Field::kernel}};
  const auto field = fields.find(key);
  return field == fields.end() ? Field::none : field->second;
}

class TraceReader : public nlohmann::json_sax<json> {
 public:
  TraceReader(const std::string& path, std::string_view text)
      : path_(path), text_(text), reached_(text.data()) {}

  Trace read() {
    json::sax_parse(JsonCursor(text_.data(), &reached_), JsonCursor(text_.data() + text_.size(), &reached_),
                    this);
    if (!saw_head_) refuse("no \"motley\" at the top level: not a trace that motley wrote");
    if (!saw_events_) refuse("no \"traceEvents\" at the top level");
    sort_events(trace_);
    for (std::size_t i = 1; i < trace_.events.size(); ++i)
      if (trace_.events[i].step == trace_.events[i - 1].step)
        refuse(fmt::format("two events of {}", name_of(trace_.events[i].step)));
    for (std::size_t i = 1; i < trace_.kernels.size(); ++i)
      if (!is_earlier(trace_.kernels[i - 1], trace_.kernels[i]))
        refuse(fmt::format("two events of kernel {} of {}", trace_.kernels[i].kernel,
                           name_of(trace_.kernels[i].step)));
    return std::move(trace_);
  }

  bool null() override { return field_ == Field::none ? true : refuse("null where a value belongs"); }
  bool boolean(bool) override {
    return field_ == Field::none ? true : refuse("a boolean where none belongs");
  }
  bool number_integer(number_integer_t value) override {
    take_integer(value);
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (field_ != Field::none && value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      take_real(static_cast<double>(value));
    else
      take_integer(static_cast<std::int64_t>(value));
    return true;
  }
  bool number_float(number_float_t value, const string_t&) override {
    take_real(value);
    return true;
  }
  bool string(string_t& value) override;
  bool binary(binary_t&) override { break_promise("JSON has no binary data", __FILE__, __LINE__); }
  bool start_object(std::size_t) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool key(string_t& name) override;
  bool parse_error(std::size_t, const std::string& token, const nlohmann::detail::exception& error) override {
    return refuse(fault_of(error.what(), token.empty()));
  }

 private:
  enum class Where : std::uint8_t { outside, top, head, head_list, events, event, args, args_list, other };

  [[noreturn]] bool refuse(const std::string& why, RefusalSite site = RefusalSite::here()) const {
    throw Refusal(Exit::usage, "bad-trace",
                  place_of(path_, text_, static_cast<std::size_t>(reached_ - text_.data())), why,
                  "write traces with `motley simulate --trace FILE`", site);
  }
  static std::string name_of(const Step& step) {
    return fmt::format("rank {} stream {} index {}", step.rank, step.stream, step.index);
  }
  Where where() const { return path_in_.empty() ? Where::outside : path_in_.back(); }
  void open(bool is_object);
  void close();
  bool is_seen(Field field) const { return (seen_ >> static_cast<int>(field) & 1U) != 0; }
  void finish_event();
  void finish_kernel();
  void take_integer(std::int64_t value);
  void take_real(double value);
  double* real_of(Field field);
  std::int64_t* count_of(Field field);
  template <class Integer>
  Integer narrow(std::int64_t value) const {
    if (value < std::numeric_limits<Integer>::min() || value > std::numeric_limits<Integer>::max())
      refuse(fmt::format("{} is out of range", value));
    return static_cast<Integer>(value);
  }

  const std::string& path_;
  std::string_view text_;
  const char* reached_;
  Trace trace_;
  bool saw_head_ = false, saw_events_ = false;
  std::vector<Where> path_in_;
  std::string key_;  // last key at the top level or in an event: the name of an object or list that opens
  Field field_ = Field::none;
  // The event being read.
  TraceEvent event_;
  std::int32_t kernel_ = 0;  // of a kernel's event
  std::vector<std::int64_t> list_;
  bool is_slice_ = false;
  std::uint32_t seen_ = 0;  // one bit for each Field
};

bool TraceReader::key(string_t& name) {
  switch (where()) {
    case Where::head:
      field_ = head_field(name);
      break;
    case Where::event:
      field_ = event_field(name);
      key_ = name;
      break;
    case Where::args:
      field_ = args_field(name);
      break;
    case Where::top:
      key_ = name;
      field_ = Field::none;
      break;
    default:
      field_ = Field::none;
  }
  return true;
}

bool TraceReader::start_object(std::size_t) {
  open(true);
  return true;
}
bool TraceReader::start_array(std::size_t) {
  open(false);
  return true;
}
bool TraceReader::end_object() {
  close();
  return true;
}
bool TraceReader::end_array() {
  close();
  return true;
}

void TraceReader::open(bool is_object) {
  Where inner = Where::other;
  if (where() == Where::outside) {
    if (!is_object) refuse("a list where the trace's object belongs");
    inner = Where::top;
  } else if (where() == Where::top && key_ == "motley") {
    if (!is_object) refuse("\"motley\" is no object");
    inner = Where::head;
    saw_head_ = true;
  } else if (where() == Where::top && key_ == "traceEvents") {
    if (is_object) refuse("\"traceEvents\" is no list");
    inner = Where::events;
    saw_events_ = true;
  } else if (where() == Where::events) {
    if (!is_object) refuse("a list where an event belongs");
    inner = Where::event;
    event_ = {};
    is_slice_ = false;
    seen_ = 0;
  } else if (where() == Where::event && is_object && key_ == "args") {
    inner = Where::args;
  } else if (field_ != Field::none) {
    const bool is_list =
        field_ == Field::measured_ranks || field_ == Field::stand_ins || field_ == Field::waited_for;
    if (is_object || !is_list) refuse("a list or an object where a value belongs");
    inner = where() == Where::head ? Where::head_list : Where::args_list;
    list_.clear();
  }
  if (inner == Where::other || inner == Where::args) field_ = Field::none;
  path_in_.push_back(inner);
}

void TraceReader::close() {
  const Where ended = where();
  path_in_.pop_back();
  if (ended == Where::event) finish_event();
  if (ended == Where::head_list && field_ == Field::stand_ins) {
    if (list_.size() % 2 != 0) refuse("stand_ins is [rank, count, rank, count, ...]");
    for (std::size_t i = 0; i < list_.size(); i += 2)
      trace_.stand_ins.push_back({Rank(narrow<std::int32_t>(list_[i])), list_[i + 1]});
  }
  if (ended == Where::args_list) {
    if (list_.size() != 3) refuse("waited_for is [rank, stream, index]");
    event_.waited_for = {Rank(narrow<std::int32_t>(list_[0])), StreamId(narrow<std::int16_t>(list_[1])),
                         narrow<std::int32_t>(list_[2])};
  }
  field_ = Field::none;
}

void TraceReader::finish_event() {
  if (!is_slice_) return;
  if (is_seen(Field::kernel)) return finish_kernel();
  for (const auto& [field, name] : {std::pair{Field::pid, "pid"},
                                    {Field::tid, "tid"},
                                    {Field::index, "args.index"},
                                    {Field::free_s, "args.free_s"},
                                    {Field::begin_s, "args.begin_s"},
                                    {Field::matched_s, "args.matched_s"},
                                    {Field::end_s, "args.end_s"}})
    if (!is_seen(field)) refuse(fmt::format("this event lacks {}", name));
  if (event_.end_s < event_.begin_s) refuse(fmt::format("{} ends before it begins", name_of(event_.step)));
  trace_.events.push_back(event_);
}

void TraceReader::finish_kernel() {
  for (const auto& [field, name] : {std::pair{Field::pid, "pid"},
                                    {Field::tid, "tid"},
                                    {Field::index, "args.index"},
                                    {Field::begin_s, "args.begin_s"},
                                    {Field::end_s, "args.end_s"}})
    if (!is_seen(field)) refuse(fmt::format("this kernel lacks {}", name));
  if (event_.end_s < event_.begin_s)
    refuse(fmt::format("kernel {} of {} ends before it begins", kernel_, name_of(event_.step)));
  trace_.kernels.push_back({.step = event_.step,
                            .kernel = kernel_,
                            .begin_s = event_.begin_s,
                            .end_s = event_.end_s,
                            .flops = event_.flops,
                            .bytes = event_.bytes});
}

bool TraceReader::string(string_t& value) {
  switch (field_) {
    case Field::none:
      break;
    case Field::schema:
      if (value != "motley.trace/1")
        refuse(fmt::format("schema `{}`, this motley reads motley.trace/1", value));
      break;
    case Field::strategy_hash:
      trace_.strategy_hash = value;
      break;
    case Field::program_hash:
      trace_.program_hash = value;
      break;
    case Field::world:
      trace_.world = value;
      break;
    case Field::measured_for:
      if (value != "class") refuse(fmt::format("measured_for `{}`: known: class", value));
      trace_.measured_for_class = true;
      break;
    case Field::transfers:
      if (value != "measured") refuse(fmt::format("transfers `{}`: known: measured", value));
      trace_.measured_transfers = true;
      break;
    case Field::ph:
      is_slice_ = value == "X";
      break;
    case Field::waited:
      if (value != "step" && value != "peer") refuse(fmt::format("waited `{}`: known: step, peer", value));
      event_.waited = value == "step" ? Waited::step : Waited::peer;
      break;
    case Field::paths:
      if (const auto paths = parse_paths(value))
        event_.paths = *paths;
      else
        refuse(fmt::format("paths `{}`: known: tcp, shm, verbs", value));
      break;
    default:
      refuse(fmt::format("`{}` where a number belongs", value));
  }
  return true;
}

double* TraceReader::real_of(Field field) {
  switch (field) {
    case Field::free_s:
      return &event_.free_s;
    case Field::begin_s:
      return &event_.begin_s;
    case Field::matched_s:
      return &event_.matched_s;
    case Field::end_s:
      return &event_.end_s;
    case Field::flops:
      return &event_.flops;
    case Field::period_s:
      return &trace_.period_s;
    case Field::clock_uncertainty_s:
      return &trace_.clock_uncertainty_s;
    default:
      return nullptr;
  }
}

std::int64_t* TraceReader::count_of(Field field) {
  switch (field) {
    case Field::bytes:
      return &event_.bytes;
    case Field::allocated:
      return &event_.allocated;
    case Field::freed:
      return &event_.freed;
    case Field::peak:
      return &event_.peak;
    default:
      return nullptr;
  }
}

void TraceReader::take_real(double value) {
  if (field_ == Field::none) return;
  double* real = real_of(field_);
  if (real == nullptr) refuse(fmt::format("{} where a whole number belongs", value));
  const double most = field_ == Field::flops ? kMostFlops : kMost_s;
  const bool spans = field_ == Field::period_s || field_ == Field::clock_uncertainty_s;
  if (spans && value < 0) refuse(fmt::format("{} s is no span of time", value));
  if (!(std::fabs(value) <= most)) refuse(fmt::format("{} is out of bounds: at most {}", value, most));
  *real = value;
  seen_ |= 1U << static_cast<int>(field_);
}

void TraceReader::take_integer(std::int64_t value) {
  if (field_ == Field::none) return;
  if (real_of(field_) != nullptr) return take_real(static_cast<double>(value));
  seen_ |= 1U << static_cast<int>(field_);
  if (std::int64_t* count = count_of(field_)) {
    if (value < 0 || value > kMostSize)
      refuse(fmt::format("{} is out of bounds: 0 to {} bytes", value, kMostSize));
    *count = value;
  } else if (field_ == Field::pid) {
    event_.step.rank = Rank(narrow<std::int32_t>(value));
  } else if (field_ == Field::tid) {
    event_.step.stream = StreamId(narrow<std::int16_t>(value));
  } else if (field_ == Field::index) {
    event_.step.index = narrow<std::int32_t>(value);
  } else if (field_ == Field::kernel) {
    kernel_ = narrow<std::int32_t>(value);
  } else if (field_ == Field::waited_rank) {
    event_.waited_rank = Rank(narrow<std::int32_t>(value));
  } else if (where() == Where::args_list || (where() == Where::head_list && field_ == Field::stand_ins)) {
    list_.push_back(value);
  } else if (where() == Where::head_list) {
    trace_.measured_ranks.push_back(Rank(narrow<std::int32_t>(value)));
  } else {
    refuse(fmt::format("{} where text or a list belongs", value));
  }
}

}  // namespace

Trace read_trace(const std::string& path) {
  if (!std::filesystem::exists(path))
    throw Refusal(Exit::usage, "bad-trace", {.file = path}, "cannot be read", "is the path right?");
  refuse_perfetto_trace(path);
  const std::string text = read_text_or_gzip(path, kMostTraceBytes);
  if (is_gzip(text))
    throw Refusal(Exit::usage, "bad-trace", {.file = path},
                  "the compressed text is damaged or ends too early", "write it again");
  return TraceReader(path, text).read();
}

}  // namespace motley
