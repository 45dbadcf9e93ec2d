// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/search.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

// Fills the height from the bottom up.
//
// State: `floor` by tick, the top of what stands there; `base` by item not yet placed, a lower
// bound of its offset; and `slack` by tick, how much of the height may still be lost there. No item
// can lie below the least base of the items still to come at a tick, its *level*; what is between
// floor and level is lost, and more loss than slack ends the branch.
//
// A *valley* is a run of ticks with one level and higher levels (or nothing left to place) on both
// sides. At any tick of a valley, either an item lies exactly on the level, and then it lies within
// the valley, or all items of that tick lie higher. That is the branching: one child for each item
// that can lie there, one for "none of them". Ticks without slack go first, since they have no such
// last child, which decides so little; among them, the one with the fewest children. Where no
// remaining item crosses from one tick to the next, both sides are searched on their own.
//
// Of equivalent packings only one is looked for: every item lies at 0 or on another (so an item
// that is not at 0 needs support, and one that is refused its level goes at least to the top of
// another), and of two stacked items with the same lifetime the lower number is below.

namespace remat::detail {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int32_t kNobody = -1;
// Deeper than any search that is worth its time; bounds the call stack.
constexpr int kMaxDepth = 4000;
// Ticks and items looked at that count as one node more: a node of a large problem costs more.
constexpr int64_t kWorkPerNode = 256;

class Search {
 public:
  Search(const PackingProblem& problem, int64_t height, SearchBudget& budget, uint64_t seed)
      : problem_(problem), budget_(budget), height_(height) {
    const size_t items = problem.item_count();
    const size_t ticks = static_cast<size_t>(problem.tick_count());
    covers_.resize(ticks);
    crossing_.resize(ticks, 0);
    left_.resize(ticks, 0);
    top_item_.resize(ticks, kNobody);
    level_.resize(ticks, kNever);
    choices_.resize(ticks, 0);
    floor_.resize(ticks, 0);
    base_.resize(items, 0);
    placed_.resize(items, false);
    for (size_t i = 0; i < items; ++i) {
      for (const Part& part : problem.parts(i)) {
        for (int32_t t = part.first; t <= part.last; ++t) {
          covers_[at(t)].push_back({static_cast<int32_t>(i), part.size});
        }
      }
      count_in(i, 1);
      if (has_gap(i)) complete_ = false;
    }
    slack_ = problem.load();
    for (int64_t& slack : slack_) slack = height - slack;
    set_preference(seed);
  }

  FitResult run() {
    FitResult result;
    if (solve_apart(0, problem_.tick_count(), 0)) {
      result.offset = base_;
    } else {
      result.lower_bound = complete_ ? needed_ : height_;
    }
    return result;
  }

 private:
  struct Cover {
    int32_t item;
    int64_t size;
  };
  struct Choice {
    int32_t tick = kNobody;
    bool may_skip = false;
  };
  enum class Outlook : uint8_t { dead, done, open };
  struct Undo {
    enum Kind : uint8_t { floor, slack, top_item, base, placed } kind;
    int32_t index;
    int64_t old;
  };

  static size_t at(int32_t i) { return static_cast<size_t>(i); }

  int32_t first_tick(size_t item) const { return problem_.parts(item).front().first; }
  int32_t last_tick(size_t item) const { return problem_.parts(item).back().last; }

  bool has_gap(size_t item) const {
    const auto parts = problem_.parts(item);
    for (size_t p = 1; p < parts.size(); ++p) {
      if (parts[p].first != parts[p - 1].last + 1) return true;
    }
    return false;
  }

  bool same_lifetime(int32_t a, int32_t b) const {
    return problem_.parts(at(a)).size() == 1 && problem_.parts(at(b)).size() == 1 &&
           first_tick(at(a)) == first_tick(at(b)) && last_tick(at(a)) == last_tick(at(b));
  }

  // Long or large items first: they are the hardest to place later.
  void set_preference(uint64_t seed) {
    std::mt19937_64 random(seed);
    preference_.resize(problem_.item_count());
    for (size_t i = 0; i < preference_.size(); ++i) {
      double area = 0;
      for (const Part& part : problem_.parts(i)) {
        area += static_cast<double>(part.size) * (part.last - part.first + 1);
      }
      const double length = last_tick(i) - first_tick(i) + 1;
      preference_[i] = seed % 2 == 0 ? length + 1e-9 * area / static_cast<double>(height_) : area;
      if (seed > 1) preference_[i] *= 0.5 + static_cast<double>(random() >> 11) * 0x1.0p-53;
    }
  }

  void count_in(size_t item, int32_t sign) {
    for (int32_t t = first_tick(item); t < last_tick(item); ++t) crossing_[at(t)] += sign;
    for (const Part& part : problem_.parts(item)) {
      for (int32_t t = part.first; t <= part.last; ++t) left_[at(t)] += sign;
    }
  }

  template <typename T>
  void set(Undo::Kind kind, std::vector<T>& values, int32_t index, T value) {
    trail_.push_back({kind, index, static_cast<int64_t>(values[at(index)])});
    values[at(index)] = value;
  }

  void undo(size_t mark) {
    for (; trail_.size() > mark; trail_.pop_back()) {
      const Undo& entry = trail_.back();
      switch (entry.kind) {
        case Undo::floor: floor_[at(entry.index)] = entry.old; break;
        case Undo::slack: slack_[at(entry.index)] = entry.old; break;
        case Undo::top_item: top_item_[at(entry.index)] = static_cast<int32_t>(entry.old); break;
        case Undo::base: base_[at(entry.index)] = entry.old; break;
        case Undo::placed:
          placed_[at(entry.index)] = false;
          count_in(at(entry.index), 1);
          break;
      }
    }
  }

  // Puts the item on its base.
  void put(int32_t item) {
    const int64_t offset = base_[at(item)];
    trail_.push_back({Undo::placed, item, 0});
    placed_[at(item)] = true;
    count_in(at(item), -1);
    for (const Part& part : problem_.parts(at(item))) {
      const int64_t top = offset + part.size;
      for (int32_t t = part.first; t <= part.last; ++t) {
        if (floor_[at(t)] < offset) {
          set(Undo::slack, slack_, t, slack_[at(t)] - (offset - floor_[at(t)]));
        }
        set(Undo::floor, floor_, t, top);
        set(Undo::top_item, top_item_, t, item);
        for (const Cover& cover : covers_[at(t)]) {
          if (!placed_[at(cover.item)] && base_[at(cover.item)] < top) {
            set(Undo::base, base_, cover.item, top);
          }
        }
      }
      work_ += part.last - part.first + 1;
    }
  }

  // No item of `tick` may lie on its level: each of them goes at least to the lowest top it might
  // find support on.
  bool skip(int32_t tick) {
    const int64_t level = level_[at(tick)];
    raised_.clear();
    for (const Cover& cover : covers_[at(tick)]) {
      if (placed_[at(cover.item)] || base_[at(cover.item)] != level) continue;
      raised_.push_back({cover.item, lowest_support(cover.item, level)});
    }
    for (const Cover& raised : raised_) {
      if (raised.size > height_) {
        needed_ = std::min(needed_, raised.size);
        return false;
      }
      set(Undo::base, base_, raised.item, raised.size);
    }
    return true;
  }

  int64_t lowest_support(int32_t item, int64_t above) {
    int64_t lowest = kNever;
    for (const Part& part : problem_.parts(at(item))) {
      for (int32_t t = part.first; t <= part.last; ++t) {
        for (const Cover& cover : covers_[at(t)]) {
          if (placed_[at(cover.item)] || cover.item == item) continue;
          lowest = std::min(lowest, std::max(above + 1, base_[at(cover.item)] + cover.size));
        }
        work_ += static_cast<int64_t>(covers_[at(t)].size());
      }
    }
    return lowest;
  }

  bool may_lie(int32_t item) const {
    const int64_t offset = base_[at(item)];
    if (offset == 0) return true;
    for (const Part& part : problem_.parts(at(item))) {
      for (int32_t t = part.first; t <= part.last; ++t) {
        if (floor_[at(t)] != offset) continue;
        const int32_t below = top_item_[at(t)];
        return below == kNobody || below < item || !same_lifetime(below, item);
      }
    }
    return false;
  }

  // Computes the levels of the ticks begin ... end-1, checks the loss, picks the tick to branch on.
  Outlook look(int32_t begin, int32_t end, Choice& choice) {
    bool any = false;
    for (int32_t t = begin; t < end; ++t) {
      level_[at(t)] = kNever;
      if (left_[at(t)] == 0) continue;
      any = true;
      if (!find_level(t)) return Outlook::dead;
    }
    if (!any) return Outlook::done;
    choice = choose(begin, end);
    return Outlook::open;
  }

  bool find_level(int32_t tick) {
    int64_t level = kNever;
    int32_t count = 0;
    for (const Cover& cover : covers_[at(tick)]) {
      if (placed_[at(cover.item)]) continue;
      const int64_t base = base_[at(cover.item)];
      if (base < level) {
        level = base;
        count = 0;
      }
      count += base == level ? 1 : 0;
      if (base + cover.size > height_) {
        needed_ = std::min(needed_, base + cover.size);
        return false;
      }
    }
    work_ += static_cast<int64_t>(covers_[at(tick)].size());
    level_[at(tick)] = level;
    choices_[at(tick)] = count;
    if (lost(tick) <= slack_[at(tick)]) return true;
    dead_end(tick, lost(tick));
    return false;
  }

  Choice choose(int32_t begin, int32_t end) const {
    Choice choice;
    std::pair fewest(true, std::numeric_limits<int32_t>::max());
    for (int32_t from = begin, to = begin; from < end; from = to) {
      const int64_t level = level_[at(from)];
      while (to < end && level_[at(to)] == level) ++to;
      const bool left_wall = from == begin || level_[at(from - 1)] > level;
      const bool right_wall = to == end || level_[at(to)] > level;
      if (level == kNever || !left_wall || !right_wall) continue;
      for (int32_t t = from; t < to; ++t) {
        const bool may_skip = lost(t) < slack_[at(t)];
        const std::pair children(may_skip, choices_[at(t)]);
        if (children >= fewest) continue;
        fewest = children;
        choice = {t, may_skip};
      }
    }
    return choice;
  }

  int64_t lost(int32_t tick) const { return level_[at(tick)] - floor_[at(tick)]; }

  void dead_end(int32_t tick, int64_t loss) {
    needed_ = std::min(needed_, height_ + loss - slack_[at(tick)]);
  }

  // The items that can lie on the level of the tick, best first; of equal items only the first.
  std::vector<int32_t> candidates(int32_t tick) const {
    std::vector<int32_t> found;
    for (const Cover& cover : covers_[at(tick)]) {
      if (placed_[at(cover.item)] || base_[at(cover.item)] != level_[at(tick)]) continue;
      if (may_lie(cover.item)) found.push_back(cover.item);
    }
    std::sort(found.begin(), found.end(), [&](int32_t a, int32_t b) {
      if (preference_[at(a)] != preference_[at(b)]) return preference_[at(a)] > preference_[at(b)];
      return a < b;
    });
    std::vector<int32_t> distinct;
    for (const int32_t item : found) {
      const bool twin = std::any_of(distinct.begin(), distinct.end(), [&](int32_t other) {
        return std::ranges::equal(problem_.parts(at(item)), problem_.parts(at(other)));
      });
      if (!twin) distinct.push_back(item);
    }
    return distinct;
  }

  bool stop(int depth) {
    budget_.pay(1 + work_ / kWorkPerNode);
    work_ %= kWorkPerNode;
    if (!budget_.spent() && depth < kMaxDepth) return false;
    complete_ = false;
    return true;
  }

  // Places everything that is left between the ticks begin and end-1, or fails and leaves the trail
  // to the caller.
  bool solve(int32_t begin, int32_t end, int depth) {
    for (;;) {
      if (stop(depth)) return false;
      Choice choice;
      const Outlook outlook = look(begin, end, choice);
      if (outlook != Outlook::open) return outlook == Outlook::done;
      const std::vector<int32_t> options = candidates(choice.tick);
      if (!choice.may_skip) dead_end(choice.tick, lost(choice.tick) + 1);
      if (options.empty() && !choice.may_skip) return false;
      if (options.size() == 1 && !choice.may_skip) {
        put(options.front());
        continue;
      }
      if (options.empty()) {
        if (!skip(choice.tick)) return false;
        continue;
      }
      return branch(begin, end, choice, options, depth);
    }
  }

  bool branch(int32_t begin, int32_t end, const Choice& choice, const std::vector<int32_t>& options,
              int depth) {
    const size_t mark = trail_.size();
    for (const int32_t item : options) {
      put(item);
      if (solve_apart(begin, end, depth)) return true;
      undo(mark);
      if (budget_.spent()) return false;
    }
    if (!choice.may_skip) return false;
    // The subtrees above have overwritten the levels.
    Choice again;
    look(begin, end, again);
    if (skip(choice.tick) && solve(begin, end, depth + 1)) return true;
    undo(mark);
    return false;
  }

  bool solve_apart(int32_t begin, int32_t end, int depth) {
    for (int32_t from = begin; from < end;) {
      int32_t to = from + 1;
      while (to < end && crossing_[at(to - 1)] > 0) ++to;
      if (!solve(from, to, depth + 1)) return false;
      from = to;
    }
    return true;
  }

  const PackingProblem& problem_;
  SearchBudget& budget_;
  int64_t height_;
  int64_t needed_ = kNever;  // with less than this, every dead end stays one
  int64_t work_ = 0;
  bool complete_ = true;
  std::vector<std::vector<Cover>> covers_;  // by tick
  std::vector<int32_t> crossing_;           // by tick: items left that are at it and at the next
  std::vector<int32_t> left_;               // by tick: items left
  std::vector<int32_t> top_item_;           // by tick: the item that makes the floor
  std::vector<int64_t> level_;              // by tick, as of the last look
  std::vector<int32_t> choices_;            // by tick: items whose base is the level
  std::vector<int64_t> floor_;              // by tick
  std::vector<int64_t> slack_;              // by tick
  std::vector<int64_t> base_;               // by item; the offset once it is placed
  std::vector<char> placed_;                // by item
  std::vector<double> preference_;          // by item
  std::vector<Undo> trail_;
  std::vector<Cover> raised_;
};

}  // namespace

void SearchBudget::pay(int64_t nodes) {
  constexpr int64_t kNodesPerLook = 1024;
  const int64_t before = nodes_left / kNodesPerLook;
  nodes_left -= nodes;
  if (nodes_left / kNodesPerLook == before || nodes_left <= 0) return;
  if (std::chrono::steady_clock::now() >= deadline) nodes_left = 0;
}

FitResult fit_exactly(const PackingProblem& problem, int64_t height, SearchBudget& budget,
                      uint64_t seed) {
  return Search(problem, height, budget, seed).run();
}

}  // namespace remat::detail
