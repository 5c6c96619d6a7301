// Models whose jobs train in a moment, for what is measured by training: links, copies.
#pragma once

namespace motley {

inline constexpr const char* kNarrowModel =
    "{name: narrow, family: llama, vocabulary: 256, hidden: 64, layers: 2, heads: 2, ffn: 128, "
    "max_positions: 256}";
inline constexpr const char* kMiddleModel =
    "{name: middle, family: llama, vocabulary: 512, hidden: 128, layers: 3, heads: 4, ffn: 384, "
    "max_positions: 256}";
inline constexpr const char* kWideModel =
    "{name: wide, family: llama, vocabulary: 2048, hidden: 256, layers: 2, heads: 4, ffn: 512, "
    "max_positions: 256}";

}  // namespace motley
