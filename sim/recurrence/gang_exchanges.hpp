// An expanded collective as a recurrence: in which order the messages of its members end. Private to
// sim/recurrence/recurrence.cpp. Read next: sim/fold/traffic.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/fold/traffic.hpp"

namespace motley {

class GangExchanges {
 public:
  // `members`: what each of them does, in any order.
  GangExchanges(const FoldedFabric& folded, const std::vector<MemberExchanges>& members);

  // Turns the instants when members begin into those when they end.
  void run(std::vector<double>& instants_s) const;

 private:
  // A message between two members, who may be one; or the end of an exchange of the first.
  struct Turn {
    std::int32_t first = 0;
    std::int32_t second = -1;  // -1: the end of an exchange
    double latency_s = 0, wire_s = 0;
  };
  std::vector<double> setup_s_;  // by member
  std::vector<Turn> turns_;
};

}  // namespace motley
