// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "remat/core/fit.h"
#include "remat/libtorch/step.h"

namespace remat {

// A training step made for one size: the function, as Step takes it, and a batch for it.
struct SizedStep {
  StepFunction function;
  Batch batch;
};
using MakeStep = std::function<SizedStep(int64_t size)>;

// The largest size of a training step inside a budget, found by planning and proved by running
// (core/fit.h). `make` is called for every size that is run, when nothing of the one before it is
// held any more:
//
//   const remat::Fit found = remat::fit(
//       [&](int64_t batch_size) {
//         return remat::SizedStep{train_step, {images(batch_size), labels(batch_size)}};
//       },
//       {.budget_bytes = 2 * remat::GiB});
//
// Runs a handful of steps at every size that it tries: parameters that the function updates are
// not what they were. The budget is that of FitOptions; the other options are those of the steps that
// are run. Throws Error where Step does, and where a step does not come to run under a plan.
Fit fit(const MakeStep& make, const FitOptions& options, const StepOptions& step_options = {});

}  // namespace remat
