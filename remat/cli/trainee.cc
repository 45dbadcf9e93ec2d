// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/trainee.h"

#include <torch/torch.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "remat/core/rewrite.h"
#include "remat/libtorch/allocator.h"
#include "remat/libtorch/arena.h"
#include "remat/libtorch/checkpoint.h"

namespace remat {
namespace {

// The most that this thread's requests hold at once.
class PeakCounter final : public detail::AllocationListener {
 public:
  void* answer(size_t) override { return nullptr; }
  void allocated(void* address, size_t bytes) override {
    live_[address] = static_cast<int64_t>(bytes);
    live_bytes_ += static_cast<int64_t>(bytes);
    peak_bytes = std::max(peak_bytes, live_bytes_);
  }
  void freed(void* address) override {
    const auto found = live_.find(address);
    if (found == live_.end()) return;
    live_bytes_ -= found->second;
    live_.erase(found);
  }
  int64_t peak_bytes = 0;

 private:
  std::unordered_map<void*, int64_t> live_;
  int64_t live_bytes_ = 0;
};

// Of different storages: weights may be tied.
int64_t storage_bytes(const std::vector<std::vector<at::Tensor>>& lists) {
  std::set<const void*> seen;
  int64_t bytes = 0;
  for (const std::vector<at::Tensor>& list : lists) {
    for (const at::Tensor& tensor : list) {
      if (seen.insert(tensor.storage().unsafeGetStorageImpl()).second) {
        bytes += static_cast<int64_t>(tensor.storage().nbytes());
      }
    }
  }
  return bytes;
}

class EagerTrainee final : public Trainee {
 public:
  EagerTrainee(models::TrainingTask task, std::function<at::Tensor(const Batch&)> loss)
      : Trainee(std::move(task)), loss_(std::move(loss)) {}

 protected:
  at::Tensor forward_and_backward(const Batch& batch) override {
    at::Tensor loss = loss_(batch);
    loss.backward();
    return loss.detach();
  }

 private:
  std::function<at::Tensor(const Batch&)> loss_;
};

constexpr double kLearningRate = 0.01;
constexpr double kMomentum = 0.9;

}  // namespace

Trainee::Trainee(models::TrainingTask task)
    : task_(std::move(task)),
      parameters_(task_.module->parameters()),
      optimizer_(parameters_, torch::optim::SGDOptions(kLearningRate).momentum(kMomentum)) {}

at::Tensor Trainee::step(const Batch& batch) {
  optimizer_.zero_grad();
  return forward_and_backward(batch);
}

void Trainee::without_trace(const std::function<void()>& work) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor state = generator.get_state();
  std::vector<at::Tensor> copies;
  for (const at::Tensor& buffer : buffers()) copies.push_back(buffer.clone());
  work();
  const at::NoGradGuard no_gradients;
  for (size_t i = 0; i < copies.size(); ++i) buffers()[i].copy_(copies[i]);
  generator.set_state(state);
  optimizer_.zero_grad();
}

int64_t Trainee::counted_peak_bytes(const Batch& batch) {
  PeakCounter counter;
  {
    const detail::ListenGuard listen(&counter);
    step(batch);
  }
  return storage_bytes({parameters_, buffers(), batch}) + counter.peak_bytes;
}

std::unique_ptr<Trainee> plain_trainee(models::TrainingTask task) {
  auto loss = task.loss;
  return std::make_unique<EagerTrainee>(std::move(task), std::move(loss));
}

std::unique_ptr<Trainee> checkpointed_trainee(models::TrainingTask task) {
  auto loss = [by_block = task.loss_by_block](const Batch& batch) {
    return by_block(batch, [](const models::Block& block, std::vector<at::Tensor> inputs) {
      return checkpoint(block, std::move(inputs));
    });
  };
  return std::make_unique<EagerTrainee>(std::move(task), std::move(loss));
}

PlannedTrainee::PlannedTrainee(models::TrainingTask task, Recording recording, Graph graph)
    : Trainee(std::move(task)), recording_(std::move(recording)), graph_(std::move(graph)) {}

void PlannedTrainee::follow(const Plan& plan) {
  schedule_ = rewrite(graph_, plan.order);
  placement_ = *plan.placement;
  arena_ = make_arena(placement_.arena_bytes);
  execution_ = std::make_unique<Execution>(recording_, schedule_, placement_, arena_);
}

void PlannedTrainee::poison_frees() {
  execution_ = std::make_unique<Execution>(recording_, schedule_, placement_, arena_,
                                           ExecuteOptions{.poison = true});
}

at::Tensor PlannedTrainee::forward_and_backward(const Batch& batch) {
  StepResult result = execution_->run(batch);
  for (size_t i = 0; i < parameters().size(); ++i) {
    if (result.gradients[i].defined()) {
      at::Tensor(parameters()[i]).mutable_grad() = result.gradients[i];
    }
  }
  return result.loss;
}

int64_t PlannedTrainee::counted_peak_bytes(const Batch& batch) {
  step(batch);
  return counts().peak_bytes;
}

}  // namespace remat
