// What a rank says first at the rendezvous, and whether it belongs to the job. Read next: hw/launch/rendezvous.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hw/launch/rendezvous.hpp"
#include "models/base/refusal.hpp"

namespace motley {

struct Hello {
  std::int64_t rank = 0;  // any number
  std::uint16_t port = 0;
  std::string memory;   // its memory_domain()
  std::string refused;  // told_to_all(): why it does not belong to the job; empty: it does
};

// A Refusal in the form in which rank 0 tells it to all ranks.
std::string told_to_all(const Refusal& refusal);

std::string write_hello(const RendezvousOptions& mine, std::uint16_t port, const std::string& memory);
// Nothing: it is no hello.
std::optional<Hello> read_hello(const std::string& text, const RendezvousOptions& mine);

}  // namespace motley
