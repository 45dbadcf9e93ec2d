// SPDX-License-Identifier: Apache-2.0
// eager_bench overhead: time of forward and backward of a tiny region, plain and checkpointed, on
//   one thread; the difference is the fixed cost of a region. eager_bench.py runs it beside
//   torch.utils.checkpoint.
// eager_bench memory: measured peak of a chain of n equal layers under checkpoint_sequential.
// eager_bench models: measured peak and time of a step for models of the zoo, checkpointed by
// block.
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "remat/libtorch/checkpoint.h"
#include "remat/libtorch/sequential.h"
#include "remat/models/gpt.h"
#include "remat/models/lstm_lm.h"
#include "remat/models/resnet.h"
#include "remat/models/unet.h"
#include "tests/testing/counting_allocator.h"

namespace {

using at::Tensor;

// CPU time of this thread, on which everything here runs: other programs on the machine do not
// count.
double thread_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double elapsed_ns(const std::function<void()>& work) {
  const double start = thread_ns();
  work();
  return thread_ns() - start;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void overhead() {
  Tensor x = torch::randn({4, 4}).requires_grad_();
  const Tensor w = torch::randn({4, 4}).requires_grad_();
  const auto region = [w](const Tensor& a) { return torch::sin(a * w); };
  const auto time = [&](const std::function<Tensor(const Tensor&)>& forward) {
    constexpr int kSteps = 100;
    return elapsed_ns([&] {
             for (int i = 0; i < kSteps; ++i) {
               forward(x).sum().backward();
             }
           }) /
           kSteps;
  };
  // Interleaved rounds, so that both see the same machine.
  std::vector<double> plain, ours, no_stop;
  for (int round = 0; round < 15; ++round) {
    plain.push_back(time(region));
    ours.push_back(time([&](const Tensor& a) { return remat::checkpoint(region, a); }));
    no_stop.push_back(
        time([&](const Tensor& a) { return remat::checkpoint(region, a, {.early_stop = false}); }));
  }
  std::printf("{\"plain_us\": %.2f, \"checkpoint_us\": %.2f, \"no_early_stop_us\": %.2f}\n",
              median(plain) / 1e3, median(ours) / 1e3, median(no_stop) / 1e3);
}

constexpr double kMiB = 1024.0 * 1024.0;

// Bytes above what was live before, at the highest point of one forward and backward.
int64_t step_peak_bytes(const std::function<Tensor()>& loss) {
  namespace counting = remat::testing;
  loss().backward();  // gradients and whatever LibTorch sets up once
  counting::reset_peak();
  const int64_t before = counting::live_bytes();
  loss().backward();
  return counting::peak_bytes() - before;
}

void memory() {
  constexpr int64_t kWidth = 64;
  constexpr int64_t kRows = 1024;  // a layer's output: 0.25 MiB
  std::printf("| layers n | segments √n | plain MiB | checkpointed MiB | ratio | 2√n/n |\n");
  std::printf("|---:|---:|---:|---:|---:|---:|\n");
  for (const int64_t layers : {16, 36, 64, 100, 144, 256}) {
    torch::nn::Sequential chain;
    for (int64_t i = 0; i < layers; ++i) {
      chain->push_back(torch::nn::Linear(kWidth, kWidth));
      chain->push_back(torch::nn::Tanh());
    }
    const Tensor x = torch::randn({kRows, kWidth}).requires_grad_();
    const auto segments = static_cast<int64_t>(std::lround(std::sqrt(layers)));
    const double plain = step_peak_bytes([&] { return chain->forward(x).sum(); }) / kMiB;
    const double ours =
        step_peak_bytes([&] { return remat::checkpoint_sequential(chain, segments, x).sum(); }) /
        kMiB;
    std::printf("| %ld | %ld | %.1f | %.1f | %.3f | %.3f |\n", static_cast<long>(layers),
                static_cast<long>(segments), plain, ours, ours / plain,
                2 * std::sqrt(layers) / static_cast<double>(layers));
    std::fflush(stdout);
  }
}

// One row: peak of activations and gradients in flight, and time, of a step.
template <typename Model>
void report(const char* name, Model model, const Tensor& input) {
  const auto loss_with = [&](const remat::models::BlockRunner& run) {
    return [&model, &input, run] { return model->forward(input, run).square().mean(); };
  };
  const auto plain = loss_with(remat::models::run_plain);
  const auto by_block = loss_with([](const remat::models::Block& block, std::vector<Tensor> in) {
    return remat::checkpoint(block, std::move(in));
  });
  const auto selective = loss_with([](const remat::models::Block& block, std::vector<Tensor> in) {
    return remat::checkpoint(block, std::move(in),
                             {.policy = remat::keep_matmuls_and_convolutions()});
  });
  std::vector<double> peaks, times[3];
  const std::function<Tensor()> ways[] = {plain, by_block, selective};
  for (const auto& way : ways) {
    peaks.push_back(step_peak_bytes(way) / kMiB);
  }
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 3; ++i) {
      times[i].push_back(elapsed_ns([&] { ways[i]().backward(); }));
    }
  }
  const double base = median(times[0]);
  std::printf("| %s | %.1f | %.1f | %.2f | %.2f | %.1f | %.2f | %.2f |\n", name, peaks[0], peaks[1],
              peaks[1] / peaks[0], median(times[1]) / base, peaks[2], peaks[2] / peaks[0],
              median(times[2]) / base);
  std::fflush(stdout);
}

void models() {
  using namespace remat::models;
  torch::manual_seed(1);
  std::printf(
      "| model | plain MiB | by block MiB | ratio | time ratio | keeping products MiB | ratio | "
      "time ratio |\n|---|---:|---:|---:|---:|---:|---:|---:|\n");
  report("ResNet-50, batch 4, 64 px", ResNet(ResNetOptions::of_depth(50)),
         torch::randn({4, 3, 64, 64}));
  report(
      "GPT, 12 layers of 128, batch 2, 256 tokens",
      Gpt(GptOptions{.vocabulary = 1000, .context = 256, .layers = 12, .heads = 4, .width = 128}),
      torch::randint(1000, {2, 256}));
  report("LSTM, 4 layers of 128, batch 16, 64 tokens",
         LstmLm(LstmLmOptions{.vocabulary = 1000, .layers = 4, .width = 128}),
         torch::randint(1000, {16, 64}));
  report("U-Net, width 16, batch 2, 128 px", UNet(UNetOptions{.width = 16}),
         torch::randn({2, 3, 128, 128}));
}

}  // namespace

int main(int argc, char** argv) {
  remat::testing::live_bytes();  // counts from the first tensor on
  at::set_num_threads(1);
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "overhead") {
    overhead();
  } else if (what == "memory") {
    memory();
  } else if (what == "models") {
    models();
  } else {
    std::fprintf(stderr, "usage: eager_bench overhead|memory|models\n");
    return 2;
  }
  return 0;
}
