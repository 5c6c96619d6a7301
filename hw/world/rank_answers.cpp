#include "hw/world/rank_answers.hpp"

#include <exception>
#include <stdexcept>
#include <string>

#include "models/base/refusal.hpp"

namespace motley {

namespace {

enum class Outcome : std::uint8_t { done, failure, refusal, bug };

// What stands before the lists and texts of an answer.
struct AnswerHead {
  Outcome outcome = Outcome::done;
  Exit exit_code = Exit::ok;  // refusal
  double number = 0, begin_s = 0, end_s = 0;
  PathSet paths = {};
  std::size_t kernels = 0, values = 0;
  std::size_t kind = 0, message = 0, hint = 0;  // bytes of the texts
};

template <class List>
List read_list(QuestionLine& line, std::size_t count, double timeout_s) {
  List list(count, typename List::value_type{});
  if (count > 0) line.read_all(std::as_writable_bytes(std::span(list.data(), count)), timeout_s);
  return list;
}

void send_failure(QuestionLine& line, AnswerHead head, const std::string& kind, const std::string& message,
                  const std::string& hint) {
  head.kind = kind.size();
  head.message = message.size();
  head.hint = hint.size();
  line.write_all(bytes_of_value(head), kForEver_s);
  for (const std::string* const text : {&kind, &message, &hint})
    line.write_all(std::as_bytes(std::span(*text)), kForEver_s);
}

[[noreturn]] void throw_received(const AnswerHead& head, QuestionLine& line, double timeout_s) {
  const auto kind = read_list<std::string>(line, head.kind, timeout_s);
  const auto message = read_list<std::string>(line, head.message, timeout_s);
  const auto hint = read_list<std::string>(line, head.hint, timeout_s);
  if (head.outcome == Outcome::refusal) throw Refusal(head.exit_code, kind, {}, message, hint, RefusalSite{});
  if (head.outcome == Outcome::bug) throw std::logic_error(message);
  throw RunFailure(message);
}

}  // namespace

void send_question(QuestionLine& line, RankQuestion question, std::span<const float> recorded,
                   double timeout_s) {
  question.count = recorded.size();
  line.write_all(bytes_of_value(question), timeout_s);
  line.write_all(std::as_bytes(recorded), timeout_s);
}

std::pair<RankQuestion, std::vector<float>> read_question(QuestionLine& line, double timeout_s) {
  RankQuestion question;
  line.read_all(writable_bytes_of_value(question), timeout_s);
  return {question, read_list<std::vector<float>>(line, question.count, timeout_s)};
}

void send_answer(QuestionLine& line, const RankAnswer& answer) {
  AnswerHead head;
  head.number = answer.number;
  head.begin_s = answer.begin_s;
  head.end_s = answer.end_s;
  head.paths = answer.paths;
  head.kernels = answer.kernels.size();
  head.values = answer.values.size();
  line.write_all(bytes_of_value(head), kForEver_s);
  line.write_all(std::as_bytes(std::span(answer.kernels)), kForEver_s);
  line.write_all(std::as_bytes(std::span(answer.values)), kForEver_s);
}

void send_values(QuestionLine& line, std::span<const float> values) {
  AnswerHead head;
  head.values = values.size();
  line.write_all(bytes_of_value(head), kForEver_s);
  line.write_all(std::as_bytes(values), kForEver_s);
}

void send_thrown(QuestionLine& line) {
  try {
    throw;
  } catch (const Refusal& refusal) {
    note_sites(refusal);  // the other end cannot know where the message was written
    send_failure(line, {.outcome = Outcome::refusal, .exit_code = refusal.exit_code()}, refusal.kind(),
                 refusal.message(), refusal.hint());
  } catch (const std::logic_error& bug) {
    send_failure(line, {.outcome = Outcome::bug}, "", bug.what(), "");
  } catch (const std::exception& failure) {
    send_failure(line, {.outcome = Outcome::failure}, "", failure.what(), "");
  }
}

RankAnswer read_answer(QuestionLine& line, double timeout_s) {
  AnswerHead head;
  line.read_all(writable_bytes_of_value(head), timeout_s);
  if (head.outcome != Outcome::done) throw_received(head, line, timeout_s);
  RankAnswer answer;
  answer.number = head.number;
  answer.begin_s = head.begin_s;
  answer.end_s = head.end_s;
  answer.paths = head.paths;
  answer.kernels = read_list<std::vector<KernelSpan>>(line, head.kernels, timeout_s);
  answer.values = read_list<std::vector<float>>(line, head.values, timeout_s);
  return answer;
}

}  // namespace motley
