// Which tokens of every sequence a rank has where context parallelism cuts it, as Megatron-LM and Llama 3
// (arXiv:2407.21783, section 3.3.2) do: into 2 x parts chunks, of which rank i has chunk i and, counted from the end,
// chunk i, so that under a causal mask all ranks have as many pairs of query and key. It knows neither tensors nor
// ranks of a Program. Read next: hw/kernels/reference.hpp.
#pragma once

#include <cstdint>

namespace motley {

struct SequenceLayout {
  std::int64_t sequence = 0, parts = 1, index = 0;  // 2 x parts divides the sequence where there are several
  // For every place in the sequence, where its document begins. Null: a sequence is one document.
  const std::int64_t* begins = nullptr;

  std::int64_t rows() const { return sequence / parts; }  // rows of a sequence that this rank has
  std::int64_t chunk() const { return sequence / (2 * parts); }
  // The place in the sequence of this rank's row.
  std::int64_t place(std::int64_t row) const {
    if (row < chunk()) return index * chunk() + row;
    return (2 * parts - 1 - index) * chunk() + row - chunk();
  }
  std::int64_t begin(std::int64_t at) const { return begins != nullptr ? begins[at] : 0; }
  // The place in its document, which position embeddings go by.
  std::int64_t position(std::int64_t row) const {
    const std::int64_t at = place(row);
    return at - begin(at);
  }
  // The rank that has the token of this place, and in which of its rows.
  struct Owner {
    std::int64_t index = 0, row = 0;
  };
  Owner owner(std::int64_t at) const {
    if (parts == 1) return {0, at};
    const std::int64_t number = at / chunk(), inside = at % chunk();
    return number < parts ? Owner{number, inside} : Owner{2 * parts - 1 - number, chunk() + inside};
  }
};

}  // namespace motley
