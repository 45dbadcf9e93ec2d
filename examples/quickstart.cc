// SPDX-License-Identifier: Apache-2.0
// The README's program: a convolutional network, trained inside a budget of 8 MiB.
#include <torch/torch.h>

#include <cstdint>
#include <cstdio>

#include "remat/remat.h"

namespace nn = torch::nn;

int main() {
  nn::Sequential model;
  for (int64_t channels : {3, 16, 16, 16, 16, 16}) {
    model->extend(*nn::Sequential(nn::Conv2d(nn::Conv2dOptions(channels, 16, 3).padding(1)),
                                  nn::BatchNorm2d(16), nn::ReLU()));
  }
  model->push_back(nn::Flatten());
  model->push_back(nn::Linear(16 * 32 * 32, 2));

  remat::TrainingStep step(
      [&](const remat::Batch& batch) {
        return nn::functional::cross_entropy(model->forward(batch[0]), batch[1]);
      },
      model->parameters(), model->buffers(), {.budget_bytes = 8 * remat::MiB});
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.001);
  for (int i = 0; i < 10; ++i) {
    at::Tensor x = torch::randn({16, 3, 32, 32});
    at::Tensor y = x.mean({1, 2, 3}).gt(0).to(at::kLong);
    optimizer.zero_grad();
    at::Tensor loss = step({x, y});  // fills p.grad(), as loss.backward() would
    optimizer.step();
    std::printf("step %d: loss %.4f\n", i, loss.item<double>());
  }

  const remat::StepReport report = step.report();
  std::printf("plain LibTorch %s, budget %s, reserved %s, %+.1f %% time by the plan of '%s'\n",
              remat::format_bytes(report.eager_peak_bytes).c_str(),
              remat::format_bytes(report.budget_bytes).c_str(),
              remat::format_bytes(report.peak_bytes).c_str(),
              100.0 * static_cast<double>(report.time_ns - report.keep_all_time_ns) /
                  static_cast<double>(report.keep_all_time_ns),
              report.strategy.c_str());
  return report.peak_bytes <= 8 * remat::MiB ? 0 : 1;
}
