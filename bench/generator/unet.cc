// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/networks.h"

#include <string>
#include <vector>

#include "bench/generator/layers.h"

namespace remat::bench {
namespace {

Tensor double_conv(Tape& tape, const std::string& name, Tensor x, int64_t channels) {
  const Tape::Scope scope(tape, name);
  for (const std::string number : {"1", "2"}) {
    x = conv2d(tape, "conv" + number, x, {.channels = channels, .kernel = 3, .padding = 1});
    x = relu_(tape, "relu" + number, batch_norm(tape, "bn" + number, x));
  }
  return x;
}

Tensor up(Tape& tape, const std::string& name, const Tensor& x, const Tensor& skip) {
  const Tape::Scope scope(tape, name);
  const int64_t channels = x.shape[1] / 2;
  const Tensor larger =
      conv2d(tape, "up", x,
             {.channels = channels, .kernel = 2, .stride = 2, .bias = true, .transposed = true});
  return double_conv(tape, "conv", cat(tape, "cat", {skip, larger}, 1), channels);
}

}  // namespace

Graph unet(int64_t batch, int64_t image, const StepEnd& end) {
  Tape tape;
  const Tensor images = tape.input("images", {batch, 3, image, image});
  const Tensor target = tape.input("target", {batch, image, image}, 8);
  std::vector<Tensor> skips = {double_conv(tape, "inc", images, 64)};
  for (int64_t level = 1; level <= 4; ++level) {
    const Tape::Scope scope(tape, "down" + std::to_string(level));
    const Tensor smaller = max_pool(tape, "pool", skips.back(), 2, 2, 0);
    skips.push_back(double_conv(tape, "conv", smaller, int64_t{64} << level));
  }
  Tensor x = skips.back();
  for (int64_t level = 1; level <= 4; ++level) {
    x = up(tape, "up" + std::to_string(level), x, skips[static_cast<size_t>(4 - level)]);
  }
  x = conv2d(tape, "outc", x, {.channels = 2, .bias = true});
  return tape.finish(cross_entropy(tape, x, target), end);
}

}  // namespace remat::bench
