// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/block_costs.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include "tests/testing/counting_allocator.h"

namespace remat::testing {

StepCost measure_step(const std::function<at::Tensor(const models::BlockRunner&)>& loss) {
  StepCost step;
  std::vector<int64_t> live_after;  // each block's forward
  const int64_t before = live_bytes();
  const auto take_peak = [&step, before] {
    const int64_t peak = peak_bytes();
    step.peak_bytes = std::max(step.peak_bytes, peak - before);
    reset_peak();
    return peak;
  };
  // The engine runs blocks in the opposite order: a gradient of a block's output is the start of
  // its backward and the end of that of the block after it.
  int64_t in_backward = -1;
  const auto end_interval = [&] {
    const int64_t peak = take_peak();
    if (in_backward < 0) {
      step.after_blocks_bytes = peak - live_after.back();
    } else {
      int64_t& extra = step.blocks[in_backward].extra_bytes;
      extra = std::max(extra, peak - live_after[in_backward]);
    }
  };
  reset_peak();
  const at::Tensor result = loss([&](const models::Block& block, std::vector<at::Tensor> inputs) {
    take_peak();
    const int64_t live = live_bytes();
    if (live_after.empty()) {
      step.before_blocks_bytes = live - before;
    }
    const at::Tensor output = block(std::move(inputs));
    const auto index = static_cast<int64_t>(live_after.size());
    live_after.push_back(live_bytes());
    step.blocks.push_back({static_cast<int64_t>(output.nbytes()), live_after.back() - live,
                           take_peak() - live_after.back()});
    output.register_hook([&, index](const at::Tensor&) {
      end_interval();
      in_backward = index;
    });
    return output;
  });
  result.backward();
  end_interval();
  return step;
}

int64_t rule_peak_bytes(const StepCost& step, const std::vector<int64_t>& segments, bool last_too) {
  int64_t kept = step.before_blocks_bytes;
  int64_t peak = 0;
  size_t block = 0;
  for (size_t s = 0; s < segments.size(); ++s) {
    int64_t in_segment = 0;
    for (int64_t i = 0; i < segments[s]; ++i, ++block) {
      in_segment += step.blocks[block].saved_bytes;
      peak = std::max(peak, kept + in_segment + step.blocks[block].extra_bytes);
    }
    const bool stays = s + 1 == segments.size() && !last_too;
    kept += stays ? in_segment : step.blocks[block - 1].output_bytes;
  }
  return std::max(peak, kept + step.after_blocks_bytes);
}

}  // namespace remat::testing
