#include "hw/transport/token.hpp"

#include <sodium.h>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

// The library chooses its functions for this processor once. Any thread may call it, any number of times.
void prepare_library() {
  static const bool prepared = sodium_init() >= 0;
  MOTLEY_CHECK(prepared);
}

}  // namespace

JobToken::JobToken(const std::string& secret) : secret_(!secret.empty()) {
  static_assert(crypto_auth_hmacsha256_KEYBYTES == sizeof key_ &&
                crypto_auth_hmacsha256_BYTES == sizeof(Proof));
  prepare_library();
  crypto_generichash(raw(key_.data()), key_.size(), reinterpret_cast<const unsigned char*>(secret.data()),
                     secret.size(), nullptr, 0);
}

Proof JobToken::prove(std::span<const std::byte> statement) const {
  Proof proof;
  crypto_auth_hmacsha256(raw(proof.data()), raw(statement.data()), statement.size(), raw(key_.data()));
  return proof;
}

bool JobToken::verify(const Proof& proof, std::span<const std::byte> statement) const {
  return crypto_auth_hmacsha256_verify(raw(proof.data()), raw(statement.data()), statement.size(),
                                       raw(key_.data())) == 0;
}

Nonce random_nonce() {
  prepare_library();
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

std::string random_secret() {
  const Nonce bytes = random_nonce();
  std::string text(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), raw(bytes.data()), bytes.size());
  text.pop_back();  // the zero that ends it
  return text;
}

}  // namespace motley
