// SPDX-License-Identifier: Apache-2.0
#include "remat/core/strategies/early_updates.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "remat/core/graph_builder.h"

namespace remat {
namespace {

constexpr int32_t kNotThere = -1;

class Mover {
 public:
  Mover(const Graph& graph, std::span<const OpId> order)
      : graph_(graph),
        order_(order),
        version_(graph.storages.size(), kNotThere),
        uses_left_(graph.storages.size()),
        users_(graph.storages.size()),
        writers_(graph.storages.size()),
        brings_(order.size()),
        done_(order.size(), false) {
    std::fill_n(version_.begin(), graph.external_count, 0);
    for (size_t i = 0; i < graph.storages.size(); ++i) {
      uses_left_[i].resize(graph.storages[i].changers.size() + 1, 0);
    }
    std::vector<bool> seen(graph.ops.size(), false);
    std::vector<std::vector<size_t>> waiting(graph.storages.size());  // by storage: ops that gain nothing themselves
    for (size_t place = 0; place < order.size(); ++place) {
      const Op& op = graph.op(order[place]);
      visit_uses(op, [&](const Value& value) { ++uses_left(value); });
      const bool first = !seen[index(order[place])];
      seen[index(order[place])] = true;
      if (!first || op.phase != Phase::optimizer || op.random || op.once || !op.effects.empty()) continue;
      if (frees_nothing(op)) {
        for (const Value& value : op.updates) waiting[index(value.storage)].push_back(place);
      } else {
        visit_uses(op, [&](const Value& value) {
          std::vector<size_t>& before = waiting[index(value.storage)];
          brings_[place].insert(brings_[place].end(), before.begin(), before.end());
          before.clear();
        });
        may_move(place);
      }
    }
  }

  std::optional<std::vector<OpId>> run() {
    if (!any_) return std::nullopt;
    for (size_t place = 0; place < order_.size(); ++place) {
      if (!done_[place]) emit(place);
      while (!to_look_at_.empty()) {
        const size_t next = *to_look_at_.begin();
        to_look_at_.erase(to_look_at_.begin());
        if (!done_[next] && ready(next)) {
          for (const size_t each : brings_[next]) {
            if (!done_[each]) emit(each);
          }
          emit(next);
        }
      }
    }
    if (std::ranges::equal(made_, order_)) return std::nullopt;
    return std::move(made_);
  }

 private:
  template <typename Visit>
  static void visit_uses(const Op& op, Visit visit) {
    std::ranges::for_each(op.reads, visit);
    std::ranges::for_each(op.updates, visit);
    std::ranges::for_each(op.effects, visit);
  }

  int64_t& uses_left(const Value& value) {
    return uses_left_[index(value.storage)][static_cast<size_t>(value.version)];
  }

  // An op on externals alone (a parameter that decays). By itself it would only keep forward from being run again.
  bool frees_nothing(const Op& op) const {
    bool only_externals = op.creates.empty();
    visit_uses(op, [&](const Value& value) {
      only_externals = only_externals && graph_.storage(value.storage).external();
    });
    return only_externals;
  }

  void may_move(size_t place) {
    any_ = true;
    const auto add = [&](const Op& op) {
      visit_uses(op, [&](const Value& value) { users_[index(value.storage)].push_back(place); });
      for (const Value& value : op.updates) writers_[index(value.storage)].push_back(place);
    };
    add(graph_.op(order_[place]));
    for (const size_t each : brings_[place]) add(graph_.op(order_[each]));
  }

  // Whether the op could come now, behind those that it brings along.
  bool ready(size_t place) {
    std::vector<std::pair<StorageId, int32_t>> moved;  // by the ops before
    const auto fits = [&](const Op& op) {
      const auto is_there = [&](const Value& value) {
        const auto found = std::ranges::find(moved, value.storage, &std::pair<StorageId, int32_t>::first);
        return (found != moved.end() ? found->second : version_[index(value.storage)]) == value.version;
      };
      const auto needed_by_nobody_else = [&](const Value& value) {
        return uses_left(value) == 1 + std::ranges::count(op.reads, value);
      };
      if (!std::ranges::all_of(op.reads, is_there) || !std::ranges::all_of(op.updates, is_there) ||
          !std::ranges::all_of(op.updates, needed_by_nobody_else)) {
        return false;
      }
      for (const Value& value : op.updates) {
        std::erase_if(moved, [&](const auto& each) { return each.first == value.storage; });
        moved.emplace_back(value.storage, value.version + 1);
      }
      return true;
    };
    return std::ranges::all_of(brings_[place], [&](size_t each) {
      return done_[each] || fits(graph_.op(order_[each]));
    }) && fits(graph_.op(order_[place]));
  }

  void emit(size_t place) {
    done_[place] = true;
    made_.push_back(order_[place]);
    const Op& op = graph_.op(order_[place]);
    const auto look_at = [&](const std::vector<size_t>& places) {
      for (const size_t each : places) {
        if (!done_[each]) to_look_at_.insert(each);
      }
    };
    const auto becomes = [&](StorageId storage, int32_t version) {
      version_[index(storage)] = version;
      look_at(users_[index(storage)]);
    };
    visit_uses(op, [&](const Value& value) {
      --uses_left(value);
      look_at(writers_[index(value.storage)]);
    });
    for (const StorageId created : op.creates) becomes(created, 0);
    for (const Value& value : op.updates) becomes(value.storage, value.version + 1);
    for (const Value& value : op.effects) {
      // A re-run leaves them alone.
      if (version_[index(value.storage)] == value.version) becomes(value.storage, value.version + 1);
    }
  }

  const Graph& graph_;
  std::span<const OpId> order_;
  std::vector<int32_t> version_;                 // by storage: of the copy that was made last
  std::vector<std::vector<int64_t>> uses_left_;  // by storage and version: of runs to come
  std::vector<std::vector<size_t>> users_;       // by storage: places of ops that may move
  std::vector<std::vector<size_t>> writers_;     // of those, which write it
  std::vector<std::vector<size_t>> brings_;      // by place: those that come right before it
  std::vector<bool> done_;                       // by place
  std::set<size_t> to_look_at_;                  // places of ops that may have become ready
  std::vector<OpId> made_;
  bool any_ = false;
};

// Each op once.
Graph in_order(const Graph& graph, std::span<const OpId> order) {
  GraphBuilder builder;
  for (size_t i = 0; i < graph.external_count; ++i) {
    const Storage& storage = graph.storages[i];
    builder.external(storage.name, storage.bytes, storage.role);
  }
  const auto name = [&](StorageId id) { return graph.storage(id).name; };
  const auto names = [&](const std::vector<Value>& values) {
    std::vector<std::string> found;
    for (const Value& value : values) found.push_back(name(value.storage));
    return found;
  };
  for (const OpId id : order) {
    const Op& op = graph.op(id);
    OpSpec spec = OpSpec::like(op);
    spec.reads = names(op.reads);
    spec.updates = names(op.updates);
    spec.effects = names(op.effects);
    for (const StorageId made : op.creates) spec.creates.push_back({name(made), graph.storage(made).bytes});
    for (const Reuse& reuse : op.reuse) spec.reuse.push_back({name(reuse.result), name(reuse.source)});
    builder.op(std::move(spec));
  }
  for (const StorageId output : graph.outputs) builder.output(name(output));
  return std::move(builder).build();
}

}  // namespace

std::optional<EarlyGraph> EarlyGraph::of(const Graph& graph) {
  auto order = with_early_updates(graph, given_order(graph));
  if (!order) return std::nullopt;
  EarlyGraph early;
  early.graph_ = in_order(graph, *order);
  early.original_ = std::move(*order);
  return early;
}

std::vector<OpId> EarlyGraph::original(std::span<const OpId> order) const {
  std::vector<OpId> found;
  found.reserve(order.size());
  for (const OpId op : order) found.push_back(original_[index(op)]);
  return found;
}

std::optional<std::vector<OpId>> with_early_updates(const Graph& graph, std::span<const OpId> order) {
  return Mover(graph, order).run();
}

}  // namespace remat
