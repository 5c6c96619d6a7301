// What the ranks of a job must have alike besides the binary and the Program, as names and values that a user knows:
// {"learning_rate", "0.001"}. Read next: hw/launch/hello.hpp, which compares them.
#pragma once

#include <string>
#include <vector>

namespace motley {

struct Agreed {
  std::string name, value;
};
using Agreement = std::vector<Agreed>;  // all ranks name the same things in the same order

}  // namespace motley
