// The secret of a job, which every process of it has. Both ends of a connection prove that they have it without saying
// it: each answers the other's random challenge with a keyed hash (HMAC-SHA-256) of both challenges and of what the
// connection is for, so that no proof serves twice. What follows is neither encrypted nor signed: it is for a cluster's
// own network. Read next: hw/transport/tcp/handshake.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace motley {

using Nonce = std::array<std::byte, 16>;
using Proof = std::array<std::byte, 32>;

class JobToken {
 public:
  // Of any text; an empty one is no secret.
  explicit JobToken(const std::string& secret = "");
  bool is_secret() const { return secret_; }
  Proof prove(std::span<const std::byte> statement) const;
  // Takes as long for any wrong proof.
  bool verify(const Proof& proof, std::span<const std::byte> statement) const;

 private:
  std::array<std::byte, 32> key_{};
  bool secret_ = false;
};

Nonce random_nonce();
std::string random_secret();  // 32 hex digits

}  // namespace motley
