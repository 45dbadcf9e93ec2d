// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/optimizers.h"

namespace remat::bench {

void sgd_momentum(Tape& tape) {
  const Tape::Scope scope(tape, "sgd");
  for (const Tensor& param : tape.params()) {
    const Tensor grad = tape.gradient(param);
    Tensor momentum = tape.optimizer_state(param, "momentum");
    const Tensor decayed =
        tape.run_one({.kind = "add", .reads = {grad, param}, .creates = {floats(param.shape)}});
    momentum = tape.run_one({.kind = "mul_", .updates = {momentum}});
    momentum = tape.run_one({.kind = "add_", .reads = {decayed}, .updates = {momentum}});
    tape.run({.kind = "add_", .reads = {momentum}, .updates = {param}});
  }
}

void clipped_sgd(Tape& tape) {
  const Tape::Scope scope(tape, "sgd");
  std::vector<Tensor> norms;
  for (const Tensor& param : tape.params()) {
    norms.push_back(tape.run_one(
        {.kind = "linalg_vector_norm", .reads = {tape.gradient(param)}, .creates = {floats({})}}));
  }
  const Tensor stacked = tape.run_one(
      {.kind = "stack", .reads = norms, .creates = {floats({static_cast<int64_t>(norms.size())})}});
  // max_norm / (norm + epsilon), at most one.
  Tensor factor = stacked;
  for (const char* kind : {"linalg_vector_norm", "add", "reciprocal", "mul", "clamp"}) {
    factor = tape.run_one({.kind = kind, .reads = {factor}, .creates = {floats({})}});
  }
  for (const Tensor& param : tape.params()) {
    Tensor& grad = tape.gradient(param);
    grad = tape.run_one({.kind = "mul_", .reads = {factor}, .updates = {grad}});
  }
  for (const Tensor& param : tape.params()) {
    tape.run({.kind = "add_", .reads = {tape.gradient(param)}, .updates = {param}});
  }
}

void adamw(Tape& tape) {
  const Tape::Scope scope(tape, "adamw");
  for (Tensor param : tape.params()) {
    const Tensor grad = tape.gradient(param);
    Tensor mean = tape.optimizer_state(param, "exp_avg");
    Tensor square = tape.optimizer_state(param, "exp_avg_sq");
    param = tape.run_one({.kind = "mul_", .updates = {param}});
    mean = tape.run_one({.kind = "mul_", .updates = {mean}});
    mean = tape.run_one({.kind = "add_", .reads = {grad}, .updates = {mean}});
    square = tape.run_one({.kind = "mul_", .updates = {square}});
    square = tape.run_one({.kind = "addcmul_", .reads = {grad}, .updates = {square}});
    Tensor root =
        tape.run_one({.kind = "sqrt", .reads = {square}, .creates = {floats(param.shape)}});
    root = tape.run_one({.kind = "div", .reads = {root}, .creates = {floats(param.shape)}});
    root = tape.run_one({.kind = "add_", .updates = {root}});
    tape.run({.kind = "addcdiv_", .reads = {mean, root}, .updates = {param}});
  }
}

}  // namespace remat::bench
