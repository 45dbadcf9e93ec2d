// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/networks.h"

#include <string>

#include "bench/generator/attention.h"
#include "bench/generator/layers.h"

namespace remat::bench {
namespace {

constexpr int64_t kWidth = 768;

// A projection to heads. Its gradient arrives by head and is copied before it is seen as rows.
Tensor projected(Tape& tape, const std::string& name, const Tensor& x) {
  const Tensor out = linear(tape, name, x, kWidth);
  const Tape::Scope scope(tape, name);
  return tape.record(out, [=, &tape](const Tensor& grad) {
    tape.give_gradient(
        out, tape.run_one({.kind = "clone", .reads = {grad}, .creates = {floats(out.shape)}}));
  });
}

Tensor embeddings(Tape& tape, int64_t batch, int64_t tokens) {
  const Tape::Scope scope(tape, "embeddings");
  const Tensor words = tape.param("word_embeddings.weight", {30522, kWidth});
  const Tensor positions = tape.param("position_embeddings.weight", {512, kWidth});
  const Tensor types = tape.param("token_type_embeddings.weight", {2, kWidth});
  const Tensor ids = tape.input("input_ids", {batch, tokens}, 8);
  const Tensor type_ids = tape.input("token_type_ids", {batch, tokens}, 8);
  const Tensor position_ids = tape.buffer("position_ids", {1, tokens}, 8);
  const Tensor word = embedding(tape, "word_embeddings", words, ids);
  const Tensor type = embedding(tape, "token_type_embeddings", types, type_ids);
  Tensor x = add(tape, "add", word, type);
  x = add_(tape, "add", x, embedding(tape, "position_embeddings", positions, position_ids));
  return dropout(tape, "dropout", layer_norm(tape, "LayerNorm", x));
}

Tensor self_attention(Tape& tape, const Tensor& x, const Tensor& mask) {
  const Tape::Scope scope(tape, "attention.self");
  const Tensor q = projected(tape, "query", x);
  const Tensor k = projected(tape, "key", x);
  const Tensor v = projected(tape, "value", x);
  return attend(tape, q, k, v, {.heads = 12, .additive_mask = mask, .drops = true});
}

Tensor layer(Tape& tape, const std::string& name, const Tensor& x, const Tensor& mask) {
  const Tape::Scope scope(tape, name);
  Tensor y = self_attention(tape, x, mask);
  y = linear(tape, "attention.output.dense", y, kWidth);
  y = add(tape, "attention.output.add", dropout(tape, "attention.output.dropout", y), x);
  const Tensor attended = layer_norm(tape, "attention.output.LayerNorm", y);
  y = gelu(tape, "intermediate.gelu", linear(tape, "intermediate.dense", attended, 4 * kWidth));
  y = linear(tape, "output.dense", y, kWidth);
  y = add(tape, "output.add", dropout(tape, "output.dropout", y), attended);
  return layer_norm(tape, "output.LayerNorm", y);
}

}  // namespace

Graph bert_base(int64_t batch, int64_t tokens, const StepEnd& end) {
  Tape tape;
  const Tensor mask = tape.input("attention_mask", {batch, 1, 1, tokens});
  const Tensor target = tape.input("target", {batch}, 8);
  Tensor x = embeddings(tape, batch, tokens);
  for (int i = 0; i < 12; ++i) x = layer(tape, "encoder.layer." + std::to_string(i), x, mask);
  x = linear(tape, "pooler.dense", first_token(tape, "pooler", x), kWidth);
  x = dropout(tape, "dropout", tanh(tape, "pooler.tanh", x));
  x = linear(tape, "classifier", x, 2);
  return tape.finish(cross_entropy(tape, x, target), end);
}

}  // namespace remat::bench
