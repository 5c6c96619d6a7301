// Whether this build has sanitizers. They see in few draws what they can see, and each draw takes four times as long.
#pragma once

#include <cstdlib>

namespace motley::tests {

#if defined(__has_feature)  // Clang, and GCC from 14 on
#if __has_feature(address_sanitizer)
#define MOTLEY_SEEKS_LEAKS
#endif
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MOTLEY_IS_SANITIZED
#endif
#else
#ifdef __SANITIZE_ADDRESS__
#define MOTLEY_SEEKS_LEAKS
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MOTLEY_IS_SANITIZED
#endif
#endif

#ifdef MOTLEY_IS_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// How many of so many draws a build makes, with sanitizers a quarter; how often at least something comes up in them.
template <class T>
constexpr T drawn_of(T count) {
  return kSanitized ? count / 4 : count;
}
template <class T>
constexpr T least_of(T count) {
  return kSanitized ? count / 8 : count;
}

// Whether a law that takes minutes is tried on all its draws, as `tools/test --all` does; else on some of them.
inline bool tries_every_draw() { return !kSanitized && std::getenv("MOTLEY_EVERY_DRAW") != nullptr; }

}  // namespace motley::tests
