// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/chain/savings.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace remat::detail {
namespace {

// More points than this on the way would only make it slow: neighbours differ by little.
constexpr size_t kMostPoints = 48;

// From block s on: what to do with s and where to go on.
struct Point {
  int64_t bytes = 0;
  int64_t undo_ns = 0;
  size_t next = 0;  // the block after the one that is saved or the stretch that is passed
  std::optional<size_t> saving = {};  // of block s; none: a stretch is passed
  size_t next_point = 0;              // of block `next`
};

class SavingFinder {
 public:
  explicit SavingFinder(const Chain& finer) : finer_(finer), points_(finer.blocks.size() + 1) {
    points_.back() = {Point{}};
    for (size_t s = finer.blocks.size(); s-- > 0;) find_points(s);
  }

  std::vector<ChainBlock::Saving> savings(size_t most) const {
    const int64_t whole_tape_bytes = points_[0].empty() ? 0 : points_[0].front().bytes;
    std::vector<size_t> chosen;
    for (size_t i = 0; i < points_[0].size(); ++i) {
      if (points_[0][i].bytes < whole_tape_bytes) chosen.push_back(i);
    }
    spread(chosen, most);
    std::vector<ChainBlock::Saving> savings;
    for (const size_t i : chosen) savings.push_back(saving(i));
    return savings;
  }

 private:
  // At most `most` of them, the first and the last included, evenly spread.
  template <typename T>
  static void spread(std::vector<T>& all, size_t most) {
    if (all.size() <= most) return;
    std::vector<T> some;
    for (size_t i = 0; i < most; ++i) some.push_back(all[i * (all.size() - 1) / (most - 1)]);
    all = std::move(some);
  }

  // Bytes of the bundles at each cut that are not in the bundle at the entry of s.
  std::vector<int64_t> bundles_beyond(size_t s) const {
    std::vector<int64_t> bytes(finer_.blocks.size() + 1, 0);
    for (const BundleSpan& span : finer_.spans) {
      if (static_cast<size_t>(span.first) <= s) continue;
      for (int32_t cut = span.first; cut <= span.last; ++cut) {
        bytes[static_cast<size_t>(cut)] += span.bytes;
      }
    }
    return bytes;
  }

  void find_points(size_t s) {
    std::vector<Point> found;
    const auto go_on = [&](size_t next, int64_t bytes, int64_t undo_ns,
                           std::optional<size_t> saving) {
      for (size_t i = 0; i < points_[next].size(); ++i) {
        const Point& rest = points_[next][i];
        found.push_back({bytes + rest.bytes, undo_ns + rest.undo_ns, next, saving, i});
      }
    };
    for (size_t i = 0; i < finer_.blocks[s].savings.size(); ++i) {
      const ChainBlock::Saving& saving = finer_.blocks[s].savings[i];
      go_on(s + 1, saving.bytes, saving.undo_ns, i);
    }
    const std::vector<int64_t> bundles = bundles_beyond(s);
    int64_t run_ns = 0;  // of the stretch without its last block
    for (size_t next = s + 1; next <= finer_.blocks.size(); ++next) {
      const ChainBlock& last = finer_.blocks[next - 1];
      go_on(next, bundles[next], run_ns + last.held_tape.time_ns, std::nullopt);
      run_ns += last.savings.front().again.time_ns;
    }
    points_[s] = unbeaten(std::move(found));
  }

  static std::vector<Point> unbeaten(std::vector<Point> points) {
    std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
      return a.undo_ns != b.undo_ns ? a.undo_ns < b.undo_ns : a.bytes < b.bytes;
    });
    std::vector<Point> unbeaten;
    for (const Point& point : points) {
      if (unbeaten.empty() || point.bytes < unbeaten.back().bytes) unbeaten.push_back(point);
    }
    spread(unbeaten, kMostPoints);
    return unbeaten;
  }

  ChainBlock::Saving saving(size_t point) const {
    ChainBlock::Saving saving;
    saving.bytes = points_[0][point].bytes;
    saving.undo_ns = points_[0][point].undo_ns;
    const auto append = [](std::vector<OpId>& to, const std::vector<OpId>& ops) {
      to.insert(to.end(), ops.begin(), ops.end());
    };
    const auto run = [&](const ChainBlock::Rerun& rerun) {
      append(saving.again.ops, rerun.ops);
      saving.again.time_ns += rerun.time_ns;
    };
    std::vector<std::vector<OpId>> undone;  // by stretch, in order of forward
    for (size_t s = 0; s < finer_.blocks.size();) {
      const Point& at = points_[s][point];
      std::vector<OpId>& undo = undone.emplace_back();
      if (at.saving) {
        const ChainBlock::Saving& chosen = finer_.blocks[s].savings[*at.saving];
        run(chosen.again);
        append(undo, chosen.undo);
      } else {
        for (size_t b = s; b < at.next; ++b) {
          const ChainBlock& block = finer_.blocks[b];
          run(block.pass);
          append(undo, (b + 1 < at.next ? block.savings.front().again : block.held_tape).ops);
        }
        for (size_t b = at.next; b-- > s;) append(undo, finer_.blocks[b].savings.front().undo);
      }
      point = at.next_point;
      s = at.next;
    }
    for (size_t i = undone.size(); i-- > 0;) append(saving.undo, undone[i]);
    return saving;
  }

  const Chain& finer_;
  std::vector<std::vector<Point>>
      points_;  // by block, from the least undo time to the fewest bytes
};

}  // namespace

std::vector<ChainBlock::Saving> partial_savings(const Chain& finer, size_t most) {
  return SavingFinder(finer).savings(most);
}

}  // namespace remat::detail
