// Speeds of chips, nodes and NICs that are called alike but are not: which ones are known to be slow, and how the
// others vary. A speed is a share of what the cluster's figures say: 0.9 takes 1/0.9 of the time. Read next:
// models/explain/step_spread.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace motley {

// Speeds that a description may give.
inline constexpr double kLeastSpeed = 0.01, kMostSpeed = 10;

// A chip, all chips of a node, or the NICs of a node, with a speed of their own. Several that name one chip multiply.
struct Slow {
  std::optional<int> node = {}, chip = {};  // numbers in the cluster; one of the two
  double factor = 1;                        // speed of the chips' computes
  double nics = 1;                          // speed of the node's NICs
  bool operator==(const Slow&) const = default;
};

// A distribution of speeds: normal, or through measured quantiles.
class Spread {
 public:
  struct Quantile {
    double share = 0;  // share of all that are at most this fast
    double speed = 1;
    bool operator==(const Quantile&) const = default;
  };

  Spread() = default;  // every speed is 1
  static Spread normal(double deviation, double mean = 1);
  // Shares rise from 0 to 1 and speeds do not fall; a share that stands twice is a jump.
  static Spread measured(std::vector<Quantile> quantiles);

  bool varies() const;
  double deviation() const { return deviation_; }
  double mean() const { return mean_; }  // of a normal one
  const std::vector<Quantile>& quantiles() const { return quantiles_; }
  // The speed below which that share of all lie; share in [0, 1].
  double speed_at(double share) const;
  // Share of all whose speed is below `speed`.
  double share_below(double speed) const;
  bool operator==(const Spread&) const = default;

 private:
  double mean_ = 1, deviation_ = 0;
  std::vector<Quantile> quantiles_;  // empty: normal
};

// How much alike what is called alike is. Assumes: speeds are independent of each other, and keep their values
// throughout a step.
struct Variation {
  Spread chips, nodes, nics;
  std::int64_t seed = 0;  // of the draws
  std::string source;     // of the figures; empty: none was given
  bool operator==(const Variation&) const = default;
};

double normal_share_below(double z);
double normal_quantile(double share);  // share in (0, 1)
// The mean of the largest of `count` independent standard normal numbers; count >= 1.
double expected_largest(double count);

struct Cluster;
// The cluster with a speed for each chip and for the NICs of each node, drawn from its variation: one of the clusters
// that it may be. Equal seeds and numbers give equal draws.
Cluster draw_speeds(const Cluster& cluster, std::int64_t number);

}  // namespace motley
