// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/variant.h"

#include <algorithm>
#include <utility>

#include "remat/core/error.h"
#include "remat/core/moves.h"
#include "remat/libtorch/op_traits.h"

namespace remat::detail {
namespace {

constexpr size_t kPlansKept = 8;  // for other budgets

// Numbers of one kind are stored alike; another kind changes the type of results.
bool same_kind(const c10::IValue& a, const c10::IValue& b) {
  if (a.isList() && b.isList()) {
    const auto x = a.toListRef();
    const auto y = b.toListRef();
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), same_kind);
  }
  return a.tagKind() == b.tagKind() && (a.isDouble() || a.isInt() || a.isComplexDouble());
}

}  // namespace

bool may_be_taken_over(const c10::OperatorHandle& op, size_t argument, const c10::IValue& recorded,
                       const c10::IValue& found) {
  return traits_of(op).free_number[argument] && same_kind(recorded, found);
}

bool same_call(const SeenOp& a, const SeenOp& b) {
  if (!(a.op == b.op) || a.kind != b.kind || a.grad_mode != b.grad_mode ||
      a.inference_mode != b.inference_mode || a.tensors != b.tensors ||
      a.arguments.size() != b.arguments.size() || a.results.size() != b.results.size()) {
    return false;
  }
  for (size_t i = 0; i < a.arguments.size(); ++i) {
    const c10::IValue& x = a.arguments[i];
    const c10::IValue& y = b.arguments[i];
    if (!holds_tensors(x) && !same_constant(x, y) && !may_be_taken_over(a.op, i, x, y)) {
      return false;
    }
  }
  return std::ranges::equal(a.results, b.results, [](const SeenResult& x, const SeenResult& y) {
    return x.place == y.place && x.view == y.view && x.argument == y.argument;
  });
}

size_t common_calls(const Trace& a, const Trace& b) {
  size_t i = 0, j = 0, common = 0;
  const auto skip = [](const Trace& trace, size_t& at) {
    while (at < trace.ops.size() && trace.ops[at].kind == CallKind::access) {
      ++at;
    }
    return at < trace.ops.size();
  };
  while (skip(a, i) && skip(b, j) && same_call(a.ops[i], b.ops[j])) {
    ++i, ++j, ++common;
  }
  return common;
}

bool same_course(const Trace& a, const Trace& b) {
  return a.threads == b.threads && a.ops.size() == b.ops.size() &&
         a.storages.size() == b.storages.size() &&
         std::ranges::equal(a.ops, b.ops, same_call) &&
         std::ranges::equal(a.storages, b.storages, [](const auto& x, const auto& y) {
           return x.bytes == y.bytes && x.external.has_value() == y.external.has_value() &&
                  x.output == y.output;
         });
}

bool Variant::has_plan_for(int64_t budget_bytes) const {
  return (has_plan() && planned.budget_bytes == budget_bytes) ||
         std::ranges::count(others, budget_bytes, &StepPlan::budget_bytes) > 0;
}

int64_t Variant::next_planned_budget(int64_t budget_bytes) const {
  int64_t least = whole_budget_bytes;
  const auto look_at = [&](const StepPlan& each) {
    if (each.budget_bytes > budget_bytes) {
      least = std::min(least, each.budget_bytes);
    }
  };
  if (has_plan()) {
    look_at(planned);
  }
  std::ranges::for_each(others, look_at);
  return least;
}

void Variant::keep(StepPlan other) {
  std::erase_if(others, [&](const StepPlan& each) { return each.budget_bytes == other.budget_bytes; });
  if (others.size() >= kPlansKept) {
    others.erase(others.begin());
  }
  others.push_back(std::move(other));
}

void Variant::use(StepPlan other) {
  const bool had_plan = has_plan();
  std::swap(planned, other);
  if (had_plan && other.budget_bytes != planned.budget_bytes) {
    keep(std::move(other));
  }
  report.budget_bytes = planned.budget_bytes;
  runner.reset();
}

void Variant::use_plan_for(int64_t budget_bytes) {
  if (has_plan() && planned.budget_bytes == budget_bytes) {
    return;
  }
  const auto found = std::ranges::find(others, budget_bytes, &StepPlan::budget_bytes);
  StepPlan earlier = std::move(*found);
  others.erase(found);
  use(std::move(earlier));
}

int64_t Variant::floor_bytes() {
  if (plan().floor) {
    return plan().floor->bytes;
  }
  if (!least_bytes) {
    least_bytes = floor(graph).bytes;
  }
  return *least_bytes;
}

void Variant::do_without(const MoveFailed& failed) {
  runner.reset();  // it refers to how values are packed
  Recording& recording = made.recording;
  for (Graph* each : {&recording.graph, &graph}) {
    if (failed.packed_form) {
      each->packed_forms.erase(each->packed_forms.begin() + static_cast<ptrdiff_t>(*failed.packed_form));
    } else {
      each->channel.reset();
    }
    add_moves(*each);
  }
  if (failed.packed_form) {
    recording.packed_values.erase(recording.packed_values.begin() +
                                  static_cast<ptrdiff_t>(*failed.packed_form));
  }
  others.clear();
  planned = {};
  least_bytes.reset();
  least_planned_bytes = 0;
  if (improvement != nullptr) {
    improvement->better.reset();  // it plans with the moves that were there
    improvement->waits = false;
  }
}

std::string notice_of(const MoveFailed& failed) {
  const std::string_view what = failed.what();
  return concat(what.substr(what.find("] ") + 2), failed.packed_form
                                                      ? "; it is no longer packed, and the step is planned again"
                                                      : "; the step is planned again, without offloading");
}

void throw_half_done(const MoveFailed& failed) {
  throw Error(concat(failed.what(), "; the update, or adding to gradients, had begun and cannot be undone: they hold "
                                    "a part of the step, go on from a checkpoint"));
}

}  // namespace remat::detail
