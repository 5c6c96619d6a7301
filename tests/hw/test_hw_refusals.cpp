// Refusals of hw/ that no command triggers by itself; their messages stand in tests/refusals.
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

#include "hw/memory.hpp"
#include "hw/transport/tcp/socket.hpp"
#include "models/refusal.hpp"

using namespace motley;

namespace {

// The message that tests/refusals holds for the kind.
std::string expected(const std::string& kind) {
  std::ifstream file(std::string(MOTLEY_SOURCE_DIR) + "/tests/refusals/" + kind + "/expected.txt");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string said(const Refusal& refusal) {
  return std::string(refusal.what()) + "\nexit " + std::to_string(static_cast<int>(refusal.exit_code())) +
         "\n";
}

}  // namespace

TEST_CASE("a rendezvous without a port is refused") {
  try {
    parse_address("10.0.0.1");
    FAIL("was not refused");
  } catch (const Refusal& refusal) {
    CHECK(said(refusal) == expected("bad-rendezvous"));
  }
}

TEST_CASE("a host rank refuses tensors that are not fp32") {
  ProgramClass of_class;
  Tensor tensor;
  tensor.name = "layers.0.qkv.weight";
  tensor.format = Format::bf16;
  of_class.tensors.push_back(tensor);
  try {
    const Memory memory(of_class);
    FAIL("was not refused");
  } catch (const Refusal& refusal) {
    CHECK(said(refusal) == expected("host-precision"));
  }
}
