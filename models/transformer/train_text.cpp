// Reads and prints the training shape; refuses values out of bounds.
#include "models/transformer/train_text.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "models/base/refusal.hpp"
#include "models/transformer/train_fields.hpp"

namespace motley {
namespace {

static_assert(lists_every_member<TrainFields>());

constexpr double kMostTokens = 1e18;  // steps of a run of so many tokens can still be counted one by one

}  // namespace

double to_tokens(const Yaml& node) {
  const double tokens = to_quantity(node, Dimension::count, Sign::positive);
  if (tokens < 1 || tokens > kMostTokens)
    throw Refusal(Exit::usage, "out-of-bounds", node->where,
                  fmt::format("`{}` is not a possible number of tokens for a run", shortened(node->text)),
                  "must be 1 to 1000000 T");
  return tokens;
}

double to_goodput(const Yaml& node) {
  return to_bounded_number(node,
                           {.sign = Sign::positive,
                            .most = 1,
                            .hint = "the share of the run's time that is not lost: more than 0, at most 1"});
}

double to_expert_room(const Yaml& node) {
  const double room = to_number(node, Sign::positive);
  if (room < 1)
    throw Refusal(Exit::infeasible, "impossible-expert-room", node->where,
                  fmt::format("expert_room {} is less than 1, the even share", room), "1 or more");
  return room;
}

double to_share_of_activations(const Yaml& node) {
  return to_bounded_number(
      node, {.sign = Sign::not_negative, .most = 1, .hint = "a share of the activations: 0 to 1"});
}

double to_decay(const Yaml& node) {
  return to_bounded_number(
      node, {.sign = Sign::not_negative, .most = std::nextafter(1.0, 0.0), .hint = "must be less than 1"});
}

void Documents::read(const Yaml& node, Train& train) const {
  if (!node->is_scalar()) return Several<Integer>{{kTokens}}.read(node, train.documents);
  const std::int64_t length = to_integer(node, kTokens);
  train.documents.assign(static_cast<std::size_t>(std::max<std::int64_t>(train.sequence / length, 1)),
                         length);
}

void TextPath::read(const Yaml& node, std::string& path) const {
  const std::string name = to_text(node);
  path = name.empty() || name[0] == '/' || folder == "." ? name : fmt::format("{}/{}", folder, name);
  std::error_code ignored;
  if (!name.empty() && !std::filesystem::is_regular_file(path, ignored))
    throw Refusal(Exit::usage, "file-not-found", node->where, fmt::format("no file `{}`", path),
                  "leave `text` out to train on the one that ships");
}

Train read_train(const Yaml& node, const std::string& folder) {
  const TrainFields list{folder};
  std::vector<std::string> keys = keys_of(list);
  keys.insert(keys.end(), {"lora", "extra_prediction_weight"});
  Train train;
  read_fields(list, Fields(node, "`train`", keys), train);
  return train;
}

std::string print(const Train& train) { return print_lines(TrainFields{}, train); }

std::vector<std::pair<std::string, std::string>> values_by_key(const Train& train) {
  std::vector<std::pair<std::string, std::string>> values;
  const Train standard;
  TrainFields{}.each([&](const auto& entry) {
    const bool is_left_out = entry.hides_standard && !differ(entry, train, standard);
    values.emplace_back(entry.key, is_left_out ? "left out" : entry.text(train));
  });
  return values;
}

Train parse_train(const std::string& text) { return read_train(parse_yaml(text, "train"), "."); }

}  // namespace motley
