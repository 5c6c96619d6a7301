// Catch2's main. It is compiled once for all test programs, because it takes long.
#define CATCH_CONFIG_RUNNER
#include <sched.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string_view>

namespace {

// Keeps the test on the processor on which it started. Threads that hand over to each other all the time do so faster
// on one processor: ranks of one process need half of the processor time. If the system refuses, the test runs anyway.
void stay_on_this_processor() {
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(static_cast<std::size_t>(sched_getcpu()), &here);
  sched_setaffinity(0, sizeof here, &here);
}

}  // namespace

// What ThreadSanitizer does not report: oneDNN is not compiled for it, so it does not see how its threads wait.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:libdnnl.so\n"; }

int main(int argc, char** argv) {
  const char* one = std::getenv("MOTLEY_TEST_ON_ONE_PROCESSOR");
  if (one != nullptr && std::string_view(one) == "1") stay_on_this_processor();
  return Catch::Session().run(argc, argv);
}
