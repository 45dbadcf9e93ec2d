// SPDX-License-Identifier: Apache-2.0

// μ-TWO's choice of what to recompute. Purandare, Wasay, Jain, Idreos: μ-TWO: 3x Faster Multi-Model
// Training with Orchestration and Memory Optimization, MLSys 2023, appendix A, in the form without
// swapping: while the peak is above the budget, drop the candidate with the largest
//
//     recomp_ratio = memory_size / total_recomp_time,   total = recomp_time · (runs it will have)
//
// and then bring the statistics of the others up to date (Algorithms B, E, F).
//
//     recomp_srcs    where a recomputation starts: activations that are kept, and externals
//     recomp_time    of all ops between the sources and the value, its own included
//     runs           1 for itself + 1 for each dropped value that has it as a source
//
// Where we deviate from the printed algorithms, and why:
//  - Algorithm B line 17 prints the swap candidate in the recompute branch; the recompute candidate
//    is meant.
//  - A candidate is any activation idle across the turning point, also one without a forward user
//    (BatchNorm's saved mean): the paper's text would lose those. Outputs are no candidates, nor is
//    what two adjacent ops read across the turning point (the last of forward and the first of
//    backward): forgetting it between them could free nothing. Both are kept, and recomputations start
//    from them.
//  - A source that is kept stays until the last recomputation that reads it, also past its own last use:
//    it was priced as present.
//  - Sizes are those of storages, so views and in-place results own nothing; an in-place chain is
//    dropped and re-run with its creator; all results of an op are re-run by one run.
//  - E and F add up recomputation times, which counts ops twice where two replaced sources share
//    ancestors. We walk the graph again against what is kept now, which is exact.
//  - F's rule (a), "the dropped source's copy is alive at that moment, leave it", is applied to
//    already chosen recomputations (E) too: the re-run really finds that copy.
//  - Recomputations that are inserted before the same op share what they have in common: each op of
//    theirs runs once there. E and F price each by itself, so that a plan may be faster than priced.
//  - F's rule (c) forgets the candidate's own run (total = cnt · time). We use rule (b)'s
//    1 + number of dependents in both places.
//  - A recomputation that costs no time has an infinite ratio; ties go to more bytes, then to the
//    earlier storage. The printed argmax starts at 0 and would never pick it.
//  - The peak is that of the rewritten order (temporaries, workspaces and sources kept
//    longer included), not Algorithm G's estimate, which is optimistic. It is not monotone in the
//    picks: when no prefix of the picks fits, the one with the lowest peak is returned.
//  - With many candidates in a large graph the peak is looked at after ever longer stretches of picks, not after each
//    (the picks do not depend on it), and the stretch that ends below the budget is bisected.

#include <algorithm>
#include <limits>
#include <utility>

#include "remat/core/analysis/recompute.h"
#include "remat/core/error.h"
#include "remat/core/order/cost.h"
#include "remat/core/strategies/strategies.h"
#include "remat/core/units.h"

namespace remat {
namespace {

using detail::concat;

constexpr size_t kOneByOne = 300'000;  // candidates times ops, above which not each prefix is looked at
constexpr int32_t kNotCandidate = -1;
// Of effort.h, measured.
constexpr int64_t kWorkPerWalkedOp = 20;
constexpr int64_t kWorkPerRun = 30;  // to make an order and evaluate it

struct Statistics {
  int64_t recomp_time_ns = 0;
  std::vector<int32_t> sources;  // candidates, by number
  int64_t dependents = 0;        // dropped candidates that have this one as a source
  bool dropped = false;

  int64_t total_recomp_time_ns() const { return recomp_time_ns * (1 + dependents); }
};

class Selection {
 public:
  Selection(const Graph& graph, const Uses& uses, OpId turning_point,
            const std::vector<Candidate>& candidates, Effort& effort)
      : graph_(graph), candidates_(candidates), effort_(effort), stats_(candidates.size()) {
    users_.resize(candidates.size());
    candidate_of_.resize(graph.storages.size(), kNotCandidate);
    visited_to_.resize(graph.storages.size(), -1);
    in_walk_.resize(graph.ops.size(), false);
    activation_.resize(graph.storages.size(), false);
    for (size_t s = graph.external_count; s < graph.storages.size(); ++s) {
      const bool needed_later = !uses.of[s].empty() && uses.of[s].back() >= turning_point;
      activation_[s] = *graph.storages[s].creator < turning_point &&
                       (needed_later || graph.storages[s].output);
    }
    for (size_t c = 0; c < candidates.size(); ++c) {
      candidate_of_[index(candidates[c].storage)] = static_cast<int32_t>(c);
    }
    for (size_t c = 0; c < candidates.size(); ++c) renew(c);
  }

  // The candidate with the best ratio that is not dropped yet. Demands that there is one.
  size_t best() const {
    size_t best = candidates_.size();
    for (size_t c = 0; c < candidates_.size(); ++c) {
      if (!stats_[c].dropped && (best == candidates_.size() || better(c, best))) best = c;
    }
    effort_.spend(static_cast<int64_t>(candidates_.size()));
    return best;
  }

  void drop(size_t picked) {
    stats_[picked].dropped = true;
    for (const int32_t source : stats_[picked].sources) ++stats_[at(source)].dependents;
    // Those that started from it must now start further back.
    std::vector<int32_t> users = std::exchange(users_[picked], {});
    std::sort(users.begin(), users.end());
    users.erase(std::unique(users.begin(), users.end()), users.end());
    for (const int32_t user : users) renew(at(user));
  }

  const Statistics& operator[](size_t candidate) const { return stats_[candidate]; }

 private:
  static size_t at(int32_t candidate) { return static_cast<size_t>(candidate); }

  bool better(size_t a, size_t b) const {
    const int64_t bytes_a = graph_.storage(candidates_[a].storage).bytes;
    const int64_t bytes_b = graph_.storage(candidates_[b].storage).bytes;
    // bytes_a / time_a > bytes_b / time_b without dividing: a time of zero is an infinite ratio.
    const double left = static_cast<double>(bytes_a) *
                        static_cast<double>(stats_[b].total_recomp_time_ns());
    const double right = static_cast<double>(bytes_b) *
                         static_cast<double>(stats_[a].total_recomp_time_ns());
    return left != right ? left > right : bytes_a > bytes_b;
  }

  // Finds sources and time of a candidate anew; keeps the dependents of its sources right.
  void renew(size_t candidate) {
    Statistics& stats = stats_[candidate];
    if (stats.dropped) {
      for (const int32_t source : stats.sources) --stats_[at(source)].dependents;
    }
    stats.sources.clear();
    stats.recomp_time_ns = 0;
    walk(candidate);
    for (const int32_t source : stats.sources) {
      users_[at(source)].push_back(static_cast<int32_t>(candidate));
      if (stats.dropped) ++stats_[at(source)].dependents;
    }
  }

  // Whether a recomputation right before the target's first use finds the value there: an activation
  // that is kept, or one that was dropped, from its own first use in backward to its last.
  bool present(const Value& value, const Candidate& target) const {
    if (!activation_[index(value.storage)]) return false;
    const Storage& storage = graph_.storage(value.storage);
    if (storage.version_before(target.first_after) != value.version) return false;
    const int32_t source = candidate_of_[index(value.storage)];
    if (source == kNotCandidate || !stats_[at(source)].dropped) return true;
    const Candidate& dropped = candidates_[at(source)];
    return dropped.first_after <= target.first_after && target.first_after <= dropped.last_after;
  }

  void walk(size_t target) {
    const Candidate& candidate = candidates_[target];
    visit({candidate.storage, candidate.version});
    while (!ops_to_expand_.empty()) {
      const Op& op = graph_.op(ops_to_expand_.back());
      ops_to_expand_.pop_back();
      stats_[target].recomp_time_ns += op.time_ns;
      for (const Value& value : op.reads) visit_input(value, target);
      for (const Value& value : op.updates) visit(value);
    }
    effort_.spend(kWorkPerWalkedOp * static_cast<int64_t>(walked_.size()));
    for (const StorageId id : visited_) visited_to_[index(id)] = -1;
    for (const OpId id : walked_) in_walk_[index(id)] = false;
    visited_.clear();
    walked_.clear();
    std::vector<int32_t>& sources = stats_[target].sources;
    std::sort(sources.begin(), sources.end());
    sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  }

  void visit_input(const Value& value, size_t target) {
    if (!present(value, candidates_[target])) {
      visit(value);
    } else if (const int32_t source = candidate_of_[index(value.storage)]; source != kNotCandidate) {
      stats_[target].sources.push_back(source);
    }
  }

  // Adds the ops that make the value to the walk: the creator and the updates up to its version. What
  // cannot be made again is taken as it is: order_with_drops keeps it.
  void visit(const Value& value) {
    if (!can_be_made_again(graph_, value)) return;
    const Storage& storage = graph_.storage(value.storage);
    int32_t& reached = visited_to_[index(value.storage)];
    if (reached < 0) {
      visited_.push_back(value.storage);
      add(*storage.creator);
      reached = 0;
    }
    for (; reached < value.version; ++reached) add(storage.changers[static_cast<size_t>(reached)]);
  }

  void add(OpId id) {
    if (in_walk_[index(id)]) return;
    in_walk_[index(id)] = true;
    walked_.push_back(id);
    ops_to_expand_.push_back(id);
  }

  const Graph& graph_;
  const std::vector<Candidate>& candidates_;
  Effort& effort_;
  std::vector<Statistics> stats_;            // by candidate
  std::vector<std::vector<int32_t>> users_;  // by candidate: who has had it as a source
  std::vector<int32_t> candidate_of_;        // by storage
  std::vector<bool> activation_;  // by storage: made before the turning point, there after it unless dropped
  // The walk at work.
  std::vector<int32_t> visited_to_;  // by storage: version reached, or -1
  std::vector<bool> in_walk_;        // by op
  std::vector<StorageId> visited_;
  std::vector<OpId> walked_;
  std::vector<OpId> ops_to_expand_;
};

class Mutwo {
 public:
  Mutwo(const Graph& graph, const PlanOptions& options, Effort& effort)
      : graph_(graph),
        options_(options),
        effort_(effort),
        uses_(uses_of(graph)),
        turning_point_(turning_point(graph)),
        candidates_(candidates_of(graph, uses_, turning_point_)),
        selection_(graph, uses_, turning_point_, candidates_, effort),
        cost_(graph) {}

  Plan plan() {
    Trial found = with_picks(0);
    best_picks_ = 0;
    // The picks do not depend on the peak, only where to stop does.
    size_t stride = 1;
    while (!found.fits && picks_.size() < candidates_.size() && !too_long_ && !effort_.exhausted()) {
      const size_t before = picks_.size();
      while (picks_.size() < std::min(candidates_.size(), before + stride)) pick();
      if (consider(picks_.size(), found)) stop_earlier(before, found);
      if (candidates_.size() * graph_.ops.size() > kOneByOne) stride += 1 + stride / 2;
    }
    Plan best = make_plan(graph_, "mutwo", std::move(found.order), options_.budget_bytes);
    best.decisions = decisions(best);
    if (!best.feasible) {
      best.note = concat(effort_.exhausted() ? "the time limit has ended the choice; " : "",
                         "no prefix of the ", picks_.size(), " picks meets the budget; the lowest "
                         "peak is reached after ", best_picks_);
    }
    return best;
  }

 private:
  // An order after so many picks. Evaluated, not simulated: there are hundreds of them.
  struct Trial {
    std::vector<OpId> order;
    bool fits = false;
    int64_t peak_bytes = std::numeric_limits<int64_t>::max();
    int64_t time_ns = 0;
  };

  void pick() {
    const size_t picked = selection_.best();
    picked_at_cost_ns_.push_back(selection_[picked].total_recomp_time_ns());
    selection_.drop(picked);
    picks_.push_back(picked);
    drops_.push_back({candidates_[picked].storage, candidates_[picked].last_before});
  }

  // Bisects for the first number of picks above `too_few` that fits.
  void stop_earlier(size_t too_few, Trial& best) {
    size_t enough = best_picks_;
    while (enough - too_few > 1) {
      const size_t middle = too_few + (enough - too_few) / 2;
      (consider(middle, best) ? enough : too_few) = middle;
    }
  }

  // Takes the order with this many picks if it is the first that fits, or the lowest so far.
  bool consider(size_t count, Trial& best) {
    Trial trial = with_picks(count);
    const bool fits = trial.fits;
    if (best.fits ? fits && count < best_picks_ : fits || trial.peak_bytes < best.peak_bytes) {
      best = std::move(trial);
      best_picks_ = count;
    }
    if (options_.progress) {
      options_.progress({.strategy = "mutwo",
                         .orders = static_cast<int64_t>(count),
                         .best_peak_bytes = best.peak_bytes,
                         .best_time_ns = best.time_ns});
    }
    return fits;
  }

  Trial with_picks(size_t count) {
    Recomputation made = order_with_drops(graph_, uses_, std::span(drops_).first(count),
                                          {.share = false,
                                           .hold_sources_from = turning_point_,
                                           .max_runs = most_runs(options_)});
    if (!made.complete) {
      too_long_ = true;
      return {};
    }
    effort_.spend(kWorkPerRun * static_cast<int64_t>(made.order.size()));
    const OrderCost::Result cost = cost_.evaluate(made.order, options_.budget_bytes);
    return {.order = std::move(made.order),
            .fits = cost.peak_bytes <= options_.budget_bytes,
            .peak_bytes = cost.peak_bytes,
            .time_ns = cost.time_ns};
  }

  std::vector<Decision> decisions(const Plan& best) const {
    std::vector<size_t> pick_of(candidates_.size(), picks_.size());
    for (size_t p = 0; p < best_picks_; ++p) pick_of[picks_[p]] = p;
    std::vector<Decision> decisions;
    for (size_t c = 0; c < candidates_.size(); ++c) {
      const StorageId storage = candidates_[c].storage;
      const std::string bytes = format_bytes(graph_.storage(storage).bytes);
      const size_t p = pick_of[c];
      if (p < best_picks_) {
        decisions.push_back(
            {storage, true,
             concat("pick ", p + 1, " of ", best_picks_, ", with the best ratio of ",
                    candidates_.size() - p, " candidates: ", bytes, " for ",
                    format_ns(picked_at_cost_ns_[p]), " of recomputation")});
      } else {
        decisions.push_back({storage, false,
                             concat(best.feasible ? "the budget is met after " : "the peak is lowest after ",
                                    best_picks_, " picks with better ratios; this one offers ", bytes, " for ",
                                    format_ns(selection_[c].total_recomp_time_ns()))});
      }
    }
    return decisions;
  }

  const Graph& graph_;
  const PlanOptions& options_;
  Effort& effort_;
  Uses uses_;
  OpId turning_point_;
  std::vector<Candidate> candidates_;
  Selection selection_;
  OrderCost cost_;
  std::vector<size_t> picks_;               // candidates, in the order in which they were picked
  std::vector<int64_t> picked_at_cost_ns_;  // beside picks_: what each was thought to cost
  std::vector<Drop> drops_;                 // beside picks_
  size_t best_picks_ = 0;
  bool too_long_ = false;
};

}  // namespace

Plan plan_mutwo(const Graph& graph, const PlanOptions& options, Effort& effort) {
  if (effort.exhausted()) {
    return keep_all_instead(graph, options, "mutwo", "there was no time to choose");
  }
  return Mutwo(graph, options, effort).plan();
}

}  // namespace remat
