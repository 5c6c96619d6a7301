// The probe of this machine reports the parts that this build was made with, whatever hardware the machine has.
#include <algorithm>
#include <catch2/catch.hpp>

#include "hw/device/probe.hpp"
#include "hw/kernels/fast.hpp"
#include "tests/support/sanitized.hpp"

#ifdef MOTLEY_SEEKS_LEAKS
#include <sanitizer/lsan_interface.h>
#endif

using namespace motley;

namespace {

// Leaks of vendors' runtimes, which the probe loads, are not counted.
std::vector<PartReport> parts_of_machine(const std::string& module_folder) {
#ifdef MOTLEY_SEEKS_LEAKS
  const __lsan::ScopedDisabler vendors_leaks;
#endif
  return probe_hardware(module_folder);
}

}  // namespace

TEST_CASE("the probe says that oneDNN ran where the fast kernels were built with it, and nowhere else") {
  const std::vector<PartReport> parts = parts_of_machine(".");
  const auto onednn =
      std::find_if(parts.begin(), parts.end(), [](const PartReport& part) { return part.name == "oneDNN"; });
  REQUIRE(onednn != parts.end());
  const bool has_onednn = std::string(fast::library_name()) == "oneDNN";
  CHECK(onednn->state == (has_onednn ? PartState::ran : PartState::absent));
  CHECK(onednn->version.empty() == !has_onednn);
}

TEST_CASE("a module that is not in the folder of modules did not run, and its report says why") {
  for (const PartReport& part : parts_of_machine("no-such-folder"))
    if (part.state != PartState::ran) CHECK_FALSE(part.detail.empty());
}
