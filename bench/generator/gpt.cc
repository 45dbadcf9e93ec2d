// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/networks.h"

#include <string>
#include <vector>

#include "bench/generator/attention.h"
#include "bench/generator/layers.h"

namespace remat::bench {
namespace {

Tensor self_attention(Tape& tape, const Tensor& x, const Gpt& net) {
  const Tape::Scope scope(tape, "attn");
  const Tensor mask = tape.buffer("bias", {net.tokens, net.tokens});
  const Tensor qkv = linear(tape, "c_attn", x, 3 * net.width);
  const std::vector<Tensor> parts = split(tape, "split", qkv, 3, 2);
  const Tensor y = attend(tape, parts[0], parts[1], parts[2],
                          {.heads = net.heads, .causal_mask = mask, .drops = true});
  return dropout(tape, "resid_dropout", linear(tape, "c_proj", y, net.width));
}

Tensor feed_forward(Tape& tape, const Tensor& x, const Gpt& net) {
  const Tape::Scope scope(tape, "mlp");
  const Tensor y = gelu(tape, "gelu", linear(tape, "c_fc", x, 4 * net.width));
  return dropout(tape, "dropout", linear(tape, "c_proj", y, net.width));
}

Tensor block(Tape& tape, const std::string& name, Tensor x, const Gpt& net) {
  const Tape::Scope scope(tape, name);
  x = add(tape, "add1", x, self_attention(tape, layer_norm(tape, "ln_1", x), net));
  return add(tape, "add2", x, feed_forward(tape, layer_norm(tape, "ln_2", x), net));
}

Tensor positions(Tape& tape, const Gpt& net) {
  const Tape::Scope scope(tape, "wpe");
  return tape.run_one({.kind = "arange", .creates = {indices({1, net.tokens})}});
}

Tensor head(Tape& tape, const Tensor& x, const Tensor& words) {
  const Tape::Scope scope(tape, "lm_head");
  return linear_with(tape, x, words, std::nullopt);
}

}  // namespace

Graph gpt(const Gpt& net, const StepEnd& end) {
  Tape tape;
  const Tensor ids = tape.input("ids", {net.batch, net.tokens}, 8);
  const Tensor target = tape.input("target", {net.batch * net.tokens}, 8);
  const Tensor words = tape.param("wte.weight", {net.vocabulary, net.width});
  const Tensor places = tape.param("wpe.weight", {net.tokens, net.width});
  Tensor x = embedding(tape, "wte", words, ids);
  x = add(tape, "add", x, embedding(tape, "wpe", places, positions(tape, net)));
  x = dropout(tape, "drop", x);
  for (int64_t i = 0; i < net.layers; ++i) x = block(tape, "h." + std::to_string(i), x, net);
  x = layer_norm(tape, "ln_f", x);
  const Tensor logits = head(tape, x, words);
  const Tensor rows = logits.viewed({net.batch * net.tokens, net.vocabulary});
  return tape.finish(cross_entropy(tape, rows, target), end);
}

}  // namespace remat::bench
