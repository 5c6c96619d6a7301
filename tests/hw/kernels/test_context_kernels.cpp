// Attention on ranks that each hold a part of a sequence equals attention on one rank with the whole sequence, row by
// row, forward and backward.
#include <catch2/catch.hpp>

#include "hw/kernels/reference.hpp"
#include "models/base/index.hpp"
#include "tests/support/gradient_check.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// One rank's rows of a tensor that has `width` elements for each token of B sequences.
Values rows_of(const Values& whole, const SequenceLayout& layout, std::int64_t B, std::int64_t width) {
  Values rows;
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t row = 0; row < layout.rows(); ++row) {
      const auto from = whole.begin() + (b * layout.sequence + layout.place(row)) * width;
      rows.insert(rows.end(), from, from + width);
    }
  return rows;
}

}  // namespace

TEST_CASE("attention over gathered keys is that part of the whole which the rank has") {
  const std::int64_t parts = GENERATE(2, 3), window = GENERATE(0, 5), V = GENERATE(0, 2);
  const std::int64_t B = 2, sequence = 12;
  const reference::HeadShape whole{B, sequence, 4, 2, 3, window, V};
  const Values qkv = random_values(at(B * sequence * whole.row()), 1);
  const Values dy = random_values(at(B * sequence * whole.H * whole.V()), 2);
  Values y(dy.size()), lse(at(B * whole.H * sequence)), dqkv(qkv.size());
  reference::attention(whole, qkv.data(), y.data(), lse.data());
  reference::attention_backward(whole, dy.data(), qkv.data(), y.data(), lse.data(), dqkv.data());

  std::vector<reference::HeadShape> ranks;
  std::vector<Values> heads;
  Values keys(at(B * sequence * whole.key_row())), dkeys(keys.size());
  for (std::int64_t index = 0; index < parts; ++index) {
    reference::HeadShape s = whole;
    s.T = sequence / parts;
    s.layout = {sequence, parts, index};
    ranks.push_back(s);
    heads.push_back(rows_of(qkv, s.layout, B, s.row()));
    reference::place_keys(s, heads.back().data(), keys.data());  // as an all-gather would place them
  }
  std::vector<Values> dqs;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const reference::HeadShape& s = ranks[r];
    const Values mine = rows_of(dy, s.layout, B, s.H * s.V());
    Values part(mine.size()), part_lse(at(B * s.H * s.T)), dq(at(B * s.T * s.H * s.D)), added(keys.size());
    reference::attention(s, heads[r].data(), part.data(), part_lse.data(), keys.data());
    const Values expected = rows_of(y, s.layout, B, s.H * s.V());
    for (std::size_t i = 0; i < part.size(); ++i) REQUIRE(part[i] == Approx(expected[i]).margin(1e-6));
    reference::attention_backward(s, mine.data(), heads[r].data(), part.data(), part_lse.data(), dq.data(),
                                  keys.data(), added.data());
    for (std::size_t i = 0; i < dkeys.size(); ++i) dkeys[i] += added[i];
    dqs.push_back(dq);
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    Values part(heads[r].size());
    reference::take_keys(ranks[r], dqs[r].data(), dkeys.data(), part.data());
    const Values expected = rows_of(dqkv, ranks[r].layout, B, whole.row());
    for (std::size_t i = 0; i < part.size(); ++i) REQUIRE(part[i] == Approx(expected[i]).margin(1e-5));
  }
}
