// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn.h>

#include <cstdint>
#include <string>

namespace remat::models {

// Two linear layers with GELU between them, over the last dimension: width -> hidden -> width.
class FeedForwardImpl : public torch::nn::Module {
 public:
  // gelu: "none" for the exact function, "tanh" for the approximation.
  FeedForwardImpl(int64_t width, int64_t hidden, std::string gelu = "none");
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Linear expand, contract;

 private:
  std::string gelu_;
};
TORCH_MODULE(FeedForward);

}  // namespace remat::models
