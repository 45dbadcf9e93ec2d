// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/search.h"

#include <algorithm>
#include <random>

#include "remat/core/packing/filling.h"

// Fills the height from the bottom up (filling.h). The slack of a tick is what the height has beyond its load; a
// branch ends where more than that is lost at a tick.
//
// A *valley* is a run of ticks with one level and higher levels (or nothing left to place) on both
// sides. At any tick of a valley, either an item is placed exactly on the level, and then it stays
// within the valley, or all items of that tick are placed higher. A node has one child for each item that can
// be placed there and one for "none of them", which leaves nearly everything open. Ticks without slack, which
// have no such child, go first; among them, the one with the fewest children.
// Where no remaining item crosses from one tick to the next, both sides are searched on their own.

namespace remat::detail {
namespace {

// Deeper than any search that is worth its time; bounds the call stack.
constexpr int kMaxDepth = 4000;
// A node of a large problem takes longer: as much again for each so many ticks and items looked at.
constexpr int64_t kWorkPerNode = 160;
constexpr int64_t kLooksPerNode = 256;
// Restarts: by turns length and area say which item goes first, from the third on times a random number from this
// range. Each has half as many nodes again as the one before, so that the last has a third of the work.
constexpr double kLeastNoise = 0.5;
constexpr double kNoiseRange = 1.0;
constexpr double kTieBreak = 1e-9;  // of equally long items, the larger one
constexpr int64_t kFirstTry = 2'000 * kWorkPerNode;

// An item with a pause between its parts can take support that the search does not see.
bool has_gap(const PackingProblem& problem, size_t item) {
  const auto parts = problem.parts(item);
  for (size_t p = 1; p < parts.size(); ++p) {
    if (parts[p].first != parts[p - 1].last + 1) return true;
  }
  return false;
}

// By item: long or large ones first, since they are the hardest to place later.
std::vector<double> preferences(const PackingProblem& problem, int64_t height, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> preference(problem.item_count());
  for (size_t i = 0; i < preference.size(); ++i) {
    const double area = problem.area(i);
    const double length = problem.last_tick(i) - problem.first_tick(i) + 1;
    preference[i] = seed % 2 == 0 ? length + kTieBreak * area / static_cast<double>(height) : area;
    if (seed <= 1) continue;
    preference[i] *= kLeastNoise + kNoiseRange * static_cast<double>(random() >> 11) * 0x1.0p-53;
  }
  return preference;
}

class Search {
 public:
  Search(const PackingProblem& problem, int64_t height, Effort& effort, uint64_t seed)
      : problem_(problem),
        effort_(effort),
        height_(height),
        filling_(problem, height),
        preference_(preferences(problem, height, seed)) {
    for (size_t i = 0; i < problem.item_count(); ++i) complete_ = complete_ && !has_gap(problem, i);
  }

  FitResult run() {
    FitResult result;
    if (solve_apart(0, problem_.tick_count(), 0)) {
      result.offset = filling_.offsets();
    } else {
      result.lower_bound = complete_ ? filling_.least_height_needed() : height_;
    }
    return result;
  }

 private:
  using Choice = Filling::Choice;
  using Outlook = Filling::Outlook;

  // The items that can be placed on the level of the tick, best first; of equal items only the first.
  std::vector<int32_t> candidates(int32_t tick) const {
    std::vector<int32_t> found = filling_.candidates(tick);
    std::ranges::sort(found, [&](int32_t a, int32_t b) {
      const double of_a = preference_[static_cast<size_t>(a)],
                   of_b = preference_[static_cast<size_t>(b)];
      return of_a != of_b ? of_a > of_b : a < b;
    });
    std::vector<int32_t> distinct;
    for (const int32_t item : found) {
      const auto parts = problem_.parts(static_cast<size_t>(item));
      const bool twin = std::ranges::any_of(distinct, [&](int32_t other) {
        return std::ranges::equal(parts, problem_.parts(static_cast<size_t>(other)));
      });
      if (!twin) distinct.push_back(item);
    }
    return distinct;
  }

  bool stop(int depth) {
    effort_.spend(kWorkPerNode * (1 + filling_.take_looks(kLooksPerNode)));
    if (!effort_.exhausted() && depth < kMaxDepth) return false;
    complete_ = false;
    return true;
  }

  // Places everything that is left between the ticks begin and end-1, or fails and leaves the trail
  // to the caller.
  bool solve(int32_t begin, int32_t end, int depth) {
    for (;;) {
      if (stop(depth)) return false;
      const Outlook outlook = filling_.look(begin, end);
      if (outlook != Outlook::open) return outlook == Outlook::done;
      const Choice choice = filling_.choose(begin, end);
      const std::vector<int32_t> options = candidates(choice.tick);
      if (!choice.may_skip) filling_.note_forced(choice.tick);
      if (options.empty()) {
        if (!choice.may_skip || !filling_.skip(choice.tick)) return false;
      } else if (options.size() == 1 && !choice.may_skip) {
        filling_.put(options.front());
      } else {
        return branch(begin, end, choice, options, depth);
      }
    }
  }

  bool branch(int32_t begin, int32_t end, const Choice& choice, const std::vector<int32_t>& options,
              int depth) {
    const size_t mark = filling_.mark();
    for (const int32_t item : options) {
      filling_.put(item);
      if (solve_apart(begin, end, depth)) return true;
      filling_.undo(mark);
      if (effort_.exhausted()) return false;
    }
    if (!choice.may_skip) return false;
    filling_.look(begin, end);  // the subtrees above have overwritten the levels
    if (filling_.skip(choice.tick) && solve(begin, end, depth + 1)) return true;
    filling_.undo(mark);
    return false;
  }

  bool solve_apart(int32_t begin, int32_t end, int depth) {
    for (int32_t from = begin; from < end;) {
      int32_t to = from + 1;
      while (to < end && filling_.crossed_after(to - 1)) ++to;
      if (!solve(from, to, depth + 1)) return false;
      from = to;
    }
    return true;
  }

  const PackingProblem& problem_;
  Effort& effort_;
  int64_t height_;
  bool complete_ = true;
  Filling filling_;
  std::vector<double> preference_;
};

}  // namespace

FitResult fit_exactly(const PackingProblem& problem, int64_t height, Effort& effort,
                      uint64_t seed) {
  return Search(problem, height, effort, seed).run();
}

FitResult fit_with_restarts(const PackingProblem& problem, int64_t height, Effort& effort) {
  int64_t limit = kFirstTry;
  for (uint64_t seed = 0; !effort.exhausted(); ++seed, limit = limit * 3 / 2) {
    Effort once = effort.part(limit);
    FitResult fit = fit_exactly(problem, height, once, seed);
    // Work left over: the search has seen everything it can see, with any preference.
    if (fit.offset || !once.exhausted()) return fit;
  }
  return {};
}

}  // namespace remat::detail
