// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "remat/libtorch/step.h"

// Programs that train something in some way of their own, each run as a plain loop and as a
// remat::Step, side by side: after every step everything that can be seen of it must be the same,
// bit for bit.
namespace remat::testing {

// A training program, ready to run once. What its functions need they hold; what they share they
// hold by pointer, so that a copy goes on with the same state.
struct Program {
  remat::StepFunction step = {};
  std::vector<Batch> batches = {};  // one for each step
  // Run outside of the step, before the step of that number.
  std::function<void(int64_t step)> before = {};
  // Run outside of the step: makes this step's batch of the last one's results.
  std::function<void(const Batch& results, Batch& batch)> chain = {};

  // Compared after every step, beside its results, its batch and the default generator.
  std::vector<std::shared_ptr<torch::nn::Module>> modules = {};
  std::vector<std::shared_ptr<torch::optim::Optimizer>> optimizers = {};
  // What the program did on the host: numbers that it read, branches that it took.
  std::shared_ptr<std::vector<double>> log = std::make_shared<std::vector<double>>();
  // Tensors that it holds and may replace.
  std::shared_ptr<std::vector<at::Tensor>> kept = std::make_shared<std::vector<at::Tensor>>();
};

struct ProgramCase {
  std::string name = {};
  // Called with a seeded generator: makes the same program each time.
  std::function<Program()> make = {};
  // Steps that may run without a plan: the first of each course, or the first two, since what is
  // done once may never come back. The first update is a course of its own where it makes state.
  int64_t most_plain_steps = 2;
  // Not empty: the step must be refused with a remat::Error whose message has this word, before it
  // could do anything that the plain loop does not.
  std::string refusal = {};
  bool throws = false;  // the function does, at some steps
  double plan_seconds = 0.2;
};

void PrintTo(const ProgramCase& program, std::ostream* stream);

// Runs it plainly, without a budget, and at a budget halfway between the floor and what keeping
// everything needs. A test failure for everything that differs from the plain loop.
void expect_same_as_plain_loop(const ProgramCase& program);

// Its plain loop works; as a step it is refused, and until then it is the same.
void expect_refused(const ProgramCase& program);

// A small network that is trained with SGD: most programs change one thing about it.
struct Classifier {
  static constexpr int64_t kRows = 32, kFeatures = 6, kHidden = 16, kClasses = 3;

  explicit Classifier(double dropout = 0.25, double momentum = 0);

  std::shared_ptr<torch::nn::SequentialImpl> net;
  std::shared_ptr<torch::optim::Optimizer> optimizer;

  // Cross entropy of batch[0], as the network classifies it, and batch[1].
  at::Tensor loss(const Batch& batch) const;
  // zero_grad, backward, and the optimizer's step.
  Batch update(const at::Tensor& loss) const;
  // Seven steps of update(loss(batch)).
  Program program() const;
};

inline constexpr int64_t kRows = Classifier::kRows, kFeatures = Classifier::kFeatures,
                         kHidden = Classifier::kHidden, kClasses = Classifier::kClasses;

Batch make_batch(int64_t rows = kRows);
std::vector<Batch> make_batches(int64_t steps, int64_t rows = kRows);

// A program over the classifier whose loss is `loss_of`: zero_grad, backward, the optimizer's step.
Program with_loss(const Classifier& classifier, std::function<at::Tensor(const Batch&)> loss_of);

std::vector<ProgramCase> host_made_programs();  // tensors that are made on the host
std::vector<ProgramCase> host_read_programs();  // values that are read on the host
std::vector<ProgramCase> changing_programs();   // numbers, branches and modes that change
std::vector<ProgramCase> layout_programs();     // shapes, strides, types, aliasing
std::vector<ProgramCase> kept_programs();       // what lives between steps
std::vector<ProgramCase> update_programs();    // optimizers, clipping, accumulation, several losses
std::vector<ProgramCase> autograd_programs();  // hooks, custom functions, double backward
std::vector<ProgramCase> failing_programs();   // exceptions out of the function
std::vector<ProgramCase> refused_programs();

}  // namespace remat::testing
