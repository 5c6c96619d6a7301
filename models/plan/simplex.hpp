// A linear program whose columns are found one by one: a few rows, any number of columns. Read next:
// models/plan/shape_bound.hpp, template_mix.hpp.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace motley {

// The revised simplex method for the least cost of columns under rows whose right sides are all 1. The first rows are
// equations, and begin with something artificial of high cost; the others are upper limits, and begin with their slack.
class Simplex {
 public:
  Simplex(std::size_t rows, std::size_t equations, double artificial_cost);

  // Prices of the rows. A column costs too much by its cost less the prices of what it takes.
  std::vector<double> duals() const;

  double value(std::size_t row) const { return values_[row]; }

  // Returns the row of the basis in which the column stands now. Nothing: it would bring no more than `nothing`.
  std::optional<std::size_t> enter(const std::vector<double>& column, double cost, double nothing);

 private:
  void replace(std::size_t leaving, const std::vector<double>& direction);

  std::size_t rows_;
  std::vector<double> inverse_;  // of the basis, row by row
  std::vector<double> values_, costs_;
};

}  // namespace motley
