// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/networks.h"

#include <string>
#include <vector>

#include "bench/generator/attention.h"
#include "bench/generator/layers.h"

namespace remat::bench {
namespace {

constexpr int64_t kWidth = 384;
constexpr int64_t kPatches = 14 * 14;

Tensor self_attention(Tape& tape, const Tensor& x) {
  const Tape::Scope scope(tape, "attn");
  const std::vector<Tensor> parts = split(tape, "unbind", linear(tape, "qkv", x, 3 * kWidth), 3, 2);
  const Tensor y = attend(tape, parts[0], parts[1], parts[2], {.heads = 6});
  return linear(tape, "proj", y, kWidth);
}

Tensor block(Tape& tape, const std::string& name, Tensor x) {
  const Tape::Scope scope(tape, name);
  x = add(tape, "add1", x, self_attention(tape, layer_norm(tape, "norm1", x)));
  Tensor y = linear(tape, "mlp.fc1", layer_norm(tape, "norm2", x), 4 * kWidth);
  y = linear(tape, "mlp.fc2", gelu(tape, "mlp.act", y), kWidth);
  return add(tape, "add2", x, y);
}

}  // namespace

Graph vit_small(int64_t batch, const StepEnd& end) {
  Tape tape;
  const Tensor images = tape.input("images", {batch, 3, 224, 224});
  const Tensor target = tape.input("target", {batch}, 8);
  const Tensor cls_token = tape.param("cls_token", {1, kWidth});
  const Tensor positions = tape.param("pos_embed", {1, kPatches + 1, kWidth});
  Tensor x = conv2d(tape, "patch_embed.proj", images,
                    {.channels = kWidth, .kernel = 16, .stride = 16, .bias = true});
  x = cat(tape, "cat",
          {expanded(tape, "cls_token", cls_token, batch), x.viewed({batch, kPatches, kWidth})}, 1);
  x = add(tape, "pos_embed", x, positions);
  for (int i = 0; i < 12; ++i) x = block(tape, "blocks." + std::to_string(i), x);
  x = linear(tape, "head", first_token(tape, "pool", layer_norm(tape, "norm", x)), 1000);
  return tape.finish(cross_entropy(tape, x, target), end);
}

}  // namespace remat::bench
