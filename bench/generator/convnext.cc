// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/networks.h"

#include <array>
#include <string>

#include "bench/generator/layers.h"

namespace remat::bench {
namespace {

Tensor channels_last(const Tensor& x) {
  return x.viewed({x.shape[0], x.shape[2], x.shape[3], x.shape[1]});
}

Tensor channels_first(const Tensor& x) {
  return x.viewed({x.shape[0], x.shape[3], x.shape[1], x.shape[2]});
}

Tensor norm2d(Tape& tape, const std::string& name, const Tensor& x) {
  return channels_first(layer_norm(tape, name, channels_last(x)));
}

Tensor block(Tape& tape, const std::string& name, const Tensor& x) {
  const Tape::Scope scope(tape, name);
  const int64_t width = x.shape[1];
  const Tensor layer_scale = tape.param("layer_scale", {width, 1, 1});
  Tensor y = conv2d(tape, "block.0", x,
                    {.channels = width, .kernel = 7, .padding = 3, .groups = width, .bias = true});
  y = layer_norm(tape, "block.2", channels_last(y));
  y = gelu(tape, "block.4", linear(tape, "block.3", y, 4 * width));
  y = channels_first(linear(tape, "block.5", y, width));
  y = mul(tape, "layer_scale", y, layer_scale);
  return add(tape, "add", stochastic_depth(tape, "stochastic_depth", y), x);
}

}  // namespace

Graph convnext_tiny(int64_t batch, const StepEnd& end) {
  constexpr std::array<int64_t, 4> kWidths = {96, 192, 384, 768};
  constexpr std::array<int64_t, 4> kBlocks = {3, 3, 9, 3};
  Tape tape;
  const Tensor images = tape.input("images", {batch, 3, 224, 224});
  const Tensor target = tape.input("target", {batch}, 8);
  Tensor x = conv2d(tape, "features.0.0", images,
                    {.channels = kWidths[0], .kernel = 4, .stride = 4, .bias = true});
  // The images are channels-first, what the first norm makes is channels-last, and so is all that
  // follows: only this norm reads its input in another order than it writes.
  x.dense = false;
  x = norm2d(tape, "features.0.1", x);
  for (size_t stage = 0; stage < kBlocks.size(); ++stage) {
    if (stage > 0) {
      const Tape::Scope scope(tape, "features." + std::to_string(2 * stage));
      x = norm2d(tape, "0", x);
      x = conv2d(tape, "1", x,
                 {.channels = kWidths[stage], .kernel = 2, .stride = 2, .bias = true});
    }
    const Tape::Scope scope(tape, "features." + std::to_string(2 * stage + 1));
    for (int64_t i = 0; i < kBlocks[stage]; ++i) x = block(tape, std::to_string(i), x);
  }
  x = layer_norm(tape, "classifier.0", global_avg_pool(tape, "avgpool", x));
  x = linear(tape, "classifier.2", x, 1000);
  return tape.finish(cross_entropy(tape, x, target), end);
}

}  // namespace remat::bench
