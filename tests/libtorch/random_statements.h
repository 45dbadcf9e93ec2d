// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "tests/libtorch/random_program.h"

// What the statements of random programs do, and on what.
namespace remat::testing {

struct Register {
  at::Tensor tensor;
  // Some op keeps the tensor's bytes for backward: they may not be written. Shared by aliases.
  std::shared_ptr<bool> saved = std::make_shared<bool>(false);
};

inline constexpr size_t kRegisters = 5;  // beyond them the oldest is dropped
inline constexpr int64_t kMaxRows = 6;

struct NetImpl : torch::nn::Module {
  NetImpl();
  torch::nn::Linear linear[2] = {nullptr, nullptr};
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm1d batch_norm{nullptr};
  torch::nn::BatchNorm2d batch_norm_2d{nullptr};
  torch::nn::LayerNorm layer_norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::nn::Embedding embedding{nullptr};
  at::Tensor table;    // a parameter, [8, 8]
  at::Tensor memory;   // a buffer, [kMaxRows, 8]
  at::Tensor average;  // a buffer: of linear[0]'s weight
};
TORCH_MODULE(Net);

// Everything that a program's step function holds.
struct World {
  explicit World(const Setup& setup);

  Net net;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::vector<at::Tensor> velocities;  // of updates by hand; made when first needed
  std::mt19937 host;
  std::vector<double> host_log;  // everything that the host read or counted
  std::vector<float> host_array = std::vector<float>(kWidth);
  Register held[2];  // left behind for the next step
  std::vector<at::Tensor> kept_results;
  int64_t step = -1;

  // Of the step that runs.
  Batch batch;
  std::deque<Register> registers;
  at::Tensor loss;  // that waits for backward
  Batch results;

  void log(double number) { host_log.push_back(number); }
  double host_uniform() { return static_cast<double>(host() >> 8) / (1 << 24); }
  // No backward may come after this: what it would need may be written.
  void forget_graph();
};

// A statement that runs, with its operands.
struct Call {
  World& world;
  const Statement& statement;
  Register& a;
  Register& b;
  double number;

  // For ops that keep their operand for backward.
  at::Tensor saving(Register& operand) const;
  // For ops in place: a copy takes the register's place where the bytes are needed by backward.
  at::Tensor writable(Register& operand) const;
};

// For statements that give nothing, and for those of several kinds.
inline Register nothing() { return {}; }
inline int choice(const Call& call, int among) { return call.statement.choice % among; }

enum class Role : uint8_t { begin, forward, loss, backward, update, result };

struct StatementKind {
  Role role;
  int weight;        // how often it is chosen among those of its role
  // {y} makes a register; {a} and {b} are operands, {n} the number, {c%8} and {c|add|mul} choices.
  const char* text;
  Register (*run)(const Call& call);

  bool makes_register() const;
};

std::span<const StatementKind> statement_kinds();  // all of them, by role
std::span<const StatementKind> forward_kinds();
inline constexpr int kLinear = 0;  // among both
std::span<const StatementKind> training_kinds();  // of the other roles

}  // namespace remat::testing
