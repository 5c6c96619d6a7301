#include "models/sweep/sweep_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "models/base/markup.hpp"
#include "models/base/table.hpp"
#include "models/base/units.hpp"

namespace motley {
namespace {

// Pixels.
constexpr double kWidth = 900, kHeight = 520, kLeft = 84, kRight = 210, kTop = 58, kBottom = 64;
constexpr std::size_t kMostLines = 12;
constexpr std::array kColours = {"#3b6fb6", "#c26a1b", "#2e9266", "#7d4a9e", "#a33a5c", "#8a9a2b",
                                 "#12355f", "#b3872b", "#00798c", "#5a189a", "#7f3b08", "#5b6470"};
constexpr const char* kInk = "#1d2430";
constexpr const char* kGrid = "#e2e6ec";

struct Point {
  double x = 0, y = 0;
  double least = 0, most = 0;  // of y; both 0: not known
  std::string says, label;
  bool is_front = false;
};
struct Line {
  std::string name;
  std::vector<Point> points;
};

struct Scale {
  double least = 0, most = 1;
  double from = 0, to = 1;  // pixels
  bool is_log = false;

  double at(double value) const {
    const auto part = [&](double v) { return is_log ? std::log(v) : v; };
    const double span = part(most) - part(least);
    return from + (span > 0 ? (part(value) - part(least)) / span : 0.5) * (to - from);
  }
};

// Round numbers between the ends, some six of them.
std::vector<double> ticks(const Scale& scale) {
  std::vector<double> list;
  const double raw = (scale.most - scale.least) / 6;
  if (!(raw > 0)) return {scale.least};
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double times : {5.0, 2.0, 1.0})
    if (times * power >= raw) step = times * power;
  constexpr double kRounding = 1e-9;
  for (double i = std::ceil(scale.least / step - kRounding); i * step <= scale.most * (1 + kRounding); ++i)
    list.push_back(i == 0 ? 0 : i * step);  // never -0
  return list;
}

// A value of an axis as a number, with the unit behind it. Nothing: it is none.
std::optional<std::pair<double, std::string>> number_of(const std::string& value) {
  const std::size_t end = std::min(value.find_first_not_of("0123456789.-"), value.size());
  double number = 0;
  if (read_number(value.substr(0, end), number) != NumberFault::none) return std::nullopt;
  return std::pair{number, value.substr(end)};
}

// Where the values of an axis stand: by their numbers, if they have one unit, else side by side.
struct Positions {
  std::map<std::string, double> at;
  bool are_numbers = true;
  bool is_log = false;
};

Positions positions_of(const SweepAxis& axis) {
  Positions positions;
  std::optional<std::string> unit;
  double least = 0, most = 0;
  for (const std::string& value : axis.values) {
    const auto number = number_of(value);
    positions.are_numbers =
        positions.are_numbers && number && unit.value_or(number->second) == number->second;
    if (!positions.are_numbers) break;
    unit = number->second;
    least = positions.at.empty() ? number->first : std::min(least, number->first);
    most = positions.at.empty() ? number->first : std::max(most, number->first);
    positions.at[value] = number->first;
  }
  if (!positions.are_numbers) {
    positions.at.clear();
    for (std::size_t i = 0; i < axis.values.size(); ++i)
      positions.at[axis.values[i]] = static_cast<double>(i);
  }
  constexpr double kWide = 7.9;
  positions.is_log = positions.are_numbers && least > 0 && most / least >= kWide;
  return positions;
}

std::string measure_title(SweepMeasure measure) {
  switch (measure) {
    case SweepMeasure::time:
      return "step, s";
    case SweepMeasure::price:
      return "price of a billion tokens, USD";
    case SweepMeasure::energy:
      return "energy of a billion tokens, kWh";
    case SweepMeasure::memory:
      return "memory of the fullest chip, GiB";
  }
  return {};
}

double shown(const SweepFigures& figures, SweepMeasure measure) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  return measured(figures, measure) / (measure == SweepMeasure::memory ? kGiB : 1);
}

// What a point says: its values and its step.
std::string sentence(const SweepTable& table, const SweepRow& row) {
  std::string text;
  for (std::size_t i = 0; i < row.values.size(); ++i)
    if (table.axes[i].values.size() != 1) text += fmt::format("{}: {}\n", table.axes[i].key, row.values[i]);
  return text + fmt::format("{} a step, {} MFU", format_seconds(row.figures->step_s),
                            format_percent(row.figures->mfu));
}

// The values of a row in few words: "tp 8, micro_batch 2".
std::string label_of(const SweepTable& table, const SweepRow& row) {
  std::string text;
  for (std::size_t i = 0; i < row.values.size(); ++i) {
    const SweepAxis& axis = table.axes[i];
    if (axis.values.size() != 1)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", axis.key.substr(axis.key.rfind('.') + 1),
                          row.values[i]);
  }
  return text;
}

// A chart, from its points to its text.
struct Chart {
  std::string title = {}, x_title = {}, y_title = {};
  std::vector<Line> lines = {};
  std::vector<std::pair<double, std::string>> x_ticks = {};  // empty: round numbers
  bool x_is_log = false, joins = true, joins_front = false;
  std::string note = {};
};

class Picture {
 public:
  explicit Picture(const Chart& chart) : chart_(chart) {
    x_ = {.from = kLeft, .to = kWidth - kRight, .is_log = chart.x_is_log};
    y_ = {.from = kHeight - kBottom, .to = kTop};
    bool first = true;
    for (const Line& line : chart.lines)
      for (const Point& point : line.points) {
        const double least = point.least > 0 ? point.least : point.y, most = std::max(point.most, point.y);
        x_.least = first ? point.x : std::min(x_.least, point.x);
        x_.most = first ? point.x : std::max(x_.most, point.x);
        y_.least = first ? least : std::min(y_.least, least);
        y_.most = first ? most : std::max(y_.most, most);
        first = false;
      }
    constexpr double kNear = 0.6, kAir = 0.05;
    if (y_.least < kNear * y_.most) y_.least = 0;
    const double air = kAir * (y_.most - y_.least);
    y_.most += air;
    if (y_.least > 0) y_.least = std::max(0.0, y_.least - air);
    if (!(y_.most > y_.least)) y_.most = y_.least + 1;
    if (!chart.x_is_log) {
      const double side = kAir * (x_.most - x_.least);
      x_.least -= x_.least > 0 && x_.least - side < 0 ? x_.least : side;
      x_.most += side;
    }
  }

  std::string svg() {
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
        "font-family=\"sans-serif\" font-size=\"13\" fill=\"{2}\">\n<rect width=\"{0}\" height=\"{1}\" "
        "fill=\"white\"/>\n",
        kWidth, kHeight, kInk);
    write(kLeft, kTop - 30, "start", chart_.title, "font-size=\"16\" font-weight=\"bold\"");
    draw_axes();
    draw_bands();
    for (std::size_t i = 0; i < chart_.lines.size(); ++i) draw_line(chart_.lines[i], i);
    if (chart_.joins_front) draw_front();
    return text_ + "</svg>\n";
  }

 private:
  void write(double x, double y, const char* anchor, const std::string& words, const std::string& more = {}) {
    text_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y, anchor,
                         more, escaped(words));
  }
  void rule(double x1, double y1, double x2, double y2) {
    text_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n",
                         x1, y1, x2, y2, kGrid);
  }

  void draw_axes() {
    for (const double value : ticks(y_)) {
      rule(kLeft, y_.at(value), kWidth - kRight, y_.at(value));
      write(kLeft - 8, y_.at(value) + 4, "end", fmt::format("{:.6g}", value));
    }
    std::vector<std::pair<double, std::string>> x_ticks = chart_.x_ticks;
    if (x_ticks.empty())
      for (const double value : ticks(x_)) x_ticks.emplace_back(value, fmt::format("{:.6g}", value));
    double last = -kWidth;
    for (const auto& [value, words] : x_ticks) {
      rule(x_.at(value), kTop, x_.at(value), kHeight - kBottom);
      const double half = 3.8 * static_cast<double>(words.size());
      if (x_.at(value) - half < last) continue;  // it would stand over the one before
      write(x_.at(value), kHeight - kBottom + 20, "middle", words);
      last = x_.at(value) + half;
    }
    write((kLeft + kWidth - kRight) / 2, kHeight - 16, "middle", chart_.x_title);
    const double middle = (kTop + kHeight - kBottom) / 2;
    write(0, 0, "middle", chart_.y_title,
          fmt::format("transform=\"translate(20 {:.1f}) rotate(-90)\"", middle));
    if (!chart_.note.empty()) write(kWidth - kRight + 16, kHeight - kBottom, "start", chart_.note);
  }

  // The likely interval, where there is one line.
  void draw_bands() {
    if (chart_.lines.size() != 1 || !chart_.joins) return;
    std::string there, back;
    for (const Point& point : chart_.lines[0].points) {
      if (!(point.most > 0)) return;
      there += fmt::format("{:.1f},{:.1f} ", x_.at(point.x), y_.at(point.most));
      back = fmt::format("{:.1f},{:.1f} ", x_.at(point.x), y_.at(point.least)) + back;
    }
    text_ += fmt::format("<polygon points=\"{}{}\" fill=\"{}\" fill-opacity=\"0.13\"/>\n", there, back,
                         kColours[0]);
    text_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"18\" height=\"12\" fill=\"{}\" "
        "fill-opacity=\"0.13\"/>\n",
        kWidth - kRight + 14, kTop + 18, kColours[0]);
    write(kWidth - kRight + 38, kTop + 29, "start", "likely (8 of 10 runs)");
  }

  bool is_faint(const Point& point) const { return chart_.joins_front && !point.is_front; }

  void draw_line(const Line& line, std::size_t number) {
    const char* const colour = kColours[number % kColours.size()];
    std::string path;
    for (const Point& point : line.points)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x_.at(point.x), y_.at(point.y));
    if (chart_.joins && line.points.size() > 1)
      text_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path, colour);
    for (const Point& point : line.points)
      text_ += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\" "
          "fill-opacity=\"{}\"><title>{}</title></circle>\n",
          x_.at(point.x), y_.at(point.y), is_faint(point) ? 3 : 4, colour, is_faint(point) ? 0.35 : 1.0,
          escaped(point.says));
    if (line.name.empty()) return;
    const double y = kTop + 6 + 20 * static_cast<double>(number);
    text_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\"/>\n", kWidth - kRight + 22,
                         y, colour);
    write(kWidth - kRight + 34, y + 4, "start", line.name);
  }

  void draw_front() {
    std::vector<const Point*> front;
    for (const Line& line : chart_.lines)
      for (const Point& point : line.points)
        if (point.is_front) front.push_back(&point);
    std::sort(front.begin(), front.end(), [](const Point* a, const Point* b) { return a->x < b->x; });
    std::string path;
    for (const Point* const point : front)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x_.at(point->x), y_.at(point->y));
    if (front.size() > 1)
      text_ +=
          fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path, kColours[1]);
    constexpr std::size_t kMostLabels = 8;
    if (front.size() <= kMostLabels)
      for (std::size_t i = 0; i < front.size(); ++i)
        write(x_.at(front[i]->x) + 8, y_.at(front[i]->y) + (i % 2 == 0 ? -6 : 16), "start", front[i]->label,
              "font-size=\"11\"");
    write(kWidth - kRight + 16, kTop + 10, "start", fmt::format("{} rows in the front", front.size()));
    write(kWidth - kRight + 16, kTop + 30, "start", "none beats them in both", "font-size=\"11\"");
  }

  const Chart& chart_;
  Scale x_, y_;
  std::string text_;
};

Chart front_chart(const SweepTable& table) {
  const SweepMeasure across = *parse_word<SweepMeasure>(table.front_of[0]),
                     up = *parse_word<SweepMeasure>(table.front_of[1]);
  Chart chart{.title = fmt::format("{}: {} and {}", table.name, table.front_of[0], table.front_of[1]),
              .x_title = measure_title(across),
              .y_title = measure_title(up),
              .joins = false,
              .joins_front = true};
  Line line;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const SweepRow& row = table.rows[i];
    if (!row.figures) continue;
    const Point point{.x = shown(*row.figures, across),
                      .y = shown(*row.figures, up),
                      .least = 0,
                      .most = 0,
                      .says = sentence(table, row),
                      .label = label_of(table, row),
                      .is_front = std::find(table.front.begin(), table.front.end(), i) != table.front.end()};
    if (std::isfinite(point.x) && std::isfinite(point.y)) line.points.push_back(point);
  }
  chart.lines.push_back(std::move(line));
  return chart;
}

Chart line_chart(const SweepTable& table) {
  std::vector<std::size_t> varying;
  for (std::size_t i = 0; i < table.axes.size(); ++i)
    if (table.axes[i].values.size() != 1) varying.push_back(i);
  Chart chart{.y_title = measure_title(SweepMeasure::time)};
  if (varying.empty()) return chart;
  const SweepAxis& across = table.axes[varying[0]];
  const Positions positions = positions_of(across);
  chart.title = fmt::format("{}: step over {}", table.name, across.key);
  chart.x_title = across.key;
  chart.x_is_log = positions.is_log;
  chart.joins = positions.are_numbers;
  for (const std::string& value : across.values) chart.x_ticks.emplace_back(positions.at.at(value), value);
  std::map<std::string, std::size_t> line_of;
  for (const SweepRow& row : table.rows) {
    if (!row.figures) continue;
    std::string name;
    for (std::size_t i = 1; i < varying.size(); ++i) {
      const std::string& key = table.axes[varying[i]].key;
      name += fmt::format("{}{} {}", name.empty() ? "" : ", ", key.substr(key.rfind('.') + 1),
                          row.values[varying[i]]);
    }
    const auto [entry, is_new] = line_of.try_emplace(name, line_of.size());
    if (entry->second >= kMostLines) {
      chart.note = fmt::format("and {} further lines", line_of.size() - kMostLines);
      continue;
    }
    if (is_new) chart.lines.push_back({name, {}});
    chart.lines[entry->second].points.push_back({.x = positions.at.at(row.values[varying[0]]),
                                                 .y = row.figures->step_s,
                                                 .least = row.figures->likely_least_s,
                                                 .most = row.figures->likely_most_s,
                                                 .says = sentence(table, row),
                                                 .label = {}});
  }
  if (chart.lines.size() > 1)  // intervals over each other would hide the lines
    for (Line& line : chart.lines)
      for (Point& point : line.points) point.least = point.most = 0;
  for (Line& line : chart.lines)
    std::stable_sort(line.points.begin(), line.points.end(),
                     [](const Point& a, const Point& b) { return a.x < b.x; });
  return chart;
}

}  // namespace

std::string plot_of(const SweepTable& table, bool as_page) {
  const Chart chart = table.front_of.size() == 2 ? front_chart(table) : line_chart(table);
  const std::string svg = Picture(chart).svg();
  if (!as_page) return svg;
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{}</title>\n<style>body "
      "{{ margin: 24px; font-family: sans-serif; }}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
      escaped(chart.title), svg);
}

}  // namespace motley
