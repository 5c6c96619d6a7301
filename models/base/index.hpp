// Indices that cannot be mistaken for one another: the id of a tensor cannot stand where the id of a group is wanted.
// Id is the index, and IdTable is the vector that only this Id indexes. "None" is an empty std::optional. Read next:
// models/program/program.hpp.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

namespace motley {

// Converts an index to the type that containers of the standard library take.
constexpr std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

template <class Tag>
class Id {
 public:
  constexpr Id() = default;  // the id with index 0
  template <class Integer>
  constexpr explicit Id(Integer value) : value_(static_cast<std::int32_t>(value)) {}
  constexpr std::int32_t value() const { return value_; }
  constexpr Id& operator++() {
    ++value_;
    return *this;
  }
  auto operator<=>(const Id&) const = default;

 private:
  std::int32_t value_ = 0;
};

template <class Tag>
constexpr std::size_t at(Id<Tag> id) {
  return static_cast<std::size_t>(id.value());
}

// JSON holds an id as its index; nlohmann::json calls this function.
template <class Json, class Tag>
void to_json(Json& json, Id<Tag> id) {
  json = id.value();
}

// All ids from 0 to count - 1: for (TensorId id : IdRange<TensorId>(count)).
template <class I>
class IdRange {
 public:
  struct Iterator {
    I id;
    I operator*() const { return id; }
    Iterator& operator++() {
      ++id;
      return *this;
    }
    bool operator==(const Iterator&) const = default;
  };
  constexpr explicit IdRange(std::size_t count) : count_(count) {}
  Iterator begin() const { return {I(std::size_t{0})}; }
  Iterator end() const { return {I(count_)}; }

 private:
  std::size_t count_;
};

// A vector that only its own kind of id indexes.
template <class I, class T>
class IdTable {
 public:
  using value_type = T;
  using Items = std::vector<T>;

  IdTable() = default;
  explicit IdTable(std::size_t count) : items_(count) {}
  IdTable(std::size_t count, const T& value) : items_(count, value) {}
  IdTable(std::initializer_list<T> items) : items_(items) {}
  explicit IdTable(Items items) : items_(std::move(items)) {}

  typename Items::reference operator[](I id) { return items_[at(id)]; }
  typename Items::const_reference operator[](I id) const { return items_[at(id)]; }
  // get() throws std::out_of_range for an id that is not in the table.
  typename Items::reference get(I id) { return items_.at(at(id)); }
  typename Items::const_reference get(I id) const { return items_.at(at(id)); }
  bool has(I id) const { return id.value() >= 0 && at(id) < items_.size(); }

  I add(T item = {}) {  // returns the id of the new item
    items_.push_back(std::move(item));
    return I(items_.size() - 1);
  }
  IdRange<I> ids() const { return IdRange<I>(items_.size()); }

  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  void resize(std::size_t count) { items_.resize(count); }
  void resize(std::size_t count, const T& value) { items_.resize(count, value); }
  void reserve(std::size_t count) { items_.reserve(count); }
  void clear() { items_.clear(); }
  typename Items::reference front() { return items_.front(); }
  typename Items::const_reference front() const { return items_.front(); }
  typename Items::reference back() { return items_.back(); }
  typename Items::const_reference back() const { return items_.back(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  Items& items() { return items_; }
  const Items& items() const { return items_; }
  bool operator==(const IdTable&) const = default;

 private:
  Items items_;
};

}  // namespace motley

template <class Tag>
struct std::hash<motley::Id<Tag>> {
  std::size_t operator()(motley::Id<Tag> id) const { return std::hash<std::int32_t>()(id.value()); }
};

template <class Tag>
struct fmt::formatter<motley::Id<Tag>> : fmt::formatter<std::int32_t> {
  template <class Context>
  auto format(motley::Id<Tag> id, Context& context) const {
    return fmt::formatter<std::int32_t>::format(id.value(), context);
  }
};
