// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/core/packing/problem.h"

namespace remat::detail {

// A smaller problem whose packings are packings of the original: items that are likely to lie side
// by side, or on each other, in a packing without waste are glued into one.
//
// Where two neighbouring ticks t and t+1 are both full, what ends at t must make way for exactly
// what starts at t+1. If of all these items only a, b and c have sizes with a = b + c, then b and c
// most likely lie where a was:
//
//     ┌───┬───┐        ┌───┬───┐        ┌───────┐
//     │   │ b │        │   │   │        │       │      b and c end together: one item;
//     │ a ├───┤  ──▶   │ a │b+c│  ──▶   │ a+b+c │      it follows a in the same place: one item
//     │   │ c │        │   │   │        │       │
//     └───┴───┘        └───┴───┘        └───────┘
//         t t+1
//
// A guess, not a proof: where the glued problem has no packing, the original may have one.
enum class Glue : uint8_t {
  matches,  // only what follows from full ticks, as above
  twins,    // also items that start together and end together, of any sizes: bolder
};

class GluedProblem {
 public:
  // `height` is the height aimed at; a tick is full where the load is that.
  GluedProblem(const PackingProblem& problem, int64_t height, Glue how);

  const PackingProblem& problem() const { return problem_; }
  // Offsets of the original items, from those of the glued ones.
  Offsets original_offset(const Offsets& glued_offset) const;

 private:
  // Original items come first, with the same numbers, then what was glued of two.
  struct Piece {
    int32_t first = 0;
    int32_t last = 0;
    int64_t size = 0;
    int32_t lower = -1;    // what it was glued of; -1: an original item
    int32_t other = -1;    // on top of `lower`, or following it in time
    bool stacked = false;  // the former
    bool glued = false;    // is part of another
  };

  void glue_all(const std::vector<int64_t>& load, int64_t height, bool stack_twins);
  void stack_all_twins();
  void glue_at(int32_t tick, int largest_group);
  void glue_group(std::vector<int32_t> before, std::vector<int32_t> after);
  int32_t stack(const std::vector<int32_t>& pieces);
  int32_t glue(int32_t lower, int32_t other, bool stacked);
  void forget_glued(std::vector<int32_t>& pieces) const;

  PackingProblem problem_;
  std::vector<Piece> pieces_;
  std::vector<int32_t> piece_of_item_;             // by item of problem_
  std::vector<std::vector<int32_t>> starting_at_;  // by tick: single-part pieces
  std::vector<std::vector<int32_t>> ending_at_;
  // By tick: no group of fewer pieces is there to be glued. 0 once the pieces there change.
  std::vector<int> smallest_group_;
  bool changed_ = false;
};

}  // namespace remat::detail
