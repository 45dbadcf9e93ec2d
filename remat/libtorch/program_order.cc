// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/program_order.h"

#include <algorithm>
#include <unordered_set>

namespace remat::detail {
namespace {

// What a guard may take along when it moves ahead of a whole backward: step counters, not tensors.
constexpr int64_t kNextToNothingBytes = 64 * 1024;

// For every op the ops that must run before it: those that make or change what it uses, those that
// use what it changes, and the one before it among random ops, once ops and ops with effects.
std::vector<std::vector<size_t>> predecessors(const Trace& trace) {
  struct Touches {
    int64_t writer = -1;
    std::vector<size_t> readers = {};  // since it was written
  };
  std::vector<Touches> uses(trace.storages.size());
  std::vector<std::vector<size_t>> before(trace.ops.size());
  int64_t random = -1, once = -1, effect = -1;
  for (size_t i = 0; i < trace.ops.size(); ++i) {
    const SeenOp& op = trace.ops[i];
    if (!op.computes()) {
      continue;
    }
    const auto after = [&](int64_t earlier) {
      if (earlier >= 0) {
        before[i].push_back(static_cast<size_t>(earlier));
      }
    };
    const auto in_turn = [&](bool applies, int64_t& latest) {
      if (applies) {
        after(latest);
        latest = static_cast<int64_t>(i);
      }
    };
    for (const StorageNumber number : op.reads) {
      after(uses[index(number)].writer);
      uses[index(number)].readers.push_back(i);
    }
    const auto write = [&](StorageNumber number) {
      Touches& use = uses[index(number)];
      after(use.writer);
      for (const size_t reader : use.readers) {
        after(static_cast<int64_t>(reader));
      }
      use = {.writer = static_cast<int64_t>(i)};
    };
    std::ranges::for_each(op.updates, write);
    std::ranges::for_each(op.effects, write);
    for (const StorageNumber number : op.creates) {
      uses[index(number)].writer = static_cast<int64_t>(i);
    }
    in_turn(op.random, random);
    in_turn(op.once && !op.guards(), once);
    in_turn(!op.effects.empty(), effect);
    std::erase(before[i], i);
  }
  return before;
}

class Ordering {
 public:
  explicit Ordering(const Trace& trace)
      : trace_(trace), before_(predecessors(trace)), emitted_(trace.ops.size(), false) {}

  std::vector<size_t> run() {
    std::vector<size_t> guards;
    for (size_t i = 0; i < trace_.ops.size(); ++i) {
      if (trace_.ops[i].computes() && trace_.ops[i].guards()) {
        guards.push_back(i);
      }
    }
    size_t next_guard = 0;
    const auto emit_ready_guards = [&] {
      for (; next_guard < guards.size() && can_come_now(guards[next_guard]); ++next_guard) {
        emit_with_inputs(guards[next_guard]);
      }
    };
    emit_ready_guards();
    for (size_t i = 0; i < trace_.ops.size(); ++i) {
      if (trace_.ops[i].computes() && !trace_.ops[i].guards() && !emitted_[i]) {
        emit(i);
        emit_ready_guards();
      }
    }
    return std::move(order_);
  }

 private:
  // What is missing before the guard, if it is so little that it may come along: reads only of what
  // was there before the step and changes that make no tensors.
  bool can_come_now(size_t guard) {
    int64_t bytes = 0;
    std::vector<size_t> open = {guard};
    std::unordered_set<size_t> seen;
    while (!open.empty()) {
      const size_t op = open.back();
      open.pop_back();
      for (const size_t earlier : before_[op]) {
        if (emitted_[earlier] || !seen.insert(earlier).second) {
          continue;
        }
        const SeenOp& missing = trace_.ops[earlier];
        for (const StorageNumber number : missing.creates) {
          bytes += trace_[number].bytes;
        }
        if (missing.phase != Phase::optimizer || missing.random || missing.once ||
            bytes > kNextToNothingBytes) {
          return false;
        }
        open.push_back(earlier);
      }
    }
    return true;
  }

  void emit_with_inputs(size_t op) {
    std::vector<size_t> earlier = before_[op];
    std::ranges::sort(earlier);
    for (const size_t each : earlier) {
      if (!emitted_[each]) {
        emit_with_inputs(each);
      }
    }
    if (!emitted_[op]) {
      emit(op);
    }
  }

  void emit(size_t op) {
    emitted_[op] = true;
    order_.push_back(op);
  }

  const Trace& trace_;
  const std::vector<std::vector<size_t>> before_;
  std::vector<bool> emitted_;
  std::vector<size_t> order_;
};

}  // namespace

std::vector<size_t> graph_order(const Trace& trace) { return Ordering(trace).run(); }

}  // namespace remat::detail
