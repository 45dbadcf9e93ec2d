// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/layers.h"

#include "bench/generator/cost.h"

namespace remat::bench {
namespace {

int64_t conv_size(const Conv& conv, int64_t size) {
  if (conv.transposed) return (size - 1) * conv.stride - 2 * conv.padding + conv.kernel;
  return (size + 2 * conv.padding - conv.kernel) / conv.stride + 1;
}

// (in, out) of the weight's first two dimensions are swapped for a transposed convolution.
Shape weight_shape(const Conv& conv, int64_t channels) {
  const int64_t in_group = channels / conv.groups;
  if (conv.transposed) return {channels, conv.channels, conv.kernel, conv.kernel};
  return {conv.channels, in_group, conv.kernel, conv.kernel};
}

}  // namespace

Tensor conv2d(Tape& tape, std::string_view name, const Tensor& x, const Conv& conv) {
  const Tape::Scope scope(tape, name);
  const Tensor weight = tape.param("weight", weight_shape(conv, x.shape[1]));
  std::vector<Tensor> reads = {x, weight};
  if (conv.bias) reads.push_back(tape.param("bias", {conv.channels}));
  const Shape out_shape = {x.shape[0], conv.channels, conv_size(conv, x.shape[2]),
                           conv_size(conv, x.shape[3])};
  // Each weight meets every position of the smaller side: the input's if transposed.
  const int64_t positions = conv.transposed ? x.shape[2] * x.shape[3] : out_shape[2] * out_shape[3];
  const int64_t flops = 2 * x.shape[0] * positions * weight.elements();
  const int64_t image_bytes = (x.bytes() + Tensor{.shape = out_shape}.bytes()) / x.shape[0];
  const int64_t workspace = convolution_workspace_bytes(weight.bytes(), image_bytes);
  const Tensor out = tape.run_one({.kind = "convolution",
                                   .reads = reads,
                                   .creates = {floats(out_shape)},
                                   .flops = flops,
                                   .workspace_bytes = workspace});
  return tape.record(out, [=, &tape](const Tensor& grad) {
    Call call{.kind = "convolution_backward",
              .reads = {grad, x, weight},
              .flops = (x.needs_gradient() ? 2 : 1) * flops,
              .workspace_bytes = 2 * workspace};
    std::vector<Tensor> inputs = reads;
    if (!x.needs_gradient()) inputs.erase(inputs.begin());
    for (const Tensor& input : inputs) call.creates.push_back(floats(input.shape));
    const std::vector<Tensor> grads = tape.run(call);
    for (size_t i = 0; i < inputs.size(); ++i) tape.give_gradient(inputs[i], grads[i]);
  });
}

Tensor batch_norm(Tape& tape, std::string_view name, const Tensor& x) {
  const Tape::Scope scope(tape, name);
  const Shape channels = {x.shape[1]};
  const Tensor weight = tape.param("weight", channels);
  const Tensor bias = tape.param("bias", channels);
  const Tensor mean = tape.buffer("running_mean", channels);
  const Tensor var = tape.buffer("running_var", channels);
  tape.run({.kind = "add_", .updates = {tape.buffer("num_batches_tracked", {}, 8)}});
  const auto saved = tape.run({.kind = "native_batch_norm",
                               .reads = {x, weight, bias},
                               .creates = {floats(x.shape), floats(channels), floats(channels)},
                               .effects = {mean, var}});
  return tape.record(saved[0], [=, &tape](const Tensor& grad) {
    const auto grads = tape.run({.kind = "native_batch_norm_backward",
                                 .reads = {grad, x, weight, saved[1], saved[2]},
                                 .creates = {floats(x.shape), floats(channels), floats(channels)}});
    tape.give_gradient(x, grads[0]);
    tape.give_gradient(weight, grads[1]);
    tape.give_gradient(bias, grads[2]);
  });
}

Tensor max_pool(Tape& tape, std::string_view name, const Tensor& x, int64_t kernel, int64_t stride,
                int64_t padding) {
  const Tape::Scope scope(tape, name);
  const Conv window{.kernel = kernel, .stride = stride, .padding = padding};
  const Shape shape = {x.shape[0], x.shape[1], conv_size(window, x.shape[2]),
                       conv_size(window, x.shape[3])};
  const auto out = tape.run({.kind = "max_pool2d_with_indices",
                             .reads = {x},
                             .creates = {floats(shape), indices(shape)}});
  return tape.record(out[0], [=, &tape](const Tensor& grad) {
    tape.give_gradient(x, tape.run_one({.kind = "max_pool2d_with_indices_backward",
                                        .reads = {grad, x, out[1]},
                                        .creates = {floats(x.shape)}}));
  });
}

Tensor adaptive_avg_pool(Tape& tape, std::string_view name, const Tensor& x, int64_t size) {
  const Tape::Scope scope(tape, name);
  const Tensor out = tape.run_one({.kind = "_adaptive_avg_pool2d",
                                   .reads = {x},
                                   .creates = {floats({x.shape[0], x.shape[1], size, size})}});
  // Autograd saves the input here, though only its shape matters.
  return tape.record(out, [=, &tape](const Tensor& grad) {
    tape.give_gradient(x, tape.run_one({.kind = "_adaptive_avg_pool2d_backward",
                                        .reads = {grad, x},
                                        .creates = {floats(x.shape)}}));
  });
}

// Size one arrives as a mean, whose gradient is an expanded view divided by the number of pixels.
Tensor global_avg_pool(Tape& tape, std::string_view name, const Tensor& x) {
  const Tape::Scope scope(tape, name);
  const Tensor out =
      tape.run_one({.kind = "mean", .reads = {x}, .creates = {floats({x.shape[0], x.shape[1]})}});
  return tape.record(out, [=, &tape](const Tensor& grad) {
    tape.give_gradient(
        x, tape.run_one({.kind = "div", .reads = {grad}, .creates = {floats(x.shape)}}));
  });
}

}  // namespace remat::bench
