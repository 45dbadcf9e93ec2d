// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/networks.h"

#include <array>
#include <string>
#include <vector>

#include "bench/generator/layers.h"

namespace remat::bench {
namespace {

constexpr int64_t kVocabulary = 10000;
constexpr int64_t kWidth = 1500;

struct GateKind {
  const char* forward;
  const char* backward;
};
constexpr std::array<GateKind, 4> kGates = {{{"sigmoid_", "sigmoid_backward"},
                                             {"sigmoid_", "sigmoid_backward"},
                                             {"tanh_", "tanh_backward"},
                                             {"sigmoid_", "sigmoid_backward"}}};

// The input, forget, cell and output gate. All four are chunks of one storage, written in place one
// after another; backward reads their results, so the storage at its fourth version.
std::vector<Tensor> activated(Tape& tape, const Tensor& sums) {
  const Tape::Scope scope(tape, "gates");
  const std::vector<Tensor> chunks = split(tape, "chunk", sums, 4, 1);
  Tensor last = sums;
  for (size_t i = 0; i < chunks.size(); ++i) {
    Tensor chunk = chunks[i];
    chunk.version = last.version;
    last = tape.run_one({.kind = kGates[i].forward, .updates = {chunk}});
  }
  std::vector<Tensor> gates;
  for (size_t i = 0; i < chunks.size(); ++i) {
    Tensor gate = chunks[i];
    gate.version = last.version;
    gates.push_back(tape.record(gate, [=, &tape](const Tensor& grad) {
      tape.give_gradient(chunks[i], tape.run_one({.kind = kGates[i].backward,
                                                  .reads = {grad, gate},
                                                  .creates = {floats(gate.shape)}}));
    }));
  }
  return gates;
}

// On the CPU the input's share of all steps is one product, the cells follow one by one.
Tensor lstm_layer(Tape& tape, const std::string& name, const Tensor& x) {
  const Tape::Scope scope(tape, name);
  const Shape state_shape = {x.shape[1], kWidth};
  const Tensor weight = tape.param("weight_hh", {4 * kWidth, kWidth});
  const Tensor bias = tape.param("bias_hh", {4 * kWidth});
  Tensor hidden = tape.input("h0", state_shape);
  Tensor cell = tape.input("c0", state_shape);
  const Tensor projected = linear(tape, "ih", x, 4 * kWidth);
  std::vector<Tensor> outputs;
  for (const Tensor& input : unbind(tape, "unbind", projected)) {
    const Tape::Scope step(tape, std::to_string(outputs.size()));
    const Tensor sums = add_(tape, "add", linear_with(tape, hidden, weight, bias), input);
    const std::vector<Tensor> gates = activated(tape, sums);
    const Tensor kept = mul(tape, "forget", gates[1], cell);
    cell = add_(tape, "cell", kept, mul(tape, "input", gates[0], gates[2]));
    hidden = mul(tape, "output", gates[3], tanh(tape, "tanh", cell));
    outputs.push_back(hidden);
  }
  return stack(tape, "stack", outputs);
}

}  // namespace

Graph lstm_language_model(int64_t batch, int64_t tokens, const StepEnd& end) {
  Tape tape;
  const Tensor ids = tape.input("ids", {tokens, batch}, 8);
  const Tensor target = tape.input("target", {tokens * batch}, 8);
  const Tensor words = tape.param("encoder.weight", {kVocabulary, kWidth});
  Tensor x = dropout(tape, "drop0", embedding(tape, "encoder", words, ids));
  x = dropout(tape, "drop1", lstm_layer(tape, "rnn.0", x));
  x = dropout(tape, "drop2", lstm_layer(tape, "rnn.1", x));
  x = linear(tape, "decoder", x, kVocabulary);
  const Tensor rows = x.viewed({tokens * batch, kVocabulary});
  return tape.finish(cross_entropy(tape, rows, target), end);
}

}  // namespace remat::bench
