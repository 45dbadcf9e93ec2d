// SPDX-License-Identifier: Apache-2.0
#include "remat/models/feed_forward.h"

#include "remat/models/block_runner.h"

namespace remat::models {

FeedForwardImpl::FeedForwardImpl(int64_t width, int64_t hidden, std::string gelu)
    : expand(register_module("expand", torch::nn::Linear(width, hidden))),
      contract(register_module("contract", torch::nn::Linear(hidden, width))),
      gelu_(std::move(gelu)) {}

at::Tensor FeedForwardImpl::forward(const at::Tensor& x) {
  at::Tensor y = run_layer("expand", expand, x);
  {
    Scope scope("gelu");
    y = at::gelu(y, gelu_);
  }
  return run_layer("contract", contract, y);
}

}  // namespace remat::models
