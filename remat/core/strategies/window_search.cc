// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/window_search.h"

#include <algorithm>
#include <set>
#include <span>

#include "remat/core/analysis/operands.h"
#include "remat/core/exact/bound.h"
#include "remat/core/exact/linear_model.h"
#include "remat/core/exact/window_model.h"
#include "remat/core/order/cost.h"
#include "remat/core/order/reruns.h"

namespace remat {
namespace {

// A model with few cuts is solved at once; more come where its proposal overflows, a few at a time, so that each
// proposal shows where the next are needed.
constexpr size_t kFirstCuts = 4;
constexpr size_t kCutsPerRound = 6;
// How often the budget of proposals is lowered, each time by this part of what is too much: a whole overflow less is
// mostly more than needed.
constexpr int kMostSqueezes = 12;
constexpr int64_t kSqueezedPart = 2;

class WindowSearch {
 public:
  WindowSearch(const Graph& graph, std::span<const OpId> first_runs, int64_t budget_bytes,
               Effort& effort, int64_t known_time_ns)
      : graph_(graph),
        first_runs_(first_runs),
        budget_bytes_(budget_bytes),
        effort_(effort),
        known_time_ns_(known_time_ns),
        cost_(graph),
        once_ns_(graph.total_time_ns()) {
    position_.resize(graph.ops.size());
    for (size_t i = 0; i < first_runs.size(); ++i) position_[index(first_runs[i])] = i;
    result_.least_time_ns = once_ns_;
  }

  WindowSearchResult search() {
    if (consider({first_runs_.begin(), first_runs_.end()})) return std::move(result_);
    choose_first_cuts();
    int64_t squeezed_bytes = 0;
    for (int squeezes = 0; squeezes < kMostSqueezes && !effort_.exhausted();) {
      const std::vector<OpId> proposal = propose(budget_bytes_ - squeezed_bytes);
      if (proposal.empty() || done()) break;
      if (!consider(proposal) && cost_.evaluate(proposal, budget_bytes_).legal) {
        result_.proposal = proposal;
      }
      if (done()) break;
      if (squeezed_bytes == 0 && add_cuts(proposal)) continue;
      // There is nothing left to cut at. If the proposal fits, it is the best that this relaxation gives.
      const int64_t overflow = cost_.evaluate(proposal, budget_bytes_).peak_bytes - budget_bytes_;
      if (overflow <= 0) break;
      squeezed_bytes += (overflow + kSqueezedPart - 1) / kSqueezedPart;
      ++squeezes;
    }
    return std::move(result_);
  }

 private:
  bool done() const {
    return result_.infeasible || attains(known_time_ns_, result_.least_time_ns) ||
           (!result_.order.empty() && attains(result_.time_ns, result_.least_time_ns));
  }

  // A bound on what re-runs take that leaves nothing to gain.
  int64_t enough_ns() const {
    const int64_t best =
        result_.order.empty() ? known_time_ns_ : std::min(known_time_ns_, result_.time_ns);
    return settling_bound_ns(best) - once_ns_;
  }

  // Takes the order, less what it does not need, if it fits and is the fastest so far.
  bool consider(std::vector<OpId> order) {
    OrderCost::Result found = cost_.evaluate(order, budget_bytes_);
    if (!found.legal) return false;
    trim(order);
    found = cost_.evaluate(order, budget_bytes_);
    if (found.peak_bytes > budget_bytes_) return false;
    if (!result_.order.empty() && found.time_ns >= result_.time_ns) return false;
    result_.time_ns = found.time_ns;
    result_.order = std::move(order);
    return true;
  }

  // Takes out re-runs without which the order is legal and no higher, from the end.
  void trim(std::vector<OpId>& order) {
    std::vector<size_t> reruns = reruns_of(graph_, order);
    std::reverse(reruns.begin(), reruns.end());
    const int64_t limit = std::max(budget_bytes_, cost_.evaluate(order, budget_bytes_).peak_bytes);
    erase_needless(graph_, order, reruns, effort_, [&](const std::vector<OpId>& without) {
      const OrderCost::Result found = cost_.evaluate(without, budget_bytes_);
      return found.legal && found.peak_bytes <= limit;
    });
  }

  void choose_first_cuts() {
    cost_.evaluate(first_runs_, budget_bytes_);
    std::vector<size_t> over;  // positions
    std::vector<int64_t> excess_bytes;
    for (size_t i = 0; i < first_runs_.size(); ++i) {
      const int64_t excess = cost_.resident_bytes()[i] - budget_bytes_;
      if (excess <= 0) continue;
      over.push_back(i);
      excess_bytes.push_back(excess);
    }
    for (const size_t at : largest_in_stretches(excess_bytes, kFirstCuts)) cuts_.insert(over[at]);
  }

  // Where the order overflows the most. False if all that can be asked for has been.
  bool add_cuts(const std::vector<OpId>& order) {
    if (!cost_.evaluate(order, budget_bytes_).legal) return false;
    const std::span<const int64_t> resident = cost_.resident_bytes();
    struct Overflow {
      int64_t bytes;
      WindowModel::Watched at;  // an op, and the next one that runs for the first time
      bool operator<(const Overflow& other) const {
        return bytes != other.bytes ? bytes > other.bytes : at < other.at;
      }
    };
    std::vector<Overflow> overflows;
    std::vector<bool> seen(graph_.ops.size(), false);
    size_t begin = 0;  // of the block at work
    for (size_t i = 0; i < order.size(); ++i) {
      if (seen[index(order[i])]) continue;
      seen[index(order[i])] = true;
      for (; begin <= i; ++begin) {
        const int64_t over = resident[begin] - budget_bytes_;
        if (over > 0) overflows.push_back({over, {order[begin], order[i]}});
      }
    }
    std::sort(overflows.begin(), overflows.end());
    size_t added = 0;
    for (const Overflow& overflow : overflows) {
      if (added == kCutsPerRound) break;
      added += ask_for(overflow.at);
    }
    return added > 0;
  }

  // One more thing about this place, if there is one: a cut, a window of its own, a watched re-run.
  bool ask_for(const WindowModel::Watched& place) {
    const size_t position = position_[index(place.until)];
    if (cuts_.insert(position).second) return true;
    if (place.op == place.until) return false;
    if (position > 0 && cuts_.insert(position - 1).second) return true;
    return watched_.insert(place).second;
  }

  // Empty if the relaxation proposes nothing.
  std::vector<OpId> propose(int64_t budget_bytes) {
    std::vector<OpId> cuts;
    for (const size_t position : cuts_) cuts.push_back(first_runs_[position]);
    const std::vector<WindowModel::Watched> watched(watched_.begin(), watched_.end());
    const WindowModel model(graph_, first_runs_, cuts, budget_bytes, watched);
    const WindowModel::Answer answer = model.solve(effort_, enough_ns());
    if (budget_bytes == budget_bytes_) {
      result_.infeasible = answer.infeasible;
      result_.least_time_ns = std::max(result_.least_time_ns, once_ns_ + answer.least_extra_ns);
    }
    if (answer.reruns.empty()) return {};
    std::vector<OpId> order;
    size_t begin = 0;
    for (size_t w = 0; w < answer.reruns.size(); ++w) {
      const size_t end = w < cuts.size() ? position_[index(cuts[w])] + 1 : graph_.ops.size();
      append_window(begin, end, answer.reruns[w], order);
      begin = end;
    }
    return order;
  }

  // The first runs from `begin` to `end`, each after the re-runs that it is the first
  // to need, directly or for another of them. What only a later window needs comes before the last
  // op, the cut; what the step's end needs comes at the end.
  void append_window(size_t begin, size_t end, const std::vector<OpId>& reruns,
                     std::vector<OpId>& order) {
    const bool last_window = end == graph_.ops.size();
    const size_t at_the_latest = last_window ? end : end - 1;
    needed_by_.assign(graph_.ops.size(), at_the_latest);
    for (size_t i = begin; i < end; ++i) note_inputs(first_runs_[i], i);
    for (size_t k = reruns.size(); k-- > 0;) note_inputs(reruns[k], needed_by_[index(reruns[k])]);
    for (size_t i = begin; i < end || (i == end && last_window); ++i) {
      for (const OpId op : reruns) {
        if (needed_by_[index(op)] == i) order.push_back(op);
      }
      if (i < end) order.push_back(first_runs_[i]);
    }
  }

  void note_inputs(OpId op, size_t needed_by) {
    for (const Value& value : internal_inputs(graph_, graph_.op(op))) {
      size_t& earliest = needed_by_[index(maker(graph_, value))];
      earliest = std::min(earliest, needed_by);
    }
  }

  const Graph& graph_;
  std::span<const OpId> first_runs_;
  std::vector<size_t> position_;  // by op, in first_runs_
  int64_t budget_bytes_;
  Effort& effort_;
  int64_t known_time_ns_;
  OrderCost cost_;
  int64_t once_ns_;
  std::set<size_t> cuts_;  // positions
  std::set<WindowModel::Watched> watched_;
  std::vector<size_t> needed_by_;  // by op: position; of the window at work
  WindowSearchResult result_;
};

}  // namespace

WindowSearchResult search_windows(const Graph& graph, std::span<const OpId> first_runs,
                                  int64_t budget_bytes, Effort& effort, int64_t known_time_ns) {
  if (!has_solver()) {
    WindowSearchResult nothing;
    nothing.least_time_ns = graph.total_time_ns();
    return nothing;
  }
  return WindowSearch(graph, first_runs, budget_bytes, effort, known_time_ns).search();
}

}  // namespace remat
