// Ablations as words: `ablate: [uniform-layers, sockets]` in a scenario, `--ablate uniform-layers,sockets` as an
// option.
#include "models/scenario/plan_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>

#include "models/scenario/plan_request_fields.hpp"

namespace motley {
namespace {

// The words of a list, or of one text with commas, each at its place.
std::vector<Yaml> words_of(const Yaml& node) {
  if (!node->is_scalar()) return to_sequence(node);
  std::vector<Yaml> words;
  std::istringstream text(node->text);
  int offset = 0;
  for (std::string piece; std::getline(text, piece, ','); offset += static_cast<int>(piece.size()) + 1) {
    const std::size_t begin = std::min(piece.find_first_not_of(' '), piece.size());
    YamlNode word = *node;
    if (word.where.column > 0 && !word.quoted) word.where.column += offset + static_cast<int>(begin);
    word.text = piece.substr(begin, piece.find_last_not_of(' ') + 1 - begin);
    words.push_back(std::make_shared<const YamlNode>(std::move(word)));
  }
  return words;
}

bool has(const std::vector<Ablation>& list, Ablation value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

std::string Ablations::text(const std::vector<Ablation>& values) const {
  return Several<Word<Ablation>>{}.text(values);
}

void Ablations::read(const Yaml& node, std::vector<Ablation>& values) const {
  values.clear();
  for (const Yaml& word : words_of(node)) {
    const auto value = to_choice<Ablation>(word);
    if (has(values, value))
      throw Refusal(Exit::usage, "listed-twice", word->where,
                    fmt::format("`{}` is listed twice", name_of(value)), "keep one");
    values.push_back(value);
    if (has(values, Ablation::naive_resharding) && has(values, Ablation::gathered_resharding))
      throw Refusal(Exit::usage, "both-reshardings", word->where,
                    "`naive-resharding` and `gathered-resharding` exclude each other", "keep one");
  }
}

}  // namespace motley
