// The one slow unit of the tests: Catch2's main.
#define CATCH_CONFIG_RUNNER
#include <sched.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string_view>

namespace {

// Threads that hand over to each other all the time do so sooner on one processor: SimGrid's sanitized actors in a
// third of the time, ranks of one process with half as much of the processors'. Linux places a new test where there is
// room; that it stays is a wish.
void stay_on_this_processor() {
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(static_cast<std::size_t>(sched_getcpu()), &here);
  sched_setaffinity(0, sizeof here, &here);
}

}  // namespace

int main(int argc, char** argv) {
  const char* one = std::getenv("MOTLEY_TEST_ON_ONE_PROCESSOR");
  if (one != nullptr && std::string_view(one) == "1") stay_on_this_processor();
  return Catch::Session().run(argc, argv);
}
