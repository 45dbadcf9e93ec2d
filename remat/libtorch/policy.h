// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/ArrayRef.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace c10 {
class OperatorHandle;
struct IValue;
}  // namespace c10

namespace remat {

// What happens to the results of one op of a checkpointed region.
enum class OpChoice { recompute, keep };

// One op of the first run, as a policy sees it. Valid only during the call of the policy.
struct OpCall {
  std::string_view name;  // "aten::mm": without the overload
  const c10::OperatorHandle& op;
  c10::ArrayRef<c10::IValue> arguments;  // as the kernel gets them, below autograd
};

// Called for every op that returns only new tensors (not for views, casts and in-place ops, which
// are always run again), in the first run. The results of kept ops stay in memory until backward
// has used them; the re-run takes them instead of running the op. A kept result that is changed in
// place later is recomputed after all.
using Policy = std::function<OpChoice(const OpCall&)>;

// Keeps the ops with these names ("aten::mm": every overload).
Policy keep_ops(std::vector<std::string> names);

// Keeps the ops for which the predicate holds.
Policy keep_if(std::function<bool(const OpCall&)> predicate);

// Keeps what either keeps.
Policy keep_either(Policy first, Policy second);

// Matrix products and convolutions: most of the time, usually less than half of the memory.
Policy keep_matmuls_and_convolutions();

// Fused attention. Where LibTorch computes attention in parts instead (on the CPU: with dropout or
// a mask that needs gradients) there is no such op and nothing is kept.
Policy keep_attention();

}  // namespace remat
