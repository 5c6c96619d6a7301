// Memory that messages use again and again, where no device is to register it. The rest is in
// tests/hw/transport/test_verbs.cpp.
#include <catch2/catch.hpp>

#include "hw/world/used_memory.hpp"
#include "tests/support/loopback.hpp"

namespace motley {
namespace {

TEST_CASE("without RDMA no memory is registered", "[communicator]") {
  tests::rethrow_first(tests::on_loopback(1, [](Messenger& messenger) {
    UsedMemory used(messenger);
    const std::vector<std::byte> bytes(UsedMemory::kLeastBytes);
    for (int i = 0; i < 2 * UsedMemory::kUses; ++i) used.use(bytes);
    tests::demand(used.registrations() == 0);
  }));
}

}  // namespace
}  // namespace motley
