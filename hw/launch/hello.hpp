// What a rank says first at the rendezvous, and whether it belongs to the job. Read next: hw/launch/rendezvous.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hw/launch/rendezvous.hpp"

namespace motley {

struct Hello {
  std::int64_t rank = 0;  // any number
  std::uint16_t port = 0;
  std::string memory;  // its memory_domain()
  std::string
      refused;  // why it does not belong to the job: a Refusal as rank 0 tells it to all; empty: it does
};

std::string write_hello(const RendezvousOptions& mine, std::uint16_t port, const std::string& memory);
// Nothing: it is no hello.
std::optional<Hello> read_hello(const std::string& text, const RendezvousOptions& mine);

}  // namespace motley
