#include "models/plan/row_time.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace motley {

double RowTime::all_s(double most_s) const {
  double sum_s = ends_s, left = layers;
  for (const Segment& segment : segments) {
    const double here = std::min(left, segment.stages * most_s / segment.layer_s);
    sum_s += here * segment.layer_s;
    left -= here;
  }
  return left > 1e-9 * layers ? std::numeric_limits<double>::infinity() : sum_s;
}

double RowTime::longest_stage_s(Schedule schedule, int chunks, double micro_batches, double cut_s) const {
  // Estimates are at least m times the longest stage, and the others' part once.
  const double part = schedule == Schedule::zb_h1 ? 0 : 1 / static_cast<double>(chunks);
  double most_s = std::min(longest_s, cut_s / micro_batches);
  most_s = std::min(most_s,
                    micro_batches > part ? (cut_s - all_s(most_s) * part) / (micro_batches - part) : cut_s);
  if (schedule == Schedule::zb_h1) most_s = std::min(most_s, longest_split_s(micro_batches, cut_s, most_s));
  return most_s > 0 && std::isfinite(all_s(most_s)) ? most_s : 0;
}

// With p stages, the one of T seconds, of which w are gradients of weights, takes at least
//   m T + P - (T - w) - min(m, p-1) w,   P seconds of all being passed on,
// which falls as w grows, to the weights' share of T and what embedding and head have beyond it.
double RowTime::longest_split_s(double micro_batches, double cut_s, double most_s) const {
  double stages = 0;
  for (const Segment& segment : segments) stages += segment.stages;
  const double put_off = std::min({micro_batches, stages - 1, layers - 1});
  const double passed_share = 1 - weights_share, passed_s = passed_share * (all_s(most_s) - ends_s);
  const double each = micro_batches - passed_share - put_off * weights_share;
  const double filled_s = std::max(0.0, put_off - 1) * ends_weights_s;
  return each > 0 ? (cut_s - passed_s + filled_s) / each : most_s;
}

RowTime row_time(std::span<const RowPart> parts, std::int64_t layers) {
  RowTime time;
  time.layers = static_cast<double>(layers);
  double embedding_s = std::numeric_limits<double>::infinity(), head_s = embedding_s;
  for (const RowPart& part : parts) {
    time.segments.push_back({static_cast<double>(part.stages), part.seconds->least_layer_s});
    embedding_s = std::min(embedding_s, part.seconds->embedding.seconds());
    head_s = std::min(head_s, part.seconds->head.seconds());
    time.longest_s = std::max(time.longest_s, part.longest_s);
    time.weights_share = std::max(time.weights_share, part.seconds->weights_share);
  }
  time.ends_s = embedding_s + head_s;
  for (const RowPart& part : parts) {
    double beyond_s = 0;
    for (const PassSeconds& end : {part.seconds->embedding, part.seconds->head})
      beyond_s += std::max(0.0, end.weights_s - time.weights_share * end.seconds());
    time.ends_weights_s = std::max(time.ends_weights_s, beyond_s);
  }
  std::sort(time.segments.begin(), time.segments.end(),
            [](const RowTime::Segment& a, const RowTime::Segment& b) { return a.layer_s < b.layer_s; });
  return time;
}

}  // namespace motley
