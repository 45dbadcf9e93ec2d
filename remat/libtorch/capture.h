// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "remat/core/error.h"
#include "remat/core/plan.h"
#include "remat/libtorch/tape.h"

namespace remat {

using LossFunction = std::function<at::Tensor(const Batch&)>;

struct CaptureOptions {
  std::vector<at::Tensor> buffers = {};  // named as such in the graph; others are found
  // Hashes every argument before and after every op, and fails on an op that changes one without
  // saying so in its schema. Slow; for finding new entries of the table in op_traits.cc.
  bool check_mutation = false;
  // Runs every op whose result may take the place of an input both ways, and fails where the bytes
  // differ. For finding errors in reuse.cc.
  bool check_reuse = false;
  // Fails with DoesNotFit before the step has more bytes than these at one time, parameters and batch not counted.
  int64_t most_bytes = kNoBudget;
  bool pack = true;  // look for values that can be kept in fewer bytes (packed_values.h)
  // Called after every op of both runs, with the number of ops so far and of all of them, which is
  // 0 while nobody knows it: in the first run. Must be quick.
  std::function<void(int64_t ops_done, int64_t ops_total)> progress = {};
};

// The plain step needs more memory than it may have.
class DoesNotFit : public Error {
 public:
  DoesNotFit(const std::string& message, int64_t bytes) : Error(message), needed_bytes(bytes) {}
  int64_t needed_bytes;  // at least
};

// Records one training step: `loss_of(batch)`, then backward. Parameters, buffers, gradients and
// generators are afterwards as they were before; gradients that exist are added to, as backward
// does. The step runs twice, the second time with the samples of the batch in another order
// (rolled along the first dimension): whatever differs in the two tapes depends on something that
// a recording would freeze, and is an error that names it.
//
// Throws Error too where the step
// - reads a value on the host (item()) or has shapes that depend on values (nonzero),
// - leaves a tensor behind: one that was made in the step and is still held after it,
// - uses tensors that are not dense and strided, or of several devices.
// What loss_of throws comes out as it is.
Recording capture(const LossFunction& loss_of, const Batch& batch,
                  const std::vector<at::Tensor>& parameters, const CaptureOptions& options = {});

}  // namespace remat
