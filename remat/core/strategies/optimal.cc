// SPDX-License-Identifier: Apache-2.0

// The exact planner. In this order, until the best plan is proven to be the best there is:
//
//     state_search        graphs of a few dozen ops: every plan there is, in any order
//     search              the best of the other strategies, improved: what the rest must beat; and
//                         a bound, what no plan can beat, in any order
//     window_search       a relaxation whose answers are mostly plans; hundreds of ops
//
// All of it counts its work (effort.h). A plan of the exact methods is taken only if verify accepts it.

#include <algorithm>
#include <string>
#include <utility>

#include "remat/core/error.h"
#include "remat/core/exact/bound.h"
#include "remat/core/exact/linear_model.h"
#include "remat/core/order/context.h"
#include "remat/core/order/repair.h"
#include "remat/core/order/reruns.h"
#include "remat/core/order/ruin.h"
#include "remat/core/rewrite.h"
#include "remat/core/strategies/all_states.h"
#include "remat/core/strategies/shares.h"
#include "remat/core/strategies/strategies.h"
#include "remat/core/strategies/window_search.h"
#include "remat/core/verify.h"

namespace remat {
namespace {

using detail::concat;

constexpr std::string_view kName = "optimal";
constexpr int64_t kPolishWork = 20'000'000;  // about 50 ms
constexpr size_t kMostWindowOps = 600;  // more are seldom solved in their share of the default limit

bool better(const Plan& a, const Plan& b) {
  if (a.feasible != b.feasible) return a.feasible;
  if (!a.feasible) return a.peak_bytes < b.peak_bytes;
  return a.time_ns < b.time_ns;
}

class Optimal {
 public:
  Optimal(const Graph& graph, const PlanOptions& options, Effort& effort)
      : graph_(graph), options_(options), effort_(effort) {}

  Plan plan() {
    best_ = plan_keep_all(graph_, options_);
    bound_ns_ = graph_.total_time_ns();
    if (best_.feasible) {
      note_ = "nothing is faster: proven";
    } else if (lower_bound_peak_bytes(graph_) > options_.budget_bytes) {
      infeasible_ = true;
      search();
      note_ = "no plan fits in any order: proven";
    } else if (!search_all_states()) {
      search();
      search_with_bounds();
    }
    best_.note = note_ + refused_;
    best_.floor = floor_;
    if (best_.feasible) best_.lower_bound_time_ns = bound_ns_;
    return std::move(best_);
  }

 private:
  const char* scope() const { return options_.keep_order ? "in the given order" : "in any order"; }
  bool proven() const {
    return infeasible_ || (best_.feasible && attains(best_.time_ns, bound_ns_));
  }

  // All states have been looked at, or are too many. What cannot fit comes as close as we know how.
  void search() {
    if (infeasible_) {
      Plan lowest = plan_for_floor(graph_, options_, effort_);
      best_ = make_plan(graph_, "search", std::move(lowest.order), options_.budget_bytes);
      best_.floor = lowest.floor;
    } else {
      best_ = plan_local_search(graph_, options_, effort_);
    }
    floor_ = best_.floor;
    bound_ns_ = std::max(bound_ns_, best_.lower_bound_time_ns.value_or(0));
  }

  void take(std::vector<OpId> order) {
    if (options_.keep_order && !keeps_order(graph_, order)) return;
    Plan found = make_plan(graph_, kName, std::move(order), options_.budget_bytes);
    if (!better(found, best_)) return;
    const int64_t limit = found.feasible ? options_.budget_bytes : found.peak_bytes;
    if (const auto violation = verify(graph_, rewrite(graph_, found.order), limit)) {
      refused_ = concat("; a plan was refused by verify: ", violation->reason);
      return;
    }
    best_ = std::move(found);
  }

  // True if it has settled the matter.
  bool search_all_states() {
    StateSearchResult found = remat::search_all_states(graph_, options_, effort_);
    if (!found.complete) return false;
    if (!found.feasible) {
      infeasible_ = true;
      search();
      note_ = concat("no plan fits ", scope(), ": proven");
      return true;
    }
    bound_ns_ = found.time_ns;
    take(std::move(found.order));
    note_ = concat("nothing is faster ", scope(), ": proven");
    return true;
  }

  void search_with_bounds() {
    if (!has_solver()) {
      note_ = "built without a solver (HiGHS): the best plan of the other strategies";
      return;
    }
    if (!best_.feasible) {  // it must be said at once: no wait for a proof
      note_ = concat("no plan was found that fits ", scope(), "; that there is none is not proven");
      return;
    }
    if (!proven() && options_.stages.windows && graph_.ops.size() <= kMostWindowOps) {
      search_windows_from_here();
    }
    if (infeasible_) {
      note_ = concat("no plan fits ", scope(), ": proven");
    } else if (proven()) {
      const std::string by =
          best_.time_ns > bound_ns_ ? concat(" by ", settling_percent(), " %") : std::string();
      note_ = concat("nothing is faster ", scope(), by, ": proven");
    } else if (note_.empty()) {
      note_ = concat("not proven to be the best ", scope());
    }
  }

  void search_windows_from_here() {
    const std::vector<OpId> first = first_runs(graph_, best_.order);
    const bool given = first == given_order(graph_);
    Effort effort = effort_.part(work_share(graph_, options_, kWindowShare));
    const WindowSearchResult found =
        search_windows(graph_, given_order(graph_), options_.budget_bytes, effort, best_.time_ns);
    if (options_.keep_order) {
      infeasible_ = found.infeasible;
      bound_ns_ = std::max(bound_ns_, found.least_time_ns);
    }
    propose(found);
    if (found.infeasible && !options_.keep_order) {
      note_ = "no plan fits in the given order: proven; not proven to be the best in any order";
    } else if (attains(best_.time_ns, found.least_time_ns)) {
      note_ = "nothing is faster in the given order: proven";
    }
    // Where another order was worth it, that order too, with what is left.
    if (!given && !proven()) {
      propose(search_windows(graph_, first, options_.budget_bytes, effort, best_.time_ns));
    }
  }

  // Takes the plan; what is close to one is repaired first.
  void propose(const WindowSearchResult& found) {
    if (!found.order.empty()) take(found.order);
    if (found.proposal.empty() || !options_.stages.polish) return;
    Effort effort = effort_.part(kPolishWork);
    SearchContext context(graph_, {.budget_bytes = options_.budget_bytes,
                                   .keep_order = options_.keep_order,
                                   .seed = options_.seed,
                                   .insert_many = options_.stages.insert_many});
    FoundOrder start = context.start(found.proposal, effort);
    if (!Repair(context, effort).run(start)) return;
    prune(context, start, start.order.size(), effort);
    Ruin(context, effort).improve(start, effort.left());
    take(std::move(start.order));
  }

  const Graph& graph_;
  const PlanOptions& options_;
  Effort& effort_;
  Plan best_;
  std::optional<Floor> floor_;
  int64_t bound_ns_ = 0;     // proven for the plans that the options allow
  bool infeasible_ = false;  // proven, likewise
  std::string note_;
  std::string refused_;
};

}  // namespace

Plan plan_best(const Graph& graph, const PlanOptions& options, Effort& effort) {
  return Optimal(graph, options, effort).plan();
}

Plan plan_optimal(const Graph& graph, const PlanOptions& options, Effort& effort) {
  Plan plan = plan_best(graph, options, effort);
  plan.strategy = kName;
  return plan;
}

}  // namespace remat
