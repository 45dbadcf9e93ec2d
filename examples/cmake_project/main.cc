// SPDX-License-Identifier: Apache-2.0
// Three steps of a perceptron, half of it in eager checkpoints, all of it inside 8 MiB.
#include <remat/remat.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>

int main() {
  torch::nn::Sequential body(torch::nn::Linear(32, 256), torch::nn::GELU(), torch::nn::Dropout(0.1));
  torch::nn::Linear head(256, 1);
  std::vector<at::Tensor> parameters = body->parameters();
  for (const at::Tensor& parameter : head->parameters()) {
    parameters.push_back(parameter);
  }
  remat::TrainingStep step(
      [&](const remat::Batch& batch) {
        const remat::Scope layer("perceptron");
        return (head->forward(remat::checkpoint(body, batch[0])) - batch[1]).square().mean();
      },
      parameters, {}, {.budget_bytes = 8 * remat::MiB, .plan_seconds = 0.2, .measure_seconds = 0.1});
  torch::optim::SGD optimizer(parameters, 0.1);
  double loss = 0;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor x = torch::randn({512, 32});
    optimizer.zero_grad();
    loss = step({x, x.sum(1, true)}).item<double>();
    optimizer.step();
  }
  std::printf("loss %.3f, %s of 8 MiB reserved\n", loss,
              remat::format_bytes(step.report().peak_bytes).c_str());
  return std::isfinite(loss) && step.report().peak_bytes <= 8 * remat::MiB ? 0 : 1;
}
