// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/sweep.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "remat/core/packing/repair.h"

namespace remat::detail {
namespace {

constexpr size_t kStates = 10;          // of the beam
constexpr int64_t kTurnsPerItem = 300;  // of the annealing
constexpr int64_t kLooksPerNode = 64;
constexpr int64_t kNodesPerItem = 20;
// How much more the full ticks count: the weight of a tick is its load to this power.
constexpr double kFullness = 4;
// One side may count this much more than usual, and the other that much less.
constexpr double kMostBias = 7.4;
constexpr double kHeatOfVariants = 0.2;  // of what makes a new stack
constexpr double kCooling = 1e-3;
constexpr int32_t kFree = -1;  // in a stack: what is free at the peak

// An item as seen from the peak, in one direction of time: ticks are distances from the peak.
struct Life {
  int32_t start = 0;  // 0 or less if it is there at the peak
  int32_t end = 0;
  double until = 0;  // the end, in weights of ticks
};

// All of one direction of time.
struct Side {
  std::vector<Life> life;                      // by item
  std::vector<std::vector<int32_t>> starting;  // by distance from the peak, the largest first
  std::vector<double> weight_before;           // by distance from the peak
};

Side side_of(const PackingProblem& problem, const std::vector<int64_t>& size, int64_t height,
             int32_t peak, bool backwards) {
  const std::vector<int64_t> load = problem.load();
  const int32_t ticks = backwards ? peak + 1 : problem.tick_count() - peak;
  Side side;
  side.starting.resize(static_cast<size_t>(ticks));
  side.weight_before.push_back(0);
  for (int32_t d = 0; d < ticks; ++d) {
    const int64_t there = load[static_cast<size_t>(backwards ? peak - d : peak + d)];
    const double fullness = static_cast<double>(there) / static_cast<double>(height);
    side.weight_before.push_back(side.weight_before.back() + std::pow(fullness, kFullness));
  }
  for (size_t i = 0; i < problem.item_count(); ++i) {
    const int32_t first = problem.parts(i).front().first - peak;
    const int32_t last = problem.parts(i).back().last - peak;
    Life life{backwards ? -last : first, backwards ? -first : last, 0};
    if (life.end >= 0) life.until = side.weight_before[static_cast<size_t>(life.end) + 1];
    side.life.push_back(life);
    if (life.start > 0) {
      side.starting[static_cast<size_t>(life.start)].push_back(static_cast<int32_t>(i));
    }
  }
  for (std::vector<int32_t>& items : side.starting) {
    std::ranges::stable_sort(items, std::greater(), [&](int32_t item) {
      const size_t i = static_cast<size_t>(item);
      return std::pair(size[i], side.life[i].end);
    });
  }
  return side;
}

// The way out from the peak on one side.
class Beam {
 public:
  Beam(const Side& side, const std::vector<int64_t>& size, int64_t height)
      : side_(side), size_(size), height_(height), wall_(side.weight_before.back()) {}

  void run(std::vector<int64_t>& offset, SearchBudget& budget) {
    states_.push_back({});
    for (size_t i = 0; i < offset.size(); ++i) {
      const Life& life = side_.life[i];
      if (offset[i] == kNotPlaced || life.start > 0 || life.end < 0) continue;
      states_.front().lying.push_back(lying(static_cast<int32_t>(i), offset[i]));
    }
    std::ranges::sort(states_.front().lying, {}, &Lying::offset);
    for (size_t d = 1; d < side_.starting.size() && !budget.spent(); ++d) {
      now_ = side_.weight_before[d];
      forget_before(static_cast<int32_t>(d));
      for (const int32_t item : side_.starting[d]) {
        work_ = 0;
        place(item);
        budget.pay(kNodesPerItem + work_ / kLooksPerNode);
      }
    }
    for (int32_t c = states_.front().choice; c >= 0; c = choices_[static_cast<size_t>(c)].before) {
      const Choice& choice = choices_[static_cast<size_t>(c)];
      offset[static_cast<size_t>(choice.item)] = choice.offset;
    }
  }

 private:
  struct Lying {
    int64_t offset;
    int64_t top;
    int32_t end;
    double until;
  };
  struct State {
    std::vector<Lying> lying;  // from the bottom up
    int32_t choice = -1;       // the last of choices_ that led here
  };
  struct Choice {
    int32_t before;
    int32_t item;
    int64_t offset;
  };
  struct Candidate {
    double sum;     // of the changes of `until`
    size_t state;
    size_t place;   // in its `lying`
    int64_t offset;
  };

  Lying lying(int32_t item, int64_t offset) const {
    const Life& life = side_.life[static_cast<size_t>(item)];
    return {offset, offset + size_[static_cast<size_t>(item)], life.end, life.until};
  }

  void forget_before(int32_t distance) {
    for (State& state : states_) {
      std::erase_if(state.lying, [&](const Lying& item) { return item.end < distance; });
    }
  }

  void place(int32_t item) {
    candidates_.clear();
    for (size_t s = 0; s < states_.size(); ++s) find_candidates(item, s);
    keep_best_candidates();
    std::vector<State> next;
    std::unordered_set<uint64_t> seen;
    for (const Candidate& candidate : candidates_) {
      if (next.size() == kStates) break;
      State state = states_[candidate.state];
      state.lying.insert(state.lying.begin() + static_cast<std::ptrdiff_t>(candidate.place),
                         lying(item, candidate.offset));
      work_ += static_cast<int64_t>(state.lying.size());
      if (!seen.insert(fingerprint(state)).second) continue;
      choices_.push_back({state.choice, item, candidate.offset});
      state.choice = static_cast<int32_t>(choices_.size()) - 1;
      next.push_back(std::move(state));
    }
    if (!next.empty()) states_ = std::move(next);
  }

  // Some more than there will be states, since some lead to equal ones. Sorted.
  void keep_best_candidates() {
    const auto better = [](const Candidate& a, const Candidate& b) {
      return std::tie(a.sum, a.state, a.offset) < std::tie(b.sum, b.state, b.offset);
    };
    if (candidates_.size() > 3 * kStates) {
      const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(3 * kStates);
      std::nth_element(candidates_.begin(), end, candidates_.end(), better);
      candidates_.erase(end, candidates_.end());
    }
    std::sort(candidates_.begin(), candidates_.end(), better);
  }

  // Both ends of every gap that is large enough.
  void find_candidates(int32_t item, size_t s) {
    const std::vector<Lying>& all = states_[s].lying;
    const int64_t size = size_[static_cast<size_t>(item)];
    const double until = side_.life[static_cast<size_t>(item)].until;
    const double sum = sum_of_changes(all);
    int64_t bottom = 0;
    double below = wall_;
    for (size_t place = 0; place <= all.size(); ++place) {
      const int64_t top = place < all.size() ? all[place].offset : height_;
      const double above = place < all.size() ? all[place].until : wall_;
      const double without = sum - std::abs(below - now_) - std::abs(above - now_);
      if (top - bottom == size) {
        candidates_.push_back(
            {without + std::abs(below - until) + std::abs(above - until), s, place, bottom});
      } else if (top - bottom > size) {
        const double step = std::abs(until - now_);
        candidates_.push_back(
            {without + std::abs(below - until) + step + std::abs(above - now_), s, place, bottom});
        candidates_.push_back({without + std::abs(below - now_) + step + std::abs(above - until), s,
                               place, top - size});
      }
      if (place == all.size()) break;
      bottom = all[place].top;
      below = all[place].until;
    }
    work_ += static_cast<int64_t>(all.size());
  }

  double sum_of_changes(const std::vector<Lying>& all) const {
    double sum = 0, below = wall_;
    int64_t bottom = 0;
    for (const Lying& item : all) {
      if (item.offset > bottom) {
        sum += std::abs(below - now_);
        below = now_;
      }
      sum += std::abs(item.until - below);
      below = item.until;
      bottom = item.top;
    }
    if (bottom < height_) {
      sum += std::abs(below - now_);
      below = now_;
    }
    return sum + std::abs(wall_ - below);
  }

  // States with the same ends at the same offsets have the same future.
  static uint64_t fingerprint(const State& state) {
    uint64_t print = 0;
    for (const Lying& item : state.lying) {
      print ^= static_cast<uint64_t>(item.offset) * 0x9e3779b97f4a7c15 +
               static_cast<uint64_t>(item.end) * 0xc2b2ae3d27d4eb4f;
      print = print * 0x100000001b3 + (print >> 29);
    }
    return print;
  }

  const Side& side_;
  const std::vector<int64_t>& size_;
  int64_t height_;
  double wall_;     // `until` of what is below and above everything
  double now_ = 0;  // `until` of a gap
  int64_t work_ = 0;
  std::vector<State> states_;    // the best first
  std::vector<Choice> choices_;  // of all states that ever were
  std::vector<Candidate> candidates_;
};

}  // namespace

struct Sweep::Sides {
  Side right;
  Side left;
};

Sweep::Sweep(const PackingProblem& problem, int64_t height)
    : problem_(problem), height_(height), size_(problem.item_count(), 0) {
  const std::vector<int64_t> load = problem.load();
  const int32_t peak = static_cast<int32_t>(std::ranges::max_element(load) - load.begin());
  for (size_t i = 0; i < size_.size(); ++i) {
    for (const Part& part : problem.parts(i)) size_[i] = std::max(size_[i], part.size);
  }
  sides_ = std::make_unique<Sides>(side_of(problem, size_, height, peak, false),
                                   side_of(problem, size_, height, peak, true));
  free_at_peak_ = height;
  for (size_t i = 0; i < size_.size(); ++i) {
    const Life& life = sides_->right.life[i];
    if (life.start > 0 || life.end < 0 || size_[i] > free_at_peak_) continue;
    free_at_peak_ -= size_[i];
    best_stack_.push_back(static_cast<int32_t>(i));
  }
  if (free_at_peak_ > 0) best_stack_.push_back(kFree);
}

Sweep::~Sweep() = default;

std::vector<int64_t> Sweep::next(SearchBudget& budget) {
  std::vector<int32_t> stack = best_stack_;
  // In turn something new, and something like the best so far.
  anneal(stack, rounds_ % 2 == 0 ? 1 : kHeatOfVariants);
  ++rounds_;
  budget.pay(kTurnsPerItem * static_cast<int64_t>(stack.size()) / kLooksPerNode);
  std::vector<int64_t> offset(size_.size(), kNotPlaced);
  int64_t bottom = 0;
  for (const int32_t item : stack) {
    if (item != kFree) offset[static_cast<size_t>(item)] = bottom;
    bottom += item == kFree ? free_at_peak_ : size_[static_cast<size_t>(item)];
  }
  Beam(sides_->right, size_, height_).run(offset, budget);
  Beam(sides_->left, size_, height_).run(offset, budget);
  const double left_out = area_left_out(offset);
  if (left_out < least_left_out_) best_stack_ = std::move(stack);
  least_left_out_ = std::min(least_left_out_, left_out);
  return offset;
}

double Sweep::area_left_out(const std::vector<int64_t>& offset) const {
  double area = 0;
  for (size_t i = 0; i < offset.size(); ++i) {
    if (offset[i] != kNotPlaced) continue;
    for (const Part& part : problem_.parts(i)) {
      area += static_cast<double>(part.size) * (part.last - part.first + 1);
    }
  }
  return area;
}

// The shortest tour, from wall to wall, through points whose two coordinates are the ends of an item
// on both sides: pieces of it are turned round. Either side may count more than the other.
void Sweep::anneal(std::vector<int32_t>& stack, double heat) {
  const auto unit = [&] { return static_cast<double>(random_() >> 11) * 0x1.0p-53; };
  const double bias = std::pow(kMostBias, 2 * unit() - 1);
  const auto distance = [&](size_t a, size_t b) {  // from 1 on; walls before and after
    const auto until = [&](const Side& side, size_t at) {
      if (at == 0 || at > stack.size()) return side.weight_before.back();
      const int32_t item = stack[at - 1];
      return item == kFree ? side.weight_before[1] : side.life[static_cast<size_t>(item)].until;
    };
    return bias * std::abs(until(sides_->right, a) - until(sides_->right, b)) +
           std::abs(until(sides_->left, a) - until(sides_->left, b)) / bias;
  };
  if (heat == 1) {
    for (size_t i = stack.size(); i > 1; --i) std::swap(stack[i - 1], stack[random_() % i]);
  }
  double length = 0;
  for (size_t i = 0; i <= stack.size(); ++i) length += distance(i, i + 1);
  heat *= length / static_cast<double>(stack.size());
  const int64_t turns = kTurnsPerItem * static_cast<int64_t>(stack.size());
  const double cooling = std::pow(kCooling, 1.0 / static_cast<double>(turns));
  for (int64_t turn = 0; turn < turns; ++turn, heat *= cooling) {
    size_t i = random_() % stack.size(), j = random_() % stack.size();
    if (i > j) std::swap(i, j);
    const double longer =
        distance(i, j + 1) + distance(i + 1, j + 2) - distance(i, i + 1) - distance(j + 1, j + 2);
    if (longer > 0 && unit() >= std::exp(-longer / heat)) continue;
    std::reverse(stack.begin() + static_cast<std::ptrdiff_t>(i),
                 stack.begin() + static_cast<std::ptrdiff_t>(j) + 1);
  }
}

}  // namespace remat::detail
