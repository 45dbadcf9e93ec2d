// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/repair.h"

#include <algorithm>
#include <random>
#include <utility>

namespace remat::detail {
namespace {

struct ItemPart {
  Part part;
  int32_t item;
};

// Who is there during a range of ticks: those there at the last post before it, and those that
// start between the post and its end. Posts stand every kTicks.
class Overlaps {
 public:
  explicit Overlaps(const PackingProblem& problem) {
    for (size_t i = 0; i < problem.item_count(); ++i) {
      for (const Part& part : problem.parts(i)) parts_.push_back({part, static_cast<int32_t>(i)});
    }
    std::ranges::stable_sort(parts_, {}, [](const ItemPart& p) { return p.part.first; });
    begin_.resize(static_cast<size_t>(problem.tick_count()) + 1, parts_.size());
    for (size_t p = parts_.size(); p-- > 0;) begin_[at(parts_[p].part.first)] = p;
    for (size_t t = begin_.size(); t-- > 1;) begin_[t - 1] = std::min(begin_[t - 1], begin_[t]);
    at_post_.resize(at(problem.tick_count()) / kTicks + 1);
    for (size_t p = 0; p < parts_.size(); ++p) {
      const Part& part = parts_[p].part;
      for (size_t post = at(part.first) / kTicks + 1; post * kTicks <= at(part.last); ++post) {
        at_post_[post].push_back(p);
      }
    }
  }

  // Shows the parts that share a tick with `part`; returns how many were looked at.
  template <typename See>
  int64_t visit(const Part& part, const See& see) const {
    const size_t post = at(part.first) / kTicks;
    for (const size_t p : at_post_[post]) {
      if (parts_[p].part.last >= part.first) see(parts_[p]);
    }
    const size_t begin = begin_[post * kTicks];
    const size_t end = begin_[at(part.last) + 1];
    for (size_t p = begin; p < end; ++p) {
      if (parts_[p].part.last >= part.first) see(parts_[p]);
    }
    return static_cast<int64_t>(at_post_[post].size() + end - begin);
  }

 private:
  static constexpr size_t kTicks = 16;
  static size_t at(int32_t tick) { return static_cast<size_t>(tick); }

  std::vector<ItemPart> parts_;  // by first tick
  std::vector<size_t> begin_;    // by tick: the first part that starts there or later
  std::vector<std::vector<size_t>> at_post_;  // by post: the parts that start before it
};

class Repair {
 public:
  Repair(const PackingProblem& problem, int64_t height, std::vector<int64_t> offset,
         const ItemOrder& order)
      : problem_(problem), overlaps_(problem), height_(height) {
    const size_t items = problem.item_count();
    times_driven_out_.resize(items, 1);
    stays_until_.resize(items, 0);
    for (size_t i = 0; i < items; ++i) price_.push_back(price_of(i));
    for (const int32_t item : order) {
      if (offset[static_cast<size_t>(item)] == kNotPlaced) waiting_.push_back(item);
    }
    now_.offset = std::move(offset);
    best_ = now_;
  }

  std::vector<int64_t> run(SearchBudget& budget, int64_t nodes) {
    const int64_t stop_at = std::max<int64_t>(0, budget.nodes_left - nodes);
    int64_t best_move = 0;
    while (!now_.out.empty() || now_.seen < waiting_.size()) {
      if (budget.nodes_left <= stop_at) return std::move(best_.offset);
      ++move_;
      work_ = 0;
      place(next());
      if (now_.better_than(best_)) {
        if (now_.seen > best_.seen) std::ranges::fill(times_driven_out_, 1);
        best_ = now_;
        best_move = move_;
        work_ += static_cast<int64_t>(now_.offset.size()) / kCopiesPerLook;
      } else if (move_ - best_move > kPatience) {
        now_ = best_;
        best_move = move_;
      }
      budget.pay(1 + work_ / kLooksPerNode);
    }
    return std::move(now_.offset);
  }

 private:
  struct State {
    std::vector<int64_t> offset;  // by item
    std::vector<int32_t> out;     // the items that were driven out
    int64_t out_price = 0;
    size_t seen = 0;  // of those that wait
    bool better_than(const State& other) const {
      return seen != other.seen ? seen > other.seen : out_price < other.out_price;
    }
  };
  // What an item that is placed keeps another from: the offsets between low and high.
  struct Obstacle {
    int64_t low;
    int64_t high;
    int32_t item;
  };
  // Where the price of an offset changes: it falls at `offset`, or rises above it.
  struct Edge {
    int64_t offset;
    int64_t change;
  };

  // Whole numbers, so that what was added can be taken away; never 0.
  int64_t price_of(size_t item) const {
    double area = 0;
    for (const Part& part : problem_.parts(item)) {
      area += static_cast<double>(part.size) * (part.last - part.first + 1);
    }
    const double whole = static_cast<double>(height_) * problem_.tick_count();
    return 1 + static_cast<int64_t>(area / whole * 0x1.0p24);
  }

  // Whoever was driven out comes before those that still wait.
  int32_t next() {
    std::vector<int32_t>& out = now_.out;
    if (out.empty()) return waiting_[now_.seen++];
    std::swap(out[random_() % out.size()], out.back());
    const int32_t item = out.back();
    out.pop_back();
    now_.out_price -= price_[static_cast<size_t>(item)];
    return item;
  }

  void place(int32_t item) {
    const size_t i = static_cast<size_t>(item);
    const int64_t offset = cheapest_offset(item);
    for (const Obstacle& obstacle : obstacles_) {
      const size_t o = static_cast<size_t>(obstacle.item);
      if (offset <= obstacle.low || offset >= obstacle.high) continue;
      if (now_.offset[o] == kNotPlaced) continue;  // two of its parts are in the way
      now_.offset[o] = kNotPlaced;
      now_.out.push_back(obstacle.item);
      now_.out_price += price_[o];
      ++times_driven_out_[o];
    }
    now_.offset[i] = offset;
    stays_until_[i] = move_ + kStay + static_cast<int64_t>(random_() % (kStay + 1));
  }

  // Where the items in the way are the least dear together: the lowest (for what stays to the end,
  // the highest) offset where nothing is in the way, else any of the best. Only offsets at which the
  // item touches another, or an end of the height, come into question.
  int64_t cheapest_offset(int32_t item) {
    int64_t size = 0;
    for (const Part& part : problem_.parts(static_cast<size_t>(item))) {
      size = std::max(size, part.size);
    }
    const bool hangs = problem_.parts(static_cast<size_t>(item)).back().last + 1 == problem_.tick_count();
    find_obstacles(item);
    find_edges(height_ - size);
    int64_t price = 0, best = 0, best_offset = kNotPlaced;
    uint64_t equals = 0;
    for (size_t e = 0; e < edges_.size();) {
      const int64_t offset = edges_[e].offset;
      for (; e < edges_.size() && edges_[e].offset == offset && edges_[e].change < 0; ++e) {
        price += edges_[e].change;
      }
      if (offset >= 0 && (best_offset == kNotPlaced || price <= best)) {
        if (best_offset == kNotPlaced || price < best) equals = 0;
        best = price;
        if (price == 0 ? hangs || equals == 0 : random_() % (equals + 1) == 0) best_offset = offset;
        ++equals;
      }
      for (; e < edges_.size() && edges_[e].offset == offset; ++e) price += edges_[e].change;
    }
    return best_offset;
  }

  void find_obstacles(int32_t item) {
    obstacles_.clear();
    for (const Part& part : problem_.parts(static_cast<size_t>(item))) {
      work_ += overlaps_.visit(part, [&](const ItemPart& other) {
        const int64_t offset = now_.offset[static_cast<size_t>(other.item)];
        if (offset == kNotPlaced || other.item == item) return;
        obstacles_.push_back({offset - part.size, offset + other.part.size, other.item});
      });
    }
  }

  void find_edges(int64_t highest) {
    edges_.clear();
    edges_.push_back({0, 0});
    edges_.push_back({highest, 0});
    for (const Obstacle& obstacle : obstacles_) {
      if (obstacle.low >= highest) continue;
      const size_t o = static_cast<size_t>(obstacle.item);
      const int64_t price = price_[o] * times_driven_out_[o] + (stays_until_[o] > move_ ? kStays : 0);
      edges_.push_back({std::max<int64_t>(-1, obstacle.low), price});
      if (obstacle.high <= highest) edges_.push_back({obstacle.high, -price});
    }
    work_ += static_cast<int64_t>(edges_.size());
    std::ranges::sort(edges_, [](const Edge& a, const Edge& b) {
      return a.offset != b.offset ? a.offset < b.offset : a.change < b.change;
    });
  }

  static constexpr int64_t kPatience = 500;  // moves
  static constexpr int64_t kStay = 10;       // moves
  static constexpr int64_t kLooksPerNode = 8;
  static constexpr int64_t kCopiesPerLook = 16;
  // The price of an item that should stay for now; thousands of them are still a number.
  static constexpr int64_t kStays = int64_t{1} << 48;

  const PackingProblem& problem_;
  Overlaps overlaps_;
  int64_t height_;
  std::vector<int64_t> price_;             // by item
  std::vector<int64_t> times_driven_out_;  // by item, from 1 on
  std::vector<int64_t> stays_until_;  // by item: the move up to which it should not be driven out
  std::vector<int32_t> waiting_;      // who was not placed at the start
  State now_;
  State best_;
  int64_t move_ = 0;
  int64_t work_ = 0;
  std::vector<Obstacle> obstacles_;
  std::vector<Edge> edges_;
  std::mt19937_64 random_;  // with its fixed first state: the same packing every time
};

}  // namespace

std::vector<int64_t> repair_packing(const PackingProblem& problem, int64_t height,
                                    std::vector<int64_t> offset, const ItemOrder& order,
                                    SearchBudget& budget, int64_t nodes) {
  return Repair(problem, height, std::move(offset), order).run(budget, nodes);
}

}  // namespace remat::detail
