// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/layers.h"

#include "bench/generator/cost.h"

namespace remat::bench {
namespace {

// One or a batch of matrix products; `contracted` is the length of the inner dimension.
Tensor product(Tape& tape, const char* kind, const std::vector<Tensor>& reads, Shape shape,
               int64_t contracted) {
  int64_t operand_bytes = 0;
  for (const Tensor& tensor : reads) operand_bytes += tensor.bytes();
  Call call{.kind = kind, .reads = reads, .creates = {floats(std::move(shape))}};
  call.flops = 2 * contracted * Tensor{.shape = call.creates[0].shape}.elements();
  call.workspace_bytes = matmul_workspace_bytes(operand_bytes);
  return tape.run_one(call);
}

Shape with_last(Shape shape, int64_t size) {
  shape.back() = size;
  return shape;
}

}  // namespace

Tensor linear_with(Tape& tape, const Tensor& x, const Tensor& weight,
                   const std::optional<Tensor>& bias) {
  const int64_t out_features = weight.shape[0];
  const int64_t in_features = weight.shape[1];
  const int64_t rows = x.elements() / in_features;
  std::vector<Tensor> reads = {x, weight};
  if (bias) reads.insert(reads.begin(), *bias);
  const Tensor out =
      product(tape, bias ? "addmm" : "mm", reads, with_last(x.shape, out_features), in_features);
  return tape.record(out, [=, &tape](const Tensor& grad) {
    if (x.needs_gradient()) {
      tape.give_gradient(x, product(tape, "mm", {grad, weight}, x.shape, out_features));
    }
    tape.give_gradient(weight, product(tape, "mm", {grad, x}, weight.shape, rows));
    if (bias) {
      tape.give_gradient(
          *bias, tape.run_one({.kind = "sum", .reads = {grad}, .creates = {floats(bias->shape)}}));
    }
  });
}

Tensor linear(Tape& tape, std::string_view name, const Tensor& x, int64_t features) {
  const Tape::Scope scope(tape, name);
  const Tensor weight = tape.param("weight", {features, x.shape.back()});
  const Tensor bias = tape.param("bias", {features});
  return linear_with(tape, x, weight, bias);
}

Tensor bmm(Tape& tape, std::string_view name, const Tensor& a, const Tensor& b) {
  const Tape::Scope scope(tape, name);
  const int64_t rows = a.shape[a.shape.size() - 2];
  const int64_t contracted = a.shape.back();
  const int64_t columns = b.shape.back();
  const Tensor out = product(tape, "bmm", {a, b}, with_last(a.shape, columns), contracted);
  return tape.record(out, [=, &tape](const Tensor& grad) {
    tape.give_gradient(a, product(tape, "bmm", {grad, b}, a.shape, columns));
    tape.give_gradient(b, product(tape, "bmm", {a, grad}, b.shape, rows));
  });
}

Tensor embedding(Tape& tape, std::string_view name, const Tensor& weight, const Tensor& ids) {
  const Tape::Scope scope(tape, name);
  Shape shape = ids.shape;
  shape.push_back(weight.shape[1]);
  Call call{.kind = "embedding", .reads = {weight, ids}, .creates = {floats(shape)}};
  call.moved_bytes = 2 * Tensor{.shape = shape}.bytes();  // the rows that are looked up, no others
  return tape.record(tape.run_one(call), [=, &tape](const Tensor& grad) {
    tape.give_gradient(weight, tape.run_one({.kind = "embedding_dense_backward",
                                             .reads = {grad, ids},
                                             .creates = {floats(weight.shape)}}));
  });
}

Tensor layer_norm(Tape& tape, std::string_view name, const Tensor& x) {
  const Tape::Scope scope(tape, name);
  const Shape features = {x.shape.back()};
  const Shape rows = {x.elements() / x.shape.back()};
  const Tensor weight = tape.param("weight", features);
  const Tensor bias = tape.param("bias", features);
  const auto saved = tape.run({.kind = "native_layer_norm",
                               .reads = {x, weight, bias},
                               .creates = {floats(x.shape), floats(rows), floats(rows)}});
  return tape.record(saved[0], [=, &tape](const Tensor& grad) {
    const auto grads = tape.run({.kind = "native_layer_norm_backward",
                                 .reads = {grad, x, saved[1], saved[2], weight, bias},
                                 .creates = {floats(x.shape), floats(features), floats(features)}});
    tape.give_gradient(x, grads[0]);
    tape.give_gradient(weight, grads[1]);
    tape.give_gradient(bias, grads[2]);
  });
}

Tensor softmax(Tape& tape, std::string_view name, const Tensor& x) {
  const Tape::Scope scope(tape, name);
  const Tensor out = tape.run_one({.kind = "_softmax", .reads = {x}, .creates = {floats(x.shape)}});
  return tape.record(out, [=, &tape](const Tensor& grad) {
    tape.give_gradient(x, tape.run_one({.kind = "_softmax_backward_data",
                                        .reads = {grad, out},
                                        .creates = {floats(x.shape)}}));
  });
}

Tensor cross_entropy(Tape& tape, const Tensor& x, const Tensor& target) {
  const Tape::Scope scope(tape, "loss");
  // Images of classes go to another kernel.
  const std::string nll = x.shape.size() == 4 ? "nll_loss2d" : "nll_loss";
  const Tensor logs =
      tape.run_one({.kind = "_log_softmax", .reads = {x}, .creates = {floats(x.shape)}});
  const auto loss = tape.run({.kind = nll + "_forward",
                              .reads = {logs, target},
                              .creates = {floats({}), floats({})},
                              .moved_bytes = 2 * target.bytes()});
  return tape.record(loss[0], [=, &tape](const Tensor& grad) {
    const Tensor log_grad = tape.run_one({.kind = nll + "_backward",
                                          .reads = {grad, logs, target, loss[1]},
                                          .creates = {floats(x.shape)}});
    tape.give_gradient(x, tape.run_one({.kind = "_log_softmax_backward_data",
                                        .reads = {log_grad, logs},
                                        .creates = {floats(x.shape)}}));
  });
}

}  // namespace remat::bench
