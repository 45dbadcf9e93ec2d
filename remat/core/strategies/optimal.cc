// SPDX-License-Identifier: Apache-2.0

// The exact planner. In this order, until the best plan is proven to be the best there is:
//
//     state_search        graphs of a few dozen ops: every plan there is, in any order
//     window_search       a relaxation whose answers are mostly plans; hundreds to thousands of ops
//     bound               what no plan can beat, in any order
//     given_order_model   the memory model to the byte, for blocks of re-runs; dozens of ops
//
// They start from the best plan of the other strategies, and what leaves here has been through
// verify in every build.

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "remat/core/bound.h"
#include "remat/core/deadline.h"
#include "remat/core/error.h"
#include "remat/core/linear_model.h"
#include "remat/core/rewrite.h"
#include "remat/core/state_search.h"
#include "remat/core/strategies/given_order_model.h"
#include "remat/core/strategies/strategies.h"
#include "remat/core/strategies/window_search.h"
#include "remat/core/verify.h"

namespace remat {
namespace {

using detail::concat;

constexpr std::string_view kName = "optimal";
// A fraction of a second of state_search; a count, so that plans do not depend on the clock.
constexpr size_t kMostStates = 100'000;
// Beyond these the model seldom beats window_search within a minute.
constexpr size_t kMostModelOps = 64;
constexpr int64_t kMostTerms = 1'000'000;
// Shares of the time limit.
constexpr double kShareForOthers = 0.25;
constexpr double kShareForBound = 0.25;

bool better(const Plan& a, const Plan& b) {
  if (a.feasible != b.feasible) return a.feasible;
  if (!a.feasible) return a.peak_bytes < b.peak_bytes;
  return a.time_ns < b.time_ns;
}

std::vector<OpId> first_runs(const Graph& graph, const std::vector<OpId>& order) {
  std::vector<bool> seen(graph.ops.size(), false);
  std::vector<OpId> first;
  for (const OpId op : order) {
    if (seen[index(op)]) continue;
    seen[index(op)] = true;
    first.push_back(op);
  }
  return first;
}

bool keeps_order(const Graph& graph, const std::vector<OpId>& order) {
  return first_runs(graph, order) == given_order(graph);
}

// state_search takes the best of several places for a result, rewrite the first.
bool one_place_each(const Graph& graph) {
  return std::all_of(graph.ops.begin(), graph.ops.end(),
                     [](const Op& op) { return op.reuse.size() <= 1; });
}

class Optimal {
 public:
  Optimal(const Graph& graph, const PlanOptions& options)
      : graph_(graph), options_(options), deadline_(options.time_limit_seconds) {}

  Plan plan() {
    best_ = plan_keep_all(graph_, options_);
    for (const Op& op : graph_.ops) bound_ns_ += op.time_ns;
    if (best_.feasible) {
      note_ = "nothing is faster: proven";
    } else if (!search_all_states()) {
      ask_the_others();
      search_with_bounds();
    }
    best_.strategy = kName;
    best_.note = note_;
    if (!infeasible_) best_.lower_bound_time_ns = bound_ns_;
    return std::move(best_);
  }

 private:
  const char* scope() const { return options_.keep_order ? "in the given order" : "in any order"; }
  bool proven() const {
    return infeasible_ || (best_.feasible && attains(best_.time_ns, bound_ns_));
  }

  void take(std::vector<OpId> order) {
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
    if (!one_place_each(graph_)) return false;
    StateSearchResult found =
        search_states(graph_, options_.budget_bytes,
                      {.freedom = options_.keep_order ? Freedom::given_order : Freedom::any_order,
                       .max_states = kMostStates});
    if (!found.complete) return false;
    if (!found.feasible) {
      infeasible_ = true;
      ask_the_others();
      note_ = concat("no plan fits ", scope(), ": proven");
      return true;
    }
    bound_ns_ = found.time_ns;
    take(std::move(found.order));
    note_ = concat("nothing is faster ", scope(), ": proven", refused_);
    return true;
  }

  void ask_the_others() {
    PlanOptions quick = options_;
    quick.time_limit_seconds = options_.time_limit_seconds * kShareForOthers;
    for (const Strategy& strategy : strategies()) {
      if (strategy.name == kName || strategy.name == "auto") continue;
      if (deadline_.passed() && best_.feasible) break;
      Plan made = strategy.plan(graph_, quick);
      if (options_.keep_order && !keeps_order(graph_, made.order)) continue;
      if (better(made, best_)) best_ = std::move(made);
    }
  }

  void search_with_bounds() {
    if (!has_solver()) {
      note_ = "built without a solver (HiGHS): the best plan of the other strategies";
      infeasible_ = lower_bound_peak_bytes(graph_) > options_.budget_bytes;
      return;
    }
    search_windows_from_here();
    if (!proven()) find_bound();
    if (!proven()) solve_model();
    if (infeasible_) {
      note_ = concat("no plan fits ", scope(), ": proven");
    } else if (proven()) {
      note_ = concat("nothing is faster ", scope(), best_.time_ns > bound_ns_ ? " by 0.002 %" : "",
                     ": proven");
    } else if (note_.empty()) {
      note_ = concat("not proven to be the best ", scope());
    }
    note_ += refused_;
  }

  void search_windows_from_here() {
    // Where another strategy has gained by another order, its order first.
    if (!options_.keep_order && !keeps_order(graph_, best_.order)) {
      const Deadline half(deadline_.left_seconds() / 2);
      WindowSearchResult found =
          search_windows(graph_, first_runs(graph_, best_.order), options_.budget_bytes, half);
      if (!found.order.empty()) take(std::move(found.order));
      if (proven()) return;
    }
    const Deadline share(deadline_.left_seconds() - options_.time_limit_seconds * kShareForBound);
    WindowSearchResult found =
        search_windows(graph_, given_order(graph_), options_.budget_bytes, share);
    if (options_.keep_order) {
      infeasible_ = found.infeasible;
      bound_ns_ = std::max(bound_ns_, found.least_time_ns);
    }
    settled_ =
        found.infeasible || (!found.order.empty() && attains(found.time_ns, found.least_time_ns));
    if (!found.order.empty()) take(std::move(found.order));
    if (settled_ && !options_.keep_order) note_ = "nothing is faster in the given order: proven";
  }

  void find_bound() {
    const double seconds =
        std::max(deadline_.left_seconds(), options_.time_limit_seconds * kShareForBound);
    const std::optional<int64_t> bound = lower_bound_time_ns(
        graph_, options_.budget_bytes,
        {.time_limit_seconds = seconds,
         .enough_ns = best_.feasible ? best_.time_ns : std::numeric_limits<int64_t>::max()});
    infeasible_ = infeasible_ || !bound;
    if (bound) bound_ns_ = std::max(bound_ns_, *bound);
  }

  // Nothing to gain where the given order is settled.
  void solve_model() {
    if (settled_ || graph_.ops.size() > kMostModelOps || deadline_.passed()) return;
    const GivenOrderModel model(graph_, options_.budget_bytes, kMostTerms);
    if (model.too_large()) return;
    const auto start = best_.feasible ? model.settings_of(best_.order) : std::nullopt;
    const Solution solution =
        model.solve(deadline_.left_seconds(), start ? *start : std::vector<Setting>{});
    if (!solution.values.empty()) take(model.order_of(solution));
    if (solution.status == Solution::Status::optimal && best_.feasible) {
      note_ = "the best of the plans that keep the given order, with re-runs in the graph's order";
    }
  }

  const Graph& graph_;
  const PlanOptions& options_;
  Deadline deadline_;
  Plan best_;
  int64_t bound_ns_ = 0;     // proven for the plans that the options allow
  bool infeasible_ = false;  // proven, likewise
  bool settled_ = false;     // nothing better in the given order
  std::string note_;
  std::string refused_;
};

}  // namespace

Plan plan_optimal(const Graph& graph, const PlanOptions& options) {
  return Optimal(graph, options).plan();
}

}  // namespace remat
