// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "remat/libtorch/tape.h"
#include "tests/libtorch/named_tensors.h"

// Small random training programs. A program is a list of statements over registers, tensors of
// [rows, 8]; a statement names registers by their distance from the latest one, so that every part
// of a list is a program too and a failing one can be shrunk by leaving statements out.
namespace remat::testing {

// When a statement runs. One that makes a register and does not run hands on its first operand.
enum class When : uint8_t {
  always,
  odd_steps,
  from_step_3,
  host_coin,   // of a generator of the host
  torch_coin,  // of LibTorch's generator, read by item()
  positive,    // the sum of the first operand is, read by item()
};
inline constexpr int kWhens = 6;

// How the number of a statement changes from step to step.
enum class Change : uint8_t { never, every_step, host_random, read_from_tensor };
inline constexpr int kChanges = 4;

struct Statement {
  int kind = 0;  // of statement_kinds()
  int a = 0;     // operands: 0 is the latest register
  int b = 0;
  int choice = 0;  // of a layer, a column, an order: what it means is the statement's own matter
  double number = 0;
  Change change = Change::never;
  When when = When::always;
};

enum class Optimizer : uint8_t { by_hand, sgd, adam };
inline constexpr int kOptimizers = 3;

// What the second tensor of a batch shares its storage with.
enum class Aliasing : uint8_t { nothing, first_tensor, half_of_first, buffer, parameter };
inline constexpr int kAliasings = 5;

// What the loop does between two steps.
enum class Between : uint8_t {
  nothing,
  draws_random,
  scales_parameter,
  replaces_parameter_data,
  replaces_buffer,  // by another tensor
  drops_gradients,
};
inline constexpr int kBetweens = 6;

struct Setup {
  Optimizer optimizer = Optimizer::by_hand;
  Aliasing aliasing = Aliasing::nothing;
  Between between = Between::nothing;
  int shapes = 1;              // of the batches: 4 rows; 4 or 6; 3 to 6
  bool parameter_hook = false;
  bool keeps_results = false;  // all returned tensors, to the end
};

inline constexpr int kSteps = 6;
inline constexpr int64_t kWidth = 8;

struct Program {
  Setup setup;
  std::vector<Statement> statements;
};

// Every seed gives a program that the plain loop runs without an exception.
Program random_program(uint64_t seed);

// As a person would write it down, one statement a line.
std::string listing(const Program& program);

// Leaves out statements and simplifies them and the setup for as long as `fails` says yes.
Program shrink(Program program, const std::function<bool(const Program&)>& fails);

struct World;

// A program with all its state. Two runs of one program do the same, bit for bit.
class ProgramRun {
 public:
  explicit ProgramRun(const Program& program);
  ~ProgramRun();

  // What the loop does before a step; the batch of the step.
  Batch next_batch();

  // The step function.
  Batch operator()(const Batch& batch);

  // What the step left, cloned: results, parameters, gradients, buffers, optimizer state, tensors
  // left behind, the batch, the generator, and what the host saw (reads, calls of hooks).
  NamedTensors state(const Batch& batch, const Batch& results);

 private:
  const Program& program_;
  std::unique_ptr<World> world_;
};

}  // namespace remat::testing
