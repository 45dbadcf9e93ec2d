// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/cut_rectangle.h"

#include <utility>
#include <vector>

#include "tests/testing/random_graph.h"

namespace remat::testing {
namespace {

// Half-open in both directions.
struct Rectangle {
  int64_t left, right, bottom, top;
  int64_t width() const { return right - left; }
  int64_t height() const { return top - bottom; }
  int64_t area() const { return width() * height(); }
};

class Cutter {
 public:
  explicit Cutter(uint64_t seed) : generator_(seed), pieces_{{0, kCutTicks, 0, kCutHeight}} {}

  std::vector<Rectangle> cut(Cut how, int blocks) {
    while (pieces_.size() < static_cast<size_t>(blocks)) {
      const size_t piece = large_piece();
      if (how == Cut::pinwheel && chance(generator_, 0.25)) {
        pinwheel(piece);
      } else if (chance(generator_, 0.5)) {
        cut_time(piece);
      } else {
        cut_space(piece);
      }
    }
    for (size_t i = pieces_.size(); i > 1; --i) std::swap(pieces_[i - 1], pieces_[any(i)]);
    return pieces_;
  }

 private:
  size_t any(size_t count) {
    return static_cast<size_t>(draw(generator_, 0, static_cast<int64_t>(count) - 1));
  }

  // The largest of three, so that the pieces do not differ too wildly.
  size_t large_piece() {
    size_t best = any(pieces_.size());
    for (int i = 0; i < 2; ++i) {
      const size_t other = any(pieces_.size());
      if (pieces_[other].area() > pieces_[best].area()) best = other;
    }
    return best;
  }

  void cut_time(size_t piece) {
    const Rectangle whole = pieces_[piece];
    if (whole.width() < 2) return;
    const int64_t at = draw(generator_, whole.left + 1, whole.right - 1);
    pieces_[piece].right = at;
    pieces_.push_back({at, whole.right, whole.bottom, whole.top});
  }

  void cut_space(size_t piece) {
    const Rectangle whole = pieces_[piece];
    if (whole.height() < 2) return;
    const int64_t at = draw(generator_, whole.bottom + 1, whole.top - 1);
    pieces_[piece].top = at;
    pieces_.push_back({whole.left, whole.right, at, whole.top});
  }

  //     ┌────┬──────┐
  //     │    │      │
  //     │    ├───┬──┤  y2
  //     ├────┴───┤  │  y1        x1 < x2, y1 < y2
  //     │        │  │
  //     └────────┴──┘
  //          x1  x2
  void pinwheel(size_t piece) {
    const Rectangle w = pieces_[piece];
    if (w.width() < 4 || w.height() < 4) return;
    const int64_t x1 = draw(generator_, w.left + 1, w.right - 2);
    const int64_t x2 = draw(generator_, x1 + 1, w.right - 1);
    const int64_t y1 = draw(generator_, w.bottom + 1, w.top - 2);
    const int64_t y2 = draw(generator_, y1 + 1, w.top - 1);
    pieces_[piece] = {w.left, x2, w.bottom, y1};
    pieces_.push_back({x2, w.right, w.bottom, y2});
    pieces_.push_back({x1, w.right, y2, w.top});
    pieces_.push_back({w.left, x1, y1, w.top});
    pieces_.push_back({x1, x2, y1, y2});
  }

  std::mt19937_64 generator_;
  std::vector<Rectangle> pieces_;
};

}  // namespace

PackingProblem cut_rectangle(Cut cut, int blocks, uint64_t seed) {
  PackingProblem problem;
  for (const Rectangle& piece : Cutter(seed).cut(cut, blocks)) {
    problem.add(
        {static_cast<int32_t>(piece.left), static_cast<int32_t>(piece.right - 1), piece.height()});
  }
  return problem;
}

}  // namespace remat::testing
