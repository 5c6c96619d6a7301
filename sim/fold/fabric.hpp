// A Cluster as flows see it: for each class of lanes, the links that one of them crosses, what its messages wait before
// their bytes move (priced by models/cost), and the rate that it reaches alone. It knows nothing about instructions and
// lets no time pass: see sim/fabric/flows.hpp.
#pragma once

#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "models/cluster/cluster.hpp"
#include "models/cost/network_cost.hpp"
#include "models/program/program.hpp"
#include "sim/fold/fold.hpp"

namespace motley {

class Fabric {
 public:
  struct Use {
    std::int32_t link = 0;   // index into capacities()
    std::int32_t times = 1;  // how often a flow crosses it: it takes this many times its rate
  };
  struct Path {
    std::vector<Use> uses;
    // Most bytes/s of one flow, where that is less than its links give; else infinite.
    double cap = std::numeric_limits<double>::infinity();
    double alone = 0;  // bytes/s of one flow that has all its links for itself; infinite: it crosses no link
    Route route;
    MessageCost transport;
    bool pays_latency = true;
  };

  // Keeps references to its arguments, which must outlive it.
  Fabric(const Program& program, const Cluster& cluster, const Folding& folding);

  const Path& path(std::int32_t lane) const { return paths_[static_cast<std::size_t>(lane_class(lane))]; }
  const std::vector<Path>& paths() const { return paths_; }              // by class of lanes
  const std::vector<double>& capacities() const { return capacities_; }  // bytes/s of the links in use
  std::int32_t lane_class(std::int32_t lane) const { return folding_.lane_class(lane); }
  std::size_t rank_count() const { return program_.ranks.size(); }
  double largest_flow() const;  // no flow of the Program has more bytes
  // Seconds before the bytes move: route latency + message_overhead_s. On the lanes of a collective it leaves out the
  // kappa term, and is zero where the group posts the collective as a whole.
  double latency_s(std::int32_t lane, std::int64_t bytes) const { return latency_s(path(lane), bytes); }
  static double latency_s(const Path& path, std::int64_t bytes);
  // Seconds in which the bytes move if the flow has all its links for itself.
  double alone_s(std::int32_t lane, std::int64_t bytes) const;

 private:
  void make_paths(const Crossings& crossings);
  std::int32_t link_of(std::int32_t link_class, std::int64_t parts);
  double cap_of(const Path& path, const Lane& lane) const;

  const Program& program_;
  const Cluster& cluster_;
  const Folding& folding_;
  std::vector<Path> paths_;  // indexed by class of lanes
  std::vector<double> capacities_;
  std::unordered_map<std::int32_t, std::int32_t> links_;  // index into capacities_ by class of links
};

}  // namespace motley
