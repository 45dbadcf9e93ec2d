// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/glue.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

namespace remat::detail {
namespace {

// More pieces than this on one side have too many subsets, and too many chance matches.
constexpr size_t kMaxPieces = 10;
constexpr int kNoGroup = 2 * static_cast<int>(kMaxPieces) + 1;

struct Subsets {
  uint32_t before;
  uint32_t after;
  int count() const { return std::popcount(before) + std::popcount(after); }
};

// The smallest non-empty choices of both sides whose sizes have the same sum.
std::optional<Subsets> smallest_match(const std::vector<int64_t>& before,
                                      const std::vector<int64_t>& after) {
  const auto sum = [](const std::vector<int64_t>& sizes, uint32_t subset) {
    int64_t total = 0;
    for (size_t i = 0; i < sizes.size(); ++i) total += (subset >> i & 1) != 0 ? sizes[i] : 0;
    return total;
  };
  std::unordered_map<int64_t, uint32_t> subset_with;  // by sum: the smallest of `before`
  for (uint32_t subset = 1; subset < uint32_t{1} << before.size(); ++subset) {
    const auto [entry, fresh] = subset_with.try_emplace(sum(before, subset), subset);
    if (!fresh && std::popcount(subset) < std::popcount(entry->second)) entry->second = subset;
  }
  std::optional<Subsets> best;
  for (uint32_t subset = 1; subset < uint32_t{1} << after.size(); ++subset) {
    const auto entry = subset_with.find(sum(after, subset));
    if (entry == subset_with.end()) continue;
    const Subsets match{entry->second, subset};
    if (!best || match.count() < best->count()) best = match;
  }
  return best;
}

std::vector<int32_t> take_subset(std::vector<int32_t>& pieces, uint32_t subset) {
  std::vector<int32_t> taken, rest;
  for (size_t i = 0; i < pieces.size(); ++i) {
    ((subset >> i & 1) != 0 ? taken : rest).push_back(pieces[i]);
  }
  pieces = std::move(rest);
  return taken;
}

}  // namespace

GluedProblem::GluedProblem(const PackingProblem& problem, int64_t height, Glue how) {
  pieces_.resize(problem.item_count());
  starting_at_.resize(static_cast<size_t>(problem.tick_count()));
  ending_at_.resize(static_cast<size_t>(problem.tick_count()));
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (problem.parts(i).size() > 1) continue;
    const Part& part = problem.parts(i).front();
    pieces_[i].first = part.first;
    pieces_[i].last = part.last;
    pieces_[i].size = part.size;
    starting_at_[static_cast<size_t>(part.first)].push_back(static_cast<int32_t>(i));
    ending_at_[static_cast<size_t>(part.last)].push_back(static_cast<int32_t>(i));
  }
  const std::vector<int64_t> load = problem.load();
  smallest_group_.resize(load.size(), 0);
  glue_all(load, height, how == Glue::twins);
  for (size_t p = 0; p < pieces_.size(); ++p) {
    if (pieces_[p].glued) continue;
    piece_of_item_.push_back(static_cast<int32_t>(p));
    if (p < problem.item_count()) {
      problem_.add(problem.parts(p));
    } else {
      problem_.add({pieces_[p].first, pieces_[p].last, pieces_[p].size});
    }
  }
}

// Small groups first, everywhere: the fewer pieces a match has, the less likely it is chance.
void GluedProblem::glue_all(const std::vector<int64_t>& load, int64_t height, bool stack_twins) {
  for (int largest_group = 2; largest_group < kNoGroup; ++largest_group) {
    changed_ = false;
    for (size_t t = 0; t + 1 < load.size(); ++t) {
      if (load[t] != height || load[t + 1] != height) continue;
      if (smallest_group_[t] <= largest_group) glue_at(static_cast<int32_t>(t), largest_group);
    }
    if (!changed_ && largest_group == 2 && stack_twins) stack_all_twins();
    if (changed_) largest_group = 1;
  }
}

void GluedProblem::stack_all_twins() {
  for (std::vector<int32_t>& pieces : starting_at_) {
    forget_glued(pieces);
    std::map<int32_t, std::vector<int32_t>> by_last;
    for (const int32_t piece : pieces)
      by_last[pieces_[static_cast<size_t>(piece)].last].push_back(piece);
    for (const auto& [last, twins] : by_last) stack(twins);
  }
}

void GluedProblem::forget_glued(std::vector<int32_t>& pieces) const {
  std::erase_if(pieces, [&](int32_t piece) { return pieces_[static_cast<size_t>(piece)].glued; });
}

void GluedProblem::glue_at(int32_t tick, int largest_group) {
  forget_glued(ending_at_[static_cast<size_t>(tick)]);
  forget_glued(starting_at_[static_cast<size_t>(tick) + 1]);
  std::vector<int32_t> before = ending_at_[static_cast<size_t>(tick)];
  std::vector<int32_t> after = starting_at_[static_cast<size_t>(tick) + 1];
  smallest_group_[static_cast<size_t>(tick)] = kNoGroup;
  while (!before.empty() && !after.empty()) {
    if (before.size() > kMaxPieces || after.size() > kMaxPieces) return;
    const auto sizes = [&](const std::vector<int32_t>& pieces) {
      std::vector<int64_t> result;
      for (const int32_t piece : pieces) result.push_back(pieces_[static_cast<size_t>(piece)].size);
      return result;
    };
    const std::optional<Subsets> match = smallest_match(sizes(before), sizes(after));
    if (!match) return;
    if (match->count() > largest_group) {
      int& smallest = smallest_group_[static_cast<size_t>(tick)];
      smallest = std::min(smallest, match->count());
      return;
    }
    std::vector<int32_t> group = take_subset(before, match->before);
    glue_group(std::move(group), take_subset(after, match->after));
  }
}

void GluedProblem::glue_group(std::vector<int32_t> before, std::vector<int32_t> after) {
  const auto alike = [&](const std::vector<int32_t>& pieces, int32_t Piece::*tick) {
    const auto differs = [&](int32_t piece) {
      return pieces_[static_cast<size_t>(piece)].*tick !=
             pieces_[static_cast<size_t>(pieces.front())].*tick;
    };
    return std::ranges::none_of(pieces, differs);
  };
  if (alike(before, &Piece::first)) before = {stack(before)};
  if (alike(after, &Piece::last)) after = {stack(after)};
  if (before.size() == 1 && after.size() == 1) glue(before.front(), after.front(), false);
}

int32_t GluedProblem::stack(const std::vector<int32_t>& pieces) {
  int32_t result = pieces.front();
  for (size_t i = 1; i < pieces.size(); ++i) result = glue(result, pieces[i], true);
  return result;
}

int32_t GluedProblem::glue(int32_t lower, int32_t other, bool stacked) {
  Piece& below = pieces_[static_cast<size_t>(lower)];
  Piece& above = pieces_[static_cast<size_t>(other)];
  below.glued = above.glued = true;
  const Piece whole{.first = below.first,
                    .last = above.last,
                    .size = below.size + (stacked ? above.size : 0),
                    .lower = lower,
                    .other = other,
                    .stacked = stacked};
  const int32_t result = static_cast<int32_t>(pieces_.size());
  starting_at_[static_cast<size_t>(whole.first)].push_back(result);
  ending_at_[static_cast<size_t>(whole.last)].push_back(result);
  pieces_.push_back(whole);
  if (whole.first > 0) smallest_group_[static_cast<size_t>(whole.first) - 1] = 0;
  smallest_group_[static_cast<size_t>(whole.last)] = 0;
  changed_ = true;
  return result;
}

Offsets GluedProblem::original_offset(const Offsets& glued_offset) const {
  Offsets offset(pieces_.size(), 0);
  for (size_t i = 0; i < glued_offset.size(); ++i) {
    offset[static_cast<size_t>(piece_of_item_[i])] = glued_offset[i];
  }
  // A piece comes after those it was glued of.
  size_t originals = pieces_.size();
  for (size_t p = pieces_.size(); p-- > 0;) {
    const Piece& piece = pieces_[p];
    if (piece.lower < 0) continue;
    originals = p;
    const Piece& below = pieces_[static_cast<size_t>(piece.lower)];
    offset[static_cast<size_t>(piece.lower)] = offset[p];
    offset[static_cast<size_t>(piece.other)] = offset[p] + (piece.stacked ? below.size : 0);
  }
  offset.resize(originals);
  return offset;
}

}  // namespace remat::detail
