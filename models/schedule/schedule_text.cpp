// Timetables as text: CSV in the form of PyTorch's torch.distributed.pipelining (_Action and its compute-only CSV,
// version 2.9), which torchtitan reads, and a picture for people.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>

#include "models/base/refusal.hpp"
#include "models/schedule/schedule.hpp"

namespace motley {
namespace {

constexpr std::string_view kLetters = "FBIW";  // indexed by Pass

std::string cell(const Action& action) {
  return fmt::format("{}{}{}", action.virtual_stage, kLetters[static_cast<std::size_t>(action.pass)],
                     action.micro_batch);
}

// One cell of the file.
class Cell {
 public:
  Cell(std::string_view text, Location where) : text_(text), where_(std::move(where)) {}

  void read(std::vector<Action>& into) const {
    if (text_.empty()) return;
    if (text_.front() != '(') {
      into.push_back(action(text_));
      return;
    }
    const std::size_t end = text_.find(')');
    if (end == std::string_view::npos || text_.substr(end + 1) != "OVERLAP_F_B") refuse();
    std::string_view pair = text_.substr(1, end - 1);
    while (!pair.empty()) {
      const std::size_t next = std::min(pair.find(';'), pair.size());
      into.push_back(action(pair.substr(0, next)));
      pair.remove_prefix(std::min(next + 1, pair.size()));
    }
  }

 private:
  Action action(std::string_view text) const {
    Action read;
    text.remove_prefix(number(text, read.virtual_stage));
    const std::size_t pass = text.empty() ? std::string_view::npos : kLetters.find(text.front());
    if (pass == std::string_view::npos) refuse();
    read.pass = static_cast<Pass>(pass);
    text.remove_prefix(1);
    if (number(text, read.micro_batch) != text.size()) refuse();
    return read;
  }
  std::size_t number(std::string_view text, int& into) const {
    constexpr int kMost = 1'000'000;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
    if (error != std::errc{} || into < 0 || into > kMost) refuse();
    return static_cast<std::size_t>(end - text.data());
  }
  [[noreturn]] void refuse() const {
    throw Refusal(Exit::usage, "bad-schedule", where_, fmt::format("`{}` is no action of a schedule", text_),
                  "stage, F, B, I or W, micro-batch, as `2F5`; transfers are not written");
  }
  std::string_view text_;
  Location where_;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

}  // namespace

std::string to_csv(const Timetable& timetable) {
  std::string text;
  for (const auto& actions : timetable.ranks) {
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (i > 0) text += ',';
      text += cell(actions[i]);
    }
    text += "\n";
  }
  return text;
}

Timetable parse_csv(const std::string& text, const std::string& file_name) {
  Timetable timetable;
  std::stringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (trimmed(line).empty()) continue;
    auto& actions = timetable.ranks.emplace_back();
    std::size_t begin = 0;
    while (begin <= line.size()) {
      const std::size_t end = std::min(line.find(',', begin), line.size());
      const std::string_view part = std::string_view(line).substr(begin, end - begin);
      Cell(trimmed(part), {file_name, number, static_cast<int>(begin) + 1}).read(actions);
      begin = end + 1;
    }
  }
  return timetable;
}

std::string to_grid(const Timetable& timetable, const ScheduleTimes& times, int columns) {
  const auto result = evaluate(timetable, times);
  if (!result) return "its ranks wait for each other for ever\n";
  const bool several = placement(timetable).size() > timetable.ranks.size();
  const auto label = [&](const Action& action) {
    const std::string whole = cell(action);
    return several ? whole : whole.substr(whole.find_first_of(kLetters));
  };
  double columns_per_s = 0;  // so that every label and a space fit
  for (const auto& actions : timetable.ranks)
    for (const Action& action : actions)
      columns_per_s =
          std::max(columns_per_s, static_cast<double>(label(action).size() + 1) /
                                      times.pass_times(action.virtual_stage).duration(action.pass));
  columns_per_s = std::min(columns_per_s, columns / result->makespan_s);
  const auto column = [&](double at_s) { return static_cast<std::size_t>(at_s * columns_per_s + 0.5); };
  std::string text;
  for (std::size_t rank = 0; rank < timetable.ranks.size(); ++rank) {
    std::string row(column(result->makespan_s), '.');
    for (std::size_t i = 0; i < timetable.ranks[rank].size(); ++i) {
      const Action& action = timetable.ranks[rank][i];
      const double begin_s = result->begin_s[rank][i];
      const std::size_t from = column(begin_s);
      const std::size_t width =
          column(begin_s + times.pass_times(action.virtual_stage).duration(action.pass)) - from;
      std::string drawn = label(action);
      drawn.resize(std::max(drawn.size(), width), ' ');
      row.replace(from, width, drawn, 0, width);
    }
    text += fmt::format("rank {:<3} {}\n", rank, row);
  }
  return text;
}

}  // namespace motley
