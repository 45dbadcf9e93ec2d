// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/layers.h"

namespace remat::bench {
namespace {

Tensor like(Tape& tape, const char* kind, const std::vector<Tensor>& reads, const Shape& shape) {
  return tape.run_one({.kind = kind, .reads = reads, .creates = {floats(shape)}});
}

Tensor record_backward(Tape& tape, const Tensor& x, const Tensor& out, const char* kind,
                       const Tensor& saved) {
  return tape.record(out, [=, &tape](const Tensor& grad) {
    tape.give_gradient(x, like(tape, kind, {grad, saved}, x.shape));
  });
}

// A gradient that was broadcast is summed back to the shape it belongs to.
void give_summed(Tape& tape, const Tensor& of, const Tensor& grad) {
  if (!of.needs_gradient()) return;
  const bool broadcast = of.elements() != grad.elements();
  tape.give_gradient(of, broadcast ? like(tape, "sum", {grad}, of.shape) : grad);
}

// The CPU's dropout: noise is drawn, scaled, multiplied. Only the noise is saved.
Tensor drop(Tape& tape, std::string_view name, const Tensor& x, const char* allocate,
            const Shape& noise_shape) {
  const Tape::Scope scope(tape, name);
  // empty_like reads the shape of its argument and no byte of it, so it has no reads.
  Tensor noise =
      tape.run_one({.kind = allocate, .creates = {floats(noise_shape)}, .moved_bytes = 0});
  noise = tape.run_one({.kind = "bernoulli_", .updates = {noise}, .random = true});
  noise = tape.run_one({.kind = "div_", .updates = {noise}});
  const Tensor out = like(tape, "mul", {x, noise}, x.shape);
  return record_backward(tape, x, out, "mul", noise);
}

}  // namespace

Tensor relu(Tape& tape, std::string_view name, const Tensor& x) {
  const Tape::Scope scope(tape, name);
  const Tensor out = like(tape, "relu", {x}, x.shape);
  return record_backward(tape, x, out, "threshold_backward", out);
}

Tensor relu_(Tape& tape, std::string_view name, const Tensor& x) {
  const Tape::Scope scope(tape, name);
  const Tensor out = tape.run_one({.kind = "relu_", .updates = {x}});
  return record_backward(tape, x, out, "threshold_backward", out);
}

Tensor gelu(Tape& tape, std::string_view name, const Tensor& x) {
  const Tape::Scope scope(tape, name);
  return record_backward(tape, x, like(tape, "gelu", {x}, x.shape), "gelu_backward", x);
}

Tensor tanh(Tape& tape, std::string_view name, const Tensor& x) {
  const Tape::Scope scope(tape, name);
  const Tensor out = like(tape, "tanh", {x}, x.shape);
  return record_backward(tape, x, out, "tanh_backward", out);
}

Tensor add(Tape& tape, std::string_view name, const Tensor& x, const Tensor& y) {
  const Tape::Scope scope(tape, name);
  return tape.record(like(tape, "add", {x, y}, x.shape), [=, &tape](const Tensor& grad) {
    tape.give_gradient(x, grad);
    give_summed(tape, y, grad);
  });
}

Tensor add_(Tape& tape, std::string_view name, const Tensor& x, const Tensor& y) {
  const Tape::Scope scope(tape, name);
  const Tensor out = tape.run_one({.kind = "add_", .reads = {y}, .updates = {x}});
  return tape.record(out, [=, &tape](const Tensor& grad) {
    tape.give_gradient(x, grad);
    give_summed(tape, y, grad);
  });
}

Tensor mul(Tape& tape, std::string_view name, const Tensor& x, const Tensor& y) {
  const Tape::Scope scope(tape, name);
  return tape.record(like(tape, "mul", {x, y}, x.shape), [=, &tape](const Tensor& grad) {
    if (x.needs_gradient()) tape.give_gradient(x, like(tape, "mul", {grad, y}, x.shape));
    if (y.needs_gradient()) give_summed(tape, y, like(tape, "mul", {grad, x}, x.shape));
  });
}

Tensor scale(Tape& tape, std::string_view name, const char* kind, const Tensor& x) {
  const Tape::Scope scope(tape, name);
  return tape.record(like(tape, kind, {x}, x.shape), [=, &tape](const Tensor& grad) {
    tape.give_gradient(x, like(tape, kind, {grad}, x.shape));
  });
}

Tensor mask_out(Tape& tape, std::string_view name, const Tensor& x, const Tensor& mask) {
  const Tape::Scope scope(tape, name);
  const Tensor is_out =
      tape.run_one({.kind = "eq", .reads = {mask}, .creates = {bools(mask.shape)}});
  const Tensor out = like(tape, "masked_fill", {x, is_out}, x.shape);
  return record_backward(tape, x, out, "masked_fill", is_out);
}

Tensor dropout(Tape& tape, std::string_view name, const Tensor& x) {
  return drop(tape, name, x, "empty_like", x.shape);
}

Tensor stochastic_depth(Tape& tape, std::string_view name, const Tensor& x) {
  return drop(tape, name, x, "empty", {x.shape[0]});
}

}  // namespace remat::bench
