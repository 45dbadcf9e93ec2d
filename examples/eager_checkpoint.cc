// SPDX-License-Identifier: Apache-2.0
// Checkpointing in three ways: block by block, a chain of layers, and with a policy. Prints a norm
// of the gradients for each, which must be the same to the last bit as without checkpoints.
#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <functional>

#include "remat/libtorch/checkpoint.h"
#include "remat/libtorch/sequential.h"

namespace {

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t width)
      : layers(torch::nn::Linear(width, 4 * width), torch::nn::GELU(), torch::nn::Dropout(0.1),
               torch::nn::Linear(4 * width, width)) {
    register_module("layers", layers);
  }
  at::Tensor forward(const at::Tensor& x) { return layers->forward(x); }

  torch::nn::Sequential layers;
};
TORCH_MODULE(Block);

// One training step; the same seed gives the same numbers, whichever way the forward goes.
double step(torch::nn::Sequential model,
            const std::function<at::Tensor(const at::Tensor&)>& forward) {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({64, 128});
  model->zero_grad();
  const at::Tensor loss = forward(x).square().mean();
  loss.backward();
  double norm = 0;
  for (const at::Tensor& parameter : model->parameters()) {
    norm += parameter.grad().square().sum().item<double>();
  }
  return norm;
}

}  // namespace

int main() {
  torch::manual_seed(0);
  torch::nn::Sequential model;
  for (int i = 0; i < 8; ++i) {
    model->push_back(Block(128));
  }

  const double plain = step(model, [&](const at::Tensor& x) { return model->forward(x); });

  // Two lines of change: every block is a region.
  const double blocks = step(model, [&](at::Tensor x) {
    for (auto& block : *model) {
      x = remat::checkpoint(block, x);
    }
    return x;
  });

  // A chain in about sqrt(n) segments.
  const double chain = step(model, [&](const at::Tensor& x) {
    return remat::checkpoint_sequential(model, /*segments=*/3, x, {.balanced = true});
  });

  // Keep what is expensive to compute, recompute the rest.
  const double selective = step(model, [&](const at::Tensor& x) {
    return remat::checkpoint(model, x, {.policy = remat::keep_matmuls_and_convolutions()});
  });

  std::printf("squared gradient norm: plain %.17g, blocks %.17g, chain %.17g, selective %.17g\n",
              plain, blocks, chain, selective);
  return plain == blocks && plain == chain && plain == selective ? 0 : 1;
}
