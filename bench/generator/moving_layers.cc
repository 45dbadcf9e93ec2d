// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/layers.h"

namespace remat::bench {
namespace {

// Narrow along any but the first dimension leaves gaps between rows.
Tensor slice_of(const Tensor& whole, Shape shape, size_t dim) {
  Tensor slice = whole;
  slice.shape = std::move(shape);
  slice.dense = dim == 0;
  return slice;
}

Shape without_first(const Shape& shape) { return {shape.begin() + 1, shape.end()}; }

Tensor stacked(Tape& tape, const std::vector<Tensor>& parts) {
  Shape shape = parts.front().shape;
  shape.insert(shape.begin(), static_cast<int64_t>(parts.size()));
  return tape.run_one({.kind = "stack", .reads = parts, .creates = {floats(std::move(shape))}});
}

}  // namespace

Tensor contiguous(Tape& tape, std::string_view name, const Tensor& x) {
  const Tape::Scope scope(tape, name);
  const Tensor out = tape.run_one({.kind = "clone", .reads = {x}, .creates = {floats(x.shape)}});
  return tape.record(out, [=, &tape](const Tensor& grad) { tape.give_gradient(x, grad); });
}

Tensor cat(Tape& tape, std::string_view name, const std::vector<Tensor>& parts, size_t dim) {
  const Tape::Scope scope(tape, name);
  Shape shape = parts.front().shape;
  shape[dim] = 0;
  for (const Tensor& part : parts) shape[dim] += part.shape[dim];
  const Tensor out = tape.run_one({.kind = "cat", .reads = parts, .creates = {floats(shape)}});
  return tape.record(out, [=, &tape](const Tensor& grad) {
    for (const Tensor& part : parts) tape.give_gradient(part, slice_of(grad, part.shape, dim));
  });
}

Tensor stack(Tape& tape, std::string_view name, const std::vector<Tensor>& parts) {
  const Tape::Scope scope(tape, name);
  return tape.record(stacked(tape, parts), [=, &tape](const Tensor& grad) {
    for (const Tensor& part : parts) tape.give_gradient(part, slice_of(grad, part.shape, 0));
  });
}

std::vector<Tensor> split(Tape& tape, std::string_view name, const Tensor& x, int64_t count,
                          size_t dim) {
  const Tape::Scope scope(tape, name);
  Shape shape = x.shape;
  shape[dim] /= count;
  const std::vector<Tensor> parts(static_cast<size_t>(count), slice_of(x, shape, dim));
  return tape.record(parts, [=, &tape](const std::vector<Tensor>& grads) {
    tape.give_gradient(x,
                       tape.run_one({.kind = "cat", .reads = grads, .creates = {floats(x.shape)}}));
  });
}

std::vector<Tensor> unbind(Tape& tape, std::string_view name, const Tensor& x) {
  const Tape::Scope scope(tape, name);
  const std::vector<Tensor> parts(static_cast<size_t>(x.shape[0]),
                                  slice_of(x, without_first(x.shape), 0));
  return tape.record(parts, [=, &tape](const std::vector<Tensor>& grads) {
    tape.give_gradient(x, stacked(tape, grads));
  });
}

Tensor first_token(Tape& tape, std::string_view name, const Tensor& x) {
  const Tape::Scope scope(tape, name);
  const Tensor view = slice_of(x, {x.shape[0], x.shape[2]}, 1);
  return tape.record(view, [=, &tape](const Tensor& grad) {
    tape.give_gradient(
        x,
        tape.run_one({.kind = "select_backward", .reads = {grad}, .creates = {floats(x.shape)}}));
  });
}

Tensor expanded(Tape& tape, std::string_view name, const Tensor& x, int64_t count) {
  const Tape::Scope scope(tape, name);
  Tensor view = x;
  view.shape.insert(view.shape.begin(), count);
  view.dense = false;
  return tape.record(view, [=, &tape](const Tensor& grad) {
    tape.give_gradient(
        x, tape.run_one({.kind = "sum", .reads = {grad}, .creates = {floats(x.shape)}}));
  });
}

}  // namespace remat::bench
