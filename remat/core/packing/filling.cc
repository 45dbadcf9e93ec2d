// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/filling.h"

#include <algorithm>
#include <utility>

namespace remat::detail {

namespace {

constexpr int32_t kNobody = -1;

}  // namespace

Filling::Filling(const PackingProblem& problem, int64_t height)
    : problem_(problem), height_(height) {
  const size_t items = problem.item_count();
  const size_t ticks = static_cast<size_t>(problem.tick_count());
  covers_.resize(ticks);
  crossing_.resize(ticks, 0);
  left_.resize(ticks, 0);
  top_item_.resize(ticks, kNobody);
  level_.resize(ticks, kNever);
  choices_.resize(ticks, 0);
  top_.resize(ticks, 0);
  base_.resize(items, 0);
  placed_.resize(items, false);
  for (size_t i = 0; i < items; ++i) {
    for (const Part& part : problem.parts(i)) {
      for (int32_t t = part.first; t <= part.last; ++t) {
        covers_[at(t)].push_back({static_cast<int32_t>(i), part.size});
      }
    }
    count_in(i, 1);
  }
  slack_ = problem.load();
  for (int64_t& slack : slack_) slack = height - slack;
}

void Filling::count_in(size_t item, int32_t sign) {
  for (int32_t t = problem_.first_tick(item); t < problem_.last_tick(item); ++t)
    crossing_[at(t)] += sign;
  for (const Part& part : problem_.parts(item)) {
    for (int32_t t = part.first; t <= part.last; ++t) left_[at(t)] += sign;
  }
}

bool Filling::same_lifetime(int32_t a, int32_t b) const {
  return problem_.parts(at(a)).size() == 1 && problem_.parts(at(b)).size() == 1 &&
         problem_.first_tick(at(a)) == problem_.first_tick(at(b)) &&
         problem_.last_tick(at(a)) == problem_.last_tick(at(b));
}

template <typename T>
void Filling::set(Undo::Kind kind, std::vector<T>& values, int32_t index, T value) {
  trail_.push_back({kind, index, static_cast<int64_t>(values[at(index)])});
  values[at(index)] = value;
}

void Filling::undo(size_t mark) {
  for (; trail_.size() > mark; trail_.pop_back()) {
    const Undo& entry = trail_.back();
    switch (entry.kind) {
      case Undo::top: top_[at(entry.index)] = entry.old; break;
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

void Filling::put(int32_t item) {
  const int64_t offset = base_[at(item)];
  trail_.push_back({Undo::placed, item, 0});
  placed_[at(item)] = true;
  count_in(at(item), -1);
  for (const Part& part : problem_.parts(at(item))) {
    const int64_t top = offset + part.size;
    for (int32_t t = part.first; t <= part.last; ++t) {
      if (top_[at(t)] < offset) {
        set(Undo::slack, slack_, t, slack_[at(t)] - (offset - top_[at(t)]));
      }
      set(Undo::top, top_, t, top);
      set(Undo::top_item, top_item_, t, item);
      for (const Cover& cover : covers_[at(t)]) {
        if (!placed_[at(cover.item)] && base_[at(cover.item)] < top) {
          set(Undo::base, base_, cover.item, top);
        }
      }
    }
    looks_ += part.last - part.first + 1;
  }
}

bool Filling::skip(int32_t tick) {
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

int64_t Filling::lowest_support(int32_t item, int64_t above) {
  int64_t lowest = kNever;
  for (const Part& part : problem_.parts(at(item))) {
    for (int32_t t = part.first; t <= part.last; ++t) {
      for (const Cover& cover : covers_[at(t)]) {
        if (placed_[at(cover.item)] || cover.item == item) continue;
        lowest = std::min(lowest, std::max(above + 1, base_[at(cover.item)] + cover.size));
      }
      looks_ += static_cast<int64_t>(covers_[at(t)].size());
    }
  }
  return lowest;
}

// Of equivalent packings only one is looked for: an item lies at 0 or on another, and of two stacked
// items with the same lifetime the lower number is below.
bool Filling::supported(int32_t item) const {
  const int64_t offset = base_[at(item)];
  if (offset == 0) return true;
  for (const Part& part : problem_.parts(at(item))) {
    for (int32_t t = part.first; t <= part.last; ++t) {
      if (top_[at(t)] != offset) continue;
      const int32_t below = top_item_[at(t)];
      return below == kNobody || below < item || !same_lifetime(below, item);
    }
  }
  return false;
}

Filling::Outlook Filling::look(int32_t begin, int32_t end) {
  bool any = false;
  for (int32_t t = begin; t < end; ++t) {
    level_[at(t)] = kNever;
    if (left_[at(t)] == 0) continue;
    any = true;
    if (!find_level(t)) return Outlook::dead;
  }
  return any ? Outlook::open : Outlook::done;
}

bool Filling::find_level(int32_t tick) {
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
  looks_ += static_cast<int64_t>(covers_[at(tick)].size());
  level_[at(tick)] = level;
  choices_[at(tick)] = count;
  if (lost(tick) <= slack_[at(tick)]) return true;
  dead_end(tick, lost(tick));
  return false;
}

Filling::Choice Filling::choose(int32_t begin, int32_t end) const {
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

void Filling::dead_end(int32_t tick, int64_t loss) {
  needed_ = std::min(needed_, height_ + loss - slack_[at(tick)]);
}

std::vector<int32_t> Filling::candidates(int32_t tick) const {
  std::vector<int32_t> found;
  for (const Cover& cover : covers_[at(tick)]) {
    if (placed_[at(cover.item)] || base_[at(cover.item)] != level_[at(tick)]) continue;
    if (supported(cover.item)) found.push_back(cover.item);
  }
  return found;
}

int64_t Filling::take_looks(int64_t unit) {
  const int64_t units = looks_ / unit;
  looks_ %= unit;
  return units;
}

}  // namespace remat::detail
