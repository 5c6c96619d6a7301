#include "hw/rank/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// The FNV-1a hash of a name: the same number in every build.
std::uint64_t number_of(const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3U;
  return hash;
}

double uniform(std::uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53; }

double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const double u = uniform(random_bits(seed, stream, 2 * index));
  const double v = uniform(random_bits(seed, stream, 2 * index + 1));
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

// For each row of the shard, its row in the whole parameter; -1: a padded row, which the whole does not have.
std::vector<std::int64_t> shard_rows(const Parameter& parameter, std::int64_t tp, std::int64_t tensor_index) {
  const std::int64_t local_rows = shard_shape(parameter, tp)[0];
  std::vector<std::int64_t> rows;
  if (parameter.cut == Cut::fused_rows) {
    std::int64_t first = 0;
    for (std::int64_t expert = 0; expert < std::max<std::int64_t>(parameter.experts, 1); ++expert)
      for (std::int64_t part : parameter.parts) {
        for (std::int64_t row = 0; row < part / tp; ++row)
          rows.push_back(first + tensor_index * (part / tp) + row);
        first += part;
      }
    MOTLEY_CHECK(static_cast<std::int64_t>(rows.size()) == local_rows);
    return rows;
  }
  const bool cut = parameter.cut == Cut::rows || parameter.cut == Cut::vocabulary;
  for (std::int64_t row = 0; row < local_rows; ++row) {
    const std::int64_t whole = row + (cut ? tensor_index * local_rows : 0);
    rows.push_back(whole < parameter.shape[0] ? whole : -1);
  }
  return rows;
}

}  // namespace

std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  return splitmix64(splitmix64(splitmix64(seed) ^ stream) ^ counter);
}

std::vector<std::int64_t> shard_elements(const Parameter& parameter, std::int64_t tp,
                                         std::int64_t tensor_index) {
  const auto shape = shard_shape(parameter, tp);
  const std::int64_t width = shape.size() > 1 ? shape[1] : 1;
  const std::int64_t whole_width = shape.size() > 1 ? parameter.shape[1] : 1;
  const std::int64_t first_column = parameter.cut == Cut::columns ? tensor_index * width : 0;
  std::vector<std::int64_t> elements;
  for (std::int64_t row : shard_rows(parameter, tp, tensor_index))
    for (std::int64_t column = 0; column < width; ++column)
      elements.push_back(row < 0 ? -1 : row * whole_width + first_column + column);
  return elements;
}

std::vector<std::int64_t> part_elements(const Parameter& parameter, std::int64_t tp, std::int64_t part,
                                        std::int64_t parts) {
  const auto shape = shard_shape(parameter, tp);
  const std::int64_t width = shape.size() > 1 ? shape[1] : 1;
  std::vector<std::int64_t> stacked = {shape[0]};  // rows of each matrix that is cut on its own
  if (parameter.cut == Cut::fused_rows) {
    stacked.clear();
    for (std::int64_t expert = 0; expert < std::max<std::int64_t>(parameter.experts, 1); ++expert)
      for (std::int64_t rows : parameter.parts) stacked.push_back(rows / tp);
  }
  const bool by_columns = parameter.cut == Cut::columns;
  const std::int64_t columns = by_columns ? width / parts : width;
  const std::int64_t first_column = by_columns ? part * columns : 0;
  std::vector<std::int64_t> elements;
  std::int64_t first_row = 0;
  for (std::int64_t matrix : stacked) {
    const std::int64_t rows = by_columns ? matrix : matrix / parts;
    const std::int64_t from = first_row + (by_columns ? 0 : part * rows);
    for (std::int64_t row = from; row < from + rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column)
        elements.push_back(row * width + first_column + column);
    first_row += matrix;
  }
  return elements;
}

void fill_initial(const Parameter& parameter, std::uint64_t seed, std::int64_t tp, std::int64_t tensor_index,
                  std::span<float> values, std::int64_t before) {
  const auto elements = shard_elements(parameter, tp, tensor_index);
  MOTLEY_CHECK(elements.size() == values.size());
  const std::uint64_t stream = number_of(parameter.name);
  for (std::size_t i = 0; i < values.size(); ++i) {
    double value = parameter.init_value;
    if (parameter.init_std > 0 && elements[i] >= 0)
      value = parameter.init_std * normal(seed, stream, static_cast<std::uint64_t>(before + elements[i]));
    values[i] = elements[i] < 0 ? 0.0F : static_cast<float>(value);
  }
}

void adamw(const Train& train, bool decays, std::int64_t step, std::span<const float> gradient,
           std::span<float> means, std::span<float> squares, std::span<float> values) {
  const std::size_t count = values.size();
  MOTLEY_CHECK(gradient.size() == count && means.size() == count && squares.size() == count);
  const double correction1 = 1.0 - std::pow(train.beta1, static_cast<double>(step));
  const double correction2 = 1.0 - std::pow(train.beta2, static_cast<double>(step));
  const double keep = decays ? 1.0 - train.learning_rate * train.weight_decay : 1.0;
  for (std::size_t i = 0; i < count; ++i) {
    const double g = gradient[i];
    const double first = train.beta1 * means[i] + (1.0 - train.beta1) * g;
    const double second = train.beta2 * squares[i] + (1.0 - train.beta2) * g * g;
    means[i] = static_cast<float>(first);
    squares[i] = static_cast<float>(second);
    const double update = first / correction1 / (std::sqrt(second / correction2) + train.epsilon);
    values[i] = static_cast<float>(values[i] * keep - train.learning_rate * update);
  }
}

}  // namespace motley
