// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing_repair.h"

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
  Repair(const PackingProblem& problem, int64_t height, std::vector<int64_t> offset)
      : problem_(problem), overlaps_(problem), height_(height), offset_(std::move(offset)) {
    const size_t items = problem.item_count();
    times_driven_out_.resize(items, 1);
    stays_until_.resize(items, 0);
    for (size_t i = 0; i < items; ++i) {
      price_.push_back(price_of(i));
      if (offset_[i] == kNotPlaced) set_out(static_cast<int32_t>(i));
    }
    best_ = {offset_, out_, out_price_};
  }

  std::optional<std::vector<int64_t>> run(SearchBudget& budget, int64_t nodes) {
    const int64_t stop_at = std::max<int64_t>(0, budget.nodes_left - nodes);
    int64_t best_move = 0;
    while (!out_.empty()) {
      if (budget.nodes_left <= stop_at) return std::nullopt;
      ++move_;
      work_ = 0;
      place(take_any());
      budget.pay(1 + work_ / kLooksPerNode);
      if (out_price_ < best_.out_price) {
        best_ = {offset_, out_, out_price_};
        best_move = move_;
      } else if (move_ - best_move > kPatience) {
        offset_ = best_.offset;
        out_ = best_.out;
        out_price_ = best_.out_price;
        best_move = move_;
      }
    }
    return offset_;
  }

 private:
  // An offset at which the item would come upon another, from one side or the other.
  struct Edge {
    int64_t offset;
    int64_t price;   // added above it (rising edge) or taken away from there on
    int64_t staying;  // the same for items that must stay for now
    bool rising;
  };
  struct Best {
    std::vector<int64_t> offset;
    std::vector<int32_t> out;
    int64_t out_price = 0;
  };

  // Whole numbers, so that what was added can be taken away; never 0.
  int64_t price_of(size_t item) const {
    double area = 0;
    for (const Part& part : problem_.parts(item)) {
      area += static_cast<double>(part.size) * (part.last - part.first + 1);
    }
    const double whole = static_cast<double>(height_) * problem_.tick_count();
    return 1 + static_cast<int64_t>(area / whole * 0x1.0p30);
  }

  void set_out(int32_t item) {
    out_.push_back(item);
    out_price_ += price_[static_cast<size_t>(item)];
  }

  int32_t take_any() {
    std::swap(out_[random_() % out_.size()], out_.back());
    const int32_t item = out_.back();
    out_.pop_back();
    out_price_ -= price_[static_cast<size_t>(item)];
    return item;
  }

  void place(int32_t item) {
    const size_t i = static_cast<size_t>(item);
    const int64_t offset = cheapest_offset(item);
    for (const Part& part : problem_.parts(i)) {
      work_ += overlaps_.visit(part, [&](const ItemPart& other) {
        const size_t o = static_cast<size_t>(other.item);
        const bool hit = other.item != item && offset_[o] != kNotPlaced &&
                         offset_[o] < offset + part.size && offset < offset_[o] + other.part.size;
        if (!hit) return;
        offset_[o] = kNotPlaced;
        ++times_driven_out_[o];
        set_out(other.item);
      });
    }
    offset_[i] = offset;
    stays_until_[i] = move_ + kStay + static_cast<int64_t>(random_() % (kStay + 1));
  }

  // Where the items in the way are the least dear together; any of the best such offsets. Only
  // offsets at which the item touches another, or an end of the height, come into question.
  int64_t cheapest_offset(int32_t item) {
    int64_t size = 0;
    for (const Part& part : problem_.parts(static_cast<size_t>(item))) {
      size = std::max(size, part.size);
    }
    const int64_t highest = height_ - size;
    collect_edges(item, highest);
    int64_t price = 0, staying = 0, best_offset = 0;
    uint64_t equals = 0;
    std::pair<int64_t, int64_t> best;
    for (size_t e = 0; e < edges_.size();) {
      const int64_t offset = edges_[e].offset;
      for (; e < edges_.size() && edges_[e].offset == offset && !edges_[e].rising; ++e) {
        price -= edges_[e].price;
        staying -= edges_[e].staying;
      }
      const std::pair here(staying, price);
      if (offset >= 0) {
        if (equals == 0 || here < best) {
          best = here;
          equals = 0;
        }
        if (here == best && random_() % ++equals == 0) best_offset = offset;
      }
      for (; e < edges_.size() && edges_[e].offset == offset; ++e) {
        price += edges_[e].price;
        staying += edges_[e].staying;
      }
    }
    return best_offset;
  }

  void collect_edges(int32_t item, int64_t highest) {
    edges_.clear();
    edges_.push_back({0, 0, 0, true});
    edges_.push_back({highest, 0, 0, true});
    for (const Part& part : problem_.parts(static_cast<size_t>(item))) {
      work_ += overlaps_.visit(part, [&](const ItemPart& other) {
        const size_t o = static_cast<size_t>(other.item);
        if (offset_[o] == kNotPlaced || other.item == item) return;
        const bool stays = stays_until_[o] > move_;
        const int64_t price = stays ? 0 : price_[o] * times_driven_out_[o];
        // An item that starts below the bottom is in the way from the start on.
        const int64_t low = std::max<int64_t>(-1, offset_[o] - part.size);
        const int64_t high = offset_[o] + other.part.size;
        if (low < highest) edges_.push_back({low, price, stays ? 1 : 0, true});
        if (low < highest && high <= highest) edges_.push_back({high, price, stays ? 1 : 0, false});
      });
    }
    std::ranges::sort(edges_, [](const Edge& a, const Edge& b) {
      return a.offset != b.offset ? a.offset < b.offset : a.rising < b.rising;
    });
  }

  static constexpr int64_t kPatience = 500;  // moves
  static constexpr int64_t kStay = 10;       // moves
  static constexpr int64_t kLooksPerNode = 8;

  const PackingProblem& problem_;
  Overlaps overlaps_;
  int64_t height_;
  std::vector<int64_t> offset_;           // by item
  std::vector<int64_t> price_;            // by item
  std::vector<int64_t> times_driven_out_;  // by item, from 1 on
  std::vector<int64_t> stays_until_;      // by item: the move up to which it should not be driven out
  std::vector<int32_t> out_;              // the items that do not lie
  int64_t out_price_ = 0;
  Best best_;
  int64_t move_ = 0;
  int64_t work_ = 0;
  std::vector<Edge> edges_;
  std::mt19937_64 random_;  // with its fixed first state: the same packing every time
};

}  // namespace

std::optional<std::vector<int64_t>> repair_packing(const PackingProblem& problem, int64_t height,
                                                   std::vector<int64_t> offset,
                                                   SearchBudget& budget, int64_t nodes) {
  return Repair(problem, height, std::move(offset)).run(budget, nodes);
}

}  // namespace remat::detail
