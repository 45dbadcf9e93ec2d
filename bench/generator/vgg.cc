// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/networks.h"

#include <string>
#include <vector>

#include "bench/generator/layers.h"

namespace remat::bench {
namespace {

constexpr int64_t kPool = 0;  // in place of a number of channels

Tensor features(Tape& tape, Tensor x) {
  int number = 0;  // as in torchvision's Sequential
  const auto next = [&] { return "features." + std::to_string(number++); };
  for (const int64_t channels :
       {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0}) {
    if (channels == kPool) {
      x = max_pool(tape, next(), x, 2, 2, 0);
      continue;
    }
    x = conv2d(tape, next(), x, {.channels = channels, .kernel = 3, .padding = 1, .bias = true});
    x = relu_(tape, next(), x);
  }
  return x;
}

}  // namespace

Graph vgg16(int64_t batch, const StepEnd& end) {
  Tape tape;
  const Tensor images = tape.input("images", {batch, 3, 224, 224});
  const Tensor target = tape.input("target", {batch}, 8);
  Tensor x = adaptive_avg_pool(tape, "avgpool", features(tape, images), 7);
  x = linear(tape, "classifier.0", x.viewed({batch, 512 * 7 * 7}), 4096);
  x = dropout(tape, "classifier.2", relu_(tape, "classifier.1", x));
  x = linear(tape, "classifier.3", x, 4096);
  x = dropout(tape, "classifier.5", relu_(tape, "classifier.4", x));
  x = linear(tape, "classifier.6", x, 1000);
  return tape.finish(cross_entropy(tape, x, target), end);
}

}  // namespace remat::bench
