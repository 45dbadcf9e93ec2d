// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/networks.h"

#include <string>

#include "bench/generator/layers.h"

namespace remat::bench {
namespace {

Tensor conv_norm(Tape& tape, const std::string& conv_name, const std::string& norm_name,
                 const Tensor& x, const Conv& conv) {
  return batch_norm(tape, norm_name, conv2d(tape, conv_name, x, conv));
}

Tensor conv3x3(Tape& tape, const std::string& number, const Tensor& x, int64_t channels,
               int64_t stride) {
  return conv_norm(tape, "conv" + number, "bn" + number, x,
                   {.channels = channels, .kernel = 3, .stride = stride, .padding = 1});
}

Tensor conv1x1(Tape& tape, const std::string& number, const Tensor& x, int64_t channels) {
  return conv_norm(tape, "conv" + number, "bn" + number, x, {.channels = channels});
}

// The residual is added in place onto the last batch norm's result (`out += identity`); that norm's
// backward does not read it, so autograd allows it.
Tensor block(Tape& tape, const std::string& name, const Tensor& x, const ResNet& net,
             int64_t planes, int64_t stride) {
  const Tape::Scope scope(tape, name);
  const int64_t channels = net.bottleneck ? 4 * planes : planes;
  Tensor y;
  if (net.bottleneck) {
    y = relu_(tape, "relu", conv1x1(tape, "1", x, planes));
    y = relu_(tape, "relu", conv3x3(tape, "2", y, planes, stride));
    y = conv1x1(tape, "3", y, channels);
  } else {
    y = relu_(tape, "relu", conv3x3(tape, "1", x, planes, stride));
    y = conv3x3(tape, "2", y, planes, 1);
  }
  Tensor identity = x;
  if (stride != 1 || x.shape[1] != channels) {
    identity = conv_norm(tape, "downsample.0", "downsample.1", x,
                         {.channels = channels, .stride = stride});
  }
  return relu_(tape, "relu", add_(tape, "add", y, identity));
}

}  // namespace

Graph resnet(const ResNet& net, const StepEnd& end) {
  Tape tape;
  const Tensor images = tape.input("images", {net.batch, 3, 224, 224});
  const Tensor target = tape.input("target", {net.batch}, 8);
  Tensor x = conv_norm(tape, "conv1", "bn1", images,
                       {.channels = 64, .kernel = 7, .stride = 2, .padding = 3});
  x = max_pool(tape, "maxpool", relu_(tape, "relu", x), 3, 2, 1);
  for (size_t stage = 0; stage < net.blocks.size(); ++stage) {
    const Tape::Scope scope(tape, "layer" + std::to_string(stage + 1));
    for (int64_t i = 0; i < net.blocks[stage]; ++i) {
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      x = block(tape, std::to_string(i), x, net, int64_t{64} << stage, stride);
    }
  }
  x = linear(tape, "fc", global_avg_pool(tape, "avgpool", x), 1000);
  return tape.finish(cross_entropy(tape, x, target), end);
}

}  // namespace remat::bench
