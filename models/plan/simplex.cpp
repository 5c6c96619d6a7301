#include "models/plan/simplex.hpp"

#include <algorithm>

namespace motley {

Simplex::Simplex(std::size_t rows, std::size_t equations, double artificial_cost)
    : rows_(rows), inverse_(rows * rows, 0), values_(rows, 1), costs_(rows, 0) {
  for (std::size_t i = 0; i < rows; ++i) inverse_[i * rows + i] = 1;
  for (std::size_t i = 0; i < equations; ++i) costs_[i] = artificial_cost;
}

std::vector<double> Simplex::duals() const {
  std::vector<double> sums(rows_, 0);
  for (std::size_t i = 0; i < rows_; ++i)
    for (std::size_t j = 0; j < rows_; ++j) sums[j] += costs_[i] * inverse_[i * rows_ + j];
  return sums;
}

std::optional<std::size_t> Simplex::enter(const std::vector<double>& column, double cost, double nothing) {
  const std::vector<double> prices = duals();
  double gain = -cost;
  for (std::size_t i = 0; i < rows_; ++i) gain += prices[i] * column[i];
  if (gain <= nothing) return std::nullopt;
  constexpr double kSmall = 1e-10;
  std::vector<double> direction(rows_, 0);
  for (std::size_t i = 0; i < rows_; ++i)
    for (std::size_t j = 0; j < rows_; ++j) direction[i] += inverse_[i * rows_ + j] * column[j];
  std::size_t leaving = rows_;
  for (std::size_t i = 0; i < rows_; ++i)
    if (direction[i] > kSmall &&
        (leaving == rows_ || values_[i] * direction[leaving] < values_[leaving] * direction[i]))
      leaving = i;
  if (leaving == rows_) return std::nullopt;
  replace(leaving, direction);
  costs_[leaving] = cost;
  return leaving;
}

void Simplex::replace(std::size_t leaving, const std::vector<double>& direction) {
  for (std::size_t j = 0; j < rows_; ++j) inverse_[leaving * rows_ + j] /= direction[leaving];
  values_[leaving] /= direction[leaving];
  for (std::size_t i = 0; i < rows_; ++i) {
    if (i == leaving || direction[i] == 0) continue;
    for (std::size_t j = 0; j < rows_; ++j)
      inverse_[i * rows_ + j] -= direction[i] * inverse_[leaving * rows_ + j];
    values_[i] = std::max(0.0, values_[i] - direction[i] * values_[leaving]);
  }
}

}  // namespace motley
