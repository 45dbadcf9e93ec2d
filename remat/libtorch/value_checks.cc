// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/value_checks.h"

#include <algorithm>

#include "remat/libtorch/op_traits.h"

namespace remat::detail {
namespace {

// What decides whether an op throws: the sizes it looks into, which dimension, and the indices.
struct Check {
  c10::DimVector sizes;
  std::vector<int64_t> numbers;
  std::vector<SeenView> indices;
  bool operator==(const Check&) const = default;
};

Check check_of(const SeenOp& op) {
  Check check;
  if (!op.tensors.empty()) {
    check.sizes = op.tensors.front().view.sizes;
  }
  for (const c10::IValue& argument : op.arguments) {
    if (argument.isInt()) {
      check.numbers.push_back(argument.toInt());
    }
  }
  for (const SeenTensor& tensor : op.tensors) {
    if (c10::isIntegralType(tensor.view.dtype, /*includeBool=*/true)) {
      check.indices.push_back(tensor.view);
    }
  }
  return check;
}

}  // namespace

std::vector<bool> ops_that_may_fail(const Trace& trace) {
  std::vector<bool> may_fail(trace.ops.size(), false);
  std::vector<bool> changes(trace.storages.size(), false);
  for (const SeenOp& op : trace.ops) {
    for (const StorageNumber number : op.updates) {
      changes[index(number)] = true;
    }
  }
  std::vector<Check> done;
  for (size_t i = 0; i < trace.ops.size(); ++i) {
    const SeenOp& op = trace.ops[i];
    if (!op.computes() || !traits_of(op.op).may_fail_on_values) {
      continue;
    }
    Check check = check_of(op);
    const bool known = op.phase == Phase::backward && !check.indices.empty() &&
                       std::ranges::find(done, check) != done.end();
    may_fail[i] = !known;
    const bool lasts = std::ranges::none_of(
        check.indices, [&](const SeenView& view) { return changes[index(view.storage)]; });
    if (lasts && !known) {
      done.push_back(std::move(check));
    }
  }
  return may_fail;
}

}  // namespace remat::detail
