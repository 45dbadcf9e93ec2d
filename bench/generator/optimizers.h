// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/generator/tape.h"

// The ops that LibTorch's C++ optimizers run for each parameter. Scalars (learning rate, bias
// correction) are no storages.
namespace remat::bench {

// torch::optim::SGD with momentum and weight decay.
void sgd_momentum(Tape& tape);

// clip_grad_norm_ and plain SGD: every gradient must be there before any is used.
void clipped_sgd(Tape& tape);

// torch::optim::AdamW.
void adamw(Tape& tape);

}  // namespace remat::bench
