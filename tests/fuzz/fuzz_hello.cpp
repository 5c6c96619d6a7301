// Fuzz target: somebody who has the token says anything to rank 0 at the rendezvous.
#include "hw/launch/hello.hpp"
#include "models/base/refusal.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {

void take(const std::string& input) {
  const RendezvousOptions mine{Rank(0), 4, {"127.0.0.1", 1}, -1, 1, "b", "p"};
  const auto hello = read_hello(input, mine);
  if (!hello) return;
  MOTLEY_CHECK(hello->port > 0);
  if (!hello->refused.empty()) return;
  RendezvousOptions same = mine;
  same.rank = Rank(1);
  const auto again = read_hello(write_hello(same, hello->port, hello->memory), mine);
  MOTLEY_CHECK(again && again->refused.empty() && again->port == hello->port &&
               again->memory == hello->memory);
}

}  // namespace motley::tests
