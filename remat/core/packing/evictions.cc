// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/evictions.h"

#include <algorithm>
#include <random>
#include <utility>

namespace remat::detail {
namespace {

struct ItemPart {
  Part part;
  int32_t item;
};

// The parts alive during a range of ticks: those alive at the last post before it, and those that
// start between the post and the end of the range. There is a post every kTicks.
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

  std::vector<ItemPart> parts_;               // by first tick
  std::vector<size_t> begin_;                 // by tick: the first part that starts there or later
  std::vector<std::vector<size_t>> at_post_;  // by post: the parts that start before it
};

class Evictions {
 public:
  Evictions(const PackingProblem& problem, int64_t height, Offsets offset, const ItemOrder& order,
            uint64_t seed)
      : problem_(problem), overlaps_(problem), height_(height), random_(seed) {
    const size_t items = problem.item_count();
    evictions_.resize(items, 1);
    protected_until_.resize(items, 0);
    const double whole = static_cast<double>(height_) * problem_.tick_count();
    for (size_t i = 0; i < items; ++i) {
      price_.push_back(1 + static_cast<int64_t>(problem.area(i) / whole * 0x1.0p24));
    }
    for (const int32_t item : order) {
      if (offset[static_cast<size_t>(item)] == kNotPlaced) waiting_.push_back(item);
    }
    now_.offset = std::move(offset);
    best_ = now_;
  }

  Offsets run(Effort& effort) {
    int64_t best_turn = 0;
    while (!now_.evicted.empty() || now_.seen < waiting_.size()) {
      if (effort.exhausted()) return std::move(best_.offset);
      ++turn_;
      looks_ = 0;
      place(next());
      if (now_.better_than(best_)) {
        if (now_.seen > best_.seen) std::ranges::fill(evictions_, 1);
        best_ = now_;
        best_turn = turn_;
        looks_ += static_cast<int64_t>(now_.offset.size()) / kCopiesPerLook;
      } else if (turn_ - best_turn > kPatience) {
        now_ = best_;
        best_turn = turn_;
      }
      effort.spend(kWorkPerTurn * (1 + looks_ / kLooksPerTurn));
    }
    return std::move(now_.offset);
  }

 private:
  struct State {
    Offsets offset;
    std::vector<int32_t> evicted;
    int64_t evicted_price = 0;
    size_t seen = 0;  // how many of waiting_ have had their turn
    bool better_than(const State& other) const {
      return seen != other.seen ? seen > other.seen : evicted_price < other.evicted_price;
    }
  };
  // A placed item rules out the offsets between low and high for another, both not included.
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

  // Evicted items come before those that still wait.
  int32_t next() {
    std::vector<int32_t>& evicted = now_.evicted;
    if (evicted.empty()) return waiting_[now_.seen++];
    std::swap(evicted[random_() % evicted.size()], evicted.back());
    const int32_t item = evicted.back();
    evicted.pop_back();
    now_.evicted_price -= price_[static_cast<size_t>(item)];
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
      now_.evicted.push_back(obstacle.item);
      now_.evicted_price += price_[o];
      ++evictions_[o];
    }
    now_.offset[i] = offset;
    protected_until_[i] = turn_ + kProtection + static_cast<int64_t>(random_() % (kProtection + 1));
  }

  // The offset where evicting what is in the way costs least: the lowest (for an item that stays to
  // the last tick, the highest) where nothing is in the way, else any of the best. Only offsets at
  // which the item touches another, or the bottom or top, come into question.
  int64_t cheapest_offset(int32_t item) {
    const size_t i = static_cast<size_t>(item);
    const bool from_top = problem_.stays(i);
    find_obstacles(item);
    find_edges(height_ - problem_.size(i));
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
        if (price == 0 ? from_top || equals == 0 : random_() % (equals + 1) == 0)
          best_offset = offset;
        ++equals;
      }
      for (; e < edges_.size() && edges_[e].offset == offset; ++e) price += edges_[e].change;
    }
    return best_offset;
  }

  void find_obstacles(int32_t item) {
    obstacles_.clear();
    for (const Part& part : problem_.parts(static_cast<size_t>(item))) {
      looks_ += overlaps_.visit(part, [&](const ItemPart& other) {
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
      const int64_t price =
          price_[o] * evictions_[o] + (protected_until_[o] > turn_ ? kProtectedPrice : 0);
      edges_.push_back({std::max<int64_t>(-1, obstacle.low), price});
      if (obstacle.high <= highest) edges_.push_back({obstacle.high, -price});
    }
    looks_ += static_cast<int64_t>(edges_.size());
    std::ranges::sort(edges_, [](const Edge& a, const Edge& b) {
      return a.offset != b.offset ? a.offset < b.offset : a.change < b.change;
    });
  }

  static constexpr int64_t kPatience = 500;   // turns: items placed
  static constexpr int64_t kProtection = 10;  // turns
  static constexpr int64_t kWorkPerTurn = 160;  // and as much again for each so many looks
  static constexpr int64_t kLooksPerTurn = 8;
  static constexpr int64_t kCopiesPerLook = 16;
  // Thousands of these still fit into a sum.
  static constexpr int64_t kProtectedPrice = int64_t{1} << 48;

  const PackingProblem& problem_;
  Overlaps overlaps_;
  int64_t height_;
  // By item: its area, as a whole number so that what was added can be taken away exactly; never 0.
  std::vector<int64_t> price_;
  std::vector<int64_t> evictions_;        // by item, from 1 on: a factor of its price
  std::vector<int64_t> protected_until_;  // by item: the turn up to which evicting it costs most
  std::vector<int32_t> waiting_;          // the items without an offset at the start
  State now_;
  State best_;
  int64_t turn_ = 0;
  int64_t looks_ = 0;
  std::vector<Obstacle> obstacles_;
  std::vector<Edge> edges_;
  std::mt19937_64 random_;
};

}  // namespace

Offsets pack_by_evictions(const PackingProblem& problem, int64_t height, Offsets start,
                       const ItemOrder& order, Effort& effort, uint64_t seed) {
  return Evictions(problem, height, std::move(start), order, seed).run(effort);
}

}  // namespace remat::detail
