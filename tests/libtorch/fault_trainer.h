// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "remat/libtorch/step.h"
#include "tests/libtorch/named_tensors.h"

// A training step that fails where it is told to, with every kind of state that a step can leave.
namespace remat::testing {

struct UserError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Where the function reads a value on the host.
enum class Reads : uint8_t { nowhere, in_forward, the_loss };

// Ops that fail where the batch has an index that is out of range. Each has a tensor of the batch.
enum class Site : uint8_t { embedding, forward_rows, target, hook_rows, update_rows };
inline constexpr Site kSites[] = {Site::embedding, Site::forward_rows, Site::target,
                                  Site::hook_rows, Site::update_rows};
std::string name_of(Site site);

struct FaultNetImpl : torch::nn::Module {
  FaultNetImpl();
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor memory;  // a buffer of its own
};
TORCH_MODULE(FaultNet);

// All trainers with the same arguments train the same: two of them, one plainly and one under a
// Step, are compared. Each has its own generator state, which stands in for the default generator
// while its step runs.
class FaultTrainer {
 public:
  explicit FaultTrainer(Reads reads);

  // The step function: a list of small statements.
  Batch operator()(const Batch& batch);

  // Runs `step`, which runs this trainer's function, with this trainer's generator. What it threw:
  // the exception's text; none if it did not throw.
  using StepCall = std::function<Batch(const Batch&)>;
  std::optional<std::string> run(const StepCall& step, const Batch& batch);
  std::optional<std::string> run_plainly(const Batch& batch);

  // The next run throws UserError at its n-th statement (backward's hooks are statements too).
  void throw_at(int statement) { throw_at_ = statement; }
  int statements() const { return statement_; }  // of the last run

  bool takes_detour = false;  // another op in the middle of forward
  bool catches = false;       // the function catches what hooks throw in backward, and returns

  // Parameters, buffers, optimizer state, tensors of updates by hand, generator.
  NamedTensors lasting_state();
  // That, gradients, and of the last run the results and what the host saw.
  NamedTensors whole_state();

 private:
  void tick();
  at::Tensor loss_of(const Batch& batch);
  void update(const Batch& batch);

  Reads reads_;
  FaultNet net_;
  std::optional<torch::optim::SGD> optimizer_;  // of the embedding and the first layer
  std::vector<at::Tensor> velocities_;          // of the others, updated by hand
  at::Tensor generator_;
  std::vector<double> host_log_;
  Batch results_;
  int statement_ = 0;
  int throw_at_ = -1;
};

// A batch; at `bad` it has an index that is out of range.
Batch fault_batch(int number, std::optional<Site> bad = std::nullopt);

}  // namespace remat::testing
