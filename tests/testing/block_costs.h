// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "remat/models/block_runner.h"

// What a plain training step needs block by block, and what the rule of Chen et al. (2016), "the
// inputs of the segments plus the largest segment", says for the same step in checkpointed
// segments.
namespace remat::testing {

struct BlockCost {
  int64_t output_bytes = 0;
  int64_t saved_bytes =
      0;  // by what the block's forward makes live bytes grow, its output included
  int64_t extra_bytes = 0;  // temporaries and gradients on top of that, forward or backward
};

// Bytes count from what was live before the step: parameters and their gradients are not in them.
struct StepCost {
  int64_t before_blocks_bytes = 0;
  std::vector<BlockCost> blocks;
  int64_t after_blocks_bytes = 0;  // on top of what the blocks save, up to the loss
  int64_t peak_bytes = 0;
};

// Runs one forward and backward of a plain step on this thread.
StepCost measure_step(const std::function<at::Tensor(const models::BlockRunner&)>& loss);

// The peak by the rule. `segments`: the number of blocks of each; the last one is run again in
// backward only if `last_too`.
int64_t rule_peak_bytes(const StepCost& step, const std::vector<int64_t>& segments, bool last_too);

}  // namespace remat::testing
