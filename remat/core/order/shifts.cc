// SPDX-License-Identifier: Apache-2.0
#include "remat/core/order/shifts.h"

#include <algorithm>

#include "remat/core/analysis/touch_order.h"
#include "remat/core/reuse.h"

namespace remat {
namespace {

constexpr int32_t kNone = -1;

}  // namespace

OrderShifts::OrderShifts(const Graph& graph, const OrderCost& cost, const Passing& passing,
                       std::span<const OpId> order, int64_t budget_bytes)
    : budget_bytes_(budget_bytes), external_bytes_(graph.external_bytes()) {
  op_.assign(order.begin(), order.end());
  order_.resize(op_.size());
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<Run>(i);
  position_ = order_;
  find_copies(cost);
  find_limits(passing);
  find_bytes(graph);
}

std::vector<OpId> OrderShifts::order() const {
  std::vector<OpId> ops;
  for (const Run run : order_) ops.push_back(op_[static_cast<size_t>(run)]);
  return ops;
}

// A run takes a value from the copy in which it was made last, and an update turns it into the next
// version in the same copy.
void OrderShifts::find_copies(const OrderCost& cost) {
  std::vector<std::vector<Copy>> holding(
      cost.value_count());  // by value, the one made last at the end
  std::vector<std::vector<Run>> touchers;
  std::vector<Copy> touched;
  const auto top = [&](OrderCost::ValueIndex value) {
    const auto& copies = holding[static_cast<size_t>(value)];
    return copies.empty() ? kNone : copies.back();  // none: an external
  };
  sharing_start_.push_back(0);
  for (size_t i = 0; i < op_.size(); ++i) {
    const Run run = static_cast<Run>(i);
    touched.clear();
    const auto touch = [&](Copy copy) {
      if (copy == kNone || std::ranges::find(touched, copy) != touched.end()) return;
      touched.push_back(copy);
      touchers[static_cast<size_t>(copy)].push_back(run);
    };
    for (const auto value : cost.reads(op_[i])) touch(top(value));
    for (const OrderCost::ReusePair& pair : cost.reuse(op_[i])) {
      sharing_.push_back({pair.result, top(pair.source), pair.shared_bytes});
    }
    sharing_start_.push_back(static_cast<int32_t>(sharing_.size()));
    for (const OrderCost::Update& update : cost.updates(op_[i])) {
      const Copy copy = top(update.before);
      if (copy == kNone) continue;
      touch(copy);
      holding[static_cast<size_t>(update.before)].pop_back();
      holding[static_cast<size_t>(update.after)].push_back(copy);
    }
    touched_.add(touched);
    for (const auto value : cost.creates(op_[i])) {
      holding[static_cast<size_t>(value)].push_back(static_cast<Copy>(touchers.size()));
      touchers.push_back({run});
      bytes_.push_back(cost.bytes(value));
    }
  }
  output_.resize(touchers.size(), 0);
  for (const auto value : cost.outputs()) {
    if (top(value) != kNone) output_[static_cast<size_t>(top(value))] = 1;
  }
  for (const std::vector<Run>& runs : touchers) {
    touchers_.add(runs);
    last_.push_back(runs.back());
  }
}

void OrderShifts::find_limits(const Passing& passing) {
  std::vector<std::vector<Run>> before(op_.size()), after(op_.size());
  TouchOrder<Run> touches(passing.thing_count());
  for (size_t i = 0; i < op_.size(); ++i) {
    const Run run = static_cast<Run>(i);
    for (const Passing::Touch& touch : passing.touches(op_[i])) {
      touches.touch(static_cast<size_t>(touch.thing), run, touch.changes, [&](Run earlier) {
        after[static_cast<size_t>(earlier)].push_back(run);
        before[i].push_back(earlier);
      });
    }
  }
  for (size_t i = 0; i < op_.size(); ++i) {
    before_.add(before[i]);
    after_.add(after[i]);
  }
}

void OrderShifts::find_bytes(const Graph& graph) {
  grows_.resize(op_.size(), 0);
  frees_.resize(op_.size(), 0);
  besides_.resize(op_.size(), 0);
  for (size_t c = 0; c < bytes_.size(); ++c) {
    grows_[static_cast<size_t>(touchers_[static_cast<Copy>(c)].front())] += bytes_[c];
    if (output_[c] == 0) frees_[static_cast<size_t>(last_[c])] += bytes_[c];
  }
  int64_t left = external_bytes_;
  for (size_t i = 0; i < op_.size(); ++i) {
    besides_[i] = graph.op(op_[i]).workspace_bytes - shared_bytes(static_cast<Run>(i));
    resident_.push_back(left + grows_[i] + besides_[i]);
    left += grows_[i] - frees_[i];
    left_.push_back(left);
    overflow_ += static_cast<double>(std::max<int64_t>(0, resident_[i] - budget_bytes_));
  }
}

int64_t OrderShifts::shared_bytes(Run run) {
  const auto begin = static_cast<size_t>(sharing_start_[static_cast<size_t>(run)]);
  const auto end = static_cast<size_t>(sharing_start_[static_cast<size_t>(run) + 1]);
  const auto ends_here = [&](const Sharing& pair) {
    const auto source = static_cast<size_t>(pair.source);
    return output_[source] == 0 && last_[source] == run;
  };
  take_places(std::span<const Sharing>(sharing_).subspan(begin, end - begin), ends_here, taken_);
  int64_t bytes = 0;
  for (const Sharing& pair : taken_) bytes += pair.bytes;
  return bytes;
}

size_t OrderShifts::reach(size_t from, bool later) const {
  const Run run = order_[from];
  if (later) {
    size_t limit = order_.size();
    for (const Run other : after_[run]) limit = std::min(limit, position(other));
    return limit - from - 1;
  }
  size_t limit = 0;
  for (const Run other : before_[run]) limit = std::max(limit, position(other) + 1);
  return from - limit;
}

void OrderShifts::set_last(Copy copy, Run run) {
  const auto at = static_cast<size_t>(copy);
  const Run old = last_[at];
  const auto shared = [&](Run of) { besides_[static_cast<size_t>(of)] += shared_bytes(of); };
  shared(old);
  shared(run);
  frees_[static_cast<size_t>(old)] -= bytes_[at];
  frees_[static_cast<size_t>(run)] += bytes_[at];
  last_[at] = run;
  besides_[static_cast<size_t>(old)] -= shared_bytes(old);
  besides_[static_cast<size_t>(run)] -= shared_bytes(run);
}

// Of what the run touches, the last toucher may be another one once it is shifted.
void OrderShifts::find_changes(Run run, size_t from, size_t to) {
  changes_.clear();
  for (const Copy copy : touched_[run]) {
    const auto at = static_cast<size_t>(copy);
    if (output_[at] != 0) continue;
    const Run old = last_[at];
    Run last = old;
    if (to > from) {
      if (old != run && position(old) <= to) last = run;
    } else if (old == run) {
      Run other = kNone;
      for (const Run toucher : touchers_[copy]) {
        if (toucher != run && (other == kNone || position(toucher) > position(other)))
          other = toucher;
      }
      if (position(other) >= to) last = other;
    }
    if (last == old) continue;
    changes_.push_back({copy, old});
    set_last(copy, last);
  }
}

bool OrderShifts::try_shift(size_t from, size_t to, double tolerance, int64_t most_bytes) {
  const Run run = order_[from];
  find_changes(run, from, to);
  const size_t low = std::min(from, to);
  const size_t high = std::max(from, to);
  int64_t left = low == 0 ? external_bytes_ : left_[low - 1];
  int64_t most = 0;
  double change = 0;
  trial_.clear();
  const auto pass = [&](Run passed) {
    const auto at = static_cast<size_t>(passed);
    const int64_t resident = left + grows_[at] + besides_[at];
    left += grows_[at] - frees_[at];
    trial_.emplace_back(resident, left);
    most = std::max(most, resident);
    change += static_cast<double>(std::max<int64_t>(0, resident - budget_bytes_));
  };
  if (to < from) pass(run);
  for (size_t i = low; i <= high; ++i) {
    change -= static_cast<double>(std::max<int64_t>(0, resident_[i] - budget_bytes_));
    if (i != from) pass(order_[i]);
  }
  if (to > from) pass(run);
  if (change > tolerance || most > most_bytes) {
    for (auto undo = changes_.rbegin(); undo != changes_.rend(); ++undo) {
      set_last(undo->copy, undo->old_last);
    }
    return false;
  }
  const auto at = [&](size_t i) { return order_.begin() + static_cast<std::ptrdiff_t>(i); };
  if (to > from) {
    std::rotate(at(from), at(from) + 1, at(to) + 1);
  } else {
    std::rotate(at(to), at(from), at(from) + 1);
  }
  for (size_t i = low; i <= high; ++i) {
    position_[static_cast<size_t>(order_[i])] = static_cast<int32_t>(i);
    resident_[i] = trial_[i - low].first;
    left_[i] = trial_[i - low].second;
  }
  overflow_ += change;
  return true;
}

}  // namespace remat
