// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/beam.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>
#include <unordered_set>
#include <utility>

namespace remat::detail {
namespace {

constexpr size_t kStates = 10;  // of the beam
constexpr int64_t kLooksPerNode = 64;
constexpr int64_t kNodesPerItem = 20;
// How much more the full ticks count: the weight of a tick is its load to this power.
constexpr double kFullness = 4;

class Beam {
 public:
  explicit Beam(const BeamSide& side)
      : side_(side), height_(side.height), wall_(side.weight_before.back()) {}

  void run(Offsets& offset, SearchBudget& budget) {
    states_.push_back({});
    for (size_t i = 0; i < offset.size(); ++i) {
      if (offset[i] == kNotPlaced || !side_.life[i].at_peak()) continue;
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
    double sum;  // of the changes of `until`
    size_t state;
    size_t place;  // in its `lying`
    int64_t offset;
  };

  Lying lying(int32_t item, int64_t offset) const {
    const BeamSide::Life& life = side_.life[static_cast<size_t>(item)];
    return {offset, offset + life.size, life.end, life.until};
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
    const auto& [size, start, end, until] = side_.life[static_cast<size_t>(item)];
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

  const BeamSide& side_;
  int64_t height_;
  double wall_;     // `until` of what is below and above everything
  double now_ = 0;  // `until` of a gap
  int64_t work_ = 0;
  std::vector<State> states_;    // the best first
  std::vector<Choice> choices_;  // of all states that ever were
  std::vector<Candidate> candidates_;
};

}  // namespace

BeamSide::BeamSide(const PackingProblem& problem, int64_t height_aimed_at, bool backwards)
    : height(height_aimed_at) {
  const std::vector<int64_t> load = problem.load();
  const int32_t peak = problem.fullest_tick();
  const int32_t ticks = backwards ? peak + 1 : problem.tick_count() - peak;
  starting.resize(static_cast<size_t>(ticks));
  weight_before.push_back(0);
  for (int32_t d = 0; d < ticks; ++d) {
    const int64_t alive = load[static_cast<size_t>(backwards ? peak - d : peak + d)];
    const double fullness = static_cast<double>(alive) / static_cast<double>(height);
    weight_before.push_back(weight_before.back() + std::pow(fullness, kFullness));
  }
  for (size_t i = 0; i < problem.item_count(); ++i) {
    const int32_t first = problem.first_tick(i) - peak;
    const int32_t last = problem.last_tick(i) - peak;
    Life& item =
        life.emplace_back(problem.size(i), backwards ? -last : first, backwards ? -first : last, 0);
    if (item.end >= 0) item.until = weight_before[static_cast<size_t>(item.end) + 1];
    if (item.start > 0)
      starting[static_cast<size_t>(item.start)].push_back(static_cast<int32_t>(i));
  }
  for (std::vector<int32_t>& items : starting) {
    std::ranges::stable_sort(items, std::greater(), [&](int32_t item) {
      return std::pair(life[static_cast<size_t>(item)].size, life[static_cast<size_t>(item)].end);
    });
  }
}

void fill_side(const BeamSide& side, Offsets& offsets, SearchBudget& budget) {
  Beam(side).run(offsets, budget);
}

}  // namespace remat::detail
