// Which ranks share a host.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "hw/transport/host_id.hpp"
#include "hw/transport/shm/peer_memory.hpp"

using namespace motley;

TEST_CASE("a name tells hosts of one boot apart, and never joins two", "[communicator]") {
  const std::string plain = host_id(), domain = memory_domain();
  CHECK(host_of(domain) == plain);
  CHECK(why_apart(domain, domain).empty());
  setenv("MOTLEY_HOST_ID", "a/b", 1);
  const std::string named = host_id(), named_domain = memory_domain();
  setenv("MOTLEY_HOST_ID", "", 1);
  CHECK(host_id() == plain);
  unsetenv("MOTLEY_HOST_ID");
  CHECK(named == plain + ":a/b");
  CHECK(host_of(named_domain) == named);
  CHECK(why_apart(domain, named_domain) == "another host");
}

TEST_CASE("ranks stand host by host, as many on each, or there is no such number", "[communicator]") {
  CHECK(ranks_per_host({"a", "a", "b", "b"}) == 2);
  CHECK(ranks_per_host({"a", "a", "a"}) == 3);
  CHECK(ranks_per_host({"a", "b", "c"}) == 1);
  CHECK(ranks_per_host({"a", "b", "a", "b"}) == 1);
  CHECK(ranks_per_host({"a", "a", "b"}) == 1);
  CHECK(ranks_per_host({"a", "b", "b"}) == 1);
  CHECK(ranks_per_host({"a", "a", "b", "b", "a", "a"}) == 1);
  CHECK(ranks_per_host({"a", "a", "b", "c"}) == 1);
  CHECK(ranks_per_host({}) == 1);
}
