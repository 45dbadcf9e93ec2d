// SPDX-License-Identifier: Apache-2.0
#include "remat/core/explain.h"

#include <algorithm>
#include <array>

#include "remat/core/analysis/uses.h"
#include "remat/core/error.h"
#include "remat/core/order/cost.h"
#include "remat/core/units.h"

namespace remat {
namespace {

using detail::concat;

std::string lifetime(const Graph& graph, const Storage& storage, const std::vector<OpId>& uses) {
  const std::string& creator = graph.op(*storage.creator).name;
  if (storage.output) return concat("made by ", creator, ", an output of the step");
  if (uses.empty()) return concat("made by ", creator, ", never used");
  return concat("made by ", creator, ", last used by ", graph.op(uses.back()).name);
}

std::string why_not_decided(const Graph& graph, const Storage& storage) {
  if (storage.bytes == 0) return "it has no bytes";
  if (storage.output) return "it must survive the step";
  if (!graph.rerunnable(*storage.creator)) return "its creator must not be re-run";
  return "it is not idle between forward and backward, or cannot be made again";
}

std::string idle_window(const Graph& graph, const std::vector<int64_t>& time_before,
                        const Candidate& candidate) {
  const int64_t idle_ns =
      time_before[index(candidate.first_after)] - time_before[index(candidate.last_before) + 1];
  return concat("idle for ", format_ns(idle_ns), " between ", graph.op(candidate.last_before).name,
                " and ", graph.op(candidate.first_after).name);
}

// What the explanations are made from, looked up once.
class Explainer {
 public:
  Explainer(const Graph& graph, const Plan& plan)
      : graph_(graph), plan_(plan), uses_(uses_of(graph)), cost_(graph) {
    candidates_ = candidates_of(graph, uses_, turning_point(graph));
    candidate_of_.resize(graph.storages.size(), nullptr);
    for (const Candidate& candidate : candidates_) {
      candidate_of_[index(candidate.storage)] = &candidate;
    }
    decision_of_.resize(graph.storages.size(), nullptr);
    for (const Decision& decision : plan.decisions) decision_of_[index(decision.storage)] = &decision;
    runs_.resize(graph.ops.size(), 0);
    for (const OpId op : plan.order) ++runs_[index(op)];
    time_before_.resize(graph.ops.size() + 1, 0);
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      time_before_[i + 1] = time_before_[i] + graph.ops[i].time_ns;
    }
  }

  Explanation explain(StorageId id) {
    const Storage& storage = graph_.storage(id);
    const Candidate* candidate = candidate_of_[index(id)];
    Explanation explanation{.storage = id,
                            .action = Action::none,
                            .recomputes = runs_[index(*storage.creator)] - 1,
                            .sentence = {}};
    if (explanation.recomputes > 0) {
      explanation.action = Action::recompute;
    } else if (candidate != nullptr) {
      explanation.action = Action::keep;
    }
    explanation.sentence = concat(storage.name, " (", format_bytes(storage.bytes), ", ",
                                  lifetime(graph_, storage, uses_[id]), ")");
    if (candidate != nullptr) {
      explanation.sentence += ", " + idle_window(graph_, time_before_, *candidate);
    }
    explanation.sentence += explanation.action == Action::recompute
                                ? why_recomputed(storage, explanation.recomputes, decision_of_[index(id)])
                                : why_kept(storage, candidate, decision_of_[index(id)]);
    return explanation;
  }

 private:
  std::string why_recomputed(const Storage& storage, int64_t recomputes, const Decision* decision) {
    const std::string what =
        concat(", is recomputed ", recomputes, recomputes == 1 ? " time" : " times", " at ",
               format_ns(graph_.op(*storage.creator).time_ns), " each: ");
    if (decision != nullptr && decision->recomputed) return what + decision->reason;
    if (decision != nullptr) return what + "a recomputation of something else passes through it";
    return what + without_reruns(storage);
  }

  // The strategy recorded nothing: the plan itself says what would happen without these re-runs.
  std::string without_reruns(const Storage& storage) {
    std::vector<OpId> makers = storage.changers;
    makers.push_back(*storage.creator);
    std::vector<bool> seen(graph_.ops.size(), false);
    std::vector<OpId> order;
    for (const OpId op : plan_.order) {
      const bool makes_it = std::find(makers.begin(), makers.end(), op) != makers.end();
      if (!makes_it || !seen[index(op)]) order.push_back(op);
      seen[index(op)] = true;
    }
    const OrderCost::Result cost = cost_.evaluate(order, kNoBudget);
    if (!cost.legal) return "something else that is recomputed is made from it";
    return concat("kept instead, it would put the peak at ", format_bytes(cost.peak_bytes),
                  " (it is ", format_bytes(plan_.peak_bytes), ")");
  }

  std::string why_kept(const Storage& storage, const Candidate* candidate, const Decision* decision) {
    if (candidate == nullptr) return ": " + why_not_decided(graph_, storage);
    if (plan_.strategy == "keep_all") return ", is kept: this strategy keeps everything";
    if (decision == nullptr) {
      return concat(", is kept: the plan fits with it, and making it again takes ",
                    format_ns(graph_.op(*storage.creator).time_ns), " or more");
    }
    if (!decision->recomputed) return ", is kept: " + decision->reason;
    return ", is kept: it was to be recomputed, but what that needs is overwritten by then";
  }

  const Graph& graph_;
  const Plan& plan_;
  Uses uses_;
  OrderCost cost_;
  std::vector<Candidate> candidates_;
  std::vector<const Candidate*> candidate_of_;  // by storage
  std::vector<const Decision*> decision_of_;    // by storage
  std::vector<int64_t> runs_;                   // by op
  std::vector<int64_t> time_before_;            // by op, in the given order
};

}  // namespace

std::string_view name(Action action) {
  constexpr std::array<std::string_view, 3> kNames = {"keep", "recompute", "none"};
  return kNames[static_cast<size_t>(action)];
}

std::vector<Explanation> explain(const Graph& graph, const Plan& plan) {
  Explainer explainer(graph, plan);
  std::vector<Explanation> explanations;
  for (size_t s = graph.external_count; s < graph.storages.size(); ++s) {
    explanations.push_back(explainer.explain(static_cast<StorageId>(s)));
  }
  return explanations;
}

}  // namespace remat
