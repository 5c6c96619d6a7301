// How far the clocks of two hosts are apart, from times that they tell each other: Cristian's method (Probabilistic
// clock synchronization, Distributed Computing 3, 1989) with the four times of NTP (RFC 5905, section 8). No message
// says how long it took, but it was not there before it was sent: this bounds the offset from both sides, however
// unlike the two ways are. Read next: hw/launch/rendezvous.hpp.
#pragma once

#include <vector>

namespace motley {

// A question and its answer. The first and the last time are those of this host's clock, the others of the other one's.
struct ClockExchange {
  double sent_s = 0, came_s = 0, answered_s = 0, received_s = 0;
};

// When this host's clock shows at_s, the other one is ahead of it by offset_s, at most uncertainty_s more or less.
struct ClockReading {
  double at_s = 0, offset_s = 0, uncertainty_s = 0;
};

// The narrowest of what the exchanges say; there is at least one.
// Assumes: no clock gains more than a millisecond in a second on another. Linux steers its steady clock by at most
// 500 parts in a million.
ClockReading read_clock(const std::vector<ClockExchange>& exchanges);

// A clock that ranks of several hosts share, as one of them sees it: the clock of rank 0, read before and after.
// Assumes: between the two readings a clock gains evenly on another.
struct SharedClock {
  double zero_s = 0;  // its zero, on this host's clock, as the first reading has it
  ClockReading before, after;

  // The time that the shared clock shows `seconds` after zero_s on this host's clock.
  double shared_s(double seconds) const;
  // How far shared_s() may be wrong between the readings. 0: rank 0 is on this host.
  double uncertainty_s() const;
};

}  // namespace motley
