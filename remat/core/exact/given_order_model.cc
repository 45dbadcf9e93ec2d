// SPDX-License-Identifier: Apache-2.0
#include "remat/core/exact/given_order_model.h"

#include <algorithm>
#include <limits>

#include "remat/core/analysis/operands.h"
#include "remat/core/error.h"

namespace remat {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kTimeScale = 1e5;   // what the step's time is scaled to, if it is longer
constexpr double kBytesScale = 1e3;  // what the budget is scaled to

bool contains(const std::vector<Value>& values, const Value& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

GivenOrderModel::GivenOrderModel(const Graph& graph, int64_t budget_bytes, int64_t max_terms)
    : graph_(graph), values_(graph) {
  free_bytes_ = static_cast<double>(budget_bytes - graph.external_bytes());
  bytes_unit_ = std::max(1.0, free_bytes_) / kBytesScale;
  int64_t time_ns = 0;
  for (const Op& op : graph.ops) time_ns += op.time_ns;
  time_unit_ns_ = std::max(1.0, static_cast<double>(time_ns) / kTimeScale);
  choose_slots();
  note_last_uses();
  present_.resize(values_.size(), kNone);
  for (size_t s = 0; s < slots_.size() && !too_large_; ++s) {
    add_slot(s);
    too_large_ = model_.term_count() > max_terms;
  }
  if (!too_large_) add_outputs();
}

// An external has one copy; block p runs when the ops before p have.
bool GivenOrderModel::may_run_again(OpId op, size_t block) const {
  if (!graph_.rerunnable(op)) return false;
  return std::all_of(graph_.op(op).reads.begin(), graph_.op(op).reads.end(),
                     [&](const Value& value) {
                       const Storage& storage = graph_.storage(value.storage);
                       const size_t next = static_cast<size_t>(value.version);
                       return !storage.external() || next >= storage.changers.size() ||
                              index(storage.changers[next]) >= block;
                     });
}

// Backwards over the blocks: what is needed from a block on only grows.
void GivenOrderModel::choose_slots() {
  const size_t count = graph_.ops.size();
  std::vector<bool> needed(count, false);  // by op: it makes something that is needed
  const auto need = [&](const Value& value, auto&& self) -> void {
    if (!internal(value)) return;
    const OpId op = maker(graph_, value);
    if (needed[index(op)]) return;
    needed[index(op)] = true;
    for (const Value& input : graph_.op(op).reads) self(input, self);
    for (const Value& input : graph_.op(op).updates) self(input, self);
  };
  for (const StorageId id : graph_.outputs) need({id, graph_.last_version(id)}, need);
  std::vector<std::vector<bool>> by_block(count + 1);
  for (size_t p = count + 1; p-- > 0;) {
    if (p < count) {
      for (const Value& input : graph_.ops[p].reads) need(input, need);
      for (const Value& input : graph_.ops[p].updates) need(input, need);
    }
    by_block[p] = needed;
  }
  for (size_t p = 0; p <= count; ++p) {
    for (size_t o = 0; o < p; ++o) {
      const OpId op = static_cast<OpId>(o);
      if (by_block[p][o] && may_run_again(op, p)) slots_.push_back({op, p, kNone});
    }
    if (p < count) slots_.push_back({static_cast<OpId>(p), p, kAlways});
  }
}

void GivenOrderModel::note_last_uses() {
  last_use_.resize(values_.size(), 0);
  for (size_t s = 0; s < slots_.size(); ++s) {
    const Op& op = graph_.op(slots_[s].op);
    const auto note = [&](const Value& value) {
      if (internal(value)) last_use_[values_.of(value)] = s;
    };
    std::for_each(op.reads.begin(), op.reads.end(), note);
    std::for_each(op.updates.begin(), op.updates.end(), note);
  }
  for (const StorageId id : graph_.outputs) {
    if (internal({id, 0})) last_use_[values_.of({id, graph_.last_version(id)})] = slots_.size();
  }
}

bool GivenOrderModel::can_run(const Op& op) const {
  const auto there = [&](const Value& value) {
    return !internal(value) || present_[values_.of(value)] != kNone;
  };
  return std::all_of(op.reads.begin(), op.reads.end(), there) &&
         std::all_of(op.updates.begin(), op.updates.end(), there);
}

void GivenOrderModel::add_slot(size_t slot) {
  const OpId id = slots_[slot].op;
  const Op& op = graph_.op(id);
  const bool again = index(id) != slots_[slot].block;
  int32_t runs = kAlways;
  if (again) {
    const double cost = static_cast<double>(op.time_ns) / time_unit_ns_;
    runs = model_.add_variable(0, can_run(op) ? 1 : 0, cost, true);
  }
  slots_[slot].runs = runs;
  for (const Value& value : op.reads) {
    if (!internal(value) || present_[values_.of(value)] == kNone) continue;
    std::vector<Term> terms = {{present_[values_.of(value)], 1}};
    if (runs != kAlways) terms.push_back({runs, -1});
    model_.add_row(runs == kAlways ? 1 : 0, terms, kInfinity);
  }
  std::vector<Term> shared = add_sharing(op, runs);
  add_memory(op, runs, std::move(shared));
  add_flow(slot, op, runs);
}

std::vector<Term> GivenOrderModel::add_sharing(const Op& op, int32_t runs) {
  std::vector<Term> memory;
  std::vector<std::pair<Reuse, int32_t>> pairs;
  taken_.clear();
  for (const Reuse& reuse : op.reuse) {
    const int64_t bytes = shared_bytes(graph_, reuse);
    if (bytes == 0) continue;
    const int32_t take = model_.add_binary(0);
    memory.push_back({take, -static_cast<double>(bytes)});
    taken_.push_back({values_.of(source_of(op, reuse)), take});
    if (runs != kAlways) {
      const Term terms[] = {{take, 1}, {runs, -1}};
      model_.add_row(-kInfinity, terms, 0);
    }
    for (const auto& [other, other_take] : pairs) {
      if (other.result != reuse.result && other.source != reuse.source) continue;
      const Term terms[] = {{take, 1}, {other_take, 1}};
      model_.add_row(-kInfinity, terms, 1);
    }
    pairs.push_back({reuse, take});
  }
  return memory;
}

// Where the op does not run nothing grows, and the row holds by itself.
void GivenOrderModel::add_memory(const Op& op, int32_t runs, std::vector<Term> shared) {
  double while_it_runs = static_cast<double>(op.workspace_bytes);
  for (const StorageId id : op.creates) {
    while_it_runs += static_cast<double>(graph_.storage(id).bytes);
  }
  std::vector<Term> terms = std::move(shared);
  double most = while_it_runs;
  for (size_t v = 0; v < values_.size(); ++v) {
    const double bytes = static_cast<double>(graph_.storage(values_[v].storage).bytes);
    if (present_[v] == kNone || bytes == 0) continue;
    terms.push_back({present_[v], bytes});
    most += bytes * static_cast<double>(values_.most_copies(v));
  }
  if (most <= free_bytes_) return;
  double limit = free_bytes_;
  if (runs == kAlways) {
    limit -= while_it_runs;
  } else if (while_it_runs > 0) {
    terms.push_back({runs, while_it_runs});
  }
  for (Term& term : terms) term.factor /= bytes_unit_;
  model_.add_row(-kInfinity, terms, limit / bytes_unit_);
}

void GivenOrderModel::add_flow(size_t slot, const Op& op, int32_t runs) {
  for (const Value& value : op.reads) {
    // Once where it is named twice, and not at all where the op updates it too.
    const auto first = std::find(op.reads.begin(), op.reads.end(), value);
    if (!internal(value) || &*first != &value || contains(op.updates, value)) continue;
    flow(slot, values_.of(value), runs, 0);
  }
  for (const Value& value : op.updates) {
    if (!internal(value)) continue;
    flow(slot, values_.of(value), runs, -1);
    flow(slot, values_.of(value) + 1, runs, +1);
  }
  for (const StorageId id : op.creates) flow(slot, values_.of({id, 0}), runs, +1);
}

// x' <= x + made * r, and x' = 0 where a result has taken the place.
void GivenOrderModel::flow(size_t slot, size_t value, int32_t runs, int made) {
  const int32_t before = present_[value];
  const double most = static_cast<double>(values_.most_copies(value));
  const bool useful = last_use_[value] > slot;
  const bool possible = before != kNone || made > 0;
  if (!possible) return;
  // Taking a copy away must be possible even where nobody looks at what is left.
  if (!useful && made >= 0) {
    present_[value] = kNone;
    return;
  }
  const int32_t after = model_.add_variable(0, most, 0, false);
  std::vector<Term> terms = {{after, 1}};
  if (before != kNone) terms.push_back({before, -1});
  double limit = 0;
  if (runs == kAlways) {
    limit = made;
  } else if (made != 0) {
    terms.push_back({runs, static_cast<double>(-made)});
  }
  model_.add_row(-kInfinity, terms, limit);
  for (const auto& [source, take] : taken_) {
    if (source != value) continue;
    const Term gone[] = {{after, 1}, {take, most}};
    model_.add_row(-kInfinity, gone, most);
  }
  present_[value] = useful ? after : kNone;
}

void GivenOrderModel::add_outputs() {
  for (const StorageId id : graph_.outputs) {
    if (graph_.storage(id).external()) continue;
    const int32_t there = present_[values_.of({id, graph_.last_version(id)})];
    REMAT_ASSERT(there != kNone);
    const Term terms[] = {{there, 1}};
    model_.add_row(1, terms, kInfinity);
  }
}

std::optional<std::vector<Setting>> GivenOrderModel::settings_of(
    std::span<const OpId> order) const {
  std::vector<Setting> settings;
  size_t next = 0;
  for (const Slot& slot : slots_) {
    const bool taken = next < order.size() && order[next] == slot.op;
    if (slot.runs == kAlways) {
      if (!taken) return std::nullopt;
    } else {
      settings.push_back({slot.runs, taken ? 1.0 : 0.0});
    }
    if (taken) ++next;
  }
  if (next != order.size()) return std::nullopt;
  return settings;
}

Solution GivenOrderModel::solve(std::span<const Setting> start, Effort& effort) const {
  return model_.solve({.start = start}, effort);
}

std::vector<OpId> GivenOrderModel::order_of(const Solution& solution) const {
  std::vector<OpId> order;
  for (const Slot& slot : slots_) {
    if (slot.runs == kAlways || solution.values[static_cast<size_t>(slot.runs)] > 0.5) {
      order.push_back(slot.op);
    }
  }
  return order;
}

}  // namespace remat
