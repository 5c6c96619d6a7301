#include "models/cluster/variation_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "models/base/format.hpp"
#include "models/base/refusal.hpp"
#include "models/base/units.hpp"

namespace motley {
namespace {

// Deviations beyond this are no spread of parts that are called alike.
constexpr double kMostDeviation = 0.3;
constexpr std::size_t kMostQuantiles = 1000;

double to_speed(const Yaml& node) {
  const std::string hint = fmt::format("a share of the usual speed, {} to {}: 0.9 takes 1/0.9 of the time",
                                       kLeastSpeed, kMostSpeed);
  return to_bounded_number(node,
                           {.sign = Sign::positive, .least = kLeastSpeed, .most = kMostSpeed, .hint = hint});
}

double to_share(const Yaml& node) {
  return to_bounded_number(node,
                           {.sign = Sign::not_negative, .most = 1, .hint = "a share, 0 to 1: 0.02 is 2 %"});
}

double to_deviation(const Yaml& node) {
  const std::string hint = fmt::format(
      "a standard deviation is a share, at most {}; `quantiles` describe what is not normal", kMostDeviation);
  return to_bounded_number(node, {.sign = Sign::not_negative, .most = kMostDeviation, .hint = hint});
}

Slow read_one_slow(const Yaml& node, const Cluster& cluster) {
  const Fields fields(node, "`slow`", {"node", "chip", "factor", "nics"});
  Slow slow;
  const Yaml chip = fields.find("chip"), of_node = fields.find("node");
  if (!chip == !of_node)
    throw Refusal(Exit::usage, "missing-key", node->where, "`slow` needs either `node` or `chip`",
                  "as `slow: {node: 17, factor: 0.9}`");
  const int nodes = cluster.chip_node.empty() ? 0 : cluster.chip_node.back() + 1;
  if (chip) slow.chip = static_cast<int>(to_integer(chip, {0, cluster.chip_count() - 1}));
  if (of_node) slow.node = static_cast<int>(to_integer(of_node, {0, nodes - 1}));
  const Yaml factor = fields.find("factor"), nics = fields.find("nics");
  if (!factor && !nics)
    throw Refusal(Exit::usage, "missing-key", node->where,
                  "`slow` needs `factor`, the speed of the chips, or `nics`, that of the node's NICs",
                  "as `slow: {node: 17, factor: 0.9}`");
  if (nics && chip)
    throw Refusal(Exit::usage, "impossible-slow", nics->where, "NICs belong to a node, not to a chip",
                  "as `slow: {node: 17, nics: 0.5}`");
  if (factor) slow.factor = to_speed(factor);
  if (nics) slow.nics = to_speed(nics);
  return slow;
}

Spread::Quantile read_quantile(const Yaml& node) {
  const auto& pair = to_sequence(node);
  if (pair.size() != 2)
    throw Refusal(Exit::usage, "bad-quantiles", node->where,
                  fmt::format("a quantile has a share and a speed, this has {} values", pair.size()),
                  "as [0.005, 0.9]: 0.5 % are at most 0.9 times as fast as the figures say");
  const double share = to_share(pair[0]);
  return {share, to_speed(pair[1])};
}

std::vector<Spread::Quantile> read_quantiles(const Yaml& node) {
  const auto& items = to_sequence(node);
  if (items.size() < 2 || items.size() > kMostQuantiles)
    throw Refusal(Exit::usage, "bad-quantiles", node->where, fmt::format("{} quantiles", items.size()),
                  fmt::format("2 to {} of them, from share 0 to share 1", kMostQuantiles));
  std::vector<Spread::Quantile> quantiles;
  for (const Yaml& item : items) {
    quantiles.push_back(read_quantile(item));
    if (quantiles.size() == 1) continue;
    const Spread::Quantile& before = quantiles[quantiles.size() - 2];
    if (quantiles.back().share < before.share || quantiles.back().speed < before.speed)
      throw Refusal(Exit::usage, "bad-quantiles", item->where,
                    fmt::format("[{}, {}] after [{}, {}]", quantiles.back().share, quantiles.back().speed,
                                before.share, before.speed),
                    "shares and speeds rise from one quantile to the next");
  }
  if (quantiles.front().share != 0 || quantiles.back().share != 1)
    throw Refusal(Exit::usage, "bad-quantiles", node->where,
                  fmt::format("the shares are {} to {}", quantiles.front().share, quantiles.back().share),
                  "the first quantile has share 0 and the last share 1: the slowest and the fastest of all");
  return quantiles;
}

Spread read_spread(const Yaml& node, const char* what) {
  const Fields fields(node, what, {"mean", "sd", "quantiles"});
  const Yaml deviation = fields.find("sd"), quantiles = fields.find("quantiles"), mean = fields.find("mean");
  if (!deviation == !quantiles)
    throw Refusal(Exit::usage, "missing-key", node->where,
                  fmt::format("{} needs either `sd` or `quantiles`", what), "as `{sd: 0.02}`");
  if (quantiles && mean)
    throw Refusal(Exit::usage, "impossible-spread", mean->where, "`quantiles` have a mean of their own",
                  "`mean` goes with `sd`");
  if (quantiles) return Spread::measured(read_quantiles(quantiles));
  const double share = to_deviation(deviation);
  return Spread::normal(share, mean ? to_speed(mean) : 1);
}

std::string print(const Spread& spread) {
  if (spread.quantiles().empty())
    return fmt::format("{{{}sd: {}}}",
                       spread.mean() == 1 ? "" : fmt::format("mean: {}, ", format_exact(spread.mean())),
                       format_exact(spread.deviation()));
  std::vector<std::string> items;
  for (const Spread::Quantile& each : spread.quantiles())
    items.push_back(fmt::format("[{}, {}]", format_exact(each.share), format_exact(each.speed)));
  return fmt::format("{{quantiles: [{}]}}", fmt::join(items, ", "));
}

}  // namespace

std::vector<Slow> read_slow(const Yaml& node, const Cluster& cluster) {
  std::vector<Slow> slow;
  if (node->kind == YamlNode::Kind::map) {
    slow.push_back(read_one_slow(node, cluster));
  } else {
    for (const Yaml& item : to_sequence(node)) slow.push_back(read_one_slow(item, cluster));
  }
  return slow;
}

Variation read_variation(const Yaml& node) {
  Variation variation;
  if (node->is_scalar() && node->text == "none") return variation;
  const Fields fields(node, "`variation`", {"chips", "nodes", "nics", "seed", "source"});
  if (const Yaml chips = fields.find("chips")) variation.chips = read_spread(chips, "`chips`");
  if (const Yaml nodes = fields.find("nodes")) variation.nodes = read_spread(nodes, "`nodes`");
  if (const Yaml nics = fields.find("nics")) variation.nics = read_spread(nics, "`nics`");
  if (const Yaml seed = fields.find("seed"))
    variation.seed = to_integer(seed, {0, std::numeric_limits<std::int32_t>::max()});
  if (const Yaml source = fields.find("source")) variation.source = to_text(source);
  return variation;
}

std::string print(const Slow& slow) {
  std::string text =
      slow.node ? fmt::format("{{node: {}", *slow.node) : fmt::format("{{chip: {}", *slow.chip);
  if (slow.factor != 1 || slow.nics == 1) text += ", factor: " + format_exact(slow.factor);
  if (slow.nics != 1) text += ", nics: " + format_exact(slow.nics);
  return text + "}";
}

std::string print(const Variation& variation) {
  std::vector<std::string> parts;
  const std::pair<const char*, const Spread&> spreads[] = {
      {"chips", variation.chips}, {"nodes", variation.nodes}, {"nics", variation.nics}};
  for (const auto& [key, spread] : spreads)
    if (spread != Spread{}) parts.push_back(fmt::format("{}: {}", key, print(spread)));
  if (variation.seed != 0) parts.push_back(fmt::format("seed: {}", variation.seed));
  if (!variation.source.empty()) parts.push_back("source: " + quote(variation.source));
  return parts.empty() ? "none" : fmt::format("{{{}}}", fmt::join(parts, ", "));
}

std::string describe(const Spread& spread) {
  if (spread.quantiles().empty()) return fmt::format("sd {:.3g} %", 100 * spread.deviation());
  return fmt::format("{:.3g} to {:.3g} of the usual speed", spread.quantiles().front().speed,
                     spread.quantiles().back().speed);
}

}  // namespace motley
