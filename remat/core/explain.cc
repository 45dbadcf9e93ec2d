// SPDX-License-Identifier: Apache-2.0
#include "remat/core/explain.h"

#include <algorithm>
#include <array>

#include "remat/core/analysis/recompute.h"
#include "remat/core/analysis/uses.h"
#include "remat/core/error.h"
#include "remat/core/order/cost.h"
#include "remat/core/units.h"

namespace remat {
namespace {

using detail::concat;

// Beyond, only the first op of the chain that makes a value again is looked at: finding the others takes as long
// as the graph is, for each value.
constexpr size_t kMostOpsForChains = 5'000;

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
    runs_.resize(graph.op_count(), 0);
    for (const OpId op : plan.order) ++runs_[index(graph.original(op))];
    moves_of_.resize(graph.storages.size());
    for (size_t i = 0; i < graph.moves.size(); ++i) {
      const Move& move = graph.moves[i];
      moves_of_[index(move.value.storage)].push_back(static_cast<OpId>(graph.ops.size() + i));
    }
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
                            .packs = made_of(id, MoveKind::pack),
                            .offloads = made_of(id, MoveKind::offload),
                            .sentence = {}};
    if (explanation.offloads > 0) {
      explanation.action = Action::offload;
    } else if (explanation.packs > 0) {
      explanation.action = Action::pack;
    } else if (explanation.recomputes > 0) {
      explanation.action = Action::recompute;
    } else if (candidate != nullptr) {
      explanation.action = Action::keep;
    }
    explanation.sentence = concat(storage.name, " (", format_bytes(storage.bytes), ", ",
                                  lifetime(graph_, storage, uses_[id]), ")");
    if (candidate != nullptr) {
      explanation.sentence += ", " + idle_window(graph_, time_before_, *candidate);
    }
    explanation.sentence += reason(explanation, storage, candidate);
    if (candidate != nullptr || explanation.packs + explanation.offloads > 0) {
      explanation.sentence += prices(id);
    }
    return explanation;
  }

 private:
  int64_t made_of(StorageId id, MoveKind kind) const {
    int64_t count = 0;
    for (const OpId move : moves_of_[index(id)]) {
      count += graph_.move(move).kind == kind ? runs_[index(move)] : 0;
    }
    return count;
  }

  std::string reason(const Explanation& explanation, const Storage& storage,
                     const Candidate* candidate) {
    const Decision* decision = decision_of_[index(explanation.storage)];
    switch (explanation.action) {
      case Action::recompute: return why_recomputed(storage, explanation.recomputes, decision);
      case Action::pack:
        return concat(", is packed ", times(explanation.packs), also(explanation), without_moves(explanation));
      case Action::offload:
        return concat(", is offloaded ", times(explanation.offloads), also(explanation),
                      without_moves(explanation));
      default: return why_kept(explanation.storage, candidate, decision);
    }
  }

  static std::string times(int64_t count) {
    return concat(count, count == 1 ? " time" : " times");
  }

  static std::string also(const Explanation& explanation) {
    std::string text;
    if (explanation.action == Action::offload && explanation.packs > 0) {
      text += ", packed " + times(explanation.packs);
    }
    if (explanation.recomputes > 0) text += ", and made again " + times(explanation.recomputes);
    return text;
  }

  // What the plan itself says would happen without packing and offloading the value.
  std::string without_moves(const Explanation& explanation) {
    std::vector<OpId> order;
    for (const OpId id : plan_.order) {
      const bool moves_it = graph_.is_move(id) && graph_.move(id).value.storage == explanation.storage;
      if (!moves_it) {
        order.push_back(id);
      } else if (graph_.move(id).kind == MoveKind::read_packed) {
        order.push_back(graph_.move(id).reader);
      }
    }
    const OrderCost::Result cost = cost_.evaluate(order, kNoBudget);
    return cost.legal ? ": " + kept_instead(cost) : "";
  }

  std::string kept_instead(const OrderCost::Result& cost) const {
    return concat("kept instead, it would put the peak at ", format_bytes(cost.peak_bytes), " (it is ",
                  format_bytes(plan_.peak_bytes), ")");
  }

  // The last op that touches it before it lies idle for longest; across the turning point, where it does.
  OpId idle_after(StorageId id) const {
    if (const Candidate* candidate = candidate_of_[index(id)]) return candidate->last_before;
    OpId before = *graph_.storage(id).creator;
    OpId found = before;
    int64_t longest_ns = -1;
    for (const OpId use : uses_[id]) {
      const int64_t idle_ns = time_before_[index(use)] - time_before_[index(before) + 1];
      if (idle_ns >= longest_ns) {
        longest_ns = idle_ns;
        found = before;
      }
      before = use;
    }
    return found;
  }

  // With whatever has to be made for it, where everything else stays until its own last use.
  std::string price_of_making_again(StorageId id) const {
    const Storage& storage = graph_.storage(id);
    if (!graph_.rerunnable(*storage.creator)) return "it cannot be made again";
    if (graph_.ops.size() > kMostOpsForChains) {
      return concat("making it again takes ", format_ns(graph_.op(*storage.creator).time_ns), " or more");
    }
    const Drop drop{id, idle_after(id)};
    const std::vector<OpId> order = order_with_drops(graph_, uses_, {&drop, 1}).order;
    const size_t ops = order.size() - graph_.ops.size();
    if (ops == 0) return "it cannot be made again";
    int64_t time_ns = -time_before_.back();
    for (const OpId op : order) time_ns += graph_.op(op).time_ns;
    return concat("making it again takes ", format_ns(time_ns), " (", ops, ops == 1 ? " op)" : " ops)");
  }

  // What each way to do without its bytes costs, where the graph has other ways than running ops.
  std::string prices(StorageId id) const {
    if (moves_of_[index(id)].empty()) return "";
    const Storage& storage = graph_.storage(id);
    std::string text = "; " + price_of_making_again(id);
    for (const PackedForm& packed : graph_.packed_forms) {
      if (packed.storage != id) continue;
      text += concat(", packing (", packed.rule, ") ",
                     format_ns(packed.pack_ns + packed.unpack_ns.value_or(0)), " and ",
                     format_bytes(packed.bytes));
    }
    if (graph_.channel && has_move(id, MoveKind::offload)) {
      text += concat(", offloading ", format_ns(graph_.channel->write_ns(storage.bytes)), " and ",
                     format_ns(graph_.channel->read_ns(storage.bytes)), " of the channel");
    }
    return text;
  }

  bool has_move(StorageId id, MoveKind kind) const {
    return std::ranges::any_of(moves_of_[index(id)],
                               [&](OpId move) { return graph_.move(move).kind == kind; });
  }

  std::string why_recomputed(const Storage& storage, int64_t recomputes, const Decision* decision) {
    const std::string what =
        concat(", is recomputed ", times(recomputes), " at ",
               format_ns(graph_.op(*storage.creator).time_ns), " each: ");
    if (decision != nullptr && decision->recomputed) return what + decision->reason;
    if (decision != nullptr) return what + "a recomputation of something else passes through it";
    return what + without_reruns(storage);
  }

  // The strategy recorded nothing: the plan itself says what would happen without these re-runs.
  std::string without_reruns(const Storage& storage) {
    std::vector<OpId> makers = storage.changers;
    makers.push_back(*storage.creator);
    std::vector<bool> seen(graph_.op_count(), false);
    std::vector<OpId> order;
    for (const OpId op : plan_.order) {
      const size_t run = index(graph_.original(op));
      const bool makes_it =
          std::find(makers.begin(), makers.end(), graph_.original(op)) != makers.end();
      if (!makes_it || !seen[run]) order.push_back(op);
      seen[run] = true;
    }
    const OrderCost::Result cost = cost_.evaluate(order, kNoBudget);
    if (!cost.legal) return "something else that is recomputed is made from it";
    return kept_instead(cost);
  }

  std::string why_kept(StorageId id, const Candidate* candidate, const Decision* decision) {
    if (candidate == nullptr) return ": " + why_not_decided(graph_, graph_.storage(id));
    if (plan_.strategy == "keep_all") return ", is kept: this strategy keeps everything";
    if (decision == nullptr) {
      const bool priced = !moves_of_[index(id)].empty();  // see prices()
      return ", is kept: the plan fits with it" + (priced ? "" : ", and " + price_of_making_again(id));
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
  std::vector<int64_t> runs_;                   // by op, moves included
  std::vector<std::vector<OpId>> moves_of_;     // by storage
  std::vector<int64_t> time_before_;            // by op, in the given order
};

}  // namespace

std::string_view name(Action action) {
  constexpr std::array<std::string_view, kActionCount> kNames = {"keep", "recompute", "none", "pack",
                                                                 "offload"};
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
