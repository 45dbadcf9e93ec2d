// SPDX-License-Identifier: Apache-2.0

// What practitioners do by hand: keep the results of contractions, recompute elementwise ops,
// normalisations, dropout and softmax; and the core of attention from the scores on, whose product is
// cheap for the bytes it makes (Korthikanti et al., Reducing Activation Recomputation in Large
// Transformer Models, 2022). What can only be made again by way of a contraction that was not kept,
// like a sum on the residual stream, is kept itself. In a graph none of whose ops we know as contractions,
// "expensive" means to take longer per byte of result than the median candidate. The budget is not
// looked at.

#include <algorithm>
#include <array>

#include "remat/core/analysis/recompute.h"
#include "remat/core/error.h"
#include "remat/core/strategies/strategies.h"
#include "remat/core/units.h"

namespace remat {
namespace {

// Parts of ATen names; "mm" would be part of too many.
constexpr std::array<std::string_view, 12> kContractions = {
    "conv",   "aten::mm",         "bmm",       "addmm", "matmul", "aten::linear",
    "einsum", "scaled_dot_product", "attention", "lstm",  "gru",    "rnn_layer"};

bool is_contraction(const Op& op) {
  return std::any_of(kContractions.begin(), kContractions.end(), [&](std::string_view part) {
    return op.kind.find(part) != std::string::npos;
  });
}

// Whether a softmax takes the storage, or what a few elementwise ops (scaling, masking) make of it:
// the scores of attention.
bool leads_to_softmax(const Graph& graph, const Uses& uses, StorageId id, int depth = 3) {
  return std::any_of(uses[id].begin(), uses[id].end(), [&](OpId user) {
    const Op& op = graph.op(user);
    if (op.phase != Phase::forward || is_contraction(op)) return false;
    // Not the loss: its scores are the result of the largest product of all.
    if (op.kind.find("log_softmax") != std::string::npos) return false;
    if (op.kind.find("softmax") != std::string::npos) return true;
    return depth > 0 && std::any_of(op.creates.begin(), op.creates.end(), [&](StorageId made) {
             return leads_to_softmax(graph, uses, made, depth - 1);
           });
  });
}

double ns_per_byte(const Graph& graph, StorageId id) {
  const Storage& storage = graph.storage(id);
  return static_cast<double>(graph.op(*storage.creator).time_ns) /
         static_cast<double>(storage.bytes);
}

// Decides in the order of creation, so that what a value is made from is decided before it.
class CheapToMake {
 public:
  CheapToMake(const Graph& graph, const Uses& uses)
      : graph_(graph), uses_(uses), cheap_(graph.storages.size(), false) {
    for (size_t o = 0; o < graph.ops.size() && graph.ops[o].phase == Phase::forward; ++o) {
      for (const StorageId id : graph.ops[o].creates) cheap_[index(id)] = decide(id);
    }
  }

  bool operator[](StorageId id) const { return cheap_[index(id)]; }

 private:
  bool decide(StorageId id) const {
    const Storage& storage = graph_.storage(id);
    const auto cheap_op = [&](OpId made_by) {
      const Op& op = graph_.op(made_by);
      if (op.phase != Phase::forward) return true;  // of a version that comes later
      if (is_contraction(op) && !leads_to_softmax(graph_, uses_, id)) return false;
      return std::all_of(op.reads.begin(), op.reads.end(),
                         [&](const Value& value) { return at_hand(value.storage, id); });
    };
    return cheap_op(*storage.creator) &&
           std::all_of(storage.changers.begin(), storage.changers.end(), cheap_op);
  }

  // External, kept for backward, or cheap itself.
  bool at_hand(StorageId id, StorageId made) const {
    const Storage& storage = graph_.storage(id);
    if (id == made || storage.external() || storage.output || cheap_[index(id)]) return true;
    return !uses_[id].empty() && graph_.op(uses_[id].back()).phase != Phase::forward;
  }

  const Graph& graph_;
  const Uses& uses_;
  std::vector<bool> cheap_;  // by storage
};

double median_ns_per_byte(const Graph& graph, const std::vector<Candidate>& candidates) {
  std::vector<double> costs;
  for (const Candidate& candidate : candidates) {
    costs.push_back(ns_per_byte(graph, candidate.storage));
  }
  if (costs.empty()) return 0;
  const auto middle = costs.begin() + static_cast<std::ptrdiff_t>(costs.size() / 2);
  std::nth_element(costs.begin(), middle, costs.end());
  return *middle;
}

}  // namespace

Plan plan_selective(const Graph& graph, const PlanOptions& options) {
  const Uses uses = uses_of(graph);
  const std::vector<Candidate> candidates = candidates_of(graph, uses, turning_point(graph));
  const bool kinds_known = std::any_of(graph.ops.begin(), graph.ops.end(), is_contraction);
  const double median = median_ns_per_byte(graph, candidates);
  const CheapToMake cheap(graph, uses);
  std::vector<Drop> drops;
  std::vector<Decision> decisions;
  for (const Candidate& candidate : candidates) {
    const Op& creator = graph.op(*graph.storage(candidate.storage).creator);
    const bool expensive =
        kinds_known ? !cheap[candidate.storage]
                    : ns_per_byte(graph, candidate.storage) > median;
    if (!expensive) drops.push_back({candidate.storage, candidate.last_before});
    decisions.push_back({candidate.storage, !expensive,
                         detail::concat(creator.kind, " counts as ", expensive ? "expensive" : "cheap",
                                        " (", format_ns(creator.time_ns), ")")});
  }
  Recomputation made = order_with_drops(graph, uses, drops, {.share = true});
  Plan plan = make_plan(graph, "selective", std::move(made.order), options.budget_bytes);
  plan.decisions = std::move(decisions);
  return plan;
}

}  // namespace remat
