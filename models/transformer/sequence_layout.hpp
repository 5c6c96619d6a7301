// Context parallelism gives each rank some tokens of every sequence, as Megatron-LM and Llama 3 (arXiv:2407.21783,
// section 3.3.2) do: a sequence is cut into 2 x parts chunks, and rank i has chunk i and chunk 2 x parts - 1 - i, so
// that under a causal mask all ranks have the same number of pairs of query and key. This layout knows neither
// tensors nor ranks of a Program. Read next: hw/kernels/reference.hpp.
#pragma once

#include <cstdint>

namespace motley {

struct SequenceLayout {
  std::int64_t sequence = 0, parts = 1, index = 0;  // 2 x parts divides the sequence if parts > 1
  // Place where the document of each place in the sequence begins. Null: the sequence is one document.
  const std::int64_t* begins = nullptr;

  std::int64_t rows() const { return sequence / parts; }  // rows of the sequence that this rank holds
  std::int64_t chunk() const { return sequence / (2 * parts); }
  // The place in the sequence of one of this rank's rows.
  std::int64_t place(std::int64_t row) const {
    if (row < chunk()) return index * chunk() + row;
    return (2 * parts - 1 - index) * chunk() + row - chunk();
  }
  std::int64_t begin(std::int64_t at) const { return begins != nullptr ? begins[at] : 0; }
  // The place of a row in its document, which position embeddings use.
  std::int64_t position(std::int64_t row) const {
    const std::int64_t at = place(row);
    return at - begin(at);
  }
  // The rank that holds a place of the sequence, and the row there.
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
