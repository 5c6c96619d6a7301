// The probe of this machine reports the parts that this build was made with, whatever hardware the machine has.
#include <algorithm>
#include <catch2/catch.hpp>

#include "hw/device/probe.hpp"
#include "hw/kernels/fast.hpp"

using namespace motley;

TEST_CASE("the probe says that oneDNN ran where the fast kernels were built with it, and nowhere else") {
  const std::vector<PartReport> parts = probe_hardware(".");
  const auto onednn =
      std::find_if(parts.begin(), parts.end(), [](const PartReport& part) { return part.name == "oneDNN"; });
  REQUIRE(onednn != parts.end());
  const bool has_onednn = std::string(fast::library_name()) == "oneDNN";
  CHECK(onednn->state == (has_onednn ? PartState::ran : PartState::absent));
  CHECK(onednn->version.empty() == !has_onednn);
}

TEST_CASE("a module that is not in the folder of modules did not run, and its report says why") {
  for (const PartReport& part : probe_hardware("no-such-folder"))
    if (part.state != PartState::ran) CHECK_FALSE(part.detail.empty());
}
