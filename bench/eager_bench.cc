// SPDX-License-Identifier: Apache-2.0
// eager_bench overhead [side depth]: time of forward and backward of a tiny region, plain and
// checkpointed, on
//   one thread; the difference is the fixed cost of a region. eager_bench.py runs it beside
//   torch.utils.checkpoint.
// eager_bench memory: measured peak of a chain of n equal layers under checkpoint_sequential.
// eager_bench models: measured peak and time of a step for models of the zoo, checkpointed by
//   block.
// eager_bench rule: their measured peak beside what the √n rule says for their blocks.
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "remat/libtorch/checkpoint.h"
#include "remat/libtorch/sequential.h"
#include "remat/models/gpt.h"
#include "remat/models/lstm_lm.h"
#include "remat/models/resnet.h"
#include "remat/models/unet.h"
#include "tests/testing/block_costs.h"
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

// The region: `depth` times sin(x * w), on side x side tensors.
void overhead(int64_t side, int64_t depth) {
  Tensor x = torch::randn({side, side}).requires_grad_();
  const Tensor w = torch::randn({side, side}).requires_grad_();
  const auto region = [w, depth](Tensor a) {
    for (int64_t i = 0; i < depth; ++i) {
      a = torch::sin(a * w);
    }
    return a;
  };
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

// A model of the zoo with an input for it.
struct ScheduleStep {
  const char* name;
  std::function<Tensor(const remat::models::BlockRunner&)> loss;
  bool is_chain = true;  // each block takes only the output of the one before it
};

template <typename Model>
ScheduleStep step_of(const char* name, Model model, Tensor input, bool is_chain = true) {
  return {name,
          [model, input](const remat::models::BlockRunner& run) mutable {
            return model->forward(input, run).square().mean();
          },
          is_chain};
}

// Sizes at which activations, not gradients of parameters, are most of the peak.
std::vector<ScheduleStep> steps() {
  using namespace remat::models;
  torch::manual_seed(1);
  return {step_of("ResNet-50, batch 16, 96 px", ResNet(ResNetOptions::of_depth(50)),
                  torch::randn({16, 3, 96, 96})),
          step_of("GPT, 16 layers of 128, dropout, batch 2, 256 tokens",
                  Gpt(GptOptions{
                      .vocabulary = 256, .context = 256, .layers = 16, .heads = 4, .width = 128}),
                  torch::randint(256, {2, 256})),
          step_of("LSTM, 9 layers of 128, dropout, batch 16, 64 tokens",
                  LstmLm(LstmLmOptions{.vocabulary = 256, .layers = 9, .width = 128}),
                  torch::randint(256, {16, 64})),
          step_of("U-Net, width 16, batch 4, 128 px", UNet(UNetOptions{.width = 16}),
                  torch::randn({4, 3, 128, 128}), /*is_chain=*/false)};
}

remat::models::BlockRunner checkpoint_each(const remat::CheckpointOptions& options = {}) {
  return [options](const remat::models::Block& block, std::vector<Tensor> inputs) {
    return remat::checkpoint(block, std::move(inputs), options);
  };
}

// One row per model: peak above what is live before the step, and time, of a step.
void models() {
  std::printf(
      "| model | plain MiB | by block MiB | ratio | time ratio | keeping products MiB | ratio | "
      "time ratio |\n|---|---:|---:|---:|---:|---:|---:|---:|\n");
  for (const ScheduleStep& step : steps()) {
    const remat::models::BlockRunner ways[] = {
        remat::models::run_plain, checkpoint_each(),
        checkpoint_each({.policy = remat::keep_matmuls_and_convolutions()})};
    std::vector<double> peaks, times[3];
    for (const auto& way : ways) {
      peaks.push_back(step_peak_bytes([&] { return step.loss(way); }) / kMiB);
    }
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 3; ++i) {
        times[i].push_back(elapsed_ns([&] { step.loss(ways[i]).backward(); }));
      }
    }
    const double base = median(times[0]);
    std::printf("| %s | %.1f | %.1f | %.2f | %.2f | %.1f | %.2f | %.2f |\n", step.name, peaks[0],
                peaks[1], peaks[1] / peaks[0], median(times[1]) / base, peaks[2],
                peaks[2] / peaks[0], median(times[2]) / base);
    std::fflush(stdout);
  }
}

// Runs a chain of blocks in segments: all of them when the first is asked for.
remat::models::BlockRunner in_segments(const ScheduleStep& step, std::vector<int64_t> sizes) {
  auto layers = std::make_shared<std::vector<remat::Layer>>();
  {
    torch::NoGradGuard no_grad;
    step.loss([&layers](const remat::models::Block& block, std::vector<Tensor> inputs) {
      layers->push_back({[block](const Tensor& x) { return block({x}); }});
      return block(inputs);
    });
  }
  auto asked = std::make_shared<size_t>(0);
  return [layers, asked, sizes](const remat::models::Block&, std::vector<Tensor> inputs) {
    if ((*asked)++ % layers->size() != 0) {
      return inputs[0];
    }
    return remat::checkpoint_sequential(*layers, static_cast<int64_t>(sizes.size()), inputs[0],
                                        {.segment_sizes = sizes});
  };
}

void print_rule(double plain, double rule, double measured) {
  std::printf(" %.1f | %.1f | %.2f | %.2f |", rule / kMiB, measured / kMiB, rule / plain,
              measured / plain);
}

// What the rule says for the blocks of each model, beside what is measured.
void rule() {
  std::printf(
      "| model | blocks n | plain MiB | by block: rule MiB | measured MiB | rule / plain | "
      "measured / plain | √n segments: rule MiB | measured MiB | rule / plain | measured / plain "
      "|\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
  for (const ScheduleStep& step : steps()) {
    step.loss(remat::models::run_plain).backward();  // gradients and what LibTorch sets up once
    const remat::testing::StepCost cost = remat::testing::measure_step(step.loss);
    const auto blocks = static_cast<int64_t>(cost.blocks.size());
    const auto plain = static_cast<double>(cost.peak_bytes);
    std::printf("| %s | %ld | %.1f |", step.name, static_cast<long>(blocks), plain / kMiB);
    const std::vector<int64_t> single(blocks, 1);
    print_rule(plain, rule_peak_bytes(cost, single, /*last_too=*/true),
               step_peak_bytes([&] { return step.loss(checkpoint_each()); }));
    if (step.is_chain) {
      std::vector<remat::LayerCost> layers;
      for (const remat::testing::BlockCost& block : cost.blocks) {
        layers.push_back({0, block.saved_bytes, block.output_bytes});
      }
      const auto sizes = remat::balance_segments(layers, std::lround(std::sqrt(blocks)));
      const auto run = in_segments(step, sizes);
      print_rule(plain, rule_peak_bytes(cost, sizes, /*last_too=*/false),
                 step_peak_bytes([&] { return step.loss(run); }));
    } else {
      std::printf(" | | | |");
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  remat::testing::live_bytes();  // counts from the first tensor on
  at::set_num_threads(1);
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "overhead") {
    overhead(argc > 2 ? std::stol(argv[2]) : 4, argc > 3 ? std::stol(argv[3]) : 1);
  } else if (what == "memory") {
    memory();
  } else if (what == "models") {
    models();
  } else if (what == "rule") {
    rule();
  } else {
    std::fprintf(stderr, "usage: eager_bench overhead|memory|models|rule\n");
    return 2;
  }
  return 0;
}
