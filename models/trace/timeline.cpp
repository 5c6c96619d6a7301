#include "models/trace/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <span>
#include <vector>

#include "models/base/markup.hpp"
#include "models/base/refusal.hpp"
#include "models/base/table.hpp"
#include "models/base/units.hpp"

namespace motley {
namespace {

// Pixels. A row has the bars of the compute stream, below them its kernels, and below those the other streams.
constexpr double kWidth = 1180, kLeft = 118, kRight = 24, kTop = 84, kAxis = 40;
constexpr double kBar = 20, kKernels = 8, kOthers = 4, kRow = kBar + kKernels + kOthers + 4,
                 kBetweenRanks = 12;
constexpr double kLeast = 0.25;  // no narrower mark is drawn
constexpr const char* kIdle = "#eceff3";
constexpr const char* kInk = "#1d2430";

struct Colour {
  const char* name;
  const char* colour;
};
// Dark enough for white digits; they also differ in lightness.
constexpr std::array<Colour, 6> kInstructions = {{{"forward", "#3b6fb6"},
                                                  {"backward", "#2e9266"},
                                                  {"weight gradient", "#8a9a2b"},
                                                  {"optimizer", "#7d4a9e"},
                                                  {"transfer", "#b3872b"},
                                                  {"collective", "#c26a1b"}}};
constexpr std::array<Colour, 4> kKernelKinds = {{{"matmul", "#12355f"},
                                                 {"attention", "#a33a5c"},
                                                 {"other kernels", "#8fa3b8"},
                                                 {"collective in a compute", "#c26a1b"}}};

const char* colour_of(const Program& program, const Step& step) {
  const Instruction& instruction = program.at(step.rank, step.stream, step.index);
  switch (instruction.op()) {
    case Op::compute: {
      const BlockId block = std::get<Compute>(instruction.body).block;
      switch (program.program_of(step.rank).blocks[block].pass) {
        case Pass::forward:
          return kInstructions[0].colour;
        case Pass::weight_gradient:
          return kInstructions[2].colour;
        default:
          return kInstructions[1].colour;
      }
    }
    case Op::optimizer:
      return kInstructions[3].colour;
    case Op::collective:
      return kInstructions[5].colour;
    default:
      return kInstructions[4].colour;
  }
}

const char* colour_of(KernelOp op) {
  if (is_collective(op)) return kKernelKinds[3].colour;
  if (op == KernelOp::attention || op == KernelOp::attention_backward) return kKernelKinds[1].colour;
  const std::string_view name = name_of(op);
  return name.find("matmul") != std::string_view::npos ? kKernelKinds[0].colour : kKernelKinds[2].colour;
}

// The first rank of each stage that both traces have.
std::vector<Rank> drawn_ranks(const Program& program, const Trace& a, const Trace& b, std::size_t most) {
  std::array<std::set<Rank>, 2> ranks;
  for (const TraceEvent& event : a.events) ranks[0].insert(event.step.rank);
  for (const TraceEvent& event : b.events) ranks[1].insert(event.step.rank);
  std::set<int> stages;
  std::vector<Rank> drawn;
  for (const Rank rank : ranks[0])
    if (ranks[1].contains(rank) && drawn.size() < most && stages.insert(program.ranks[rank].stage).second)
      drawn.push_back(rank);
  return drawn;
}

// A round distance between ticks, about eight of them.
double tick_s(double span_s) {
  const double exponent = std::pow(10.0, std::floor(std::log10(span_s / 8)));
  for (const double step : {1.0, 2.0, 5.0, 10.0})
    if (span_s / (step * exponent) <= 9) return step * exponent;
  return 10 * exponent;
}

class Picture {
 public:
  Picture(const Program& program, const TimelineOptions& options, double span_s)
      : program_(program), options_(options), scale_((kWidth - kLeft - kRight) / span_s), span_s_(span_s) {}

  void add_row(const Trace& trace, Rank rank, std::string_view label, double y) {
    const double origin_s = span_of(trace).begin_s;
    text(kLeft - 8, y + kBar - 5, "end", label);
    rectangle(kLeft, y, kWidth - kLeft - kRight, kBar, kIdle, "");
    for (const TraceEvent& event : events_of(trace, rank)) add(event, origin_s, y);
    const KernelEvent first{.step = {rank, {}, -1}};
    for (auto each = std::lower_bound(trace.kernels.begin(), trace.kernels.end(), first, is_earlier);
         each != trace.kernels.end() && each->step.rank == rank; ++each)
      add(*each, origin_s, y + kBar);
  }

  std::string finish(double bottom) {
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" font-family=\"sans-serif\" "
        "font-size=\"12\" role=\"img\">\n<title>{}</title>\n<rect width=\"{:.0f}\" height=\"{:.0f}\" "
        "fill=\"#ffffff\"/>\n",
        kWidth, bottom + kAxis, escaped(options_.title), kWidth, bottom + kAxis);
    std::swap(svg, text_);
    text_ += fmt::format("<text x=\"{}\" y=\"22\" font-size=\"15\" fill=\"{}\">{}</text>\n", kLeft, kInk,
                         escaped(options_.title));
    legend(38, kInstructions);
    legend(56, kKernelKinds);
    text_ += svg;
    axis(bottom);
    return text_ + "</svg>\n";
  }

 private:
  static std::span<const TraceEvent> events_of(const Trace& trace, Rank rank) {
    const auto first = std::partition_point(trace.events.begin(), trace.events.end(),
                                            [&](const TraceEvent& each) { return each.step.rank < rank; });
    const auto last = std::partition_point(first, trace.events.end(),
                                           [&](const TraceEvent& each) { return each.step.rank == rank; });
    return {first, last};
  }

  bool draws(double begin_s, double end_s) {
    return (end_s - begin_s) * scale_ >= kLeast && marks_++ < options_.most_marks;
  }

  void add(const TraceEvent& event, double origin_s, double y) {
    const bool is_other = event.step.stream != kComputeStream;
    const double begin_s = is_other ? event.matched_s : event.begin_s;
    if (!draws(begin_s, event.end_s)) return;
    const Step& step = event.step;
    const double x = kLeft + (begin_s - origin_s) * scale_, width = (event.end_s - begin_s) * scale_;
    const std::string where = fmt::format("{}: {}", describe(program_, step.rank, step.stream, step.index),
                                          format_seconds(event.end_s - begin_s));
    rectangle(x, is_other ? y + kBar + kKernels : y, width, is_other ? kOthers : kBar,
              colour_of(program_, step), where);
    const std::int32_t micro_batch = program_.at(step.rank, step.stream, step.index).micro_batch;
    const std::string number = micro_batch < 0 || is_other ? "" : fmt::to_string(micro_batch);
    if (!number.empty() && width > 9.0 * static_cast<double>(number.size()))
      text(x + width / 2, y + kBar - 6, "middle", number, "#ffffff");
  }

  void add(const KernelEvent& event, double origin_s, double y) {
    if (!draws(event.begin_s, event.end_s)) return;
    const Kernel& kernel = *find_kernel(program_, event.step, event.kernel);
    rectangle(kLeft + (event.begin_s - origin_s) * scale_, y, (event.end_s - event.begin_s) * scale_,
              kKernels, colour_of(kernel.op),
              fmt::format("{}: {}", name_of(kernel.op), format_seconds(event.end_s - event.begin_s)));
  }

  void rectangle(double x, double y, double width, double height, const char* colour,
                 const std::string& hint) {
    text_ += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\"", x,
                         y, width, height, colour);
    text_ += hint.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escaped(hint));
  }
  void text(double x, double y, const char* anchor, std::string_view words, const char* colour = kInk) {
    text_ += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n", x, y,
                         anchor, colour, escaped(words));
  }

  template <std::size_t N>
  void legend(double y, const std::array<Colour, N>& colours) {
    double x = kLeft;
    for (const Colour& each : colours) {
      rectangle(x, y, 12, 12, each.colour, "");
      text(x + 17, y + 10, "start", each.name);
      x += 34 + 6.6 * static_cast<double>(std::string_view(each.name).size());
    }
  }

  void axis(double bottom) {
    const SecondsColumn seconds(span_s_);
    const double step_s = tick_s(span_s_);
    for (int i = 0; i * step_s <= span_s_ * (1 + 1e-9); ++i) {
      const double x = kLeft + i * step_s * scale_;
      text_ += fmt::format("<path d=\"M{:.2f} {:.2f}v5\" stroke=\"{}\"/>\n", x, bottom, kInk);
      text(x, bottom + 19, "middle", format_seconds(i * step_s));
    }
  }

  const Program& program_;
  const TimelineOptions& options_;
  const double scale_, span_s_;
  std::size_t marks_ = 0;
  std::string text_;
};

}  // namespace

std::string timeline_svg(const Program& program, const Trace& a, const Trace& b,
                         const TimelineOptions& options) {
  const std::string hash = program_hash(program);
  const std::vector<Rank> ranks = drawn_ranks(program, a, b, options.most_ranks);
  if (a.program_hash != hash || b.program_hash != hash || ranks.empty())
    throw Refusal(Exit::mismatch, "different-programs", {},
                  ranks.empty()
                      ? "the traces have no rank in common, so there is nothing to draw"
                      : "the traces are of different programs, so there is nothing to draw on one axis",
                  "draw two traces of one scenario");
  const double span_s = std::max({span_of(a).seconds(), span_of(b).seconds(), 1e-9});
  Picture picture(program, options, span_s);
  double y = kTop;
  for (const Rank rank : ranks) {
    const int stage = program.ranks[rank].stage;
    picture.add_row(a, rank, fmt::format("stage {} A {}", stage, a.world), y);
    picture.add_row(b, rank, fmt::format("B {}", b.world), y + kRow);
    y += 2 * kRow + kBetweenRanks;
  }
  return picture.finish(y);
}

}  // namespace motley
