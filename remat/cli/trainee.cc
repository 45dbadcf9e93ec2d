// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/trainee.h"

#include <torch/torch.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "remat/cli/measured_step.h"
#include "remat/cli/optimizer.h"
#include "remat/libtorch/allocator.h"
#include "remat/libtorch/checkpoint.h"

namespace remat {
namespace {

// The most that this thread's requests hold at once. Throws DoesNotFit before it is more than there may be.
class PeakCounter final : public detail::AllocationListener {
 public:
  explicit PeakCounter(int64_t most_bytes = kNoBudget) : most_bytes_(most_bytes) {}
  void* answer(size_t bytes) override {
    const int64_t needed = live_bytes_ + static_cast<int64_t>(bytes);
    if (needed > most_bytes_) throw DoesNotFit("the plain step does not fit", needed);
    return nullptr;
  }
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
  const int64_t most_bytes_;
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
  EagerTrainee(models::TrainingTask task, const std::string& optimizer,
               std::function<at::Tensor(const Batch&)> loss)
      : Trainee(std::move(task), optimizer), loss_(std::move(loss)) {}

 protected:
  at::Tensor run(const Batch& batch) override {
    at::Tensor loss = loss_(batch);
    loss.backward();
    if (updates_inside()) {
      optimizer().step();
      optimizer().zero_grad();
    }
    return loss.detach();
  }

 private:
  std::function<at::Tensor(const Batch&)> loss_;
};

// One that sets up what is set up once. With the update inside another one, for the state of the
// optimizer is there only after the first.
constexpr int kWarmUpSteps = 1;
constexpr int kWarmUpStepsWithUpdate = 2;

}  // namespace

Trainee::Trainee(models::TrainingTask task, const std::string& optimizer)
    : task_(std::move(task)),
      parameters_(task_.module->parameters()),
      optimizer_(make_optimizer(optimizer == "none" ? "sgd" : optimizer, parameters_)),
      updates_inside_(optimizer != "none") {}

at::Tensor Trainee::step(const Batch& batch) {
  if (!updates_inside_) optimizer_->zero_grad();
  return run(batch);
}

void Trainee::update() {
  if (!updates_inside_) optimizer_->step();
}

void Trainee::without_trace(const std::function<void()>& work) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor state = generator.get_state();
  std::vector<at::Tensor> copies;
  if (!updates_inside_) {
    for (const at::Tensor& buffer : buffers()) copies.push_back(buffer.clone());
  }
  work();
  generator.set_state(state);
  if (updates_inside_) return;
  const at::NoGradGuard no_gradients;
  for (size_t i = 0; i < copies.size(); ++i) buffers()[i].copy_(copies[i]);
  optimizer_->zero_grad();
}

void Trainee::warm_up(const Batch& batch) {
  if (warm_) return;
  const int steps = updates_inside_ ? kWarmUpStepsWithUpdate : kWarmUpSteps;
  PeakCounter counter(bytes_for_a_step());
  const detail::ListenGuard listen(&counter);
  for (int i = 0; i < steps; ++i) step(batch);
  warm_ = true;
  warmed_up();
}

std::vector<at::Tensor> Trainee::optimizer_state() const {
  if (!updates_inside_) return {};
  return remat::optimizer_state(*optimizer_, parameters_);
}

int64_t Trainee::counted_peak_bytes(const Batch& batch) {
  const int64_t before = storage_bytes({parameters_, buffers(), batch, optimizer_state()});
  PeakCounter counter;
  const detail::ListenGuard listen(&counter);
  step(batch);
  return before + counter.peak_bytes;
}

std::unique_ptr<Trainee> plain_trainee(models::TrainingTask task, const std::string& optimizer) {
  auto loss = task.loss;
  return std::make_unique<EagerTrainee>(std::move(task), optimizer, std::move(loss));
}

std::unique_ptr<Trainee> checkpointed_trainee(models::TrainingTask task,
                                              const std::string& optimizer) {
  auto loss = [by_block = task.loss_by_block](const Batch& batch) {
    return by_block(batch, [](const models::Block& block, std::vector<at::Tensor> inputs) {
      return checkpoint(block, std::move(inputs));
    });
  };
  return std::make_unique<EagerTrainee>(std::move(task), optimizer, std::move(loss));
}

}  // namespace remat
