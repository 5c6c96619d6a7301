// A table that is filled once and then only read: copies of what holds it share its rows.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace motley {

template <class Row>
class SharedTable {
 public:
  SharedTable& operator=(std::vector<Row> rows) {
    rows_ = std::make_shared<const std::vector<Row>>(std::move(rows));
    return *this;
  }
  void clear() { rows_.reset(); }
  const Row& operator[](std::size_t index) const { return (*rows_)[index]; }
  std::size_t size() const { return rows_ ? rows_->size() : 0; }
  const Row* begin() const { return rows_ ? rows_->data() : nullptr; }
  const Row* end() const { return begin() + size(); }

 private:
  std::shared_ptr<const std::vector<Row>> rows_;  // null: no rows
};

}  // namespace motley
