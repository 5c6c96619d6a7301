#include "hw/world/training_agreement.hpp"

#include <fmt/format.h>

#include <string>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "models/transformer/train_text.hpp"
#include "models/transformer/transformer_text.hpp"

namespace motley {

Agreement training_agreement(const Job& job, const Text* text) {
  Agreement alike;
  for (const auto& [key, value] : values_by_key(job.train))
    if (key != "text") alike.push_back({key, value});
  alike.push_back({"text", text == nullptr
                               ? "none"
                               : fmt::format("{} bytes (hash {:016x})", text->size(), text->hash())});
  const std::string model =
      print(job.transformer) + fmt::format("{}", job.transformer.extra_prediction_weight);
  alike.push_back({"model", fmt::format("{} (hash {:016x})", job.transformer.name,
                                        XXH3_64bits(model.data(), model.size()))});
  return alike;
}

}  // namespace motley
