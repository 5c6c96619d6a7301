// Whether this build has sanitizers. They see in few draws what they can see, and each draw takes four times as long.
#pragma once

namespace motley::tests {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace motley::tests
